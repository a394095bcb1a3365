"""The worker's machine decides rightly, whatever happens in whatever order."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestration_queue.protocol.lease import Completion, Delivery, Lease
from orchestration_queue.protocol.operations.exchanges import Why
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.worker.machine import (
    Acknowledge,
    Exchange,
    Leave,
    Listen,
    Machine,
    Pause,
    Phase,
    Recover,
    Rest,
)


@cache
def outcome(job_id: str) -> Completion:
    """The same one for the same job: two leases are never equal."""
    return Completion(Lease(JobRecord(job_id, {}), "1-1"), "null")


def trip(machine: Machine) -> Exchange:
    """The machine's next step, which must be an exchange."""
    step = machine.step()
    assert isinstance(step, Exchange)
    return step


def idle(slots: int) -> Machine:
    """A machine that has just learnt that its queue is empty."""
    machine = Machine(slots)
    for under_way in (trip(machine), *([trip(machine)] if slots > 1 else [])):
        machine.exchanged(under_way, started=0, why=Why.EMPTY)
    return machine


def busy(slots: int, why: Why = Why.ENOUGH) -> Machine:
    """A machine all of whose slots are taken."""
    machine = Machine(slots)
    while isinstance(step := machine.step(), Exchange):
        machine.exchanged(step, started=step.want, why=why)
    return machine


def end(machine: Machine, job_id: str) -> None:
    """A job's handler ends."""
    machine.add_outcome(outcome(job_id))
    machine.finished()


def test_it_sets_out_on_two_trips_each_for_half_of_its_places() -> None:
    machine = Machine(5)
    assert (machine.step(), machine.step(), machine.step()) == (Exchange(want=3), Exchange(want=2), Rest())


def test_no_more_than_two_exchanges_are_in_progress() -> None:
    machine = Machine(4)
    first, _ = trip(machine), trip(machine)
    machine.add_outcome(outcome("1"))
    assert machine.step() == Rest()
    machine.exchanged(first, started=0, why=Why.EMPTY)
    assert machine.step() == Exchange(settle=(outcome("1"),))


@pytest.mark.parametrize("why", [Why.ENOUGH, Why.EMPTY, Why.UNASKED])
def test_an_exchange_that_requested_nothing_only_says_that_jobs_are_left(why: Why) -> None:
    machine = idle(2)
    machine.recovered([])
    machine.exchanged(trip(machine), started=1, why=Why.EMPTY)
    end(machine, "1")
    told = trip(machine)
    assert told.want == 0
    machine.exchanged(told, started=0, why=why)
    assert machine.backlog is (why is Why.ENOUGH)


def test_it_listens_when_the_queue_is_empty() -> None:
    machine = idle(3)
    assert (machine.step(), machine.step()) == (Listen(3), Rest())


def test_it_tells_outcomes_and_takes_more_in_one_trip_while_there_is_a_backlog() -> None:
    machine = busy(2)
    assert machine.step() == Rest()
    end(machine, "1")
    assert machine.step() == Exchange(settle=(outcome("1"),), want=1)


def test_it_starts_what_it_heard_of_before_it_listens_again() -> None:
    machine = idle(1)
    machine.step()
    machine.delivered([Delivery("7", "1-1")])
    assert machine.step() == Exchange(start=(Delivery("7", "1-1"),))


def test_it_looks_into_the_lists_when_a_wait_brought_nothing() -> None:
    machine = idle(1)
    assert machine.step() == Listen(1)
    machine.delivered([])
    assert machine.step() == Exchange(want=1)


def test_a_worker_that_hears_of_jobs_in_shares_asks_for_them_in_place_of_waiting() -> None:
    machine = idle(3)
    assert machine.step() == Listen(3)
    machine.delivered([Delivery("1", "1-1")])
    start = trip(machine)
    assert (len(start.start), start.want) == (1, 0)
    machine.exchanged(start, started=1, why=Why.ENOUGH)
    assert machine.step() == Exchange(want=2)


