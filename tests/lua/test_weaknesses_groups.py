"""What upstream's library does badly and ours must not: groups that stop forever. By the number of the weakness."""

from __future__ import annotations

import pytest

from tests.lua.hand_worker import HandWorker
from tests.lua.wire import NOW, Wire, Word

LATER = NOW + 60_000


# -- W4, W4b, W4c, W23: groups never stop


def remove(wire: Wire, job_id: str) -> None:
    assert wire.call("removeJob", jobId=job_id) == 1


def revoke(wire: Wire, job_id: str) -> None:
    assert wire.call("revoke", jobId=job_id) == "revoked"


def expire(wire: Wire, job_id: str) -> None:
    wire.make_job(job_id, expireAt=NOW - 1)


def outprice(wire: Wire, job_id: str) -> None:
    wire.set_fields("group:k", tbCapacity=1000, tbRefillRate=1000, tbTokens=1000)
    wire.make_job(job_id, cost=1001)


LEAVE = {leave.__name__: leave for leave in (remove, revoke, expire, outprice)}


@pytest.mark.parametrize("leave", LEAVE)
@pytest.mark.parametrize("values", [{}, {"delay": 5}, {"priority": 2}, {"priority": 2, "delay": 5}], ids=str)
@pytest.mark.parametrize("followers", ["waiting", "parked"])
@pytest.mark.parametrize("concurrency", [1, 3])
def test_w4_a_member_that_never_starts_stops_nobody(
    wire: Wire, leave: str, values: dict[str, Word], followers: str, concurrency: int
) -> None:
    first = wire.add(orderingKey="k", groupConcurrency=concurrency, **values)
    others = [wire.add(orderingKey="k", groupConcurrency=concurrency) for _ in range(3)]
    worker = HandWorker(wire)
    if followers == "parked":
        for _ in range(4 if not values else 3):
            entry_id, job_id = wire.fetched()
            if job_id != first:
                assert wire.call("moveToActive", jobId=job_id, entryId=entry_id) == "GROUP_ORDERED"
    LEAVE[leave](wire, first)
    if followers == "parked" and not values:
        wire.call("reclaimStalled", maxStalledCount=5)
    assert worker.run() == others
    assert wire.group("k")["active"] == "0"
    assert wire.parked("k") == {}


@pytest.mark.parametrize("leave", LEAVE)
def test_w4_a_parked_member_that_leaves_stops_nobody(wire: Wire, leave: str) -> None:
    worker = HandWorker(wire)
    jobs = [wire.add(orderingKey="k") for _ in range(4)]
    assert worker.take() == jobs[0]
    assert worker.take() is None
    assert list(wire.parked("k")) == jobs[1:]
    LEAVE[leave](wire, jobs[1])
    worker.finish(jobs[0])
    assert worker.run() == [jobs[0], *jobs[2:]]
    assert wire.parked("k") == {}


@pytest.mark.parametrize("delayed", [0, 1])
def test_w4_a_drained_member_stops_nobody(wire: Wire, delayed: int) -> None:
    worker = HandWorker(wire)
    first = wire.add(orderingKey="k", delay=5 * delayed)
    follower = wire.add(orderingKey="k")
    if delayed:
        assert worker.take() is None
        assert wire.parked("k") == {follower: 2}
    assert wire.call("drain", drainDelayed=delayed) == (1 if delayed else 2)
    after = wire.add(orderingKey="k")
    assert worker.run() == ([follower, after] if delayed else [after])
    assert not wire.exists(f"job:{first}")


def test_w4_a_job_that_expired_and_was_cleaned_stops_nobody(wire: Wire) -> None:
    wire.add(orderingKey="k", delay=5, ttl=1)
    follower = wire.add(orderingKey="k")
    worker = HandWorker(wire, now=NOW + 5)
    assert worker.take() is None
    wire.call("promote", now=NOW + 5)
    assert wire.call("clean", set="failed", cutoff=LATER, limit=9) == ["1"]
    assert worker.run() == [follower]


def test_w4c_any_number_of_skipped_members_is_stepped_over(wire: Wire) -> None:
    for _ in range(199):
        wire.call("dedup", mode="debounce", delay=500, orderingKey="k", skipEvents=1)
    last = wire.call("dedup", mode="debounce", orderingKey="k", skipEvents=1)
    after = wire.add(orderingKey="k")
    assert HandWorker(wire).run() == [last, after]
    assert [field for field in wire.group("k") if field.startswith("skip:")] == []


