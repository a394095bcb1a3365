"""Follow the logs of a queue's jobs. A log is a list per job, and no event announces a line."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import islice

from orchestration_queue.client.tailing import LogLine
from orchestration_queue.protocol.call import all_good
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import job_records
from orchestration_queue.protocol.operations.event_log import Event
from orchestration_queue.server import AsyncConnection
from orchestration_queue.states import JobState

__all__ = ["AsyncLogTail"]

_MOST_ACTIVE = 200
"""Active jobs whose logs are read."""
_MOST_ENDED = 1000
"""Likewise jobs that have ended since the read before."""
_MOST_LINES, _MOST_LOGS = 50, 100
"""Lines of one log that one read returns, and logs of which it returns some."""
_CONTEXT = 20
"""Lines of a log that were there already when its job is first seen."""
_MOST_KNOWN = 5000
_LEAVES = frozenset(
    ("completed", "delay-changed", "expired", "failed", "released", "removed", "retrying", "revoked", "stalled",
     "suspended", "waiting-children")
)  # fmt: skip
"""Events after which a job runs no more."""


class AsyncLogTail:
    """Reads the new lines of logs, again and again: those of active jobs, and of jobs that have ended meanwhile.

    Args:
        connection: The server.
        keys: The queue.

    Attributes:
        skipped: Jobs whose last lines were not read, as more than 1,000 had ended since the read before.
    """

    def __init__(self, connection: AsyncConnection, keys: QueueKeys) -> None:
        self._connection, self._keys = connection, keys
        self._ended: dict[str, None] = {}
        self._read: dict[str, int] = {}
        """Lines that were returned, by job."""
        self._before: dict[str, int] = {}
        """Likewise before the last pause."""
        self._is_first = True
        self.skipped = 0

    def begin(self, job_id: str, after: int) -> None:
        """Return a job's lines only after a number of them, unless some were returned already."""
        self._read.setdefault(job_id, after)

    def note(self, events: Iterable[Event]) -> None:
        """Remember which jobs have ended."""
        for event in events:
            if event.type in _LEAVES:
                self._end(event.job_id)
            elif event.type == "added":
                # A new job can have the id, and so the place, of one that was removed.
                self._read.pop(event.job_id, None)
                self._before.pop(event.job_id, None)

    def pause(self) -> None:
        """Continue later with the last lines of each log."""
        self._before = dict(islice(reversed((self._before | self._read).items()), _MOST_KNOWN))
        self._read, self._ended, self._is_first = {}, {}, True

    def _end(self, job_id: str) -> None:
        self._ended[job_id] = None
        if len(self._ended) > _MOST_ENDED:
            del self._ended[next(iter(self._ended))]
            self.skipped += 1

    async def read(
        self, wants: Callable[[str], bool] | None = None, jobs: Collection[str] = (), *, finds_active: bool = True
    ) -> list[LogLine]:
        """Return the lines that were logged since the last read, at most 5,000 of 100 jobs.

        Args:
            wants: Whether to read the log of a job; None for all.
            jobs: Jobs to read whether they are active or not.
            finds_active: Whether to read those of active jobs.
        """
        active = job_records.job_ids(self._keys, JobState.ACTIVE, 0, _MOST_ACTIVE - 1)
        running = await self._connection.follow(active) if finds_active else []
        # Reads of the active ones come after their ends are known, so that the last lines are among these.
        ended, self._ended = self._ended, {}
        chosen = [each for each in dict.fromkeys([*jobs, *ended, *running]) if wants is None or wants(each)]
        spans = await self._find_new(chosen)
        reads = [job_records.logs(self._keys, job_id, at, at + _MOST_LINES - 1) for job_id, at, _ in spans]
        replies = all_good(await self._connection.pipeline([read.call for read in reads], repeatable=True))
        lines: list[LogLine] = []
        for (job_id, at, is_whole), read, reply in zip(spans, reads, replies, strict=True):
            found = read.read(reply)
            lines += [LogLine(job_id, at + place, text, self._is_first) for place, text in enumerate(found, 1)]
            self._remember(job_id, at + len(found))
            if not is_whole and job_id in ended:
                self._end(job_id)
        self._is_first = False
        return lines

    async def _find_new(self, job_ids: list[str]) -> list[tuple[str, int, bool]]:
        """Return the jobs with new lines, the lines before these, and whether one read returns all."""
        asked = [job_records.log_length(self._keys, job_id) for job_id in job_ids]
        replies = all_good(await self._connection.pipeline([each.call for each in asked], repeatable=True))
        found = []
        for job_id, each, reply in zip(job_ids, asked, replies, strict=True):
            length = each.read(reply)
            at = self._read.get(job_id)
            if at is None:
                at = max(self._before.get(job_id, 0), length - _CONTEXT)
            if length > at:
                found.append((job_id, at, length - at <= _MOST_LINES))
            else:
                self._remember(job_id, at)
        for job_id, *_ in found[_MOST_LOGS:]:
            self._end(job_id)  # for the next read
        return found[:_MOST_LOGS]

    def _remember(self, job_id: str, lines: int) -> None:
        self._read.pop(job_id, None)
        self._read[job_id] = lines
        if len(self._read) > _MOST_KNOWN:
            oldest = next(iter(self._read))
            self._before.pop(oldest, None)
            del self._read[oldest]
