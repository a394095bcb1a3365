"""`oq chasqui`: what it prints and what its exit codes say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from orchestration_queue.cli.main import app
from orchestration_queue.wires.chasquimq.envelope import Envelope, pack_envelope
from orchestration_queue.wires.chasquimq.keys import ChasquiKeys
from orchestration_queue.wires.chasquimq.packing import pack


class Oq:
    def __init__(self, url: str, queue: str) -> None:
        self._url, self._queue = url, queue

    def __call__(self, verb: str, *arguments: str) -> Result:
        words = ["chasqui", *verb.split(), self._queue, *arguments]
        return CliRunner().invoke(app, words, env={"OQ_URL": self._url, "COLUMNS": "200"})

    def json(self, verb: str, *arguments: str) -> Any:
        result = self(verb, *arguments, "--json")
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)


@pytest.fixture
def oq(server: Any, server_url: str, queue_name: str) -> Oq:
    return Oq(server_url, queue_name)


def test_jobs_are_added_listed_counted_and_cancelled(oq: Oq) -> None:
    added = oq("job add", "greet", "--data", '{"to": "ada"}')
    assert (added.exit_code, added.stdout.startswith("Added job 01")) == (0, True)
    assert oq.json("job add", "later", "--delay", "60", "--id", "mine")["is_new"]
    assert "is taken" in oq("job add", "later", "--id", "mine").stdout
    (job,) = oq.json("job ls")
    assert (job["name"], job["data"]) == ("greet", {"to": "ada"})
    assert "greet" in oq("job ls").stdout
    assert oq.json("inspect") == {
        "ready": 1,
        "running": 0,
        "delayed": 1,
        "dead_letters": 0,
        "schedules": 0,
        "is_paused": False,
    }
    assert oq.json("job cancel", "mine")["is_cancelled"]
    assert "does not wait" in oq("job cancel", "mine").stdout


def test_a_queue_is_paused_and_resumed(oq: Oq) -> None:
    assert oq("pause").exit_code == 0
    assert oq.json("inspect")["is_paused"]
    assert oq("resume").exit_code == 0
    assert "is paused" in oq("inspect").stdout


def test_dead_letters_are_listed_replayed_and_purged(oq: Oq, server: Any, queue_name: str) -> None:
    keys = ChasquiKeys(queue_name)
    for job_id in ("a", "b"):
        envelope = pack_envelope(Envelope(job_id, pack(1), 1, attempt=2))
        server.xadd(keys.dead_letters, {"d": envelope, "n": "nm", "reason": "unrecoverable", "detail": "[bold]no"})
    first, second = oq.json("dead ls")
    assert (first["job_id"], first["reason"], second["job_id"]) == ("a", "unrecoverable", "b")
    assert "[bold]no" in oq("dead ls").stdout
    assert oq.json("dead show", second["id"]) == second
    shown = oq("dead show", second["id"]).stdout
    assert "unrecoverable" in shown
    assert "[bold]no" in shown
    assert "has no dead letter '5-5'" in oq("dead show", "5-5").stderr
    assert oq("dead replay").exit_code == 2
    assert oq.json("dead replay", first["id"])["replayed"] == 1
    assert oq.json("dead replay", "--all", "--reason", "malformed")["replayed"] == 0
    assert oq.json("dead purge", "--yes")["removed"] == 1


def test_schedules_are_listed_and_removed(oq: Oq, server: Any, server_url: str, queue_name: str) -> None:
    from orchestration_queue.wires.chasquimq import ChasquiQueue

    with ChasquiQueue(queue_name, url=server_url) as queue:
        key = queue.put_schedule("tick", every=60)
    (schedule,) = oq.json("scheduler ls")
    assert (schedule["key"], schedule["name"], schedule["fired"]) == (key, "tick", 0)
    assert key in oq("scheduler ls").stdout
    assert oq.json("scheduler rm", key)["is_removed"]
    assert "has no schedule" in oq("scheduler rm", key).stdout


def test_events_are_printed(oq: Oq, server: Any, queue_name: str) -> None:
    server.xadd(ChasquiKeys(queue_name).events, {"e": "active", "id": "a", "ts": "1000", "n": "nm", "attempt": "1"})
    shown = oq("events", "--after", "0", "--limit", "1")
    assert shown.exit_code == 0
    assert "active a nm attempt=1" in shown.stdout
    assert oq.json("events", "--after", "0", "--limit", "1")["job_id"] == "a"


def test_mistakes_end_in_one_sentence(oq: Oq) -> None:
    for words in (("job add", "n", "--data", "{"), ("events", "--after", "x"), ("job ls", "--limit", "0")):
        result = oq(*words)
        assert result.exit_code == 2, words
        assert "Traceback" not in result.output


def test_a_queue_moves_to_our_wire_and_back(oq: Oq) -> None:
    oq("job add", "greet", "--data", "[1]")
    oq("job add", "later", "--delay", "3600")
    moved = oq("move", "--to", "own", "--yes")
    assert (moved.exit_code, moved.stdout.strip()) == (0, "Moved 1 ready job, 1 delayed job and 0 schedules; left 0.")
    assert oq.json("inspect")["ready"] == 0
    assert oq.json("move", "--to", "chasquimq", "--yes") == {"jobs": 1, "delayed": 1, "schedules": 0, "left": {}}
    assert (oq.json("inspect")["ready"], oq.json("inspect")["delayed"]) == (1, 1)
