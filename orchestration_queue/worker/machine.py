"""The worker's state machine. Pure: events go in, the next action comes out. No clock, no socket, no loop.

The machine knows how many jobs run, which outcomes are not sent yet, and whether the queue has a backlog. From these it
derives the next action: a :data:`Step`.

A worker with a backlog never listens, and one that listens requests jobs only for free slots. Up to two exchanges run
concurrently, each for half of the slots: while the server works on one, the handlers work on the jobs of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from orchestration_queue.protocol.lease import Delivery, Settlement
from orchestration_queue.protocol.operations.exchanges import Why
from orchestration_queue.worker.slots import SharedSlots

__all__ = ["Acknowledge", "Exchange", "Leave", "Listen", "Machine", "Pause", "Phase", "Recover", "Rest", "Watch"]


class Phase(Enum):
    """Phases of a worker's life."""

    RUNNING = auto()
    DRAINING = auto()
    """Takes no new jobs; leaves when the last outcome is sent."""
    ABANDONING = auto()
    """Leaves once existing outcomes are sent, even if jobs still run."""


class Pause(Enum):
    """Reasons to take no new jobs for now."""

    QUEUE = auto()
    """The queue is paused."""
    WORKER = auto()
    """This worker is paused."""
    LIMIT = auto()
    """A handler's upstream service asked for a pause."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request to the server and its reply.

    Attributes:
        settle: Outcomes to send.
        start: Delivered jobs to start.
        hand_back: Delivered jobs to return to the queue unstarted.
        want: How many more jobs to fetch.
    """

    settle: tuple[Settlement, ...] = ()
    start: tuple[Delivery, ...] = ()
    hand_back: tuple[Delivery, ...] = ()
    want: int = 0


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Acknowledge signals sent to one worker.

    Attributes:
        signals: Their entries.
        pass_on: Signal another idle worker instead: there may be jobs, and this one takes no more.
    """

    signals: tuple[str, ...]
    pass_on: bool


@dataclass(frozen=True, slots=True)
class Listen:
    """Block on the server for up to ``want`` jobs."""

    want: int


@dataclass(frozen=True, slots=True)
class Watch:
    """Block on the server until there is a job, and leave it there."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Wait for a local event or, if ``briefly``, for a moment."""

    briefly: bool = False


@dataclass(frozen=True, slots=True)
class Recover:
    """Find out which jobs a lost reply delivered. No request is in progress, so none is found twice."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Stop: everything is sent."""


Step = Exchange | Acknowledge | Listen | Watch | Rest | Recover | Leave

# With one, server and handlers wait for each other; two ran twice as many no-op jobs, three no more (decision 0004).
_MAX_EXCHANGES = 2


