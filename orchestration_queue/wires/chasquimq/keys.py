"""ChasquiMQ's keys, all in one cluster slot per queue, and the ids of its jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from orchestration_queue.errors import InvalidNameError
from orchestration_queue.protocol.functions import REVISIONS
from orchestration_queue.protocol.library import Library

__all__ = ["LIBRARY", "ChasquiKeys", "ulid", "ulids"]

LIBRARY = Library("chasquimq", str(REVISIONS["chasquimq"]), "chasquimq_version")
"""Supplies what ChasquiMQ's engine needs Redis 8.6 for, on any server with functions."""
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_TIME_BITS, _CHANCE_BITS = 48, 80
_SHIFTS = range(120, -1, -10)
"""Two characters at a time: 26 of them hold 130 bits."""
_COUNT_BITS = 20
"""Random bits that become a counter when many ULIDs are built at a time."""


class ChasquiKeys:
    """The keys of one queue.

    Args:
        queue: The queue's name.

    Raises:
        InvalidNameError: The name is not text, or empty.

    Attributes:
        queue: The queue's name.
        stream: Jobs that are ready or running.
        delayed: Jobs that wait for their time.
        dead_letters: The dead-letter queue.
        events: What happened.
        repeat: Repeatable jobs, by their next fire.
        promoter_lock: Held by the worker that promotes delayed jobs.
        scheduler_lock: Held by the worker that fires repeatable jobs.
        paused: Exists while the queue is paused.
        starts: Begins the names of the counts of jobs that workers with a rate limit took; only ours know it.
    """

    def __init__(self, queue: str) -> None:
        if not isinstance(queue, str) or not queue:
            raise InvalidNameError(
                f"A queue's name must be a non-empty string, got {queue!r}; pass a name like 'mail'."
            )
        self.queue = queue
        self._prefix = prefix = f"{{chasqui:{queue}}}:"
        self.stream = prefix + "stream"
        self.delayed = prefix + "delayed"
        self.dead_letters = prefix + "dlq"
        self.events = prefix + "events"
        self.repeat = prefix + "repeat"
        self.promoter_lock = prefix + "promoter:lock"
        self.scheduler_lock = prefix + "scheduler:lock"
        self.paused = prefix + "paused"
        self.starts = prefix + "starts"

    def spec(self, key: str) -> str:
        """Return the key of a repeatable job's spec."""
        return f"{self._prefix}repeat:spec:{key}"

    def result(self, job_id: str) -> str:
        """Return the key of a job's result."""
        return f"{self._prefix}result:{job_id}"

    def marker(self, job_id: str) -> str:
        """Return the key that marks a job id as taken."""
        return f"{self._prefix}dlid:{job_id}"

    def index(self, job_id: str) -> str:
        """Return the key of a delayed job's member, by which it can be cancelled."""
        return f"{self._prefix}didx:{job_id}"


_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]


def ulid(at_ms: int, chance: int) -> str:
    """Build a ULID.

    Args:
        at_ms: Epoch milliseconds.
        chance: 80 random bits.
    """
    number = (at_ms % (1 << _TIME_BITS)) << _CHANCE_BITS | chance % (1 << _CHANCE_BITS)
    return "".join([_PAIRS[number >> shift & 1023] for shift in _SHIFTS])


def ulids(at_ms: int, chance: Callable[[int], int]) -> Iterator[str]:
    """Yield ULIDs endlessly, in order. They share their random bits and count, which takes a tenth of the time.

    Args:
        at_ms: Epoch milliseconds.
        chance: Returns that many random bits.
    """
    while True:
        head = ulid(at_ms, chance(_CHANCE_BITS - _COUNT_BITS) << _COUNT_BITS)[:-4]
        for pair in _PAIRS:
            for last in _PAIRS:
                yield head + pair + last
