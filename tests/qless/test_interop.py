"""reqless's client, unmodified, beside ours: with its own script, and with our text in place of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from reqless import Client
from reqless.exceptions import LostLockError

from orchestration_queue.errors import LeaseLostError
from orchestration_queue.wires.qless import QlessClient
from orchestration_queue.wires.qless.commands import script_text


class Greeting:
    @staticmethod
    def process(job: Any) -> None:
        job.complete()


@pytest.fixture(params=["its script", "our text"])
def theirs(server: redis.Redis, server_url: str, request: pytest.FixtureRequest) -> Iterator[Any]:
    client = Client(server_url, hostname="theirs")
    if request.param == "our text":
        client._lua = client.redis.register_script(script_text())
    yield client
    client.redis.close()


@pytest.fixture
def ours(server: redis.Redis, server_url: str) -> Iterator[QlessClient]:
    with QlessClient(url=server_url, worker="ours") as client:
        yield client


def test_we_run_what_they_put(theirs: Any, ours: QlessClient) -> None:
    jid = theirs.queues["q"].put(Greeting, '{"a": 1}', priority=3, tags=["t"])
    (job,) = ours.pop("q")
    assert (job.jid, job.data, job.priority, job.tags) == (jid, {"a": 1}, 3, ("t",))
    assert job.klass.endswith("test_interop.Greeting")
    assert theirs.jobs[jid].worker_name == "ours"
    ours.complete(job, next_queue="q2")
    moved = theirs.queues["q2"].pop()
    assert moved.jid == jid
    moved.complete()
    assert ours.completed() == [jid]


def test_they_run_what_we_put(theirs: Any, ours: QlessClient) -> None:
    first = ours.put("q", f"{Greeting.__module__}.Greeting", {"a": 1}, delay=0)
    second = ours.put("q", f"{Greeting.__module__}.Greeting", depends=[first])
    job = theirs.queues["q"].pop()
    assert (job.jid, json.loads(job.data)) == (first, {"a": 1})
    assert theirs.queues["q"].counts["depends"] == 1
    job.heartbeat()
    job.process()
    found = ours.get(second)
    assert found is not None
    assert (found.state, found.dependencies) == ("waiting", ())


def test_failures_retries_and_tags_are_seen_by_both(theirs: Any, ours: QlessClient) -> None:
    ours.put("q", "K", jid="a", retries=1, tags=["t"])
    theirs.queues["q"].put("K", "{}", jid="b", tags=["t"])
    job = theirs.queues["q"].pop()
    job.fail("broken", "no disk")
    assert ours.failures() == {"broken": 1}
    (mine,) = ours.pop("q")
    assert ours.retry(mine) == mine.retries - 1
    assert sorted(theirs.jobs.tagged("t")["jobs"]) == sorted(ours.tagged("t")) == ["a", "b"]
    assert ours.unfail("q", "broken") == 1
    assert theirs.queues["q"].counts["waiting"] == 2
    assert len(theirs.queues["q"].peek(count=5)) == 2


def test_a_lock_that_one_takes_away_is_lost_for_the_other(theirs: Any, ours: QlessClient) -> None:
    ours.put("q", "K", jid="j")
    (mine,) = ours.pop("q")
    theirs.jobs["j"].move("other")
    with pytest.raises(LeaseLostError):
        ours.complete(mine)
    job = theirs.queues["other"].pop()
    found = ours.get("j")
    assert found is not None
    ours.requeue(found, "q")
    with pytest.raises(LostLockError):
        job.heartbeat()


def test_recurring_jobs_options_workers_and_tracking(theirs: Any, ours: QlessClient) -> None:
    jid = theirs.queues["q"].recur("K", '{"n": 1}', 60, jid="r")
    recurring = ours.recurring(jid)
    assert recurring is not None
    assert (recurring.interval, recurring.data, recurring.queue) == (60, {"n": 1}, "q")
    ours.update_recurring("r", interval=30)
    assert theirs.jobs["r"].interval == 30
    (job,) = ours.pop("q")
    assert job.spawned_from == "r"
    theirs.config["heartbeat"] = 17
    assert ours.get_config("heartbeat") == "17"
    assert ours.track(job.jid)
    assert [found.jid for found in theirs.jobs.tracked()["jobs"]] == [job.jid]
    assert theirs.workers["ours"]["jobs"] == [job.jid]
    theirs.jobs[job.jid].cancel()
    assert ours.get(job.jid) is None