@dataclass(slots=True, eq=False)
class Machine:
    """The state of one worker.

    Attributes:
        slots: Jobs it runs at a time.
        batch_size: Maximum jobs it takes per exchange.
        shared: Slots shared with the workers of other queues, of which it has as many as it is offered.
        phase: Its phase.
        pauses: Reasons to take no new jobs; it finishes those it has.
        running: Jobs whose handlers have not ended.
        outbox: Outcomes to send.
        inbox: Jobs delivered but not started.
        underway: Exchanges in progress.
        listening: Slots promised to a blocking read, or 1 if it only watches; 0 if none is in progress.
        backlog: The queue had more jobs than were fetched, or may have.
        backlog_unconfirmed: The backlog is only assumed; one exchange is enough to find out.
        needs_recovery: A reply was lost that may have delivered jobs.
        full: The queue is at its global concurrency.
        signals: Signals to this worker alone, received since it last found the lists empty.
        handled: Signals to acknowledge.
        outdated: Exchanges in progress that may have looked before the latest job became ready.
    """

    slots: int
    batch_size: int = 0
    shared: SharedSlots | None = None
    phase: Phase = Phase.RUNNING
    pauses: set[Pause] = field(default_factory=set)
    running: int = 0
    outbox: list[Settlement] = field(default_factory=list)
    inbox: list[Delivery] = field(default_factory=list)
    underway: list[Exchange] = field(default_factory=list)
    listening: int = 0
    backlog: bool = True
    backlog_unconfirmed: bool = False
    needs_recovery: bool = False
    full: bool = False
    signals: list[str] = field(default_factory=list)
    handled: list[str] = field(default_factory=list)
    outdated: list[Exchange] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Divide the slots between the exchanges unless a batch size is given."""
        # Rounded up, so that two exchanges reach all slots.
        self.batch_size = self.batch_size or -(-self.slots // _MAX_EXCHANGES)
        if self.shared is not None:
            self.shared.add(self)

    @property
    def is_taking(self) -> bool:
        """Whether it takes new jobs."""
        return self.phase is Phase.RUNNING and not self.pauses

    @property
    def taken(self) -> int:
        """Slots that have a job, or may have one after an exchange's reply."""
        taken = self.running + len(self.inbox)
        for exchange in self.underway:
            taken += exchange.want + len(exchange.start)
        return taken

    @property
    def free(self) -> int:
        """Slots that are not promised to a request."""
        if self.shared is not None:
            return min(self.slots - self.taken, self.shared.offer(self))
        return self.slots - self.taken

    @property
    def wants_jobs(self) -> bool:
        """Whether it has room for jobs, and knows or assumes that there are some.

        While the queue is full, only a settled job here is a reason to ask again immediately.
        """
        may_take = self.backlog and not self.needs_recovery and (not self.full or bool(self.outbox))
        return may_take and self.is_taking and self.taken < self.slots

    @property
    def may_ask(self) -> bool:
        """Whether the next exchange would request jobs if it were offered slots."""
        if self.listening or len(self.underway) == _MAX_EXCHANGES or not self.wants_jobs:
            return False
        return not (self.backlog_unconfirmed and any(exchange.want for exchange in self.underway))

    @property
    def is_quiet(self) -> bool:
        """Whether nothing runs, and nothing waits to be sent or started."""
        return not (self.running or self.outbox or self.inbox or self.underway)

    @property
    def may_receive(self) -> bool:
        """Whether jobs may arrive that were already requested."""
        return self.listening > 0 or bool(self.inbox) or any(one.want or one.start for one in self.underway)

    @property
    def held(self) -> set[str]:
        """Jobs here that are not running: delivered and not started, or ended with an unsent outcome."""
        deliveries = [
            *self.inbox,
            *(delivery for exchange in self.underway for delivery in (*exchange.start, *exchange.hand_back)),
        ]
        return {delivery.job_id for delivery in deliveries} | {outcome.lease.job_id for outcome in self.unsent}

    @property
    def unsent(self) -> list[Settlement]:
        """Outcomes that the server may not have."""
        return [*self.outbox, *(outcome for exchange in self.underway for outcome in exchange.settle)]

    def step(self) -> Step:
        """Return the next action."""
        # First: an idle worker gets this signal only if it is passed on from here.
        if (self.handled or self.signals) and (acknowledge := self._next_acknowledgement()):
            return acknowledge
        # Before any other request: a reply that comes later would deliver jobs which recovery finds as well.
        if self.needs_recovery and self.phase is not Phase.ABANDONING:
            return Rest() if self.underway or self.listening else Recover()
        if len(self.underway) < _MAX_EXCHANGES and (exchange := self._next_exchange()):
            self.outbox.clear()
            self.inbox.clear()
            self.underway.append(exchange)
            if exchange.want and self.shared is not None:
                self.shared.took(self)
            return exchange
        # Not even a draining worker leaves before all replies: one may bring a job that must be handed back.
        if self.underway:
            return Rest()
        if self._may_leave():
            return Leave()
        if not self.is_taking:
            return Rest()
        # Listening to a full queue would take jobs only to return them.
        if self.full:
            return Rest(briefly=True)
        return Rest() if self.listening else self._wait()

    def _next_acknowledgement(self) -> Acknowledge | None:
        """Return the signals to acknowledge.

        A signal is sent to one worker. One that can't look for the job, or has no slot for it, passes the signal on.
        """
        signals, pass_on = self.handled, False
        if not signals and self.signals and not self._may_look:
            signals, pass_on = self.signals, True
        if not signals:
            return None
        acknowledge = Acknowledge(tuple(signals), pass_on)
        signals.clear()
        return acknowledge

    @property
    def _may_look(self) -> bool:
        """Whether it requests jobs, or can."""
        return any(one.want for one in self.underway) or (self.is_taking and self.taken < self.slots)

    def _wait(self) -> Step:
        """Block on the server. Shared slots can't be promised to several queues, so with them it only watches."""
        if self.shared is not None:
            # With a backlog it waits for slots, not for jobs.
            self.listening = int(not self.backlog)
            return Watch() if self.listening else Rest()
        self.listening = max(0, self.free)
        return Listen(self.listening) if self.listening else Rest()

    def _next_exchange(self) -> Exchange | None:
        """Return what to send and request; None if there is nothing."""
        if not (self.outbox or self.inbox or self.backlog):
            return None
        settle, delivered = tuple(self.outbox), tuple(self.inbox)
        # A worker that leaves returns what it has not started; nothing else would, until the lease ends.
        if self.phase is not Phase.RUNNING or Pause.WORKER in self.pauses:
            # A job may arrive that was requested before the pause.
            return Exchange(settle, hand_back=delivered) if settle or delivered else None
        want = min(max(0, self.free), self.batch_size) if self.may_ask else 0
        if not (settle or delivered or want):
            return None
        if not delivered:
            return Exchange(settle, want=want)
        left = self.slots - self.taken if self.shared is None else self.shared.free
        # Slots may have been taken away since, or a reply that counted as lost has arrived.
        fits = max(0, len(delivered) + min(0, left))
        return Exchange(settle, delivered[:fits], delivered[fits:], want)

    def _may_leave(self) -> bool:
        return self.phase is Phase.ABANDONING or (
            self.phase is Phase.DRAINING and not self.running and not self.listening
        )

    def exchanged(self, exchange: Exchange, started: int, why: Why) -> None:
        """Record an exchange's reply: how many handlers were started, and why there were no more."""
        is_outdated = self._end_exchange(exchange)
        self.running += started
        # The EMPTY of an outdated exchange may be older than a signal that came meanwhile, which would be forgotten.
        if exchange.want and not is_outdated:
            self.full = why is Why.FULL
            self.backlog = why in (Why.ENOUGH, Why.FULL)
            self.backlog_unconfirmed = False
            if why is Why.EMPTY:
                self.handled += self.signals
                self.signals.clear()
        elif not exchange.want and why is Why.ENOUGH:
            # Jobs wait in shares; a blocking read only notices those that have been moved to the stream.
            self._assume_backlog()
        # What was returned is ready again, perhaps for this worker.
        if exchange.hand_back:
            self._assume_backlog()
        if why is Why.PAUSED:
            self.pause(Pause.QUEUE)

    def failed(self, exchange: Exchange) -> None:
        """Record a failed exchange. Its contents are sent with the next one, unless the worker leaves immediately."""
        self._end_exchange(exchange)
        self.needs_recovery = True
        if self.phase is not Phase.ABANDONING:
            # Sent again even if the server has them: the lease makes each outcome count once.
            self.outbox[:0] = exchange.settle
            self.inbox[:0] = exchange.start + exchange.hand_back

    def _end_exchange(self, exchange: Exchange) -> bool:
        """Remove an exchange from those in progress; return whether it may have looked too early."""
        self.underway.remove(exchange)
        if exchange not in self.outdated:
            return False
        self.outdated.remove(exchange)
        return True

    def listen_failed(self) -> None:
        """Record that the blocking read failed."""
        self.listening = 0
        self.needs_recovery = True

    def drop_failed(self) -> None:
        """Record that signals may not have been acknowledged or passed on."""
        self.needs_recovery = True

    def delivered(self, deliveries: Sequence[Delivery], signals: Sequence[str] = ()) -> None:
        """Record the end of a blocking read, with these jobs, and these signals to look into the lists.

        If it returned neither, the next exchange looks into the lists anyway.
        """
        self.inbox.extend(deliveries)
        self.listening = 0
        if signals:
            self.signals.extend(signals)
            self.look_again()
        if not deliveries:
            self._assume_backlog()

    def recovered(self, deliveries: Sequence[Delivery], signals: Sequence[str] = ()) -> None:
        """Add jobs and signals that a lost reply had delivered, which completes recovery.

        Other jobs may have gone back to a list.
        """
        self.inbox.extend(deliveries)
        self.signals = list(signals)
        self.needs_recovery = False
        self.look_again()

    def add_outcome(self, settlement: Settlement) -> None:
        """Add an outcome to those to send."""
        self.outbox.append(settlement)

    def finished(self) -> None:
        """Record that a handler has ended; its slot is free."""
        self.running -= 1

    def look_again(self) -> None:
        """Record that a job may have become ready, and that requests in progress may have looked too early."""
        self.outdated = list(self.underway)
        self._assume_backlog()
        self.full = False

    def _assume_backlog(self) -> None:
        self.backlog_unconfirmed = self.backlog_unconfirmed or not self.backlog
        self.backlog = True

    def pause(self, reason: Pause) -> None:
        """Take no new jobs until every pause has ended."""
        self.pauses.add(reason)

    def resume(self, reason: Pause) -> None:
        """Take jobs again, unless another pause holds."""
        if reason in self.pauses:
            self.pauses.remove(reason)
            self._assume_backlog()

    def resize(self, slots: int, batch_size: int = 0) -> None:
        """Run at most ``slots`` jobs at a time from now on; running ones continue, even if there are more."""
        self.slots = slots
        self.batch_size = max(batch_size, -(-slots // _MAX_EXCHANGES))
        self.look_again()

    def drain(self) -> None:
        """Take no new jobs, and leave when done."""
        if self.phase is not Phase.ABANDONING:
            self.phase = Phase.DRAINING

    def abandon(self) -> None:
        """Leave without waiting for running jobs."""
        self.phase = Phase.ABANDONING
