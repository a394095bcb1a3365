"""What upstream's library does badly and ours must not, by the number of the weakness.

W5 and its like are about ghosts: a job hash that some call created although the job is gone.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.lua.hand_worker import HandWorker
from tests.lua.wire import NOW, Wire, Word, event

LATER = NOW + 60_000
TOO_EXPENSIVE = "ERR:COST_EXCEEDS_CAPACITY"
OWNED = ("log", "deps", "parents", "jstream", "signals")


def creators(wire: Wire, custom_id: str) -> dict[str, Callable[[], object]]:
    """Every way to create a job with an id of the caller's choice."""
    return {
        "addJob": lambda: wire.add(customJobId=custom_id),
        "dedup": lambda: wire.call("dedup", customJobId=custom_id),
        "parent": lambda: json.loads(wire.flow(parentCustomId=custom_id))[0],
        "child": lambda: json.loads(wire.flow({"id": custom_id}, parentCustomId="p"))[1],
    }


# -- W2, W24b: a refusal for cost comes before any write


@pytest.mark.parametrize("function", ["addJob", "dedup"])
@pytest.mark.parametrize("known", [False, True], ids=["a new group", "a group in use"])
def test_w2_a_job_refused_for_its_cost_leaves_no_trace(wire: Wire, function: str, known: bool) -> None:
    if known:
        wire.add(orderingKey="k", tbCapacity=5000, tbRefillRate=1)
    with wire.unchanged():
        reply = wire.call(function, orderingKey="k", tbCapacity=2000, tbRefillRate=1, cost=3000)
        assert reply == TOO_EXPENSIVE
    after = wire.add(orderingKey="k")
    assert HandWorker(wire).run()[-1] == after


def expensive(**more: object) -> str:
    return json.dumps({"ordering": {"key": "x", "tokenBucket": {"capacity": 1, "refillRate": 1}}, "cost": 2, **more})


@pytest.mark.parametrize(
    ("parent", "children"),
    [(expensive(), [{}]), ("{}", [{"opts": expensive()}]), ("{}", [{}, {"id": "c"}, {"opts": expensive()}])],
    ids=["parent", "only child", "last child"],
)
def test_w24b_a_flow_refused_for_its_cost_leaves_no_trace(
    wire: Wire, parent: str, children: list[dict[str, Word]]
) -> None:
    assert wire.flow(*children, parentOpts=parent) == TOO_EXPENSIVE
    assert wire.names() <= {"id"}, "a used up number is all that may be left"


def test_w24b_an_automatic_child_never_takes_a_later_siblings_id(wire: Wire) -> None:
    parent, automatic, custom = wire.flow_ids({}, {"id": "2"})
    assert custom == "2"
    assert len({parent, automatic, custom}) == 3
    assert wire.members(f"deps:{parent}") == {wire.key(automatic), wire.key("2")}
    assert wire.names("job:") == {f"job:{i}" for i in (parent, automatic, custom)}


# -- W3, W3b: ids


@pytest.mark.parametrize("creator", ["addJob", "dedup", "parent", "child"])
@pytest.mark.parametrize("custom", ["007", "0000000000000000000012", "9" * 20, "9" * 40, "9007199254740993"])
def test_w3_no_custom_id_breaks_the_counter(wire: Wire, creator: str, custom: str) -> None:
    assert creators(wire, custom)[creator]() == custom
    counter = wire.get("id")
    assert counter is None or counter == str(int(counter))
    after = wire.add()
    if int(custom) < 1000:
        assert after == str(int(custom) + 1)
    assert wire.add() == str(int(after) + 1)


@pytest.mark.parametrize("function", ["addJob", "dedup"])
def test_w3b_an_automatic_id_never_overwrites_a_job(wire: Wire, function: str) -> None:
    for _ in range(2):
        wire.add("old")
    wire.ask("DEL", wire.key("id"))
    new = wire.call(function, jobName="new")
    assert [wire.job(i)["name"] for i in ("1", "2", new)] == ["old", "old", "new"]
    assert wire.stream_ids() == ["1", "2", new]


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


# -- W5, W6, W24c: no ghosts


