"""`glidemq_drain`: forget every job that did not start."""

from __future__ import annotations

import pytest

from tests.lua.wire import Wire, event

OWNED = ("job", "log", "deps", "jstream", "signals", "steps")


def own_everything(wire: Wire, job_id: str) -> None:
    for kind in OWNED[1:]:
        wire.ask("SET", wire.key(f"{kind}:{job_id}"), "x")


@pytest.mark.parametrize(("delayed", "removed"), [(0, {"1", "2", "3"}), (1, {"1", "2", "3", "4", "5"})])
def test_waiting_jobs_go_and_delayed_ones_when_asked(wire: Wire, delayed: int, removed: set[str]) -> None:
    wire.add()
    wire.add(lifo=1)
    wire.add(priority=1)
    wire.call("promote")
    wire.add(delay=500)
    wire.add(priority=2)
    for job_id in "12345":
        own_everything(wire, job_id)
    wire.forget_events()
    assert wire.call("drain", drainDelayed=delayed) == len(removed)
    for job_id in "12345":
        assert {wire.exists(f"{kind}:{job_id}") for kind in OWNED} == {job_id not in removed}
    assert wire.stream() == []
    assert wire.elements("lifo") + wire.elements("priority") == []
    assert set(wire.zset("scheduled")) == {"4", "5"} - removed
    assert wire.events() == [event("drained", len(removed))]


def test_active_and_fetched_jobs_stay(wire: Wire) -> None:
    active, entry_id = wire.active()
    fetched = wire.add()
    second_entry, _ = wire.fetched()
    for _ in range(3):
        wire.add()
    assert wire.call("drain") == 3
    assert wire.stream_ids() == [active, fetched]
    assert wire.pending() == [entry_id, second_entry]
    assert wire.names("job:") == {f"job:{active}", f"job:{fetched}"}


@pytest.mark.parametrize("state", ["group-waiting", "suspended", "waiting-children", "completed"])
def test_jobs_that_wait_elsewhere_stay(wire: Wire, state: str) -> None:
    wire.make_job("7", state=state)
    with wire.unchanged():
        assert wire.call("drain", drainDelayed=1) == 0


def test_a_missing_group_means_nothing_is_pending(wire: Wire) -> None:
    wire.add()
    assert wire.call("drain", group="unknown") == 1
    assert wire.names("job:") == set()


def test_more_than_one_page(wire: Wire) -> None:
    pipeline = wire.client.pipeline(transaction=False)
    for number in range(1200):
        pipeline.xadd(wire.key("stream"), {"jobId": f"s{number}"})
        pipeline.zadd(wire.key("scheduled"), {f"d{number}": number})
        pipeline.hset(wire.key(f"job:s{number}"), "state", "waiting")
        pipeline.hset(wire.key(f"job:d{number}"), "state", "delayed")
    pipeline.execute()
    assert wire.call("drain", drainDelayed=1) == 2400
    assert wire.names("job:") == set()
    assert not wire.exists("scheduled")
