"""Copies log records of a running job to the job's own log, several lines per exchange."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from contextvars import Context
from datetime import UTC, datetime
from threading import Lock
from typing import Any

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import OrchestrationQueueError, UsageError
from orchestration_queue.tasks.depends import job_or_none, running
from orchestration_queue.worker import AsyncActiveJob, CallNext

__all__ = ["JobFields", "JobLogs", "JsonLines"]

log = get_logger("orchestration_queue.tasks")

_PAUSE_S = 0.1
_MANY = 100
_LONGEST = 4_000
_STANDARD = frozenset({*logging.makeLogRecord({}).__dict__, "asctime", "message", "taskName"})


class JobFields(logging.Filter):
    """Adds the job to each log record: ``job_id``, ``job_attempt`` and ``job_queue``, empty outside of jobs.

    Add it to your own logging handler to use these names in its format.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields, and let every record pass."""
        job = job_or_none()
        record.job_id, record.job_attempt, record.job_queue = (job.id, job.attempt, job.queue) if job else ("", "", "")
        return True


class JsonLines(logging.Formatter):
    """Formats each record as one JSON object, with its ``extra`` fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON; values that JSON can't represent become text."""
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class JobLogs:
    """Middleware that copies a job's log records, from anywhere in its code, to the job's own log.

    Lines wait up to 0.1 s or for 99 others, then are sent in one exchange; the last are sent before the outcome is
    reported. A run that logs nothing sends nothing. Loggers keep their own levels, so records below these are not
    copied. Records of a sandboxed process (``isolation="process"``) are not copied. Lines that the server refuses are
    dropped.

    Args:
        level: Minimum level of records to copy.
        formatter: Formats a line; default: level, logger and message.
        max_lines: Maximum lines per run; further lines are counted and dropped.

    Raises:
        UsageError: ``max_lines`` is not positive.
    """

    def __init__(
        self, level: int = logging.INFO, formatter: logging.Formatter | None = None, max_lines: int = 10_000
    ) -> None:
        if max_lines < 1:
            raise UsageError(f"`max_lines` must be >= 1, got {max_lines!r}; pass `max_lines=1000`.")
        self._max_lines = max_lines
        self._runs: dict[int, _Lines] = {}
        self._lock = Lock()
        self._handler = _Handler(self._runs, level)
        self._handler.setFormatter(formatter or logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        self._handler.addFilter(JobFields())

    async def __call__(self, job: AsyncActiveJob, call_next: CallNext) -> Any:
        """Run the job while copying its log records."""
        lines = _Lines(job, self._max_lines)
        self._listen(job, lines)
        try:
            with running(job):
                return await call_next()
        finally:
            self._stop_listening(job)
            await lines.finish()

    def _listen(self, job: AsyncActiveJob, lines: _Lines) -> None:
        with self._lock:
            self._runs[id(job.record)] = lines
            if len(self._runs) == 1:
                logging.getLogger().addHandler(self._handler)

    def _stop_listening(self, job: AsyncActiveJob) -> None:
        with self._lock:
            del self._runs[id(job.record)]
            if not self._runs:
                logging.getLogger().removeHandler(self._handler)


class _Handler(logging.Handler):
    """Passes records to the run they belong to. The sync and async versions of a running job share one record."""

    def __init__(self, runs: dict[int, _Lines], level: int) -> None:
        super().__init__(level)
        self._runs = runs

    def emit(self, record: logging.LogRecord) -> None:
        if (job := job_or_none()) is None or (lines := self._runs.get(id(job.record))) is None:
            return
        try:
            lines.append(self.format(record))
        except Exception:
            self.handleError(record)


class _Lines:
    """The unsent lines of one run."""

    def __init__(self, job: AsyncActiveJob, most: int) -> None:
        self._job = job
        self._left = most
        self._dropped = 0
        self._waiting: list[str] = []
        self._lock = Lock()
        self._loop = asyncio.get_running_loop()
        self._hurry = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None

    def append(self, line: str) -> None:
        """Add a line. Thread-safe."""
        with self._lock:
            if not self._left:
                self._dropped += 1
                return
            self._left -= 1
            # Lone surrogates cannot be encoded for the server; they are replaced.
            self._waiting.append(line[:_LONGEST].encode(errors="replace").decode())
            count = len(self._waiting)
        # The first line starts the pause and the hundredth ends it; others need not wake the event loop.
        if count in (1, _MANY):
            # In an empty context: records logged while sending are not the job's.
            self._loop.call_soon_threadsafe(self._send_soon, count == _MANY, context=Context())

    def _send_soon(self, at_once: bool) -> None:
        if at_once:
            self._hurry.set()
        if self._sender is None or self._sender.done():
            self._sender = self._loop.create_task(self._send())

    async def _send(self) -> None:
        while self._waiting:
            with suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE_S):
                    await self._hurry.wait()
            self._hurry.clear()
            await self._flush()

    async def _flush(self) -> None:
        with self._lock:
            lines, self._waiting = self._waiting, []
        if not lines:
            return
        try:
            await self._job.log(*lines)
        except OrchestrationQueueError as error:
            log.warning("%d lines of the log of job %s were lost: %s", len(lines), self._job.id, error)

    async def finish(self) -> None:
        """Send the remaining lines."""
        if self._sender is not None:
            self._hurry.set()
            await self._sender
        if self._dropped:
            self._waiting.append(f"{self._dropped:,} more lines were left out")
        await self._flush()