def test_one_trip_is_enough_to_find_out_whether_there_is_anything() -> None:
    machine = idle(4)
    machine.step()
    machine.delivered([])
    look = trip(machine)
    assert (look, machine.step()) == (Exchange(want=2), Rest())
    machine.exchanged(look, started=2, why=Why.ENOUGH)
    assert (machine.step(), machine.step()) == (Exchange(want=2), Rest())


def test_what_a_failed_trip_carried_goes_with_the_next_one_before_what_came_since() -> None:
    machine = busy(2)
    end(machine, "1")
    failed = trip(machine)
    assert failed.settle == (outcome("1"),)
    end(machine, "2")
    machine.failed(failed)
    assert machine.step() == Recover()
    machine.recovered([])
    assert [told.lease.job_id for told in trip(machine).settle] == ["1", "2"]


def test_it_recovers_only_when_nothing_else_is_under_way() -> None:
    machine = Machine(2)
    first, second = trip(machine), trip(machine)
    machine.failed(first)
    assert machine.step() == Rest()
    machine.exchanged(second, started=1, why=Why.EMPTY)
    assert machine.step() == Recover()
    machine.recovered([Delivery("7", "1-1")])
    assert machine.step() == Exchange(start=(Delivery("7", "1-1"),))


def test_a_wait_that_failed_is_followed_by_a_recovery() -> None:
    machine = idle(1)
    machine.step()
    machine.listen_failed()
    assert machine.step() == Recover()


def test_what_is_under_way_is_still_held() -> None:
    machine = busy(1, Why.EMPTY)
    end(machine, "1")
    machine.recovered([Delivery("2", "1-1")])
    trip(machine)
    assert machine.held == {"1", "2"}


def test_draining_hands_back_what_has_not_started_and_leaves_when_all_is_told() -> None:
    machine = busy(1)
    machine.recovered([Delivery("7", "1-1")])
    machine.drain()
    handed_back = trip(machine)
    assert handed_back == Exchange(hand_back=(Delivery("7", "1-1"),))
    machine.exchanged(handed_back, started=0, why=Why.UNASKED)
    assert machine.step() == Rest()
    end(machine, "1")
    told = trip(machine)
    assert told == Exchange(settle=(outcome("1"),))
    assert machine.step() == Rest()
    machine.exchanged(told, started=0, why=Why.UNASKED)
    assert machine.step() == Leave()


def test_abandoning_waits_neither_for_what_runs_nor_for_a_server_that_is_away() -> None:
    machine = busy(2)
    end(machine, "1")
    under_way = trip(machine)
    machine.abandon()
    machine.failed(under_way)
    assert machine.step() == Leave()


def test_a_full_queue_is_asked_again_after_a_moment_or_with_an_outcome_and_never_listened_to() -> None:
    machine = Machine(1)
    machine.exchanged(trip(machine), started=0, why=Why.FULL)
    assert machine.step() == Rest(briefly=True)
    machine.look_again()
    machine.exchanged(trip(machine), started=1, why=Why.FULL)
    assert machine.step() == Rest(briefly=True)
    end(machine, "1")
    assert machine.step() == Exchange(settle=(outcome("1"),), want=1)


def test_a_pause_that_a_trip_reports_stops_the_taking() -> None:
    machine = Machine(1)
    machine.exchanged(trip(machine), started=0, why=Why.PAUSED)
    assert machine.pauses == {Pause.QUEUE}
    assert machine.step() == Rest()


def test_a_paused_worker_takes_nothing_and_looks_again_when_resumed() -> None:
    machine = Machine(1)
    machine.pause(Pause.QUEUE)
    assert machine.step() == Rest()
    machine.resume(Pause.QUEUE)
    assert machine.step() == Exchange(want=1)


def test_it_takes_nothing_until_everybody_who_paused_has_resumed() -> None:
    machine = Machine(1)
    machine.pause(Pause.QUEUE)
    machine.pause(Pause.WORKER)
    machine.resume(Pause.QUEUE)
    assert machine.step() == Rest()
    machine.resume(Pause.WORKER)
    assert machine.step() == Exchange(want=1)


