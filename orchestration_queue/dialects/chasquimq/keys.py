"""ChasquiMQ's keys, all in one cluster slot per queue, and the function library that works on them."""

from __future__ import annotations

from orchestration_queue.errors import InvalidNameError
from orchestration_queue.protocol.library import Library

__all__ = ["LIBRARY", "ChasquiKeys"]

LIBRARY = Library("chasquimq", "4", "chasquimq_version")
"""Supplies what ChasquiMQ's engine needs Redis 8.6 for, on any server with functions."""


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
            raise InvalidNameError(f"A queue's name must be a non-empty string, got {queue!r}.")
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
