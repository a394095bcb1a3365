"""The worker's machine decides rightly, whatever happens in whatever order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestration_queue.protocol.operations.working import Completion, Delivery, Lease, Why
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.worker.machine import Exchange, Leave, Listen, Machine, Phase, Rest


def outcome(job_id: str) -> Completion:
    return Completion(Lease(JobRecord(job_id, {}), "1-1"), "null")


def test_it_first_asks_for_as_many_jobs_as_it_has_places() -> None:
    assert Machine(3).step() == Exchange(want=3)


def test_it_listens_when_the_queue_is_empty() -> None:
    machine = Machine(3)
    machine.exchanged(Exchange(want=3), started=0, why=Why.EMPTY)
    assert machine.step() == Listen(3)
    assert machine.step() == Rest()


def test_it_tells_outcomes_and_takes_more_in_one_trip_while_there_is_a_backlog() -> None:
    machine = Machine(2)
    machine.exchanged(Exchange(want=2), started=2, why=Why.ENOUGH)
    machine.tell(outcome("1"))
    machine.finished()
    assert machine.step() == Exchange(settle=(outcome("1"),), want=1)


def test_it_starts_what_it_heard_of_before_it_listens_again() -> None:
    machine = Machine(1, backlog=False)
    machine.step()
    machine.heard([Delivery("7", "1-1")])
    assert machine.step() == Exchange(start=(Delivery("7", "1-1"),))


def test_it_looks_into_the_lists_when_a_wait_brought_nothing() -> None:
    machine = Machine(1, backlog=False)
    assert machine.step() == Listen(1)
    machine.heard([])
    assert machine.step() == Exchange(want=1)


def test_an_exchange_that_failed_is_told_again_in_the_same_order() -> None:
    machine = Machine(1, backlog=False)
    machine.listening = 1
    machine.tell(outcome("1"))
    assert machine.step() == Exchange(settle=(outcome("1"),))
    machine.tell(outcome("2"))
    again = machine.step()
    assert isinstance(again, Exchange)
    assert [told.lease.job_id for told in again.settle] == ["1", "2"]


def test_draining_hands_back_what_has_not_started_and_leaves_when_all_is_told() -> None:
    machine = Machine(2, backlog=False)
    machine.running = 1
    machine.inbox = [Delivery("7", "1-1")]
    machine.drain()
    step = machine.step()
    assert step == Exchange(hand_back=(Delivery("7", "1-1"),))
    machine.exchanged(step, started=0, why=Why.EMPTY)
    assert machine.step() == Rest()
    machine.tell(outcome("1"))
    machine.finished()
    assert machine.step() == Exchange(settle=(outcome("1"),))
    machine.exchanged(Exchange(settle=(outcome("1"),)), started=0, why=Why.UNASKED)
    assert machine.step() == Leave()


def test_abandoning_does_not_wait_for_what_runs() -> None:
    machine = Machine(2)
    machine.running = 2
    machine.abandon()
    assert machine.step() == Leave()


def test_a_full_queue_is_asked_again_after_a_moment_or_with_an_outcome_and_never_listened_to() -> None:
    machine = Machine(2)
    machine.exchanged(Exchange(want=2), started=1, why=Why.FULL)
    assert machine.step() == Rest(briefly=True)
    machine.look_again()
    assert machine.step() == Exchange(want=1)
    machine.exchanged(Exchange(want=1), started=0, why=Why.FULL)
    machine.tell(outcome("1"))
    machine.finished()
    assert machine.step() == Exchange(settle=(outcome("1"),), want=2)


def test_a_pause_that_a_trip_reports_stops_the_taking() -> None:
    machine = Machine(1)
    machine.exchanged(Exchange(want=1), started=0, why=Why.PAUSED)
    assert machine.phase is Phase.PAUSED
    assert machine.step() == Rest()


def test_a_paused_worker_takes_nothing_and_looks_again_when_resumed() -> None:
    machine = Machine(1)
    machine.pause()
    assert machine.step() == Rest()
    machine.resume()
    assert machine.step() == Exchange(want=1)


def test_a_drain_is_not_undone_by_a_resume() -> None:
    machine = Machine(1)
    machine.drain()
    machine.resume()
    assert machine.phase is Phase.DRAINING


@given(places=st.integers(1, 8), luck=st.lists(st.integers(0, 9), max_size=200))
def test_it_never_runs_more_than_it_has_places_for_and_tells_every_outcome_once(places: int, luck: list[int]) -> None:
    machine = Machine(places)
    running: list[str] = []
    told: list[str] = []
    made = 0
    for chance in luck:
        step = machine.step()
        match step:
            case Exchange(settle, start, _, want):
                told += [settlement.lease.job_id for settlement in settle]
                taken = min(want, chance)
                fresh = [delivery.job_id for delivery in start] + [str(made + i) for i in range(taken)]
                made += taken
                running += fresh
                machine.exchanged(step, len(fresh), Why.ENOUGH if taken == want else Why.EMPTY)
            case Listen(want):
                heard = [Delivery(str(made + i), "1-1") for i in range(min(want, chance))]
                made += len(heard)
                machine.heard(heard)
            case Rest() if running:
                machine.tell(outcome(running.pop()))
                machine.finished()
            case _:
                machine.look_again()
        assert len(running) == machine.running <= places
    while running:
        machine.tell(outcome(running.pop()))
        machine.finished()
    machine.drain()
    while not isinstance(step := machine.step(), Leave):
        assert isinstance(step, Exchange)
        told += [settlement.lease.job_id for settlement in step.settle]
        handed_back = len(step.hand_back)
        machine.exchanged(step, 0, Why.UNASKED)
        made -= handed_back
    assert sorted(told, key=int) == sorted(set(told), key=int)
    assert len(told) == made


@pytest.mark.parametrize("phase", [Phase.PAUSED, Phase.DRAINING])
def test_outcomes_are_told_in_every_phase(phase: Phase) -> None:
    machine = Machine(1, phase=phase)
    machine.running = 1
    machine.tell(outcome("1"))
    machine.finished()
    assert machine.step() == Exchange(settle=(outcome("1"),))