@pytest.mark.parametrize("values", [{}, {"lifo": 1}, {"priority": 2}], ids=str)
@pytest.mark.parametrize("settle", ["complete", "completeAndFetchNext", "fail"])
def test_w5_settling_a_removed_job_leaves_no_ghost(wire: Wire, values: dict[str, Word], settle: str) -> None:
    """The worker finds a leftover of a removed job and acknowledges it by completing it."""
    job_id, entry_id = wire.active(**values)
    wire.call("removeJob", jobId=job_id)
    wire.forget_events()
    reply = wire.call(settle, jobId=job_id, entryId=entry_id)
    assert reply == {"complete": 1, "completeAndFetchNext": ["NEXT_NONE", job_id], "fail": "failed"}[settle]
    assert wire.names() <= {"id", "stream", "list-active"}
    assert wire.stream() == []
    assert wire.list_active() == 0
    if entry_id:
        assert wire.pending() == []


def test_w5_a_removed_waiting_job_is_acknowledged_silently(wire: Wire) -> None:
    for values in ({}, {"lifo": 1}, {"priority": 1}):
        wire.call("removeJob", jobId=wire.add(**values))
    wire.forget_events()
    assert HandWorker(wire).run() == []
    assert wire.names("job:") == set()
    assert wire.names("metrics:") == set()
    assert not wire.exists("completed")
    assert wire.stream() == []
    assert wire.list_active() == 0
    assert wire.events() == []


def test_w6_a_stalled_entry_of_a_removed_job_is_dropped(wire: Wire) -> None:
    job_id, _ = wire.active()
    wire.call("removeJob", jobId=job_id)
    wire.forget_events()
    wire.call("reclaimStalled", timestamp=LATER)
    assert not wire.exists(f"job:{job_id}")
    assert wire.stream() == []
    assert wire.pending() == []
    assert wire.events() == []


def test_w6_a_scheduled_member_without_a_job_is_dropped(wire: Wire) -> None:
    wire.ask("ZADD", wire.key("scheduled"), NOW - 1, "ghost", 3 * 2**42, "ghost-2")
    wire.add(delay=1)
    wire.forget_events()
    wire.call("promote", now=NOW + 1)
    assert wire.names("job:") == {"job:1"}
    assert wire.stream_ids() == ["1"]
    assert not wire.exists("priority")
    assert not wire.exists("scheduled")
    assert wire.events() == [event("promoted", 1)]


def test_w24c_completing_a_child_of_a_removed_parent_leaves_no_ghost(wire: Wire) -> None:
    parent, child, sibling = wire.flow_ids({}, {})
    wire.call("registerParent", childJobId=child, parentId="p2", depsMember=wire.key(child))
    wire.call("removeJob", jobId=parent)
    wire.make_job("done", state="completed")
    keys, member = wire.parent_keys(parent), wire.key(child)
    wire.call("complete", *keys, jobId=child, depsMember=member, parentId=parent)
    wire.call("completeChild", depsMember=wire.key(sibling), parentId=parent)
    wire.call("registerParent", childJobId="done", parentId=parent, depsMember=wire.key("done"))
    assert wire.names("job:") == {f"job:{i}" for i in (child, sibling, "done")}
    assert parent not in wire.stream_ids()


# -- W8: entries nobody can run


@pytest.mark.parametrize("orphan", [{"jobId": "gone"}, {"note": "no job here"}], ids=["no hash", "no jobId"])
def test_w8_an_orphan_entry_is_acknowledged_and_the_next_job_taken(wire: Wire, orphan: dict[str, str]) -> None:
    job_id, entry_id = wire.active()
    wire.ask("XADD", wire.key("stream"), "*", *(word for pair in orphan.items() for word in pair))
    following = wire.add()
    reply = wire.call("completeAndFetchNext", jobId=job_id, entryId=entry_id)
    assert reply[:3] == ["NEXT_HASH", job_id, following]
    assert wire.pending() == [reply[3]]
    assert wire.stream_ids() == [following]


def test_w8_a_stalled_orphan_entry_is_acknowledged(wire: Wire) -> None:
    wire.ask("XADD", wire.key("stream"), "*", "jobId", "gone")
    wire.fetched()
    wire.call("reclaimStalled", timestamp=LATER)
    assert wire.stream() == []
    assert wire.pending() == []
    assert wire.names("job:") == set()


# -- W9, W10, W11: finding the active list jobs


def find_all(wire: Wire) -> tuple[object, object, object]:
    """What the three functions that look for active list jobs find, the one that changes most last."""
    return (
        wire.call("getActiveListJobIds"),
        wire.call("healListActive"),
        wire.call("reclaimStalledListJobs", timestamp=LATER),
    )


