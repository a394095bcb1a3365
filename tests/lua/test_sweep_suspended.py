"""`glidemq_sweepSuspended`: suspended jobs whose time is over fail."""

from __future__ import annotations

import pytest

from tests.lua.wire import NOW, Wire, event

REASON = "Suspend timeout exceeded"


def suspend(wire: Wire, timeout: int = 500, **values: str | int) -> str:
    job_id, entry_id = wire.active(**values)
    wire.call("suspend", jobId=job_id, entryId=entry_id, timeoutMs=timeout)
    wire.forget_events()
    return job_id


@pytest.mark.parametrize(("now", "count"), [(NOW + 499, 0), (NOW + 500, 1)])
def test_a_job_fails_at_its_deadline(wire: Wire, now: int, count: int) -> None:
    job_id = suspend(wire)
    assert wire.call("sweepSuspended", now=now) == count
    if not count:
        assert wire.state(job_id) == "suspended"
        assert wire.zset("suspended") == {job_id: NOW + 500}
        return
    job = wire.job(job_id)
    assert (job["state"], job["failedReason"]) == ("failed", REASON)
    assert (job["finishedOn"], job["processedOn"]) == (str(now), str(now))
    assert wire.zset("failed") == {job_id: now}
    assert not wire.exists("suspended")
    assert wire.events() == [event("failed", job_id, failedReason=REASON)]
    minute = now - now % 60_000
    assert wire.hash("metrics:failed") == {f"m:{minute}:c": "1", f"m:{minute}:d": "500"}


def test_a_job_without_a_timeout_waits_for_ever(wire: Wire) -> None:
    job_id = suspend(wire, timeout=0)
    assert wire.call("sweepSuspended", now=NOW + 10**12) == 0
    assert wire.state(job_id) == "suspended"


@pytest.mark.parametrize("state", [None, "waiting", "active", "completed"])
def test_leftovers_are_dropped_uncounted(wire: Wire, state: str | None) -> None:
    wire.ask("ZADD", wire.key("suspended"), NOW, "7")
    if state is not None:
        wire.make_job("7", state=state)
    assert wire.call("sweepSuspended") == 0
    assert not wire.exists("suspended")
    assert wire.state("7") == state
    assert wire.names() == ({"job:7"} if state else set())


def test_a_sequenced_job_frees_its_slot(wire: Wire) -> None:
    suspend(wire, orderingKey="k")
    second = wire.add(orderingKey="k")
    wire.call("moveToActive", jobId=second, entryId=wire.fetched()[0])
    assert wire.call("sweepSuspended", now=NOW + 500) == 1
    assert wire.group("k")["active"] == "0"
    assert wire.parked("k") == {}
    assert wire.stream_ids() == [second]


def test_an_unsequenced_job_freed_its_slot_before(wire: Wire) -> None:
    wire.set_fields("group:k", maxConcurrency=2, active=1)
    wire.make_job("7", state="suspended", groupKey="k")
    wire.ask("ZADD", wire.key("suspended"), NOW, "7")
    assert wire.call("sweepSuspended") == 1
    assert wire.group("k")["active"] == "1"


def test_one_call_takes_at_most_a_hundred(wire: Wire) -> None:
    for number in range(103):
        wire.make_job(f"j{number}", state="suspended")
        wire.ask("ZADD", wire.key("suspended"), number, f"j{number}")
    assert [wire.call("sweepSuspended") for _ in range(2)] == [100, 3]
