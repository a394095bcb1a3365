"""`glidemq_reclaimStalledListJobs`: jobs of the lists whose worker went silent."""

from __future__ import annotations

import json

import pytest

from tests.lua.wire import NOW, Wire, Word, event

REASON = "job stalled more than maxStalledCount"
LATER = NOW + 60_000


def sweep(wire: Wire, timestamp: int = LATER, **values: Word) -> int:
    return int(wire.call("reclaimStalledListJobs", timestamp=timestamp, **values))


@pytest.fixture(params=["activated by the library", "written by hand"])
def hand_made(request: pytest.FixtureRequest) -> bool:
    """Whether our library saw the job become active, or another program wrote it so."""
    return bool(request.param == "written by hand")


def stalled(wire: Wire, hand_made: bool, **values: Word) -> str:
    if not hand_made:
        return wire.active(**values)[0]
    wire.make_job("1", state="active", lastActive=NOW, processedOn=NOW, **values)
    wire.ask("INCR", wire.key("list-active"))
    return "1"


@pytest.mark.parametrize(("values", "name"), [({"lifo": 1}, "lifo"), ({"priority": 4}, "priority")])
def test_a_first_stall_puts_the_job_back_on_its_list(
    wire: Wire, hand_made: bool, values: dict[str, Word], name: str
) -> None:
    job_id = stalled(wire, hand_made, **values)
    wire.forget_events()
    assert sweep(wire) == 1
    job = wire.job(job_id)
    assert (job["state"], job["stalledCount"]) == ("waiting", "1")
    assert not {"processedOn", "lastActive"} & set(job)
    assert wire.elements(name) == [job_id]
    assert wire.list_active() == 0
    assert wire.events() == [event("stalled", job_id)]


@pytest.mark.parametrize("values", [{"lifo": 1}, {"priority": 4}])
def test_over_the_limit_the_job_fails(wire: Wire, hand_made: bool, values: dict[str, Word]) -> None:
    job_id = stalled(wire, hand_made, **values)
    assert sweep(wire) == 1
    wire.take_from_list()
    wire.forget_events()
    assert sweep(wire) == 1
    job = wire.job(job_id)
    assert (job["state"], job["failedReason"], job["finishedOn"]) == ("failed", REASON, str(LATER))
    assert job["stalledCount"] == "2"
    assert wire.zset("failed") == {job_id: LATER}
    assert wire.elements("lifo") + wire.elements("priority") == []
    assert wire.list_active() == 0
    assert wire.events() == [event("failed", job_id, failedReason=REASON)]


def test_the_same_moment_counts_once(wire: Wire, hand_made: bool) -> None:
    job_id = stalled(wire, hand_made, lifo=1)
    assert [sweep(wire) for _ in range(2)] == [1, 0]
    assert wire.job(job_id)["stalledCount"] == "1"
    assert wire.elements("lifo") == [job_id]


@pytest.mark.parametrize(
    ("opts", "worker_ms", "idle_ms", "threshold"),
    [
        ({}, 0, 700, 700),
        ({}, 5000, 700, 5000),
        ({"lockDuration": 2000}, 5000, 700, 2000),
        ({"lockDuration": 999}, 5000, 700, 5000),
        ({"lockDuration": 86_400_001}, 5000, 700, 5000),
    ],
)
def test_a_job_is_stalled_from_its_threshold_on(
    wire: Wire, hand_made: bool, opts: dict[str, Word], worker_ms: int, idle_ms: int, threshold: int
) -> None:
    job_id = stalled(wire, hand_made, lifo=1, opts=json.dumps(opts))
    values: dict[str, Word] = {"workerLockDuration": worker_ms, "minIdleMs": idle_ms}
    assert sweep(wire, NOW + threshold - 1, **values) == 0
    assert (wire.state(job_id), wire.get("list-active")) == ("active", "1")
    assert "stalledCount" not in wire.job(job_id)
    assert sweep(wire, NOW + threshold, **values) == 1
    assert wire.state(job_id) == "waiting"


def test_a_job_past_its_ttl_fails_as_expired(wire: Wire, hand_made: bool) -> None:
    job_id = stalled(wire, hand_made, lifo=1)
    wire.ask("HSET", wire.key(f"job:{job_id}"), "expireAt", NOW + 10)
    wire.forget_events()
    assert sweep(wire) == 1
    assert (wire.state(job_id), wire.job(job_id)["failedReason"]) == ("failed", "expired")
    assert wire.list_active() == 0
    assert wire.events() == [event("expired", job_id)]


@pytest.mark.parametrize(
    "fields",
    [
        {"state": "waiting", "lifo": 1, "lastActive": NOW},
        {"state": "completed", "lifo": 1, "lastActive": NOW},
        {"state": "active", "lastActive": NOW},
        {"state": "active", "priority": 0, "lastActive": NOW},
        {"state": "active", "lifo": 1},
    ],
    ids=["waiting", "completed", "of the stream", "priority 0", "no heartbeat"],
)
def test_other_jobs_are_left_alone(wire: Wire, fields: dict[str, Word]) -> None:
    wire.make_job("1", **fields)
    wire.ask("SET", wire.key("list-active"), 1)
    assert sweep(wire) == 0
    assert wire.job("1") == {name: str(value) for name, value in fields.items()}
    assert wire.get("list-active") == "1"


@pytest.mark.parametrize("counter", [None, 0, -1])
def test_no_active_list_jobs_means_no_search(wire: Wire, counter: int | None) -> None:
    wire.make_job("1", state="active", lifo=1, lastActive=NOW)
    if counter is not None:
        wire.ask("SET", wire.key("list-active"), counter)
    with wire.unchanged():
        assert sweep(wire) == 0


@pytest.mark.parametrize("values", [{"minIdleMs": ""}, {"minIdleMs": "x"}, {"timestamp": ""}, {"timestamp": "x"}])
def test_times_that_are_no_numbers_find_nothing(wire: Wire, values: dict[str, Word]) -> None:
    wire.active(lifo=1)
    with wire.unchanged():
        assert wire.call("reclaimStalledListJobs", **values) == 0


def test_the_fifth_argument_may_be_missing(wire: Wire) -> None:
    wire.active(lifo=1)
    assert wire.short("reclaimStalledListJobs", 4, minIdleMs=700, timestamp=NOW + 700) == 1
