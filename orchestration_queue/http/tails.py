"""Tails: the last events and log lines of queues. Each queue is read once for all viewers in this process."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

from orchestration_queue.client import AsyncLogTail
from orchestration_queue.client.tailing import GAP, LOG, LogLine, TailFilter, event_text
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import event_log, worker_registry
from orchestration_queue.protocol.operations.event_log import Event
from orchestration_queue.server.clock import now

if TYPE_CHECKING:
    from orchestration_queue.http.service import Service

__all__ = ["TailEntry", "TailView", "TailViewer", "Tails"]

_KEPT = 1000
"""Entries that are kept for each queue, for viewers that join or reconnect."""
_LONGEST = 1000
"""Characters of an entry that are kept."""
_AT_FIRST = 200
_PAGE = 1000
_WAIT_MS, _LOGS_WAIT_MS = 1000, 500
_QUIET_S = 0.4
"""Pause between two reads: a queue is read at most 2.5 times a second."""
_MOST_HELD, _MOST_OF_WORKER = 100, 1000
"""Jobs that a worker holds, and all that are known to have been its own."""
_LINGER_S = 10.0
"""How long a queue is read on without viewers: until those of a page that is loaded again are back."""
_DIGITS = 16
"""Above those of any place."""
_MOST_SHOWN = 200
"""Entries that a viewer gets at a time; of more, the newest."""


@dataclass(frozen=True, slots=True)
class TailEntry:
    """An event or a log line.

    Attributes:
        kind: The event's type, ``log``, or ``gap`` where entries were left out.
        queue: The queue.
        job_id: The job; empty for a gap.
        text: The log line, or the event's fields.
        at: When it happened; None for a log line that was there before it was followed.
        number: The place of a line in its job's log, from 1.
    """

    kind: str
    queue: str
    job_id: str
    text: str
    at: datetime | None
    number: int = 0


@dataclass(frozen=True, slots=True)
class TailView:
    """What a viewer sees of its queues.

    Attributes:
        filter: Which entries.
        prefix: What the ids of its jobs begin with, as those of a flow do.
        worker: The worker that runs its jobs; empty for any.
    """

    filter: TailFilter = field(default_factory=TailFilter)
    prefix: str = ""
    worker: str = ""

    def shows(self, entry: TailEntry, held: Collection[str]) -> bool:
        """Return whether it shows an entry, given the jobs of its worker."""
        return self._is_of(entry.job_id, held, entry.kind) and self.filter.matches(entry.kind, entry.job_id, entry.text)

    def reads_log(self, job_id: str, held: Collection[str]) -> bool:
        """Return whether it shows lines of a job's log."""
        return self.filter.reads_log(job_id) and self._is_of(job_id, held)

    def _is_of(self, job_id: str, held: Collection[str], kind: str = "") -> bool:
        if kind == GAP:
            return True
        return job_id.startswith(self.prefix) and (not self.worker or job_id in held)


class TailViewer:
    """One viewer of one or several queues.

    Args:
        view: What it sees.
        readers: The queues' readers.
    """

    def __init__(self, view: TailView, readers: Sequence[_TailReader]) -> None:
        self.view, self._readers = view, readers
        self.changed = asyncio.Event()
        self._places: dict[_TailReader, int] = {}
        self._held: dict[_TailReader, set[str]] = {}
        self._has_gap = False

    def start(self, after: str) -> None:
        """Start after the position of an earlier viewer with the same view; empty for the oldest kept entries."""
        known = dict(part.split("-", 1) for part in after.split(".") if "-" in part)
        for reader in self._readers:
            place = known.get(reader.token, "")
            is_known = place.isdecimal() and len(place) < _DIGITS
            self._has_gap |= bool(after) and not is_known
            self._places[reader] = int(place) if is_known else reader.end if after else reader.first
            self._held[reader] = set(self._held_by(reader)) if after else set()
        self.changed.set()

    def _held_by(self, reader: _TailReader) -> dict[str, None]:
        return reader.jobs_of.get(self.view.worker, {})

    @property
    def position(self) -> str:
        """Where it is."""
        return ".".join(f"{reader.token}-{place}" for reader, place in self._places.items())

    async def wait(self, seconds: float) -> bool:
        """Wait until there may be new entries, at most for so long; return whether there may be some.

        Raises:
            Exception: A queue can no longer be read.
        """
        try:
            async with asyncio.timeout(seconds):
                await self.changed.wait()
        except TimeoutError:
            return False
        self.changed.clear()
        for reader in self._readers:
            if reader.failure is not None:
                raise reader.failure
        return True

    def take(self) -> list[TailEntry]:
        """Return the entries since the last call, oldest first: the newest of many, after a gap."""
        found = [entry for reader in self._readers for entry in self._take_of(reader)]
        if len(self._readers) > 1:
            found.sort(key=_time_of)
        gaps = []
        if self._has_gap:
            self._has_gap = False
            gaps.append(_gap("", "Entries may be missing: the connection was lost for a while."))
        if (more := len(found) - _MOST_SHOWN) > 0:
            gaps.append(_gap("", f"{more:,} older entries are left out."))
        return [*gaps, *found[max(0, more) :]]

    def _take_of(self, reader: _TailReader) -> Iterator[TailEntry]:
        held = self._held_by(reader)
        # What is known of a worker's job from now on was also its own before.
        fresh, self._held[reader] = held.keys() - self._held[reader], set(held)
        seen, self._places[reader] = self._places[reader], reader.end
        begin = reader.first if fresh else max(seen, reader.first)
        for place, entry in enumerate(islice(reader.entries, begin - reader.first, None), begin):
            if (place >= seen or entry.job_id in fresh) and self.view.shows(entry, held):
                yield entry


