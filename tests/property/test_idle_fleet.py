"""Of several workers one is signaled for a job in a list. However they stop, fill up, pause or fail, it does not wait.

The server, its signals and the replies are a model here; the machines are the workers' own. No wait ends by its time
limit: a job that would be found only then is a job that started late.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import example, given
from hypothesis import strategies as st

from orchestration_queue.protocol.lease import Completion, Lease
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

SETTLING = ("drop", "serve", "reply", "wait begins", "hear", "unblock", "recover", "end")
LOSSES = ("lose the wait", "lose the request", "lose the reply", "lose the drop")
DISTURBING = ("pause", "limit", "resume", "stop", *LOSSES)
SHARED = ("add", "add three", "signal", "pause the queue", "resume the queue", "lose the signals", "settle")


@dataclass(eq=False)
class Member:
    """A machine, and what is between it and the server."""

    machine: Machine
    sent: list[Exchange] = field(default_factory=list)
    answered: list[tuple[Exchange, int, Why]] = field(default_factory=list)
    wait: str = ""
    """The wait at the server: not there, on its "way", or "there"."""
    heard: list[str] | None = None
    """What ended the wait, whose reply is under way."""
    pending: list[str] = field(default_factory=list)
    """Signals that the server has given it, and does not know to be dropped."""
    dropping: list[Acknowledge] = field(default_factory=list)
    is_recovering: bool = False
    lost: int = 0
    """Jobs that were started for it in replies that were lost."""
    running: int = 0
    unblockers: int = 0

    @property
    def is_available(self) -> bool:
        return self.machine.phase is Phase.RUNNING and not self.machine.pauses


class Fleet:
    """Workers, and the server as far as lists and signals go."""

    def __init__(self, slots: list[int]) -> None:
        self.members = [Member(Machine(count)) for count in slots]
        self.present = list(self.members)
        self.listed = 0
        self.added = 0
        self.ended = 0
        self.to_signal = 0
        self.undelivered: list[str] = []
        self.is_paused = False
        self.signals = 0
        for member in self.members:
            self.decide(member)

    def wake_one(self) -> None:
        """Give a signal to one that waits, else keep it for the next: the newest stands for all before it."""
        self.signals += 1
        self.undelivered = [str(self.signals)]
        for member in self.present:
            if member.wait == "there":
                self.hand_out(member)
                break

    def wake_all(self) -> None:
        for member in self.present:
            self.look_again(member)

    def hand_out(self, member: Member) -> None:
        member.pending += self.undelivered
        member.wait, member.heard, self.undelivered = "", self.undelivered, []

    def look_again(self, member: Member) -> None:
        member.machine.look_again()
        member.unblockers += member.machine.listening > 0
        self.decide(member)

    def decide(self, member: Member) -> None:
        """Let the machine begin what it wants to."""
        while member in self.present and not member.is_recovering:
            match member.machine.step():
                case Exchange() as exchange:
                    member.sent.append(exchange)
                case Acknowledge() as heeded:
                    member.dropping.append(heeded)
                case Listen():
                    assert not member.wait
                    assert member.heard is None
                    member.wait = "way"
                case Recover():
                    member.is_recovering = True
                case Leave():
                    self.leave(member)
                case Rest():
                    return
                case step:
                    raise AssertionError(step)

    def leave(self, member: Member) -> None:
        """It leaves the group; what it was about to send is not sent."""
        self.present.remove(member)
        if member.pending:
            self.wake_one()

    def act(self, action: str, number: int = 0) -> bool:
        """Let something happen; False when there is nothing to do."""
        if action in SHARED:
            return self._act_on_all(action)
        member = self.members[number % len(self.members)]
        if member not in self.present or not self._act_on(member, action):
            return False
        self.decide(member)
        return True

    def _act_on_all(self, action: str) -> bool:
        match action:
            case "add" | "add three":
                jobs = 3 if action.endswith("three") else 1
                self.listed += jobs
                self.added += jobs
                self.to_signal += 1
            case "signal" if self.to_signal:
                self.to_signal -= 1
                self.wake_one()
            case "pause the queue":
                self.is_paused = True
            case "resume the queue" if self.is_paused:
                self.is_paused = False
                for member in self.present:
                    member.machine.resume(Pause.QUEUE)
                self.wake_all()
            case "settle":
                self.settle()
            case "lose the signals":  # their key is removed: each wait fails, and the next signal finds no group
                self.undelivered = []
                for member in self.present:
                    member.pending = []
                    if member.wait == "there":
                        self._lose_wait(member)
                        self.decide(member)
            case _:
                return False
        return True

    def _act_on(self, member: Member, action: str) -> bool:
        machine = member.machine
        match action:
            case "drop" if member.dropping:
                self._drop(member, member.dropping.pop(0))
            case "lose the drop" if member.dropping:
                member.dropping.pop(0)
                machine.drop_failed()
            case "serve" if member.sent:
                self._serve(member, member.sent.pop(0))
            case "lose the request" if member.sent:
                machine.failed(member.sent.pop(0))
            case "reply" if member.answered:
                exchange, started, why = member.answered.pop(0)
                member.running += started
                machine.exchanged(exchange, started, why)
            case "lose the reply" if member.answered:
                exchange, started, _ = member.answered.pop(0)
                member.lost += started
                machine.failed(exchange)
            case "wait begins" if member.wait == "way":
                member.wait = "there"
                if self.undelivered:
                    self.hand_out(member)
            case "hear" if member.heard is not None:
                heard, member.heard = member.heard, None
                machine.delivered((), heard)
            case "lose the wait" if member.wait or member.heard is not None:
                self._lose_wait(member)
            case "unblock" if member.unblockers and member.wait != "way":
                member.unblockers -= 1
                if member.wait == "there":
                    member.wait, member.heard = "", []
            case "recover" if member.is_recovering:
                self.listed += member.lost
                member.is_recovering = False
                if member.lost:
                    self.wake_one()
                member.lost = 0
                machine.recovered((), member.pending)
            case "end" if member.running:
                member.running -= 1
                self.ended += 1
                machine.add_outcome(Completion(Lease(JobRecord("1", {}), "1-1"), "null"))
                machine.finished()
            case "pause" | "limit":
                machine.pause(Pause.WORKER if action == "pause" else Pause.LIMIT)
                member.unblockers += machine.listening > 0
            case "resume" if machine.pauses & {Pause.WORKER, Pause.LIMIT}:
                machine.resume(Pause.WORKER)
                machine.resume(Pause.LIMIT)
            case "stop" if machine.phase is Phase.RUNNING:
                machine.drain()
                member.unblockers += machine.listening > 0
            case _:
                return False
        return True

    def _lose_wait(self, member: Member) -> None:
        member.wait, member.heard = "", None
        member.machine.listen_failed()

    def _drop(self, member: Member, heeded: Acknowledge) -> None:
        if heeded.pass_on:
            self.wake_one()
        member.pending = [signal for signal in member.pending if signal not in heeded.signals]

    def _serve(self, member: Member, exchange: Exchange) -> None:
        if exchange.want and self.is_paused:
            member.answered.append((exchange, 0, Why.PAUSED))
            return
        taken = min(exchange.want, self.listed)
        self.listed -= taken
        why = Why.UNASKED if not exchange.want else Why.ENOUGH if taken == exchange.want else Why.EMPTY
        member.answered.append((exchange, taken, why))

    def settle(self, *, with_jobs: bool = False) -> None:
        """Let everything come to its end that is under way; jobs run on, unless told otherwise."""
        kinds = SETTLING if with_jobs else SETTLING[:-1]
        while any(self.act("signal") or self.act(kind, n) for kind in kinds for n in range(len(self.members))):
            pass
        self.check()

    def check(self) -> None:
        idle = [member for member in self.present if member.is_available and member.wait == "there"]
        assert not (self.listed and idle and not self.is_paused), f"{self.listed} jobs wait, and {len(idle)} workers"


ACTIONS = st.one_of(
    st.tuples(st.sampled_from(SHARED), st.just(0)),
    st.tuples(st.sampled_from(SETTLING), st.integers(0, 2)),
    st.tuples(st.sampled_from(DISTURBING), st.integers(0, 2)),
)


LOST_SIGNAL = [("add three", 0), ("signal", 0), ("lose the wait", 0)]
STOPPED_ON_SIGNAL = [("add", 0), ("signal", 0), ("stop", 0)]
LOST_JOB = [
    *(("pause the queue", 0), ("resume the queue", 0), ("unblock", 0), ("hear", 0)),  # one looks
    *(("add", 0), ("serve", 0), ("signal", 0), ("hear", 1), ("unblock", 1)),  # and takes the other's signals
    *(("serve", 1), ("reply", 1), ("drop", 1), ("wait begins", 1)),
    *(("stop", 0), ("lose the reply", 0)),
]


@example(slots=[1, 1], actions=LOST_SIGNAL)
@example(slots=[1, 1], actions=STOPPED_ON_SIGNAL)
@example(slots=[1, 1], actions=LOST_JOB)
@given(slots=st.lists(st.integers(1, 2), min_size=2, max_size=3), actions=st.lists(ACTIONS, max_size=60))
def test_no_job_of_a_list_waits_while_a_worker_idles(slots: list[int], actions: list[tuple[str, int]]) -> None:
    fleet = Fleet(slots)
    fleet.settle()  # all idle
    for action, number in actions:
        fleet.act(action, number)
    fleet.settle()  # a job that ran on must not hide that another is late
    fleet.settle(with_jobs=True)
    if not fleet.is_paused and any(member.is_available for member in fleet.present):
        assert fleet.listed == 0
        assert fleet.ended == fleet.added
