"""A worker that has nothing to do starts a job as soon as it is signaled, however signal and wait cross each other.

The server, the signals and the wait at the server are a model here; the machine is the worker's own. No wait ends by
its time limit: a job that would be found only then is a job that started late.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestration_queue.protocol.lease import Completion, Delivery, Lease
from orchestration_queue.protocol.operations.exchanges import Why
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.worker.machine import Exchange, Listen, Machine, Rest

ACTIONS = ("add a list job", "add a stream job", "signal", "serve", "reply", "wait begins", "unblock", "deliver", "end")
SETTLED = tuple(action for action in ACTIONS if not action.startswith("add"))


@dataclass
class World:
    """A machine, and everything around it that takes time."""

    machine: Machine
    listed: int = 0
    streamed: int = 0
    signals: int = 0
    sent: list[Exchange] = field(default_factory=list)
    answered: list[tuple[Exchange, int, Why]] = field(default_factory=list)
    wait: str = ""
    """The wait at the server: not there, on its "way", or "there"."""
    unblockers: int = 0
    running: int = 0
    started: int = 0

    def decide(self) -> None:
        """Let the machine begin what it wants to."""
        while not isinstance(step := self.machine.step(), Rest):
            match step:
                case Exchange():
                    self.sent.append(step)
                case Listen():
                    assert not self.wait
                    self.wait = "way"
                case _:
                    raise AssertionError(step)

    def act(self, action: str) -> bool:
        """Let something happen; False when there is nothing to do."""
        match action:
            case "add a list job":
                self.listed += 1
                self.signals += 1
            case "add a stream job":
                self.streamed += 1
            case "signal" if self.signals:
                self.signals -= 1
                self.machine.look_again()
                self.unblockers += self.machine.listening > 0
            case "serve" if self.sent:
                self._serve(self.sent.pop(0))
            case "reply" if self.answered:
                exchange, started, why = self.answered.pop(0)
                self.running += started
                self.started += started
                self.machine.exchanged(exchange, started, why)
            case "wait begins" if self.wait == "way":
                self.wait = "there"
            case "unblock" if self.unblockers and self.wait != "way":
                self._unblock()
            case "deliver" if self.wait == "there" and self.streamed:
                taken = min(self.machine.listening, self.streamed)
                self.streamed -= taken
                self.wait = ""
                self.machine.delivered([Delivery(f"{self.started + n}", "1-1") for n in range(taken)])
            case "end" if self.running:
                self.running -= 1
                self.machine.add_outcome(Completion(Lease(JobRecord("1", {}), "1-1"), "null"))
                self.machine.finished()
            case _:
                return False
        self.decide()
        return True

    def _serve(self, exchange: Exchange) -> None:
        """What the server does with an exchange: the stream's jobs come before the lists'."""
        room = exchange.want
        from_stream = min(room, self.streamed)
        from_lists = min(room - from_stream, self.listed)
        self.streamed -= from_stream
        self.listed -= from_lists
        taken = from_stream + from_lists
        why = Why.ENOUGH if taken == room else Why.EMPTY
        self.answered.append((exchange, taken + len(exchange.start), why))

    def _unblock(self) -> None:
        """One who ends the wait: until it has, or no wait is left, it tries again."""
        self.unblockers -= 1
        if self.wait == "there":
            self.wait = ""
            self.machine.delivered(())


@pytest.mark.parametrize("slots", [1, 2, 5])
@given(actions=st.lists(st.sampled_from(ACTIONS), max_size=60))
def test_no_job_waits_for_the_end_of_a_wait(slots: int, actions: list[str]) -> None:
    world = World(Machine(slots))
    world.decide()
    for action in actions:
        world.act(action)
    while any(world.act(action) for action in SETTLED):
        pass
    assert (world.listed, world.streamed) == (0, 0), f"jobs were left while the worker has {world.wait!r} for a wait"
    assert world.started == sum(action.startswith("add") for action in actions)