def test_a_drain_is_not_undone_by_a_resume() -> None:
    machine = Machine(1)
    machine.drain()
    machine.resume(Pause.QUEUE)
    assert machine.phase is Phase.DRAINING


class Play:
    """A queue, handlers and luck around a machine."""

    def __init__(self, slots: int) -> None:
        self.machine = Machine(slots)
        self.made = 0
        self.running: list[str] = []
        self.told: list[str] = []
        self.away: list[Exchange] = []
        self.listening = 0

    def jobs(self, count: int) -> list[str]:
        """Jobs come out of the queue."""
        self.made += count
        return [str(number) for number in range(self.made - count, self.made)]

    def move(self, luck: int) -> None:
        """Let the machine take a step, and let something happen."""
        match self.machine.step():
            case Exchange() as step:
                self.away.append(step)
            case Listen(want):
                self.listening = want
            case Recover():
                self.machine.recovered([])
        if luck % 3 == 0 and self.away:
            self.back(self.away.pop(luck % len(self.away)), luck)
        elif luck % 3 == 1 and self.running:
            end(self.machine, self.running.pop())
        elif self.listening:
            delivered = self.jobs(min(self.listening, luck))
            self.machine.delivered([Delivery(job_id, "1-1") for job_id in delivered])
            self.listening = 0

    def back(self, step: Exchange, luck: int) -> None:
        """An exchange returns, or fails."""
        if luck % 7 == 0:
            self.machine.failed(step)
            return
        self.told += [settlement.lease.job_id for settlement in step.settle]
        self.made -= len(step.hand_back)
        fresh = self.jobs(min(step.want, luck))
        started = [delivery.job_id for delivery in step.start] + fresh
        self.running += started
        self.machine.exchanged(step, len(started), Why.ENOUGH if len(fresh) == step.want else Why.EMPTY)


@given(slots=st.integers(1, 8), luck=st.lists(st.integers(0, 41), max_size=300))
def test_it_never_runs_more_than_it_has_places_for_and_tells_every_outcome_once(slots: int, luck: list[int]) -> None:
    play = Play(slots)
    for chance in luck:
        play.move(chance)
        assert len(play.running) == play.machine.running <= slots
        assert len(play.away) <= 2
    play.machine.drain()
    if play.listening:
        play.machine.delivered([])
    while True:
        while play.running:
            end(play.machine, play.running.pop())
        step = play.machine.step()
        if isinstance(step, Leave):
            break
        if isinstance(step, Recover):
            play.machine.recovered([])
        if isinstance(step, Exchange):
            play.away.append(step)
        if play.away:
            play.back(play.away.pop(), 1)
    assert len(play.told) == len(set(play.told)) == play.made


def test_what_arrives_after_a_pause_goes_back_unstarted() -> None:
    machine = idle(3)
    assert machine.step() == Listen(3)
    machine.pause(Pause.WORKER)
    assert machine.may_receive
    machine.delivered([Delivery("1", "1-1"), Delivery("2", "2-1")])
    back = trip(machine)
    assert back == Exchange(hand_back=(Delivery("1", "1-1"), Delivery("2", "2-1")))
    machine.exchanged(back, started=0, why=Why.UNASKED)
    assert (machine.step(), machine.may_receive) == (Rest(), False)
    machine.resume(Pause.WORKER)
    assert trip(machine).want == 2


def test_a_worker_with_fewer_slots_keeps_what_runs_and_takes_no_more() -> None:
    machine = busy(4)
    machine.resize(2)
    assert machine.step() == Rest()
    for job_id in ("1", "2"):
        end(machine, job_id)
    step = trip(machine)
    assert (len(step.settle), step.want) == (2, 0)
    machine.exchanged(step, started=0, why=Why.UNASKED)
    end(machine, "3")
    assert trip(machine).want == 1


def test_a_worker_with_fewer_slots_hands_back_what_was_promised_to_more() -> None:
    machine = idle(3)
    assert machine.step() == Listen(3)
    machine.resize(1)
    first, second, third = (Delivery(str(number), f"{number}-1") for number in (1, 2, 3))
    machine.delivered([first, second, third])
    assert machine.step() == Exchange(start=(first,), hand_back=(second, third))


