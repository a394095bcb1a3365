"""The worker's decisions, pure: events go in, the next step comes out. No clock, no socket, no loop.

The machine knows how many jobs run, which outcomes wait to be told, and whether the queue has a backlog. From
these it says what to do next:

* :class:`Exchange` - one trip to the server: tell outcomes, start or return delivered jobs, take more;
* :class:`Listen` - nothing is ready: wait at the server for the next job;
* :class:`Watch` - nothing is ready, and its place may be another queue's then: wait for news of a job;
* :class:`Rest` - wait for something to happen here;
* :class:`Recover` - a reply was lost: look what we were given in it;
* :class:`Leave` - all is told; go.

A worker with a backlog never listens, and one that listens asks only for places it has. Two trips may be under way at
a time, each for half of the places: while the server is busy with one, the handlers are with the jobs of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from orchestration_queue.protocol.lease import Delivery, Settlement
from orchestration_queue.protocol.operations.working import Why
from orchestration_queue.worker.places import SharedPlaces

__all__ = ["Exchange", "Leave", "Listen", "Machine", "Pause", "Phase", "Recover", "Rest", "Step", "Watch"]


class Phase(Enum):
    """What the worker is up to."""

    RUNNING = auto()
    DRAINING = auto()
    """Takes no new jobs; leaves when the last one is told."""
    ABANDONING = auto()
    """Leaves as soon as what has an outcome is told, whatever still runs."""


class Pause(Enum):
    """Who wants no new jobs taken for now."""

    QUEUE = auto()
    """Somebody paused the queue."""
    WORKER = auto()
    """Somebody paused this worker."""
    LIMIT = auto()
    """What the jobs depend on has asked us to keep away."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One trip to the server.

    Attributes:
        settle: Outcomes to tell.
        start: Delivered jobs to start.
        hand_back: Delivered jobs to return to the queue unstarted.
        want: Jobs to take beyond these.
    """

    settle: tuple[Settlement, ...] = ()
    start: tuple[Delivery, ...] = ()
    hand_back: tuple[Delivery, ...] = ()
    want: int = 0


@dataclass(frozen=True, slots=True)
class Listen:
    """Wait at the server for up to ``want`` jobs."""

    want: int


@dataclass(frozen=True, slots=True)
class Watch:
    """Wait at the server until there is a job, and leave it there."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to do until something happens here, or, if ``briefly``, until a moment has passed."""

    briefly: bool = False


@dataclass(frozen=True, slots=True)
class Recover:
    """A reply was lost: find out which jobs came with it. Nothing else is under way, so that none is found twice."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Everything is told; the worker may go."""


Step = Exchange | Listen | Watch | Rest | Recover | Leave

_MOST_TRIPS = 2