def _gap(queue: str, text: str) -> TailEntry:
    return TailEntry(GAP, queue, "", text, now())


def _time_of(entry: TailEntry) -> datetime:
    return entry.at or datetime.min.replace(tzinfo=UTC)


class _TailReader:
    """Reads one queue while it has viewers, and a while longer."""

    def __init__(self, service: Service, keys: QueueKeys) -> None:
        self._service, self._keys = service, keys
        self.token = secrets.token_hex(4)
        self.entries: deque[TailEntry] = deque(maxlen=_KEPT)
        self.end = 0
        self.viewers: set[TailViewer] = set()
        self.jobs_of: Mapping[str, dict[str, None]] = {}
        self.failure: Exception | None = None
        self.ready = asyncio.Event()
        self._logs = AsyncLogTail(service.connection, keys)
        self._reads_logs = False
        self.closing: asyncio.TimerHandle | None = None
        self.task = asyncio.create_task(self._run())

    @property
    def first(self) -> int:
        """The place of the oldest kept entry."""
        return self.end - len(self.entries)

    def begin(self, job_id: str, after: int) -> None:
        """Read a job's log after a number of lines."""
        self._logs.begin(job_id, after)

    def _append(self, entries: Sequence[TailEntry]) -> None:
        self.entries.extend(entries)
        self.end += len(entries)
        if entries:
            self._wake()

    def _wake(self) -> None:
        for viewer in self.viewers:
            viewer.changed.set()

    async def _run(self) -> None:
        try:
            newest = await self._service.connection.run(event_log.newest_events(self._keys, _AT_FIRST))
            self._append([self._entry(event) for event in reversed(newest)])
            cursor = newest[0].id if newest else event_log.FIRST_EVENT
            while True:
                await self._prepare()
                self.ready.set()
                cursor = await self._read(cursor)
                await asyncio.sleep(_QUIET_S)
        except Exception as error:  # whatever it is, the viewers must not wait for a reader that has ended
            self.failure = error
        finally:
            self.ready.set()
            self._wake()

    async def _prepare(self) -> None:
        """Read what the viewers need to know besides events."""
        wanted = sorted({viewer.view.worker for viewer in self.viewers if viewer.view.worker})
        if wanted:
            await self._read_workers(wanted)
        reads_logs = any(viewer.view.filter.has_logs for viewer in self.viewers)
        if reads_logs and not self._reads_logs:
            await self._append_logs()
        elif self._reads_logs and not reads_logs:
            self._logs.pause()
        self._reads_logs = reads_logs

    async def _read_workers(self, wanted: Sequence[str]) -> None:
        follow = self._service.connection.follow
        found = await follow(worker_registry.held_jobs(self._keys, wanted, _MOST_HELD))
        held_by = dict(zip(wanted, found, strict=True))
        # Jobs that did not come by the stream, such as those with a priority, are only in a worker's own report.
        for info in await follow(worker_registry.workers(self._keys, wanted)):
            held_by[info.id] += [job.id for job in info.jobs]
        jobs_of = {}
        for worker, job_ids in held_by.items():
            jobs = {**self.jobs_of.get(worker, {}), **dict.fromkeys(job_ids)}
            jobs_of[worker] = dict(islice(jobs.items(), max(0, len(jobs) - _MOST_OF_WORKER), None))
        if jobs_of != self.jobs_of:
            self.jobs_of = jobs_of
            self._wake()

    async def _read(self, cursor: str) -> str:
        """Append what happened after an event, and return the last one."""
        waits = await self._service.waits()
        asked = event_log.events_since(
            {self._keys: cursor}, _LOGS_WAIT_MS if self._reads_logs or self.jobs_of else _WAIT_MS, _PAGE
        )
        events = (await waits.run(asked, repeatable=True)).get(self._keys, [])
        self._logs.note(events)
        found = [self._entry(event) for event in events]
        cursor = events[-1].id if events else cursor
        if len(events) == _PAGE:
            # More events than a page can show: continue with those to come.
            newest = await self._service.connection.look(event_log.last_event_id(self._keys))
            if newest != cursor:
                found.append(_gap(self._keys.queue, "Events are left out: more than 2,500 a second."))
                cursor = newest
        self._append(found)
        if self._reads_logs:
            await self._append_logs()
        return cursor

    async def _append_logs(self) -> None:
        skipped = self._logs.skipped
        jobs = {viewer.view.filter.job_id for viewer in self.viewers if viewer.view.filter.has_logs}
        lines = await self._logs.read(self._wants_log, jobs - {""}, finds_active="" in jobs)
        found = [self._line(line, now()) for line in lines]
        if more := self._logs.skipped - skipped:
            found.append(_gap(self._keys.queue, f"The last log lines of {more:,} jobs are left out."))
        self._append(found)

    def _wants_log(self, job_id: str) -> bool:
        return any(viewer.view.reads_log(job_id, self.jobs_of.get(viewer.view.worker, ())) for viewer in self.viewers)

    def _line(self, line: LogLine, at: datetime) -> TailEntry:
        read_at = None if line.is_old else at
        return TailEntry(LOG, self._keys.queue, line.job_id, line.text[:_LONGEST], read_at, line.number)

    def _entry(self, event: Event) -> TailEntry:
        return TailEntry(event.type, self._keys.queue, event.job_id, event_text(event)[:_LONGEST], event.at)