def active_by_another_program(wire: Wire, job_id: str) -> None:
    wire.make_job(job_id, state="active", lifo=1, lastActive=NOW)
    wire.ask("INCR", wire.key("list-active"))


def test_w9_locks_and_counters_beside_a_job_are_no_jobs(wire: Wire) -> None:
    active_by_another_program(wire, "7")
    wire.ask("SET", wire.key("job:7:usage-lock"), "token")
    wire.set_fields("job:7:sub:audit", a=1, state="active", lifo=1, lastActive=NOW)
    assert find_all(wire) == (["7"], 0, 1)


@pytest.mark.parametrize("queue", ["t[1]", "a*", "a?", "b\\", "[", "^x"])
def test_w11_a_queue_name_is_no_pattern(wire: Wire, queue: str) -> None:
    own = wire.sibling(queue)
    for other in ("t1", "ab", "abc", "b", "x"):
        active_by_another_program(wire.sibling(other), "other")
    active_by_another_program(own, "mine")
    assert find_all(own) == (["mine"], 0, 1)
    assert own.elements("lifo") == ["mine"]


@pytest.mark.parametrize("start", ["moveToActive", "completeAndFetchNext"])
def test_w10_what_the_library_activated_is_found_without_a_scan(wire: Wire, start: str) -> None:
    job_id, entry_id = wire.active(customJobId="first")
    wire.add(lifo=1)
    if start == "completeAndFetchNext":
        assert wire.call(start, jobId=job_id, entryId=entry_id)[2] == "1"
    else:
        wire.take_from_list()
    wire.client.config_resetstat()
    assert find_all(wire) == (["1"], 0, 1)
    statistics = wire.client.info("commandstats")
    assert {"cmdstat_scan", "cmdstat_keys"} & set(statistics) == set()


def test_w10_jobs_of_both_kinds_of_workers_are_found_together(wire: Wire) -> None:
    wire.active(lifo=1, customJobId="ours")
    active_by_another_program(wire, "theirs")
    assert sorted(wire.call("getActiveListJobIds")) == ["ours", "theirs"]
    assert wire.call("healListActive") == 0
    assert wire.call("reclaimStalledListJobs", timestamp=LATER) == 2
    assert sorted(wire.elements("lifo")) == ["ours", "theirs"]
    assert wire.list_active() == 0


# -- W13, W14: priorities


@pytest.mark.parametrize(
    ("jobs", "reply"),
    [
        ([{"delay": 10**9}, {"priority": 3}], 0),
        ([{"delay": 900}, {"delay": 300, "priority": 3}], NOW + 300),
        ([{"delay": 900}, {"delay": 700, "priority": 1}, {"delay": 500, "priority": 2048}], NOW + 500),
        ([{"delay": 100}, {"delay": 700, "priority": 1}], NOW + 100),
    ],
)
def test_w13_a_far_job_of_a_low_band_hides_no_nearer_one(wire: Wire, jobs: list[dict[str, Word]], reply: int) -> None:
    for values in jobs:
        wire.add(**values)
    assert wire.call("nextDue") == reply


def test_w14_a_later_promotion_does_not_queue_behind_lesser_jobs(wire: Wire) -> None:
    for priorities in ([5, 3], [1, 5, 4], [3, 2]):
        for priority in priorities:
            wire.add(priority=priority, customJobId=f"p{priority}-{len(wire.names('job:'))}")
        wire.call("promote")
    order = [wire.call("popLists")[0] for _ in range(7)]
    assert order == ["p1-2", "p2-6", "p3-1", "p3-5", "p4-4", "p5-0", "p5-3"]


def test_w14_a_job_promoted_by_hand_finds_its_place(wire: Wire) -> None:
    for job_id, priority in (("p1", 1), ("p3", 3)):
        wire.add(priority=priority, customJobId=job_id)
    wire.call("promote")
    wire.add(priority=2, delay=10**9, customJobId="p2")
    wire.call("promoteJob", jobId="p2")
    assert [wire.call("popLists")[0] for _ in range(3)] == ["p1", "p2", "p3"]


def test_w14_a_stalled_job_finds_its_place(wire: Wire) -> None:
    for job_id, priority in (("p1", 1), ("p3", 3)):
        wire.add(priority=priority, customJobId=job_id)
    wire.call("promote")
    assert wire.take_from_list() == "p1"
    assert wire.call("reclaimStalledListJobs", timestamp=LATER) == 1
    assert [wire.call("popLists")[0] for _ in range(2)] == ["p1", "p3"]