def test_w4c_a_parked_job_behind_many_skips_wakes_by_itself(wire: Wire) -> None:
    worker = HandWorker(wire)
    for _ in range(300):
        wire.call("dedup", mode="debounce", delay=500, orderingKey="k", skipEvents=1)
    follower = wire.add(orderingKey="k")
    assert worker.take() is None
    wire.call("removeJob", jobId="300")
    assert worker.run() == [follower]


@pytest.mark.parametrize("bad", [1, 12, 40])
@pytest.mark.parametrize("kind", ["gone", "too expensive", "expired"])
@pytest.mark.parametrize("woken_by", ["release", "promoteRateLimited"])
def test_w23_bad_heads_of_a_parked_group_stop_nobody(wire: Wire, bad: int, kind: str, woken_by: str) -> None:
    settings: dict[str, Word] = {"orderingKey": "k", "tbCapacity": 100_000, "tbRefillRate": 10**6}
    worker = HandWorker(wire)
    first = wire.add(**settings)
    jobs = [wire.add(**settings) for _ in range(bad + 1)]
    assert worker.take() == first
    assert worker.take() is None
    for job_id in jobs[:-1]:
        if kind == "gone":
            wire.ask("DEL", wire.key(f"job:{job_id}"))
            wire.set_fields("group:k", **{f"skip:{int(job_id)}": 1})
        else:
            wire.make_job(job_id, **{"cost": 100_001} if kind == "too expensive" else {"expireAt": NOW - 1})
    if woken_by == "release":
        worker.finish(first)
    else:
        wire.set_fields("group:k", active=0)
        wire.ask("ZADD", wire.key("ratelimited"), NOW, "k")
        worker.held.clear()
    assert worker.run() == [first, jobs[-1]]
    assert wire.parked("k") == {}


# -- W18: the bucket does not refund


def test_w18_time_spent_full_is_not_refunded(wire: Wire) -> None:
    for _ in range(2):
        wire.add(orderingKey="k", groupConcurrency=2, tbCapacity=2000, tbRefillRate=1000, cost=2000)
    wire.call("moveToActive", jobId="1", entryId=wire.fetched()[0], timestamp=LATER)
    reply = wire.call("moveToActive", jobId="2", entryId=wire.fetched()[0], timestamp=LATER + 1)
    assert reply == "GROUP_TOKEN_LIMITED"
    assert wire.zset("ratelimited") == {"k": LATER + 2000}


@pytest.mark.parametrize("gate", ["tokens", "window"])
def test_w18_a_priority_job_waits_for_its_groups_limits_like_any_other(wire: Wire, gate: str) -> None:
    limits: dict[str, Word] = {"tbCapacity": 1000, "tbRefillRate": 10}
    if gate == "window":
        limits = {"groupRateMax": 1, "groupRateDuration": 100_000}
    first, entry_id = wire.active(orderingKey="k", groupConcurrency=9, **limits)
    second = wire.add(orderingKey="k", groupConcurrency=9, priority=1, **limits)
    wire.call("promote")
    assert wire.call("completeAndFetchNext", jobId=first, entryId=entry_id) == ["NEXT_NONE", first]
    assert (wire.state(second), wire.list_active()) == ("group-waiting", 0)
    assert wire.zset("ratelimited") == {"k": NOW + 100_000}
    assert HandWorker(wire).run() == [second]


# -- No number: a job that leaves between two attempts gives its slot back


@pytest.mark.parametrize("leave", ["remove", "revoke", "expire", "drain"])
@pytest.mark.parametrize("pause", ["retry", "step", "stall"])
def test_a_job_that_leaves_between_two_attempts_frees_its_slot(wire: Wire, leave: str, pause: str) -> None:
    first, entry_id = wire.active(orderingKey="k", delay=0)
    second = wire.add(orderingKey="k")
    if pause == "retry":
        wire.call("fail", jobId=first, entryId=entry_id, maxAttempts=2, backoffDelay=50)
    elif pause == "step":
        wire.call("moveActiveToDelayed", jobId=first, entryId=entry_id, delayedUntil=NOW + 50)
    else:
        wire.call("reclaimStalled", timestamp=LATER)
    assert wire.group("k")["active"] == "1"
    if leave == "drain":
        wire.call("drain", drainDelayed=1)
        second = wire.add(orderingKey="k")
    else:
        LEAVE[leave](wire, first)
    worker = HandWorker(wire)
    assert worker.run() == [second]
    assert wire.group("k")["active"] == "0"