class Tails:
    """The queues that are followed in this process.

    Args:
        service: The app's service.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._readers: dict[QueueKeys, _TailReader] = {}

    @asynccontextmanager
    async def joined(
        self, queues: Sequence[QueueKeys], view: TailView, after: str = "", log_after: int | None = None
    ) -> AsyncIterator[TailViewer]:
        """Let a viewer follow queues within the context.

        Args:
            queues: The queues.
            view: What it sees.
            after: The position of an earlier viewer with the same view, to continue there; empty for none.
            log_after: For a view of one job: the lines of its log that the viewer has already.

        Raises:
            Exception: A queue can't be read.
        """
        readers = [self._reader(keys) for keys in queues]
        viewer = TailViewer(view, readers)
        for reader in readers:
            reader.viewers.add(viewer)
            if log_after is not None:
                reader.begin(view.filter.job_id, log_after)
        try:
            for reader in readers:
                await reader.ready.wait()
                if reader.failure is not None:
                    raise reader.failure
            viewer.start(after)
            yield viewer
        finally:
            for keys, reader in zip(queues, readers, strict=True):
                reader.viewers.discard(viewer)
                if not reader.viewers:
                    reader.closing = asyncio.get_running_loop().call_later(_LINGER_S, self._drop, keys, reader)

    def _reader(self, keys: QueueKeys) -> _TailReader:
        reader = self._readers.get(keys)
        if reader is None or reader.task.done():
            reader = self._readers[keys] = _TailReader(self._service, keys)
        if reader.closing is not None:
            reader.closing.cancel()
            reader.closing = None
        return reader

    def _drop(self, keys: QueueKeys, reader: _TailReader) -> None:
        reader.task.cancel()
        if self._readers.get(keys) is reader:
            del self._readers[keys]

    async def aclose(self) -> None:
        """Stop reading."""
        readers, self._readers = list(self._readers.values()), {}
        for reader in readers:
            if reader.closing is not None:
                reader.closing.cancel()
            reader.task.cancel()
        await asyncio.gather(*(reader.task for reader in readers), return_exceptions=True)
