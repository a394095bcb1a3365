"""`glidemq_reclaimStalled`: jobs of the stream whose worker went silent."""

from __future__ import annotations

import json

import pytest

from tests.lua.wire import NOW, Wire, Word, event

REASON = "job stalled more than maxStalledCount"
LATER = NOW + 60_000


def test_nothing_pending_is_nothing_to_do(wire: Wire) -> None:
    wire.add()
    wire.open_group()
    with wire.unchanged():
        assert wire.call("reclaimStalled") == 0


def test_a_first_stall_sends_the_job_to_the_back_of_the_stream(wire: Wire) -> None:
    job_id, _ = wire.active(data="{}")
    wire.add("later")
    wire.forget_events()
    assert wire.call("reclaimStalled", timestamp=LATER) == 1
    job = wire.job(job_id)
    assert (job["state"], job["stalledCount"]) == ("waiting", "1")
    assert not {"processedOn", "lastActive"} & set(job)
    assert wire.stream() == [("jobId", "2", "name", "later"), ("jobId", job_id, "name", "task")]
    assert wire.pending() == []
    assert wire.events() == [event("stalled", job_id)]
    assert not wire.exists("failed")


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_a_job_may_stall_so_often_and_then_fails(wire: Wire, limit: int) -> None:
    job_id, _ = wire.active()
    for _ in range(limit):
        assert wire.call("reclaimStalled", maxStalledCount=limit, timestamp=LATER) == 1
        assert wire.take()[0] == job_id
        assert wire.state(job_id) == "active"
    wire.forget_events()
    assert wire.call("reclaimStalled", maxStalledCount=limit, timestamp=LATER) == 1
    job = wire.job(job_id)
    assert (job["state"], job["failedReason"], job["finishedOn"]) == ("failed", REASON, str(LATER))
    assert job["stalledCount"] == str(limit + 1)
    assert wire.zset("failed") == {job_id: LATER}
    assert wire.stream() == []
    assert wire.pending() == []
    assert wire.events() == [event("failed", job_id, failedReason=REASON)]
    minute = LATER - LATER % 60_000
    assert wire.hash("metrics:failed") == {f"m:{minute}:c": "1", f"m:{minute}:d": "60000"}


@pytest.mark.parametrize(
    ("opts", "worker_ms", "idle_ms", "threshold"),
    [
        ({}, 0, 0, 0),
        ({}, 0, 700, 700),
        ({}, 5000, 0, 5000),
        ({"lockDuration": 2000}, 5000, 0, 2000),
        ({"lockDuration": 9000}, 5000, 0, 9000),
        ({"lockDuration": 1000}, 5000, 0, 1000),
        ({"lockDuration": 86_400_000}, 5000, 0, 86_400_000),
        ({"lockDuration": 999}, 5000, 0, 5000),
        ({"lockDuration": 86_400_001}, 5000, 0, 5000),
        ({"lockDuration": "soon"}, 5000, 0, 5000),
    ],
)
def test_a_job_is_stalled_from_its_threshold_on(
    wire: Wire, opts: dict[str, Word], worker_ms: int, idle_ms: int, threshold: int
) -> None:
    job_id, _ = wire.active(opts=json.dumps(opts))
    values = {"workerLockDuration": worker_ms, "minIdleMs": idle_ms}
    wire.idle(10**9)
    if threshold:
        wire.call("reclaimStalled", timestamp=NOW + threshold - 1, **values)
        assert wire.state(job_id) == "active"
        assert "stalledCount" not in wire.job(job_id)
        assert len(wire.pending()) == 1
        wire.idle(10**9)
    assert wire.call("reclaimStalled", timestamp=NOW + threshold, **values) == 1
    assert wire.job(job_id)["stalledCount"] == "1"


def test_an_entry_must_have_idled_on_the_server(wire: Wire) -> None:
    wire.active()
    with wire.unchanged():
        assert wire.call("reclaimStalled", minIdleMs=3_600_000, timestamp=LATER) == 0


def test_a_job_without_a_heartbeat_counts_as_stalled(wire: Wire) -> None:
    wire.add()
    wire.fetched()
    assert wire.call("reclaimStalled", workerLockDuration=5000, timestamp=NOW) == 1
    assert wire.job("1")["stalledCount"] == "1"
    assert wire.stream_ids() == ["1"]
    assert wire.pending() == []


def test_a_job_past_its_ttl_fails_as_expired(wire: Wire) -> None:
    job_id, _ = wire.active(ttl=1000)
    wire.forget_events()
    assert wire.call("reclaimStalled", timestamp=LATER) == 1
    assert (wire.state(job_id), wire.job(job_id)["failedReason"]) == ("failed", "expired")
    assert wire.zset("failed") == {job_id: LATER}
    assert wire.stream() == []
    assert wire.pending() == []
    assert wire.events() == [event("expired", job_id)]


def test_an_expired_job_gives_its_slot_back(wire: Wire) -> None:
    wire.active(orderingKey="k", ttl=1000)
    second = wire.add(orderingKey="k")
    wire.call("moveToActive", jobId=second, entryId=wire.fetched()[0])
    assert wire.call("reclaimStalled", timestamp=LATER) == 1
    assert wire.group("k")["active"] == "0"
    assert wire.stream_ids() == [second]


class TestBroadcast:
    def test_a_stalled_entry_stays_pending_with_its_new_owner(self, wire: Wire) -> None:
        job_id, entry_id = wire.active()
        assert wire.call("reclaimStalled", timestamp=LATER, broadcastMode=1, consumer="rescuer") == 1
        assert wire.state(job_id) == "active"
        assert wire.pending() == [entry_id]
        assert wire.stream_ids() == [job_id]
        assert wire.ask("XPENDING", wire.key("stream"), "workers")["consumers"][0]["name"] == "rescuer"

    def test_over_the_limit_the_entry_is_acknowledged_but_kept(self, wire: Wire) -> None:
        job_id, _ = wire.active()
        assert wire.call("reclaimStalled", timestamp=LATER, broadcastMode=1, maxStalledCount=0) == 1
        assert wire.state(job_id) == "failed"
        assert wire.pending() == []
        assert wire.stream_ids() == [job_id]


@pytest.mark.parametrize(("limit", "active", "ready"), [(1, "1", ["1"]), (0, "0", ["2"])])
def test_the_group_slot_is_freed_only_by_the_failure(wire: Wire, limit: int, active: str, ready: list[str]) -> None:
    wire.active(orderingKey="k")
    second = wire.add(orderingKey="k")
    wire.call("moveToActive", jobId=second, entryId=wire.fetched()[0])
    assert wire.call("reclaimStalled", timestamp=LATER, maxStalledCount=limit) == 1
    assert wire.group("k")["active"] == active
    assert wire.stream_ids() == ready


@pytest.mark.parametrize("argc", [6, 7])
def test_callers_with_fewer_arguments_get_the_defaults(wire: Wire, argc: int) -> None:
    job_id, _ = wire.active()
    assert wire.short("reclaimStalled", argc, timestamp=LATER) == 1
    assert wire.state(job_id) == "waiting"
