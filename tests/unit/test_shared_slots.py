"""Workers of several queues share their slots: never more jobs at a time, and the queues served in the right order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestration_queue.errors import InvalidOptionError, UsageError
from orchestration_queue.options import Batch, WorkerOptions
from orchestration_queue.protocol.lease import Completion, Delivery, Lease
from orchestration_queue.protocol.operations.exchanges import Why
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.worker import Polling, SharedSlots, Worker
from orchestration_queue.worker.machine import Exchange, Machine, Pause, Recover, Rest, Watch


class Fleet:
    """Workers of several queues that share their slots, and the queues themselves, played by hand."""

    def __init__(self, slots: int, polling: Polling, ready: list[int]) -> None:
        self.slots = SharedSlots(slots, polling)
        self.machines = [Machine(slots, shared=self.slots) for _ in ready]
        self.ready = ready
        self.order: list[int] = []
        """From which queue each job came, as they started."""
        self.trips: list[tuple[int, Exchange]] = []
        for machine in self.machines:
            self.slots.join(machine)

    def set_out(self, queue: int) -> None:
        """Let one worker decide until it rests."""
        while not isinstance(step := self.machines[queue].step(), Rest | Watch):
            assert isinstance(step, Exchange)
            self.trips.append((queue, step))

    def arrive(self, place: int = 0) -> None:
        """Let one exchange return."""
        queue, trip = self.trips.pop(place)
        jobs = min(trip.want, self.ready[queue])
        self.ready[queue] -= jobs
        self.order += [queue] * jobs
        why = Why.UNASKED if not trip.want else Why.ENOUGH if jobs == trip.want else Why.EMPTY
        self.machines[queue].exchanged(trip, jobs, why)

    def settle(self) -> None:
        """Let all workers run until nothing more happens."""
        while True:
            for queue in range(len(self.machines)):
                self.set_out(queue)
            if not self.trips:
                return
            self.arrive()

    def end(self, queue: int) -> None:
        """One job of the queue ends."""
        self.machines[queue].add_outcome(Completion(Lease(JobRecord("job", {}), "1-1"), "null"))
        self.machines[queue].finished()

    @property
    def running(self) -> list[int]:
        return [machine.running for machine in self.machines]


def test_the_first_queue_gets_every_place_while_it_has_jobs() -> None:
    fleet = Fleet(2, "ordered", [3, 2])
    fleet.settle()
    assert fleet.running == [2, 0]
    fleet.end(0)
    fleet.settle()
    assert fleet.order == [0, 0, 0]
    fleet.end(0)
    fleet.end(0)
    fleet.settle()
    assert (fleet.order, fleet.running) == ([0, 0, 0, 1, 1], [0, 2])


def test_a_job_of_the_first_queue_gets_the_next_place() -> None:
    fleet = Fleet(1, "ordered", [0, 5])
    fleet.settle()
    assert fleet.running == [0, 1]
    fleet.ready[0] = 1
    fleet.machines[0].delivered([])
    fleet.end(1)
    fleet.settle()
    assert fleet.order == [1, 0]


def test_the_second_queue_waits_until_the_first_knows_whether_it_has_jobs() -> None:
    fleet = Fleet(2, "ordered", [0, 5])
    fleet.set_out(0)
    assert fleet.machines[1].step() == Rest()
    fleet.settle()
    assert fleet.running == [0, 2]


@pytest.mark.parametrize(
    "hinder",
    [
        pytest.param(lambda machine: machine.pause(Pause.QUEUE), id="paused"),
        pytest.param(lambda machine: machine.listen_failed(), id="without its server"),
        pytest.param(lambda machine: machine.drain(), id="draining"),
        pytest.param(lambda machine: setattr(machine, "full", True), id="at its global concurrency"),
    ],
)
def test_a_queue_that_cannot_be_served_holds_nobody_up(hinder: Callable[[Machine], object]) -> None:
    fleet = Fleet(1, "ordered", [5, 1])
    hinder(fleet.machines[0])
    fleet.set_out(1)
    fleet.arrive()
    assert fleet.order == [1]


def test_a_worker_that_left_has_no_place() -> None:
    fleet = Fleet(1, "ordered", [1, 1])
    fleet.settle()
    assert fleet.running == [1, 0]
    fleet.slots.leave(fleet.machines[0])
    fleet.set_out(1)
    fleet.arrive()
    assert fleet.order == [0, 1]


def test_queues_take_turns() -> None:
    fleet = Fleet(1, "round-robin", [4, 2, 4])
    fleet.settle()
    while any(fleet.running):
        fleet.end(fleet.running.index(1))
        fleet.settle()
    assert fleet.order == [0, 1, 2, 0, 1, 2, 0, 2, 0, 2]


def test_free_places_are_shared_out_evenly() -> None:
    fleet = Fleet(6, "round-robin", [9, 9, 9])
    fleet.settle()
    assert fleet.running == [2, 2, 2]


@pytest.mark.parametrize(("slots", "running"), [(4, [2, 1, 1]), (5, [2, 2, 1])])
def test_a_remainder_goes_to_the_first(slots: int, running: list[int]) -> None:
    fleet = Fleet(slots, "round-robin", [9, 9, 9])
    fleet.settle()
    assert fleet.running == running


def test_a_remainder_is_shared_out_above_what_runs() -> None:
    fleet = Fleet(3, "round-robin", [1, 1])
    fleet.settle()
    assert fleet.running == [1, 1]
    fleet.ready[:] = [9, 9]
    for machine in fleet.machines:
        machine.delivered([])
    assert [fleet.slots.offer(machine) for machine in fleet.machines] == [1, 0]


def test_a_queue_of_long_jobs_leaves_others_their_share() -> None:
    fleet = Fleet(4, "round-robin", [9, 0])
    fleet.settle()
    assert fleet.running == [4, 0]
    fleet.ready[1] = 9
    fleet.machines[1].delivered([])
    for _ in range(3):
        fleet.end(0)
        fleet.settle()
    assert fleet.running == [2, 2]


def test_one_queue_alone_gets_all_places() -> None:
    fleet = Fleet(4, "round-robin", [0, 9])
    fleet.settle()
    assert fleet.running == [0, 4]


def test_a_change_is_announced_once_until_slots_are_offered() -> None:
    fleet, told = Fleet(2, "round-robin", [9, 9]), [0, 0]

    def hear(queue: int) -> Callable[[], None]:
        def note() -> None:
            told[queue] += 1

        return note

    for queue, machine in enumerate(fleet.machines):
        fleet.slots.subscribe(machine, hear(queue))
    fleet.settle()
    for _ in range(3):
        fleet.slots.changed()
    assert told == [1, 1]
    fleet.end(0)
    fleet.set_out(0)
    fleet.slots.changed()
    assert told == [2, 2]


def test_a_worker_takes_no_more_than_its_own_concurrency() -> None:
    slots = SharedSlots(4)
    machine = Machine(1, shared=slots)
    slots.join(machine)
    assert (machine.step(), machine.step()) == (Exchange(want=1), Rest())


def test_a_worker_requests_only_the_rest_of_its_own_concurrency() -> None:
    slots = SharedSlots(6)
    machine = Machine(3, batch_size=2, shared=slots)
    slots.join(machine)
    assert [machine.step(), machine.step()] == [Exchange(want=2), Exchange(want=1)]


def test_a_worker_at_its_own_concurrency_leaves_the_rest_to_others() -> None:
    fleet = Fleet(3, "ordered", [9, 9])
    fleet.machines[0].slots = 1
    fleet.settle()
    assert fleet.running == [1, 2]


def test_it_watches_its_queue_even_while_others_have_all_places() -> None:
    fleet = Fleet(1, "ordered", [0, 1])
    machine = fleet.machines[0]
    fleet.set_out(0)
    fleet.arrive()
    fleet.set_out(1)
    fleet.arrive()
    assert (fleet.running, machine.step(), machine.step()) == ([0, 1], Watch(), Rest())
    machine.delivered([])
    assert machine.step() == Rest(), "there is a job, and no place for it"


def test_jobs_of_a_lost_answer_go_back_when_their_places_are_taken() -> None:
    fleet = Fleet(1, "ordered", [1, 1])
    fleet.set_out(0)
    _, lost = fleet.trips.pop()
    first, second = fleet.machines
    first.failed(lost)
    assert first.step() == Recover()
    fleet.set_out(1)
    fleet.arrive()
    found = Delivery("1", "1-1")
    first.recovered([found])
    back = first.step()
    assert (back, second.running) == (Exchange(hand_back=(found,)), 1)
    assert isinstance(back, Exchange)
    first.exchanged(back, 0, Why.UNASKED)
    assert first.wants_jobs, "the job is ready, and has the next place"


@given(
    slots=st.integers(1, 5),
    polling=st.sampled_from(["ordered", "round-robin"]),
    ready=st.lists(st.integers(0, 6), min_size=1, max_size=4),
    moves=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=60),
)
def test_there_are_never_more_jobs_than_places_and_none_is_left(
    slots: int, polling: Any, ready: list[int], moves: list[tuple[int, int]]
) -> None:
    fleet = Fleet(slots, polling, ready)
    total = sum(ready)
    for move, which in moves:
        if move < 2:
            fleet.set_out(which % len(ready))
        elif move == 2 and fleet.trips:
            fleet.arrive(which % len(fleet.trips))
        elif running := [queue for queue, count in enumerate(fleet.running) if count]:
            fleet.end(running[which % len(running)])
        assert sum(fleet.running) <= slots
    fleet.settle()
    while any(fleet.running):
        fleet.end(max(range(len(ready)), key=fleet.running.__getitem__))
        fleet.settle()
        assert sum(fleet.running) <= slots
    assert len(fleet.order) == total
    assert all(isinstance(machine.step(), Rest) for machine in fleet.machines), "no worker asks when there is nothing"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: SharedSlots(0), "`count` must be a whole number >= 1, got 0; pass `SharedSlots(8)`."),
        (
            lambda: SharedSlots(1, "random"),  # type: ignore[arg-type]  # what a caller may write
            "`polling` must be 'ordered' or 'round-robin', got 'random'; pass one of them.",
        ),
    ],
)
def test_bad_places_are_refused(make: Callable[[], object], says: str) -> None:
    with pytest.raises(InvalidOptionError) as refused:
        make()
    assert str(refused.value) == says


def test_batches_need_places_of_their_own() -> None:
    with pytest.raises(UsageError, match="drop one of them"):
        Worker("q", lambda jobs: None, options=WorkerOptions(batch=Batch(size=2)), slots=SharedSlots(1))