# -- W18: the bucket does not refund


def test_w18_time_spent_full_is_not_refunded(wire: Wire) -> None:
    for _ in range(2):
        wire.add(orderingKey="k", groupConcurrency=2, tbCapacity=2000, tbRefillRate=1000, cost=2000)
    wire.call("moveToActive", jobId="1", entryId=wire.fetched()[0], timestamp=LATER)
    reply = wire.call("moveToActive", jobId="2", entryId=wire.fetched()[0], timestamp=LATER + 1)
    assert reply == "GROUP_TOKEN_LIMITED"
    assert wire.zset("ratelimited") == {"k": LATER + 2000}


# -- W21: stalls on every page


def test_w21_stalled_jobs_behind_many_live_ones_are_found(wire: Wire) -> None:
    pipeline = wire.client.pipeline(transaction=False)
    for number in range(260):
        alive = number < 250
        pipeline.hset(
            wire.key(f"job:{number}"),
            mapping={"state": "active", "name": "n", "lastActive": LATER if alive else NOW},
        )
        pipeline.xadd(wire.key("stream"), {"jobId": number, "name": "n"})
    pipeline.execute()
    wire.open_group()
    wire.ask("XREADGROUP", "GROUP", "workers", "w-1", "COUNT", 300, "STREAMS", wire.key("stream"), ">")
    wire.call("reclaimStalled", timestamp=LATER, workerLockDuration=1000)
    stalled = [str(number) for number in range(250, 260)]
    assert wire.stream_ids()[-10:] == stalled
    assert [wire.job(i).get("stalledCount") for i in stalled] == ["1"] * 10
    assert [wire.job(str(i)).get("stalledCount") for i in range(250)] == [None] * 250
    assert len(wire.pending()) == 250


# -- W28: validate, then replace


@pytest.mark.parametrize(
    ("values", "reply"),
    [
        ({"customJobId": "taken"}, "duplicate"),
        ({"orderingKey": "k", "tbCapacity": 500, "tbRefillRate": 1}, TOO_EXPENSIVE),
    ],
    ids=["duplicate", "cost"],
)
def test_w28_a_refused_debounce_keeps_the_job_it_would_have_replaced(
    wire: Wire, values: dict[str, Word], reply: str
) -> None:
    wire.add(customJobId="taken")
    wire.call("dedup", mode="debounce", delay=500, customJobId="first", orderingKey="k")
    with wire.unchanged():
        assert wire.call("dedup", mode="debounce", delay=500, **values) == reply


# -- W29: no leaks


def own_everything(wire: Wire, job_id: str) -> None:
    for kind in OWNED:
        wire.ask("SADD" if kind == "parents" else "RPUSH", wire.key(f"{kind}:{job_id}"), "glide:{elsewhere}:x")


@pytest.mark.parametrize("settle", ["complete", "completeAndFetchNext", "fail"])
@pytest.mark.parametrize(
    "removal",
    [
        {"removeMode": "true"},
        {"removeMode": "count", "removeCount": 1},
        {"removeMode": "age_count", "removeAge": 5},
        {"removeMode": "age_count", "removeCount": 1},
    ],
    ids=str,
)
def test_w29_retention_removes_all_that_belonged_to_the_job(wire: Wire, settle: str, removal: dict[str, Word]) -> None:
    old = "old" if removal["removeMode"] != "true" else "1"
    if old == "old":
        name = "failed" if settle == "fail" else "completed"
        wire.make_job("old", state=name)
        wire.ask("ZADD", wire.key(name), 1, "old")
    job_id, entry_id = wire.active()
    own_everything(wire, old)
    wire.call(settle, jobId=job_id, entryId=entry_id, **removal)
    assert [kind for kind in ("job", *OWNED) if wire.exists(f"{kind}:{old}")] == []
    if old == "old":
        assert wire.exists(f"job:{job_id}")


def test_w29_drain_removes_the_parents_too(wire: Wire) -> None:
    own_everything(wire, wire.add())
    assert wire.call("drain") == 1
    assert [kind for kind in OWNED if wire.exists(f"{kind}:1")] == []


def test_w29_removal_removes_the_dependencies_too(wire: Wire) -> None:
    parent, child = wire.flow_ids({})
    wire.call("removeJob", jobId=parent)
    assert wire.names("deps:") == set()
    assert wire.state(child) == "waiting"