@dataclass(slots=True, eq=False)
class Machine:
    """The state of one worker.

    Attributes:
        places: Jobs it runs at a time.
        portion: Most jobs it takes on one trip.
        shared: Places that it shares with the workers of other queues; of these it has as many as it is offered.
        phase: What it is up to.
        pauses: Who wants no new jobs taken; it finishes those it has.
        running: Jobs whose handlers have not ended.
        outbox: Outcomes not yet told.
        inbox: Jobs delivered but not started.
        underway: Trips that have set out and are not back.
        listening: Places promised to a wait at the server, or 1 when it only watches; 0 when no wait is under way.
        backlog: The queue had more than we took, or may have.
        hunch: Nobody has seen that backlog; one trip is enough to find out.
        doubt: A reply was lost, and jobs may have come with it.
        full: The queue lets no more jobs run at present, whichever worker runs them.
    """

    places: int
    portion: int = 0
    shared: SharedPlaces | None = None
    phase: Phase = Phase.RUNNING
    pauses: set[Pause] = field(default_factory=set)
    running: int = 0
    outbox: list[Settlement] = field(default_factory=list)
    inbox: list[Delivery] = field(default_factory=list)
    underway: list[Exchange] = field(default_factory=list)
    listening: int = 0
    backlog: bool = True
    hunch: bool = False
    doubt: bool = False
    full: bool = False

    def __post_init__(self) -> None:
        """Share the places among the trips, unless told otherwise."""
        self.portion = self.portion or -(-self.places // _MOST_TRIPS)
        if self.shared is not None:
            self.shared.add(self)

    @property
    def is_taking(self) -> bool:
        """Whether it takes new jobs."""
        return self.phase is Phase.RUNNING and not self.pauses

    @property
    def taken(self) -> int:
        """Places that have a job, or may have one when a trip is back."""
        return self.running + len(self.inbox) + sum(trip.want + len(trip.start) for trip in self.underway)

    @property
    def free(self) -> int:
        """Places that nobody has been promised."""
        if self.shared is not None:
            return min(self.places - self.taken, self.shared.offer(self))
        return self.places - self.taken - self.listening

    @property
    def is_hungry(self) -> bool:
        """Whether it has room for jobs, and knows, or must suppose, that there are some.

        While the queue is full, only an outcome of ours is a reason to ask again at once.
        """
        would_take = self.is_taking and not self.doubt and self.taken < self.places
        return would_take and self.backlog and (not self.full or bool(self.outbox))

    @property
    def may_ask(self) -> bool:
        """Whether the next trip would ask for jobs, if it was offered places for them."""
        if not self.is_hungry or self.listening or len(self.underway) == _MOST_TRIPS:
            return False
        return not (self.hunch and any(trip.want for trip in self.underway))

    @property
    def is_quiet(self) -> bool:
        """Whether nothing runs, and nothing waits to be told or started."""
        return not (self.running or self.outbox or self.inbox or self.underway)

    @property
    def held(self) -> set[str]:
        """Jobs in our hands that are not running: delivered and not started, or ended and not told."""
        deliveries = [*self.inbox, *(delivery for trip in self.underway for delivery in (*trip.start, *trip.hand_back))]
        outcomes = [*self.outbox, *(outcome for trip in self.underway for outcome in trip.settle)]
        return {delivery.job_id for delivery in deliveries} | {outcome.lease.job_id for outcome in outcomes}

    def step(self) -> Step:
        """What to do now."""
        if self.doubt and self.phase is not Phase.ABANDONING:
            return Rest() if self.underway or self.listening else Recover()
        if len(self.underway) < _MOST_TRIPS and (trip := self._next_trip()):
            self.outbox.clear()
            self.inbox.clear()
            self.underway.append(trip)
            if trip.want and self.shared is not None:
                self.shared.took(self)
            return trip
        if self.underway:
            return Rest()
        if self._may_leave():
            return Leave()
        if self.is_taking and self.full:
            return Rest(briefly=True)
        return self._wait() if self.is_taking and not self.listening else Rest()

    def _wait(self) -> Step:
        """Wait at the server. Shared places cannot be promised to several queues: there it waits for news alone."""
        if self.shared is not None:
            self.listening = int(not self.backlog)
            return Watch() if self.listening else Rest()
        self.listening = max(0, self.free)
        return Listen(self.listening) if self.listening else Rest()

    def _next_trip(self) -> Exchange | None:
        """What there is to tell the server, and to ask for; None when there is nothing."""
        settle, delivered = tuple(self.outbox), tuple(self.inbox)
        if self.phase in (Phase.DRAINING, Phase.ABANDONING):
            return Exchange(settle, hand_back=delivered) if settle or delivered else None
        want = min(max(0, self.free), self.portion) if self.may_ask else 0
        fits = len(delivered) if self.shared is None else max(0, len(delivered) + min(0, self.shared.free))
        start, hand_back = delivered[:fits], delivered[fits:]
        return Exchange(settle, start, hand_back, want) if settle or delivered or want else None

    def _may_leave(self) -> bool:
        return self.phase is Phase.ABANDONING or (
            self.phase is Phase.DRAINING and not self.running and not self.listening
        )

    def exchanged(self, trip: Exchange, started: int, why: Why) -> None:
        """A trip is back: so many handlers were started, and that is why there were no more."""
        self.underway.remove(trip)
        self.running += started
        if trip.want:
            self.full = why is Why.FULL
            self.backlog = why in (Why.ENOUGH, Why.FULL)
            self.hunch = False
        if trip.hand_back:
            self._guess()
        if why is Why.PAUSED:
            self.pause(Pause.QUEUE)

    def failed(self, trip: Exchange) -> None:
        """A trip failed: what it carried goes along with the next one, except when we leave anyway."""
        self.underway.remove(trip)
        self.doubt = True
        if self.phase is not Phase.ABANDONING:
            self.outbox[:0] = trip.settle
            self.inbox[:0] = trip.start + trip.hand_back

    def deaf(self) -> None:
        """The wait at the server failed."""
        self.listening = 0
        self.doubt = True

    def heard(self, deliveries: Sequence[Delivery]) -> None:
        """The wait at the server is over, with these jobs or none.

        The wait hears only of the stream. So when it brought nothing, the next trip looks into the lists.
        """
        self.inbox.extend(deliveries)
        self.listening = 0
        if not deliveries:
            self._guess()

    def recovered(self, deliveries: list[Delivery]) -> None:
        """These jobs had been delivered to us without our knowing; all doubt is gone.

        Others may have gone back to a list.
        """
        self.inbox.extend(deliveries)
        self.doubt = False
        self.look_again()

    def tell(self, settlement: Settlement) -> None:
        """A job has an outcome."""
        self.outbox.append(settlement)

    def finished(self) -> None:
        """A handler has ended; its place is free."""
        self.running -= 1

    def look_again(self) -> None:
        """Something may have become ready."""
        self._guess()
        self.full = False

    def _guess(self) -> None:
        self.hunch = self.hunch or not self.backlog
        self.backlog = True

    def pause(self, who: Pause) -> None:
        """Take no new jobs until everybody who paused has resumed."""
        self.pauses.add(who)

    def resume(self, who: Pause) -> None:
        """Take jobs again, unless somebody else has paused too."""
        if who in self.pauses:
            self.pauses.remove(who)
            self._guess()

    def drain(self) -> None:
        """Take no new jobs and leave when done."""
        if self.phase is not Phase.ABANDONING:
            self.phase = Phase.DRAINING

    def abandon(self) -> None:
        """Leave without waiting for what still runs."""
        self.phase = Phase.ABANDONING
