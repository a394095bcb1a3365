"""`oq qless`: what it prints and what its exit codes say."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis
from typer.testing import CliRunner, Result

from orchestration_queue.cli.main import app
from orchestration_queue.wires.qless import QlessClient


class Oq:
    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, *words: str) -> Result:
        return CliRunner().invoke(app, ["qless", *words], env={"OQ_URL": self._url, "COLUMNS": "200"})

    def json(self, *words: str) -> Any:
        result = self(*words, "--json")
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)


@pytest.fixture
def oq(server: redis.Redis, server_url: str) -> Oq:
    return Oq(server_url)


def test_jobs_are_added_listed_shown_and_cancelled(oq: Oq) -> None:
    assert oq("job", "add", "q", "app.Import", "--data", '{"n": 1}', "--id", "j", "--tag", "red").exit_code == 0
    assert oq.json("job", "add", "q", "app.Import", "--delay", "60")["queue"] == "q"
    (job,) = oq.json("job", "ls", "q")
    assert (job["jid"], job["data"], job["tags"]) == ("j", {"n": 1}, ["red"])
    assert "app.Import" in oq("job", "ls", "q").stdout
    assert len(oq.json("job", "ls", "q", "--state", "scheduled")) == 1
    shown = oq("job", "show", "j").stdout
    assert "waiting" in shown
    assert "5 of 5" in shown
    (counts,) = oq.json("queues")
    assert (counts["name"], counts["waiting"], counts["scheduled"]) == ("q", 1, 1)
    assert "scheduled" in oq("queues").stdout
    assert oq("job", "cancel", "j", "--yes").exit_code == 0
    missing = oq("job", "show", "j")
    assert missing.exit_code != 0
    assert "has no job" in missing.stderr


def test_contradictions_are_found_and_repaired(oq: Oq, server: redis.Redis) -> None:
    oq("job", "add", "q", "K", "--id", "j")
    assert "Nothing is wrong" in oq("check").stdout
    server.delete("ql:q:q-work")
    found = oq("check")
    assert (found.exit_code, "jobs in no queue" in found.stdout) == (1, True)
    assert oq.json("check", "--fix") == {"jobs in no queue": 1}
    assert oq.json("check") == {}
    assert [job["jid"] for job in oq.json("job", "ls", "q")] == ["j"]


def test_failures_workers_options_and_pauses(oq: Oq, server_url: str) -> None:
    with QlessClient(url=server_url, worker="me") as client:
        client.put("q", "K", jid="j")
        (job,) = client.pop("q")
        client.fail(job, "broken", "no disk")
        client.recur("q", "K", interval=60, jid="r")
    assert oq.json("failed") == {"broken": 1}
    assert "no disk" in oq("failed", "broken").stdout
    assert "broken" in oq("failed").stdout
    assert oq.json("unfail", "q", "broken")["count"] == 1
    assert [worker["name"] for worker in oq.json("workers")] == ["me"]
    assert "me" in oq("workers").stdout
    assert oq.json("job", "ls", "q", "--state", "recurring")[0]["jid"] == "r"
    assert "r" in oq("job", "ls", "q", "--state", "recurring").stdout
    assert oq("config", "set", "heartbeat", "5").exit_code == 0
    assert oq.json("config", "ls")["heartbeat"] == "5"
    assert "default again" in oq("config", "set", "heartbeat").stdout
    assert "heartbeat" in oq("config", "ls").stdout
    assert oq.json("pause", "q")["is_paused"]
    assert oq.json("queues")[0]["paused"]
    assert not oq.json("resume", "q")["is_paused"]
