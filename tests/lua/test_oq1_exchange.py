"""`oq1_exchange`: outcomes count for the holder of the lease, once, and many jobs cost one exchange."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from orchestration_queue.protocol.functions.oq1 import Delivered, HandBack, Settled
from tests.lua.oq1 import Own, Started, completed, failed, new_job, paused
from tests.lua.oq1_reference import OneByOne
from tests.lua.test_oq1_propagate import propagate
from tests.lua.wire import NOW, Wire, Word, due, event

LATER = NOW + 5000


@pytest.fixture
def own(wire: Wire) -> Own:
    wire.open_group()
    return Own(wire)


def test_a_batch_is_settled_and_another_is_taken_in_one_call(own: Own) -> None:
    own.add(*(new_job(f"j{n}") for n in range(5)))
    first = own.exchange(want=3)
    assert (first.ids, first.outcomes, first.stopped) == (["1", "2", "3"], "", "enough")
    good, bad, flaky = first.started
    settled = (completed(good, '"ok"'), failed(bad), failed(flaky, max_attempts=2, wait_ms=9))
    second = own.exchange(*settled, want=9, now=LATER)
    assert (second.ids, second.outcomes, second.stopped) == (["4", "5"], "cfr", "empty")
    assert [own.wire.state(str(n)) for n in range(1, 6)] == ["completed", "failed", "delayed", "active", "active"]
    assert second.started[0].fields == own.wire.hash("job:4")
    assert own.wire.events()[5:] == [
        event("completed", 1, returnvalue='"ok"'),
        event("failed", 2, failedReason="boom"),
        event("retrying", 3, failedReason="boom", attemptsMade=1, delay=9),
    ]


def test_what_is_due_is_taken_without_a_round_of_promotions(own: Own) -> None:
    own.add(new_job(), new_job(priority=2), new_job(delay_ms=5), new_job(delay_ms=10**9))
    assert own.exchange(want=9, now=LATER).ids == ["2", "1", "3"]
    assert own.wire.state("4") == "delayed"


def test_an_empty_trip_does_nothing(own: Own) -> None:
    own.add(new_job())
    with own.wire.unchanged():
        reply = own.exchange()
    assert (reply.outcomes, reply.started, reply.notices, reply.stopped) == ("", [], [], "")


def test_a_thousand_jobs_travel_together(own: Own) -> None:
    own.add(*(new_job() for _ in range(1500)))
    held = own.take(1500)
    reply = own.exchange(*(completed(job) for job in held), want=1)
    assert (reply.outcomes, reply.stopped) == ("c" * 1500, "empty")
    assert own.wire.ask("ZCARD", own.wire.key("completed")) == 1500
    assert own.wire.ask("XLEN", own.wire.key("stream")) == 0


def held_back(job: Started) -> Settled:
    return paused("g", job, "front", wait_ms=1)


# -- the fence -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settle", [completed, failed, *(partial(paused, kind) for kind in "dws"), held_back])
@pytest.mark.parametrize(
    ("fields", "keeps_entry"),
    [
        ({}, False),
        ({"state": "waiting"}, True),
        ({"state": "active"}, True),
        ({"state": "active", "processedOn": NOW + 1}, True),
        ({"state": "active", "processedOn": NOW, "stalledCount": 1}, True),
        ({"state": "delayed", "processedOn": NOW}, True),
        ({"state": "suspended", "processedOn": NOW}, True),
        ({"state": "waiting-children", "processedOn": NOW}, True),
        ({"state": "group-waiting", "processedOn": NOW}, True),
        ({"state": "failed", "processedOn": NOW}, False),
        ({"state": "completed", "processedOn": NOW + 1}, False),
        ({"state": "completed", "processedOn": NOW, "stalledCount": 1}, False),
    ],
    ids=lambda value: "-".join(map(str, value.values())) or "gone" if isinstance(value, dict) else "",
)
def test_a_lost_lease_settles_nothing(own: Own, settle: object, fields: dict[str, Word], keeps_entry: bool) -> None:
    assert callable(settle)
    own.add(new_job())
    (job,) = own.take()
    own.wire.ask("DEL", own.wire.key("job:1"))
    if fields:
        own.wire.make_job("1", **fields)
    own.wire.forget_events()
    before = own.wire.job("1")
    assert own.exchange(settle(job), now=LATER).outcomes == "l"
    assert own.wire.job("1") == before
    assert not own.wire.events()
    assert own.wire.names() == ({"id", "stream"} | ({"job:1"} if fields else set()))
    assert own.wire.ask("XLEN", own.wire.key("stream")) == int(keeps_entry)


@pytest.mark.parametrize("settle", [completed, failed])
def test_telling_twice_counts_once(own: Own, settle: object) -> None:
    assert callable(settle)
    own.add(*(new_job(ordering_key="g", group_concurrency=1) for _ in range(3)))
    (job,) = own.take()
    assert own.exchange(settle(job), now=LATER).outcomes in "cf"
    with own.wire.unchanged():
        assert own.exchange(settle(job), now=LATER + 1).outcomes == ("c" if settle is completed else "l")
        assert own.exchange(failed(job, max_attempts=5)).outcomes == "l"


def test_a_reclaimed_job_belongs_to_its_new_worker(own: Own) -> None:
    own.add(new_job())
    (stale,) = own.take()
    assert own.wire.call("reclaimStalled", timestamp=LATER) == 1
    assert own.exchange(completed(stale), now=LATER).outcomes == "l"
    (fresh,) = own.take(now=LATER + 1, consumer="w-2")
    reply = own.exchange(completed(stale), completed(fresh), failed(stale), now=LATER + 2)
    assert reply.outcomes == "lcl"
    assert own.wire.job("1")["processedOn"] == str(LATER + 1)


@pytest.mark.parametrize("source", [{}, {"priority": 2}, {"lifo": 1}, {"orderingKey": "o"}], ids=str)
@pytest.mark.parametrize("settle", [completed, failed])
def test_two_starts_in_one_millisecond_are_told_apart(own: Own, source: dict[str, Word], settle: Any) -> None:
    own.wire.add(**source)
    (stale,) = own.take()
    function = "reclaimStalledListJobs" if stale.entry_id == "" else "reclaimStalled"
    assert own.wire.call(function, maxStalledCount=9) == 1
    (fresh,) = own.take(consumer="w-2")
    assert (stale.taken_ms, stale.stalled_count) == (NOW, 0)
    assert (fresh.taken_ms, fresh.stalled_count) == (NOW, 1)
    with own.wire.unchanged():
        assert own.exchange(settle(stale)).outcomes == "l"
        assert own.renew((stale.job_id, NOW)) == [0]
    assert own.renew((fresh.job_id, NOW), stalled_count=1) == [1]
    assert own.exchange(settle(fresh)).outcomes in "cf"


def test_a_list_job_frees_its_place_once(own: Own) -> None:
    own.wire.add(lifo=1)
    own.wire.add(lifo=1)
    first, _ = own.take(2)
    assert own.wire.list_active() == 2
    for _ in range(3):
        own.exchange(completed(first), now=LATER)
    assert own.wire.list_active() == 1


# -- parents -------------------------------------------------------------------------------------------------------


def test_the_last_child_of_a_batch_releases_the_parent(own: Own) -> None:
    parent, *_ = own.wire.flow_ids({}, {})
    held = own.take(2)
    own.wire.forget_events()
    reply = own.exchange(*(completed(job) for job in held), want=5)
    assert reply.ids == [parent]
    assert own.wire.events()[-1] == event("active", parent)


def test_a_parent_registered_while_the_child_ran_is_told(own: Own) -> None:
    own.add(new_job())
    (job,) = own.take()
    (parent,) = own.wire.flow_ids()
    assert own.wire.call("registerParent", childJobId="1", parentId=parent, depsMember=own.wire.key("1")) == "ok"
    assert own.exchange(completed(job), want=1).ids == [parent]


def test_parent_fields_written_while_the_child_ran_are_honoured(own: Own) -> None:
    own.add(new_job())
    (job,) = own.take()
    (parent,) = own.wire.flow_ids(extra_deps=[own.wire.key("1")])
    own.wire.ask("HSET", own.wire.key("job:1"), "parentId", parent, "parentQueue", own.wire.queue)
    assert own.exchange(completed(job), want=1).ids == [parent]


@pytest.mark.parametrize("wiring", ["fields", "registered"])
@pytest.mark.parametrize("cluster", [False, True])
def test_a_parent_in_another_queue_is_told_at_once_or_left_to_the_caller(own: Own, wiring: str, cluster: bool) -> None:
    there = own.wire.sibling("elsewhere")
    (parent,) = there.flow_ids(extra_deps=[own.wire.key("1")])
    own.add(new_job())
    (job,) = own.take()
    if wiring == "fields":
        own.wire.ask("HSET", own.wire.key("job:1"), "parentId", parent, "parentQueue", "elsewhere")
    else:
        own.wire.ask("SADD", own.wire.key("parents:1"), f"{there.base}:{parent}", "bare:7", "nothing")
    reply = own.exchange(completed(job), cluster=cluster)
    notice = ("elsewhere", parent, own.wire.key("1"), "success")
    assert reply.notices == ([notice] if cluster else [])
    if cluster:
        assert there.state(parent) == "waiting-children"
        assert own.exchange(completed(job), cluster=True).notices == [notice], "the reply may have been lost"
        assert propagate(Own(there), news=[notice[1:]]).decisions == {parent: "run"}
    assert there.state(parent) == "waiting"
    assert there.stream_ids() == [parent]


# -- what is not told ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("skip_events", [False, True])
@pytest.mark.parametrize("skip_metrics", [False, True])
def test_completions_are_left_out_of_events_and_metrics(own: Own, skip_events: bool, skip_metrics: bool) -> None:
    skipped = {"skip_events": skip_events, "skip_metrics": skip_metrics}
    left, right = own.wire.sibling("left"), own.wire.sibling("right")
    for wire in (left, right):
        wire.open_group()
        for _ in range(2):
            wire.add(orderingKey="g", groupConcurrency=2)
        wire.add(orderingKey="h", tbCapacity=1000, tbRefillRate=1, cost=1000)
        wire.make_job("3", cost=9999)
    held = Own(left).take(2)
    assert Own(left).exchange(completed(held[0]), failed(held[1]), want=1, now=LATER, **skipped).outcomes == "cf"
    (job_id, entry_id), (other_id, other_entry) = right.take(), right.take()
    right.call("fail", jobId=other_id, entryId=other_entry, timestamp=LATER)
    flags = {"skipEvents": int(skip_events), "skipMetrics": int(skip_metrics)}
    right.call("completeAndFetchNext", jobId=job_id, entryId=entry_id, timestamp=LATER, **flags)
    assert sorted(left.events()) == sorted(right.events()), "the order of the two outcomes is the worker's"
    assert left.hash("metrics:completed") == right.hash("metrics:completed")
    assert left.hash("metrics:failed") == right.hash("metrics:failed")
    assert (event("completed", 1, returnvalue="null") in left.events()) is not skip_events
    assert left.exists("metrics:completed") is not skip_metrics


# -- deliveries ----------------------------------------------------------------------------------------------------


def deliver(own: Own, count: int = 1) -> list[Delivered]:
    """Read entries as a worker does that waits at the server."""
    entries = OneByOne(own.wire).fetch(count)
    return [Delivered(job_id=job_id, entry_id=entry_id) for entry_id, job_id in entries]


def test_delivered_jobs_are_started(own: Own) -> None:
    own.add(new_job(), new_job(), new_job())
    reply = own.exchange(deliveries=deliver(own, 2), now=LATER)
    assert (reply.ids, reply.stopped) == (["1", "2"], "")
    assert [job.taken_ms for job in reply.started] == [LATER, LATER]
    assert own.exchange(*(completed(job) for job in reply.started), want=5).ids == ["3"]


def test_a_delivery_whose_reply_was_lost_is_started_again_under_a_new_lease(own: Own) -> None:
    own.add(new_job())
    delivered = deliver(own)
    (lost,) = own.exchange(deliveries=delivered).started
    (again,) = own.exchange(deliveries=delivered, now=LATER).started
    assert own.exchange(completed(lost), completed(again)).outcomes == "lc"
    assert own.exchange(deliveries=delivered, now=LATER).started == []


def test_a_delivery_that_somebody_reclaimed_is_not_started(own: Own) -> None:
    own.add(new_job())
    delivered = deliver(own)
    own.wire.call("reclaimStalled", timestamp=LATER)
    with own.wire.unchanged():
        assert own.exchange(deliveries=delivered).started == []


def test_a_delivery_whose_entry_is_gone_keeps_no_other_from_starting(own: Own) -> None:
    own.add(new_job(), new_job(), new_job())
    delivered = deliver(own, 3)
    own.wire.ask("XDEL", own.wire.key("stream"), delivered[1].entry_id)
    assert own.exchange(deliveries=delivered, now=LATER).ids == ["1", "3"]


def test_deliveries_go_back_once(own: Own) -> None:
    own.add(new_job("a"), new_job("b"), new_job("c"))
    first, second = deliver(own, 2)
    back = HandBack(job_id=first.job_id, entry_id=first.entry_id)
    for _ in range(3):
        own.exchange(hand_backs=[back])
    assert own.wire.stream_ids() == ["2", "3", "1"]
    assert own.wire.state("1") == "waiting"
    assert own.exchange(deliveries=[second], want=5).ids == ["2", "3", "1"]


def test_a_delivery_of_a_removed_job_leaves_no_trace(own: Own) -> None:
    own.add(new_job(), new_job(), new_job())
    first, second = deliver(own, 2)
    for job_id in ("1", "2", "3"):
        own.wire.call("removeJob", jobId=job_id)
    back = HandBack(job_id=first.job_id, entry_id=first.entry_id)
    assert own.exchange(hand_backs=[back], deliveries=[second], want=5).started == []
    assert own.wire.names() == {"id", "stream", "events"}
    assert own.wire.ask("XLEN", own.wire.key("stream")) == 0


# -- what does not start -------------------------------------------------------------------------------------------


def test_what_cannot_start_does_not_count(own: Own) -> None:
    own.wire.ask("XADD", own.wire.key("stream"), "*", "strange", "entry")
    own.add(new_job(), new_job(ttl_ms=10), new_job(), new_job(), new_job())
    own.wire.call("removeJob", jobId="1")
    own.wire.ask("HSET", own.wire.key("job:3"), "revoked", 1)
    reply = own.exchange(want=2, now=LATER)
    assert (reply.ids, reply.stopped) == (["4", "5"], "enough")
    assert (own.wire.job("2")["failedReason"], own.wire.job("3")["failedReason"]) == ("expired", "revoked")
    assert own.wire.ask("XLEN", own.wire.key("stream")) == 2


def test_a_revoked_list_job_fails_once(own: Own) -> None:
    own.wire.add(lifo=1)
    own.wire.call("revoke", jobId="1")
    failed_at = own.wire.zset("failed")
    own.wire.ask("RPUSH", own.wire.key("lifo"), "1")
    assert own.exchange(want=3, now=LATER).started == []
    assert (own.wire.zset("failed"), own.wire.list_active()) == (failed_at, 0)


def test_a_second_entry_of_a_finished_job_does_not_run_it_again(own: Own) -> None:
    own.add(new_job())
    (job,) = own.take()
    own.exchange(completed(job))
    own.wire.ask("XADD", own.wire.key("stream"), "*", "jobId", "1", "name", "task")
    before = own.wire.job("1")
    reply = own.exchange(want=1, now=LATER)
    assert (reply.started, reply.stopped) == ([], "empty")
    assert (own.wire.job("1"), own.wire.ask("XLEN", own.wire.key("stream"))) == (before, 0)


def test_looking_for_jobs_has_a_bound(own: Own) -> None:
    own.add(*(new_job(ttl_ms=10) for _ in range(30)))
    reply = own.exchange(want=2, now=LATER)
    assert (reply.started, reply.stopped) == ([], "enough")
    assert own.wire.ask("XLEN", own.wire.key("stream")) == 30 - (3 * 2 + 10)


def test_lists_come_before_the_stream(own: Own) -> None:
    own.wire.add()
    own.wire.add(lifo=1)
    own.wire.add(priority=3)
    own.wire.add(lifo=1)
    own.wire.call("promote")
    reply = own.exchange(want=9)
    assert (reply.ids, reply.stopped) == (["3", "4", "2", "1"], "empty")
    assert [job.entry_id == "" for job in reply.started] == [True, True, True, False]
    assert own.wire.list_active() == 3


def test_a_deleted_stream_gets_its_group_again(own: Own) -> None:
    own.wire.ask("DEL", own.wire.key("stream"))
    own.add(new_job())
    assert own.exchange(want=1).ids == ["1"]


# -- pause and global concurrency ----------------------------------------------------------------------------------


def test_a_paused_queue_starts_nothing_and_takes_deliveries_back(own: Own) -> None:
    own.add(new_job(), new_job(), new_job())
    (job,) = own.take()
    delivered = deliver(own)
    own.wire.call("pause")
    reply = own.exchange(completed(job), deliveries=delivered, want=5)
    assert (reply.outcomes, reply.started, reply.stopped) == ("c", [], "paused")
    assert own.wire.stream_ids() == ["3", "2"]
    assert own.exchange(want=5, honor_pause=False).ids == ["3", "2"]


def test_global_concurrency_is_never_exceeded(own: Own) -> None:
    own.wire.ask("HSET", own.wire.key("meta"), "globalConcurrency", 3)
    own.wire.add(lifo=1)
    own.add(*(new_job() for _ in range(6)))
    first = own.exchange(want=2)
    assert (first.ids, first.stopped) == (["1", "2"], "enough")
    second = own.exchange(want=5, consumer="w-2")
    assert (second.ids, second.stopped) == (["3"], "full")
    assert own.exchange(want=1, consumer="w-2").stopped == "full"
    third = own.exchange(completed(first.started[0]), want=5)
    assert (third.ids, third.stopped) == (["4"], "full")


def test_deliveries_beyond_the_global_concurrency_go_back(own: Own) -> None:
    own.wire.ask("HSET", own.wire.key("meta"), "globalConcurrency", 2)
    own.add(new_job(), new_job(), new_job())
    reply = own.exchange(deliveries=deliver(own, 3))
    assert (reply.ids, reply.stopped) == (["1", "2"], "full")
    assert own.wire.state("3") == "waiting"
    held = reply.started
    assert own.exchange(completed(held[0]), completed(held[1]), want=2).ids == ["3"]


# -- beside the wire's own functions -------------------------------------------------------------------------------


def test_jobs_change_hands_between_both_libraries(own: Own) -> None:
    own.add(new_job(), new_job())
    theirs, entry_id = own.wire.take()
    (ours,) = own.take()
    assert own.wire.call("completeAndFetchNext", jobId=ours.job_id, entryId=ours.entry_id)[0] == "NEXT_NONE"
    assert own.exchange(completed(ours)).outcomes == "c"
    job = Started(theirs, entry_id, {"processedOn": str(NOW)})
    assert own.exchange(failed(job, max_attempts=2, wait_ms=100)).outcomes == "r"
    assert own.wire.zset("scheduled") == {theirs: due(NOW + 100)}
    assert own.wire.call("promote", now=LATER) == 1
    assert own.wire.take()[0] == theirs


def test_retention_is_as_the_batch_said_job_by_job(own: Own) -> None:
    own.add(*(new_job() for _ in range(7)))
    held = own.take(7)
    keep_two = {"remove_mode": "count", "remove_count": 2}
    rules: list[dict[str, Any]] = [{}, {}, keep_two, keep_two, {}, {"remove_mode": "true"}, {}]
    own.exchange(*(completed(job, **rule) for job, rule in zip(held, rules, strict=True)))
    assert sorted(own.wire.zset("completed")) == ["3", "4", "5", "7"]
    assert [own.wire.exists(f"job:{n}") for n in range(1, 8)] == [False, False, True, True, True, False, True]


# -- malformed calls -----------------------------------------------------------------------------------------------

HEAD: list[Word] = [NOW, "workers", "w-1", 0, 1, 0, "", 0, 0]
SETTLED: list[Word] = ["c", "1", "5-1", NOW, 0, "null", 0, 0, 0, "0", 0, 0]
KEPT = len(SETTLED) - 3


def takes(settled: int, words: int) -> str:
    """How a call is refused by the number of jobs that it says it settles, and of the words that follow."""
    head = len(HEAD) + 3
    return f"takes 12 keys and {head + settled * len(SETTLED)} arguments, not 12 and {head + words}"


def changed(words: list[Word], index: int, word: Word) -> list[Word]:
    return [*words[:index], word, *words[index + 1 :]]


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ([], "'now_ms' is not a whole number"),
        (changed([*HEAD, 0, 0, 0], 0, "now"), "'now_ms' is not a whole number"),
        (changed([*HEAD, 0, 0, 0], 3, "-1"), "'want' is not a whole number"),
        (changed([*HEAD, 0, 0, 0], 3, "1.5"), "'want' is not a whole number"),
        (changed([*HEAD, 0, 0, 0], 4, "yes"), "'honor_pause' is neither 0 nor 1"),
        (changed([*HEAD, 0, 0, 0], 5, ""), "'cluster' is neither 0 nor 1"),
        (changed([*HEAD, 0, 0, 0], 6, "a:b"), "'a:b' is not the name of a queue"),
        (changed([*HEAD, 0, 0, 0], 6, "{a"), "'{a' is not the name of a queue"),
        (changed([*HEAD, 0, 0, 0], 7, "2"), "'skip_events' is neither 0 nor 1"),
        (changed([*HEAD, 0, 0, 0], 8, "no"), "'skip_metrics' is neither 0 nor 1"),
        ([*HEAD, 1, 0, 0], takes(1, 0)),
        ([*HEAD, 0, 0, 0, "more"], takes(0, 1)),
        ([*HEAD, 1, 0, 0, *SETTLED[:-1]], takes(1, len(SETTLED) - 1)),
        ([*HEAD, 1, 0, 0, *changed(SETTLED, 0, "x")], "'x' is no kind of settlement"),
        ([*HEAD, 1, 0, 0, *changed(SETTLED, 0, "g")], "goes to 'front' or 'back' or is to 'fail', not to 'null'"),
        ([*HEAD, 1, 0, 0, *changed(SETTLED, 2, "5")], "'5' is not the id of a stream entry"),
        ([*HEAD, 1, 0, 0, *changed(SETTLED, 3, "")], "'taken_ms' is not a whole number"),
        ([*HEAD, 1, 0, 0, *changed(SETTLED, 4, "-1")], "'stalled_count' is not a whole number"),
        ([*HEAD, 1, 0, 0, *changed(SETTLED, KEPT - 3, "soon")], "'wait_ms' is not a whole number"),
        ([*HEAD, 1, 0, 0, *changed(SETTLED, KEPT - 1, "max")], "'extend' is neither 0 nor 1"),
        ([*HEAD, 1, 0, 0, *changed(SETTLED, KEPT, "all")], "'all' is no mode of retention"),
        ([*HEAD, 2, 0, 0, *changed(SETTLED, 2, ""), *changed(SETTLED, 0, "")], "'' is no kind of settlement"),
        ([*HEAD, 0, 1, 0, "1", ""], "'' is not the id of a stream entry"),
        ([*HEAD, 0, 0, 1, "1", "*"], "'*' is not the id of a stream entry"),
    ],
)
def test_malformed_arguments_are_refused_by_a_code_word(own: Own, args: list[Word], why: str) -> None:
    own.add(new_job())
    own.take()
    own.refused("exchange", list(own.exchange_call().keys), args, why)


def test_other_keys_are_refused(own: Own) -> None:
    keys = list(own.exchange_call().keys)
    own.refused("exchange", keys[1:], [*HEAD, 0, 0, 0], "arguments, not 11 and")
    own.refused("exchange", keys[::-1], [*HEAD, 0, 0, 0], "does not end in ':stream'")
