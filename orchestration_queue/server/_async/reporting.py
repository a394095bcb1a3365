"""Report what a job used, from its handler or from a client."""

from __future__ import annotations

import asyncio

from orchestration_queue.errors import InvalidOptionError, StateError
from orchestration_queue.options import Usage
from orchestration_queue.protocol.call import all_good
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import usage
from orchestration_queue.server._async.connection import AsyncConnection
from orchestration_queue.server.clock import now_ms

__all__ = ["check_usage", "report_usage_async"]

_TRIES, _PAUSE_S = 200, 0.025


def check_usage(used: Usage) -> None:
    """Check what a job reports.

    Raises:
        InvalidOptionError: It is not a :class:`Usage`.
    """
    if not isinstance(used, Usage):
        raise InvalidOptionError(f"`usage` must be a Usage, got {used!r}; pass Usage(tokens=...).")


async def report_usage_async(connection: AsyncConnection, keys: QueueKeys, job_id: str, used: Usage) -> None:
    """Store what a job used, replacing an earlier report. One exchange; in a cluster one with each of two servers.

    Raises:
        JobNotFoundError: The job no longer exists.
        StateError: A client in another language held the usage lock for 5 s.
    """
    check_usage(used)
    for _ in range(_TRIES):
        report = usage.report(keys, job_id, used, now_ms())
        _, reply = all_good(await connection.pipeline([usage.name_queue(keys), report.call], repeatable=True))
        if report.read(reply):
            return
        await asyncio.sleep(_PAUSE_S)
    raise StateError(
        f"The usage of job {job_id!r} of queue {keys.queue!r} stayed locked by another process "
        f"for {_TRIES * _PAUSE_S:.0f} s; try again."
    )
