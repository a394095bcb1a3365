"""What a job tells while it runs, and others may add: log lines and progress."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestration_queue.errors import UsageError
from orchestration_queue.protocol import codec
from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.keys import QueueKeys

__all__ = ["log", "progress"]

_EVENTS_LENGTH = 1000


def log(keys: QueueKeys, job_id: str, lines: Sequence[str]) -> Call:
    """Append lines to the job's log.

    Raises:
        UsageError: A line is no text.
        PayloadError: A line is larger than 1 MiB.
    """
    for line in lines:
        if not isinstance(line, str):
            raise UsageError(f"A log line is text, and {line!r} is none; pass str({line!r}).")
        codec.encode(line, "Log line")
    return Call("RPUSH", (keys.log(job_id),), tuple(lines))


def progress(keys: QueueKeys, job_id: str, value: Any) -> list[Call]:
    """Store how far the job is, and tell those who listen. One trip.

    Raises:
        PayloadError: It is not JSON, or larger than 1 MiB.
    """
    encoded = codec.encode(value, "Progress")
    told = ("MAXLEN", "~", _EVENTS_LENGTH, "*", "event", "progress", "jobId", job_id, "data", encoded)
    return [Call("HSET", (keys.job(job_id),), ("progress", encoded)), Call("XADD", (keys.events,), told)]
