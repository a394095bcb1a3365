"""Slots that the workers of several queues share, and whose turn it is. Pure: no clock, no socket, no loop.

A worker requests jobs from its queue only for slots that it is offered. So no job is taken that could not start
immediately, and a queue that waits its turn keeps its jobs for workers elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import Literal, Protocol, TypeAlias, get_args

from orchestration_queue.errors import InvalidOptionError

__all__ = ["Polling", "SharedSlots", "SlotUser"]

Polling: TypeAlias = Literal["ordered", "round-robin"]


class SlotUser(Protocol):
    """A worker that shares slots with those of other queues."""

    @property
    def taken(self) -> int:
        """Slots that it has, for jobs and for requests in progress."""
        ...

    @property
    def wants_jobs(self) -> bool:
        """Whether its queue has jobs ready, as far as it knows, and it would take them."""
        ...

    @property
    def may_ask(self) -> bool:
        """Whether it would request jobs now."""
        ...


class SharedSlots:
    """Maximum jobs at a time across the workers of several queues, in one event loop.

    With ``ordered`` polling, a queue gets a slot only while no earlier queue has a job ready. With ``round-robin``, the
    queues that have jobs get the same number of slots; among equals, the one that has waited longest is next. The
    workers also share connections.

    Args:
        count: Jobs at a time.
        polling: How the queues take turns. Their order is the one in which the workers were created.

    Raises:
        InvalidOptionError: ``count`` or ``polling`` is invalid.

    Examples:
        >>> slots = SharedSlots(4)
        >>> workers = [Worker(queue, handle, slots=slots) for queue in ("urgent", "usual")]  # doctest: +SKIP
    """

    def __init__(self, count: int, polling: Polling = "ordered") -> None:
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InvalidOptionError(f"`count` must be a whole number >= 1, got {count!r}; pass `SharedSlots(8)`.")
        if polling not in get_args(Polling):
            raise InvalidOptionError(
                f"`polling` must be {' or '.join(map(repr, get_args(Polling)))}, got {polling!r}; pass one of them."
            )
        self.count = count
        self.polling = polling
        self._users: list[SlotUser] = []
        self._present: set[SlotUser] = set()
        self._listeners: dict[SlotUser, Callable[[], object]] = {}
        self._is_announced = False
        """Whether all know of the latest change: since then, none has been offered slots."""

    def add(self, user: SlotUser) -> None:
        """Give a worker its rank, after the existing ones."""
        self._users.append(user)

    def join(self, user: SlotUser) -> None:
        """Add a worker; those after it wait until it knows whether its queue has jobs."""
        self._present.add(user)

    def subscribe(self, user: SlotUser, on_change: Callable[[], object]) -> None:
        """Call this whenever it may be the worker's turn."""
        self._listeners[user] = on_change

    def leave(self, user: SlotUser) -> None:
        """Remove a worker, and free its slots."""
        self._present.discard(user)
        self._listeners.pop(user, None)
        self.changed()

    def changed(self) -> None:
        """Record a change of one worker, which may affect all."""
        # Each call wakes all workers, so repeating it before one has acted would make n changes cost n squared
        # wake-ups.
        if self._is_announced:
            return
        self._is_announced = True
        for on_change in self._listeners.values():
            on_change()

    @property
    def free(self) -> int:
        """Free slots; below 0 if a reply that was counted as lost arrived late."""
        return self.count - sum(user.taken for user in self._present)

    def offer(self, user: SlotUser) -> int:
        """How many of the free slots this worker may request jobs for now."""
        self._is_announced = False
        taken = {other: other.taken for other in self._users if other in self._present}
        free = self.count - sum(taken.values())
        if free <= 0:
            return 0
        if self.polling == "round-robin":
            return _even_share(free, {other: count for other, count in taken.items() if other.may_ask}, user)
        earlier = takewhile(lambda other: other is not user, taken)
        return 0 if any(other.wants_jobs for other in earlier) else free

    def took(self, user: SlotUser) -> None:
        """Record that a worker requests jobs: the others come first the next time."""
        if self.polling == "round-robin":
            self._users.remove(user)
            self._users.append(user)


def _even_share(free: int, asking: Mapping[SlotUser, int], user: SlotUser) -> int:
    """Return what a worker gets if the free slots go to those with the fewest, and a remainder to the first.

    Args:
        free: How many slots are free.
        asking: The workers that would request jobs, in their order, and how many slots each has.
        user: The worker.
    """
    if user not in asking:
        return 0
    fewest_first = sorted(asking.values())
    level = left = 0
    total = free
    for count, taken in enumerate(fewest_first, 1):  # this many of them reach the same level
        total += taken
        level, left = divmod(total, count)
        if count == len(fewest_first) or level <= fewest_first[count]:
            break
    if asking[user] > level:
        return 0
    ahead = sum(asking[other] <= level for other in takewhile(lambda other: other is not user, asking))
    return level - asking[user] + (ahead < left)
