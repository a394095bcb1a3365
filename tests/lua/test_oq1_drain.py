"""`oq1_drain`: forget some of the jobs that have not started."""

from __future__ import annotations

import pytest

from orchestration_queue.protocol.functions import oq1
from tests.lua.oq1 import Own
from tests.lua.wire import WORKERS, Wire, Word, event

KEYS = ["stream", "scheduled", "events", "lifo", "priority"]


@pytest.fixture
def own(wire: Wire) -> Own:
    return Own(wire)


def drain(own: Own, limit: int, *, delayed: bool = False) -> int:
    return int(own.send(oq1.drain(own.keys, drain_delayed=delayed, group=WORKERS, limit=limit)))


def left(wire: Wire) -> set[str]:
    return {job_id for job_id in "12345678" if wire.exists(f"job:{job_id}")}


def test_no_more_than_the_limit_go_those_first_that_would_start_first_in_their_place(own: Own) -> None:
    wire = own.wire
    for options in ({}, {}, {"lifo": 1}, {"lifo": 1}, {"delay": 900}, {"delay": 500}):
        wire.add(**options)
    wire.forget_events()
    assert (drain(own, 1), left(wire)) == (1, {"2", "3", "4", "5", "6"})
    assert (drain(own, 2), left(wire)) == (2, {"3", "5", "6"})
    assert (drain(own, 2), left(wire)) == (1, {"5", "6"})
    assert drain(own, 2) == 0
    assert (drain(own, 1, delayed=True), left(wire)) == (1, {"5"})
    assert (drain(own, 9, delayed=True), left(wire)) == (1, set())
    assert not wire.stream()
    assert not wire.elements("lifo")
    assert not wire.zset("scheduled")
    assert wire.events() == [event("drained", removed) for removed in (1, 2, 1, 1, 1)]


def test_a_limit_of_nothing_removes_nothing(own: Own) -> None:
    wire = own.wire
    wire.add()
    wire.add(lifo=1)
    with wire.unchanged():
        assert drain(own, 0, delayed=True) == 0


def test_active_jobs_stay_and_count_nothing(own: Own) -> None:
    wire = own.wire
    active, _ = wire.active()
    wire.add()
    assert drain(own, 1) == 1
    assert drain(own, 1) == 0
    assert left(wire) == {active}
    assert len(wire.stream()) == 1


@pytest.mark.parametrize(
    ("keys", "args", "why"),
    [
        (KEYS[::-1], [0, WORKERS, 1], "does not end in ':stream'"),
        (KEYS[1:], [0, WORKERS, 1], "takes 5 keys and 3 arguments, not 4 and 3"),
        (KEYS, [0, WORKERS, 1, 1], "takes 5 keys and 3 arguments, not 5 and 4"),
        (KEYS, [0, WORKERS], "'limit' is not a whole number"),
        (KEYS, [0, WORKERS, -1], "'limit' is not a whole number"),
        (KEYS, [0, WORKERS, "all"], "'limit' is not a whole number"),
        (KEYS, [0, WORKERS, ""], "'limit' is not a whole number"),
    ],
)
def test_malformed_arguments_are_refused(own: Own, keys: list[str], args: list[Word], why: str) -> None:
    own.wire.add()
    own.refused("drain", [own.wire.key(name) for name in keys], args, why)