def test_an_exchange_takes_slots_for_what_it_starts_and_for_what_it_requests() -> None:
    machine = idle(3)
    machine.step()  # it listens
    machine.delivered([Delivery("1", "1-1")], ["s"])
    assert trip(machine) == Exchange(start=(Delivery("1", "1-1"),), want=2)
    assert machine.taken == 3


@pytest.mark.parametrize(
    ("exchange", "expected"),
    [
        (Exchange(want=1), True),
        (Exchange(start=(Delivery("1", "1-1"),)), True),
        (Exchange(settle=(outcome("1"),)), False),
    ],
)
def test_jobs_may_arrive_while_an_exchange_requests_or_starts_some(exchange: Exchange, expected: bool) -> None:
    assert Machine(2, underway=[exchange]).may_receive is expected


@pytest.mark.parametrize(
    "machine",
    [
        Machine(1, running=1),
        Machine(1, outbox=[outcome("1")]),
        Machine(1, inbox=[Delivery("1", "1-1")]),
        Machine(1, underway=[Exchange(want=1)]),
    ],
)
def test_a_machine_is_quiet_only_without_jobs_outcomes_and_exchanges(machine: Machine) -> None:
    assert not machine.is_quiet
    assert Machine(1).is_quiet


def test_a_worker_with_more_slots_takes_more_at_once() -> None:
    machine = busy(2)
    machine.resize(6)
    assert [trip(machine).want, trip(machine).want] == [3, 1]


@pytest.mark.parametrize("bring_about", [lambda machine: machine.pause(Pause.WORKER), Machine.drain])
def test_outcomes_are_told_whatever_it_is_up_to(bring_about: Callable[[Machine], None]) -> None:
    machine = Machine(1, running=1)
    bring_about(machine)
    machine.add_outcome(outcome("1"))
    machine.finished()
    assert machine.step() == Exchange(settle=(outcome("1"),))


def signalled(machine: Machine) -> Machine:
    """The same machine, whose wait at the server ended with a signal that a list holds a job."""
    machine.step()  # it listens
    machine.delivered([], ["s"])
    return machine


def test_a_signal_is_heeded_once_the_lists_are_empty() -> None:
    machine = signalled(idle(2))
    first = trip(machine)
    assert first.want
    machine.exchanged(first, started=1, why=Why.ENOUGH)
    second = trip(machine)  # there may be more
    machine.exchanged(second, started=0, why=Why.EMPTY)
    assert machine.step() == Acknowledge(("s",), pass_on=False)
    assert machine.step() == Listen(1)


def test_a_signal_that_came_after_the_question_is_asked_about_again() -> None:
    machine = idle(2)
    machine.look_again()
    asked = trip(machine)
    machine.delivered([], ["s"])
    machine.exchanged(asked, started=0, why=Why.EMPTY)  # before the job was there
    assert trip(machine).want


def test_a_worker_that_cannot_look_passes_a_signal_on() -> None:
    machine = signalled(idle(1))
    machine.pause(Pause.WORKER)
    assert machine.step() == Acknowledge(("s",), pass_on=True)
    assert machine.step() == Rest()


@pytest.mark.parametrize(("running", "passes"), [(1, False), (2, True)])
def test_a_worker_without_a_free_slot_passes_a_signal_on(running: int, passes: bool) -> None:
    machine = idle(2)
    machine.step()  # it listens with both slots
    machine.delivered([Delivery(str(n), f"{n}-0") for n in range(running)], ["s"])
    step = machine.step()
    if passes:
        assert step == Acknowledge(("s",), pass_on=True)
    else:
        assert isinstance(step, Exchange)
        assert (len(step.start), step.want) == (1, 1)


def test_a_signal_found_in_a_recovery_is_heeded_as_any_other() -> None:
    machine = idle(1)
    machine.step()
    machine.listen_failed()
    assert machine.step() == Recover()
    machine.recovered([], ["s"])
    found = trip(machine)
    machine.exchanged(found, started=0, why=Why.EMPTY)
    assert machine.step() == Acknowledge(("s",), pass_on=False)
