"""`oq1_exchange`: an unfinished job runs again later, as with the wire's own functions, settled once and in time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from orchestration_queue.protocol.functions.oq1 import Settled
from tests.lua.oq1 import Own, Started, completed, failed, new_job, paused
from tests.lua.oq1_reference import OneByOne, same_but_for_entries
from tests.lua.wire import NOW, Wire, Word, due, event

LATER = NOW + 5000


@pytest.fixture
def own(wire: Wire) -> Own:
    wire.open_group()
    return Own(wire)


KINDS: dict[str, Callable[[Started], Settled]] = {
    "delayed": lambda job: paused("d", job, wait_ms=LATER + 700),
    "delayed, the time being over": lambda job: paused("d", job, wait_ms=NOW),
    "delayed with new data": lambda job: paused("d", job, '{"step":2}', wait_ms=LATER + 700),
    "children": lambda job: paused("w", job),
    "suspended": lambda job: paused("s", job),
    "suspended with a deadline": lambda job: paused("s", job, "ask Ada", wait_ms=900),
    "front": lambda job: paused("g", job, "front", wait_ms=500, extend=True),
    "back": lambda job: paused("g", job, "back", wait_ms=500),
    "fail": lambda job: paused("g", job, "fail", wait_ms=500, extend=True),
}
SOURCES: dict[str, dict[str, Word]] = {
    "the stream": {},
    "the priority list": {"priority": 3},
    "the LIFO list": {"lifo": 1},
    "an ordering group": {"orderingKey": "o"},
    "a group with places": {"orderingKey": "p", "groupConcurrency": 2},
    "a group, by priority": {"orderingKey": "p", "groupConcurrency": 2, "priority": 1},
}
kinds = pytest.mark.parametrize("settle", KINDS.values(), ids=KINDS)


@kinds
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_the_effects_are_those_of_the_wires_function(
    own: Own, source: dict[str, Word], settle: Callable[[Started], Settled]
) -> None:
    left, right = own.wire.sibling("left"), own.wire.sibling("right")
    workers = Own(left), OneByOne(right)
    letters = []
    for worker in workers:
        worker.wire.open_group()
        for _ in range(4):
            worker.wire.add(**source)
        worker.wire.ask("ZADD", worker.wire.key("ratelimited"), LATER + 10_000, "o")
        (job,) = worker.exchange(want=1).started
        letters.append(worker.exchange(settle(job), now=LATER).outcomes)
        worker.exchange(want=2, now=LATER)
    assert same_but_for_entries(left) == same_but_for_entries(right)
    assert letters[0] == letters[1] != "l"
    assert left.list_active() == right.list_active()


@kinds
def test_a_lease_that_another_has_taken_changes_nothing(own: Own, settle: Callable[[Started], Settled]) -> None:
    own.wire.add(orderingKey="o")
    (stale,) = own.take()
    own.wire.call("reclaimStalled", timestamp=LATER)
    with own.wire.unchanged():
        assert own.exchange(settle(stale), now=LATER).outcomes == "l"
    own.take(now=LATER, consumer="w-2")
    with own.wire.unchanged():
        assert own.exchange(settle(stale), now=LATER).outcomes == "l"


@kinds
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_telling_twice_counts_once(own: Own, source: dict[str, Word], settle: Callable[[Started], Settled]) -> None:
    own.wire.add(**source)
    own.wire.add(**source)
    job = own.exchange(want=1).started[0]
    assert own.exchange(settle(job), settle(job), now=LATER).outcomes[1] == "l"
    with own.wire.unchanged():
        assert own.exchange(settle(job), now=LATER + 1).outcomes == "l"


def test_each_kind_says_what_became_of_the_job(own: Own) -> None:
    own.wire.add(orderingKey="o")
    own.add(*(new_job() for _ in range(3)))
    grouped, *others = own.take(4)
    asked = [paused("g", grouped, "front", wait_ms=500)]
    asked += [paused(kind, job, wait_ms=LATER + 9) for kind, job in zip("dws", others, strict=True)]
    own.wire.forget_events()
    assert own.exchange(*asked, now=LATER).outcomes == "gdws"
    states = ["group-waiting", "delayed", "waiting-children", "suspended"]
    assert [own.wire.state(str(n)) for n in range(1, 5)] == states
    assert own.wire.zset("scheduled") == {"2": due(LATER + 9)}
    assert own.wire.events() == [
        event("group-rate-limited", 1, groupKey="o", duration=500, resumeAt=LATER + 500),
        event("delay-changed", 2, delay=9),
        event("waiting-children", 3),
        event("suspended", 4),
    ]
    assert own.wire.stream() == []


def test_a_job_whose_children_have_all_completed_runs_again_in_the_same_trip(own: Own) -> None:
    parent, child = own.wire.flow_ids({})
    own.exchange(*(completed(job) for job in own.take()))
    (job,) = own.take()
    assert job.job_id == parent != child
    reply = own.exchange(paused("w", job), want=1, now=LATER)
    assert (reply.outcomes, reply.ids) == ("a", [parent])


def test_a_suspended_job_goes_on_when_it_is_signalled(own: Own) -> None:
    own.wire.add(lifo=1)
    (job,) = own.take()
    own.exchange(paused("s", job, "ask Ada"))
    assert own.wire.list_active() == 0
    assert own.wire.call("signal", jobId=job.job_id) == "ok"
    assert own.take()[0].fields["suspendReason"] == "ask Ada"


def test_holding_a_group_back_without_one_fails_the_job(own: Own) -> None:
    own.add(new_job())
    (job,) = own.take()
    reply = own.exchange(paused("g", job, "front", wait_ms=500), now=LATER)
    assert reply.outcomes == "f"
    assert own.wire.job("1")["failedReason"] == "Cannot rate limit group: no_group"
    assert own.wire.job("1")["attemptsMade"] == "1"
    assert own.wire.events()[-1] == event("failed", 1, failedReason="Cannot rate limit group: no_group")
    assert not own.wire.exists("ratelimited")


@pytest.mark.parametrize(("extend", "end"), [(True, LATER + 9000), (False, LATER + 500)])
def test_a_later_end_of_a_hold_stays_if_it_is_to(own: Own, extend: bool, end: int) -> None:
    own.wire.add(orderingKey="o")
    (job,) = own.take()
    own.wire.call("rateLimitGroupExternal", groupKey="o", durationMs=9000, timestamp=LATER)
    own.exchange(paused("g", job, "front", wait_ms=500, extend=extend), now=LATER)
    assert own.wire.zset("ratelimited") == {"o": end}


@pytest.mark.parametrize("settle", [failed, partial(paused, "g", payload="front")])
def test_a_job_of_an_older_library_that_fails_lets_its_followers_go_on(
    own: Own, settle: Callable[[Started], Settled]
) -> None:
    own.add(new_job())
    own.wire.make_job("1", orderingKey="legacy", orderingSeq=1)
    (job,) = own.take()
    assert own.exchange(settle(job)).outcomes == "f"
    assert own.wire.hash("meta") == {"orderdone:legacy": "1"}
