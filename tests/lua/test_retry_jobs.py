"""`glidemq_retryJobs`: failed jobs get a new life."""

from __future__ import annotations

import pytest
import redis

from tests.lua.wire import NOW, Wire, due, event

LATER = NOW + 1000


def fail(wire: Wire, count: int, **fields: str | int) -> None:
    for number in range(1, count + 1):
        job_id = f"j{number}"
        wire.make_job(
            job_id, **{"state": "failed", "attemptsMade": 3, "failedReason": "boom", "finishedOn": 9, **fields}
        )
        wire.ask("ZADD", wire.key("failed"), number, job_id)


@pytest.mark.parametrize("priority", [0, 4])
def test_a_retried_job_is_due_at_once_and_starts_from_nothing(wire: Wire, priority: int) -> None:
    fail(wire, 1, priority=priority)
    assert wire.call("retryJobs", timestamp=LATER) == 1
    job = wire.job("j1")
    assert (job["state"], job["attemptsMade"], job["failedReason"], job["finishedOn"]) == ("delayed", "0", "", "")
    assert wire.zset("scheduled") == {"j1": due(LATER, priority)}
    assert not wire.exists("failed")
    assert wire.events() == [event("retried", 1)]


@pytest.mark.parametrize(
    ("count", "retried"), [(0, 5), (2, 2), (5, 5), (99, 5), ("", 5)], ids=["all", "two", "five", "more", "empty"]
)
def test_the_oldest_come_first_up_to_the_count(wire: Wire, count: int | str, retried: int) -> None:
    fail(wire, 5)
    assert wire.call("retryJobs", count=count) == retried
    assert set(wire.zset("scheduled")) == {f"j{n}" for n in range(1, retried + 1)}
    assert set(wire.zset("failed")) == {f"j{n}" for n in range(retried + 1, 6)}
    assert wire.events() == [event("retried", retried)]


def test_members_without_a_job_are_dropped_and_not_counted(wire: Wire) -> None:
    fail(wire, 2)
    wire.ask("DEL", wire.key("job:j1"))
    assert wire.call("retryJobs") == 1
    assert wire.zset("scheduled") == {"j2": NOW}
    assert wire.names("job:") == {"job:j2"}
    assert not wire.exists("failed")


def test_nothing_to_retry_says_nothing(wire: Wire) -> None:
    with wire.unchanged():
        assert wire.call("retryJobs") == 0


def test_more_than_one_batch(wire: Wire) -> None:
    pipeline = wire.client.pipeline(transaction=False)
    for number in range(1100):
        pipeline.hset(wire.key(f"job:{number}"), "state", "failed")
        pipeline.zadd(wire.key("failed"), {str(number): number})
    pipeline.execute()
    assert wire.call("retryJobs") == 1100
    assert len(wire.zset("scheduled")) == 1100


@pytest.mark.parametrize("timestamp", ["", "now"])
def test_a_timestamp_that_is_no_number_is_an_error(wire: Wire, timestamp: str) -> None:
    fail(wire, 1)
    with wire.unchanged(), pytest.raises(redis.ResponseError, match="invalid timestamp"):
        wire.call("retryJobs", timestamp=timestamp)
