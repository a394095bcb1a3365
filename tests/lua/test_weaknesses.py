"""What upstream's library does badly and ours must not: creation, ghosts, stalls, leaks. By the number of the weakness.

A ghost is a job hash that some call created although the job is gone. Groups and lists have files of their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.lua.hand_worker import HandWorker
from tests.lua.wire import MINUTE, NOW, Wire, Word, event

LATER = NOW + 60_000
TOO_EXPENSIVE = "ERR:COST_EXCEEDS_CAPACITY"
OWNED = ("log", "deps", "parents", "jstream", "signals", "steps")


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


# -- W8: entries that no worker can run


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


# -- W7b, W32, W40: smaller things


@pytest.mark.parametrize("state", ["active", "completed", "failed"])
def test_w7b_promotion_starts_no_job_that_is_under_way_or_done(wire: Wire, state: str) -> None:
    wire.make_job("7", state=state, priority=0, name="n")
    wire.ask("ZADD", wire.key("scheduled"), NOW, "7")
    wire.call("promote")
    assert wire.state("7") == state
    assert wire.stream() == []
    assert not wire.exists("scheduled")


@pytest.mark.parametrize("values", [{"priority": 2}, {"lifo": 1}], ids=str)
def test_w32_the_retry_of_a_subscription_returns_to_the_stream(wire: Wire, values: dict[str, Word]) -> None:
    wire.make_job("7", state="active", name="news", **values)
    wire.call("fail", jobId="7", group="audit", maxAttempts=2, broadcastMode=1)
    assert wire.call("promote", now=NOW) == 1
    assert wire.stream() == [("jobId", "7", "name", "news", "retryGroup", "audit")]
    assert wire.elements("lifo") + wire.elements("priority") == []


@pytest.mark.parametrize("gate", ["moveToActive", "completeAndFetchNext", "promoteRateLimited", "complete"])
def test_w40_a_job_rejected_for_its_cost_counts_as_a_failure(wire: Wire, gate: str) -> None:
    """``complete`` meets it parked, when it looks for who may have the free slot."""
    settings: dict[str, Word] = {"orderingKey": "k", "tbCapacity": 9000, "tbRefillRate": 1}
    first, entry_id = wire.active(**settings)
    second = wire.add(**settings)
    if gate in ("promoteRateLimited", "complete"):
        assert wire.call("moveToActive", jobId=second, entryId=wire.fetched()[0]) == "GROUP_FULL"
        wire.ask("ZADD", wire.key("ratelimited"), NOW, "k")
    wire.set_fields("group:k", maxConcurrency=9)
    wire.make_job(second, cost=9001)
    if gate == "moveToActive":
        wire.call(gate, jobId=second, entryId=wire.fetched()[0])
    else:
        wire.call(gate, **{} if gate == "promoteRateLimited" else {"jobId": first, "entryId": entry_id})
    assert wire.job(second)["failedReason"] == "cost exceeds token bucket capacity"
    assert wire.hash("metrics:failed") == {f"m:{MINUTE}:c": "1"}
    completed = {f"m:{MINUTE}:c": "1"} if gate.startswith("complete") else {}
    assert wire.hash("metrics:completed") == completed
