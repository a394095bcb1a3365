"""Set, read and remove a queue's repeatable jobs. Workers run them."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

from orchestration_queue.client._async.client import AsyncQueueClient
from orchestration_queue.client._async.job import AsyncJob
from orchestration_queue.client._async.waking import wake_all
from orchestration_queue.client.checks import check_items
from orchestration_queue.errors import (
    InvalidNameError,
    InvalidOptionError,
    ScheduleError,
    SchedulerBusyError,
    SchedulerNotFoundError,
    StateError,
)
from orchestration_queue.protocol.operations import additions, job_records, schedule_entries
from orchestration_queue.protocol.operations.additions import EncodedData, NewJob
from orchestration_queue.protocol.operations.schedule_entries import PastRun
from orchestration_queue.schedules import (
    Cron,
    JobTemplate,
    Schedule,
    ScheduledRun,
    SchedulerEntry,
    manual_job_id,
    run_now,
)
from orchestration_queue.server.clock import epoch_ms, now_ms

__all__ = ["AsyncJobSchedulers"]

# Together 5 s, for which another client may hold the lock.
_LOCK_TRIES = 200
_LOCK_PAUSE_S = 0.025
_MOST_FORESEEN = 1000


class AsyncJobSchedulers(AsyncQueueClient):
    """The repeatable jobs of one queue.

    Args:
        name: The queue's name.
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        connection: An open connection to use instead. It stays open on close.
        prefix: First part of every key.

    Raises:
        InvalidNameError: The queue's name is invalid.
        UsageError: Both ``url`` and ``connection`` are given.
    """

    async def upsert(self, name: str, schedule: Schedule | str, template: JobTemplate | None = None) -> SchedulerEntry:
        """Create or replace a repeatable job. If its times are unchanged, its count of runs continues.

        Args:
            name: The scheduler's name.
            schedule: When it adds jobs; a string is a cron pattern in UTC.
            template: Which jobs it adds; default: jobs with the scheduler's name, without data.

        Returns:
            The entry as stored; ``next_run`` is its first run.

        Raises:
            InvalidNameError: The name is empty, or not a string.
            ScheduleError: The schedule never runs within its bounds.
            PayloadError: The template's data is not JSON, or larger than 1 MiB.
            SchedulerBusyError: Another process held the lock for 5 s.
        """
        _check_name(name)
        schedule = Cron(schedule) if isinstance(schedule, str) else schedule
        if not isinstance(schedule, Schedule):
            raise ScheduleError(f"`schedule` must be a schedule or a cron pattern, got {schedule!r}; pass Every(60).")
        template = JobTemplate() if template is None else template
        if not isinstance(template, JobTemplate):
            raise InvalidOptionError(f"`template` must be a JobTemplate, got {template!r}; pass JobTemplate(name=...).")
        # Refuse an invalid schedule before waiting for the lock.
        SchedulerEntry.initial(schedule, template, now_ms())
        return await self._edit(name, lambda entry: SchedulerEntry.initial(schedule, template, now_ms(), entry))

    async def find(self, name: str) -> SchedulerEntry | None:
        """Return the scheduler with this name; None if it does not exist or can't be read."""
        _check_name(name)
        stored = await self._connection.look(schedule_entries.entry(self.keys, name))
        return SchedulerEntry.parse(stored) if stored is not None else None

    async def get(self, name: str) -> SchedulerEntry:
        """Return the scheduler with this name.

        Raises:
            SchedulerNotFoundError: It does not exist, or can't be read.
        """
        return self._require(name, await self.find(name))

    def _require(self, name: str, entry: SchedulerEntry | None) -> SchedulerEntry:
        if entry is None:
            raise SchedulerNotFoundError(self.name, name)
        return entry

    async def remove(self, name: str) -> bool:
        """Remove a scheduler; return False if it does not exist. Jobs that it added remain.

        Raises:
            SchedulerBusyError: Another process held the lock for 5 s.
        """
        async with self._locked(name):
            return await self._connection.run(schedule_entries.drop(self.keys, name))

    async def pause(self, name: str) -> SchedulerEntry:
        """Pause a scheduler: it adds no jobs until it is resumed, also under Node leaders. Pausing twice has no effect.

        Raises:
            SchedulerNotFoundError: It does not exist, or can't be read.
            SchedulerBusyError: Another process held the lock for 5 s.
        """

        def pause(found: SchedulerEntry | None) -> SchedulerEntry:
            entry = self._require(name, found)
            return entry if entry.is_paused else entry.paused()

        _check_name(name)
        return await self._edit(name, pause)

    async def resume(self, name: str) -> SchedulerEntry:
        """Resume a scheduler from its next regular run. Runs that came due while it was paused are skipped.

        Raises:
            SchedulerNotFoundError: It does not exist, or can't be read.
            StateError: Its schedule has ended.
            ScheduleError: This machine can't read its pattern or time zone.
            SchedulerBusyError: Another process held the lock for 5 s.
        """

        def resume(found: SchedulerEntry | None) -> SchedulerEntry:
            entry = self._require(name, found)
            resumed = entry.resumed(now_ms()) if entry.is_paused else entry
            if resumed is None:
                raise StateError(
                    f"Scheduler {name!r} of queue {self.name!r} has no future run: its end has passed; set another "
                    "end, or remove it."
                )
            return resumed

        _check_name(name)
        return await self._edit(name, resume)

    async def run_now(self, name: str, *, at: datetime | None = None) -> AsyncJob | None:
        """Add one run now, even if the scheduler is paused. It counts towards no limit. The next planned run is kept.

        The overlap policy applies to it. A repeat-after-complete scheduler, whose runs never overlap, adds its next run
        now instead. The job's id is ``repeat.{name}.{time in ms}-now``. The job of a flow template submits the flow
        with the id ``schedules.flow_id_of(job.id)``. Takes four exchanges.

        Args:
            name: The scheduler.
            at: A time close to now, with a time zone, that identifies this run. To repeat a call whose reply was lost,
                pass the same time: a run whose job is still kept is not added again. Without it, every call adds
                another run.

        Returns:
            The job; ``is_new`` is False if it already existed. None if the job of the previous run has not ended and
            the overlap policy does not allow another: :meth:`history` says whether the run was skipped, or queued
            behind that job.

        Raises:
            SchedulerNotFoundError: It does not exist, or can't be read.
            PayloadError: The data in its template, which another client wrote, is too large.
            SchedulerBusyError: Another process held the lock for 5 s, or took it over meanwhile; nothing was added.
            UsageError: ``at`` has no time zone.
        """
        moment_ms = None if at is None else epoch_ms(at)
        async with self._locked(name) as token:
            entry = await self.get(name)
            # Nothing is written for a run that was added before: the entry may have changed since.
            if moment_ms is not None and (existing := await self._find_job(manual_job_id(name, moment_ms))):
                return existing
            at_ms = now_ms() if moment_ms is None else moment_ms
            while True:
                plan = run_now(name, entry, at_ms)
                if not plan.runs:
                    return None
                replies = await self._connection.run(plan.write(self.keys, token, at_ms))
                if replies is None:
                    raise SchedulerBusyError(self.name, schedule_entries.EDIT_LOCK_MS / 1000)
                if replies != ["duplicate"]:
                    (run,) = plan.runs
                    return self._return_job(run, at_ms) if replies == [run.job_id] else None
                at_ms += 1  # at most one run per millisecond

    async def _find_job(self, job_id: str) -> AsyncJob | None:
        record = await self._connection.look(job_records.job(self.keys, job_id))
        return None if record is None else AsyncJob(self._connection, self.keys, job_id, record, is_new=False)

    def _return_job(self, run: ScheduledRun, at_ms: int) -> AsyncJob:
        sent = NewJob(run.job_name, EncodedData(run.data_text), run.options, options_text=run.options_text)
        return AsyncJob(
            self._connection, self.keys, run.job_id, additions.as_sent(run.job_id, sent, at_ms), is_new=True
        )

    async def next_runs(self, name: str, count: int = 10) -> Sequence[datetime]:
        """Return when a scheduler is planned to run next, in its time zone and without jitter.

        Args:
            name: The scheduler.
            count: Maximum number of runs, 1 to 1,000; default 10.

        Returns:
            Aware datetimes, earliest first, including a run that is already due. Empty while the scheduler is paused;
            at most one if each run depends on the end of the previous job.

        Raises:
            InvalidOptionError: ``count`` is out of range.
            SchedulerNotFoundError: It does not exist, or can't be read.
            ScheduleError: This machine does not know its time zone.
        """
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= _MOST_FORESEEN:
            raise InvalidOptionError(
                f"`count` must be a whole number from 1 to {_MOST_FORESEEN:,}, got {count!r}; pass how many runs to "
                "return."
            )
        return (await self.get(name)).next_runs(now_ms(), count)

    async def history(self, name: str) -> Sequence[PastRun]:
        """Return the outcomes of a scheduler's last 50 runs, newest first. Node leaders record none."""
        _check_name(name)
        return await self._connection.look(schedule_entries.history(self.keys, name))

    async def histories(self, names: Sequence[str]) -> dict[str, Sequence[PastRun]]:
        """Return :meth:`history` of several schedulers by name, read in one exchange.

        Raises:
            UsageError: These are not names.
        """
        for name in check_items(names, str, "names"):
            _check_name(name)
        return dict(await self._connection.follow(schedule_entries.histories(self.keys, names)))

    async def list(self) -> dict[str, SchedulerEntry]:
        """List all schedulers by name, without those that can't be read."""
        stored = await self._connection.look(schedule_entries.entries(self.keys))
        entries = {name: SchedulerEntry.parse(text) for name, text in sorted(stored.items())}
        return {name: entry for name, entry in entries.items() if entry is not None}

    async def _edit(self, name: str, change: Callable[[SchedulerEntry | None], SchedulerEntry]) -> SchedulerEntry:
        """Store what ``change`` makes of an entry, unless it is unchanged, and return it.

        It takes no lock, so edits don't wait for each other: an edit that finds the entry changed reads it again.
        """
        began = time.monotonic()
        while (waited := time.monotonic() - began) < schedule_entries.EDIT_LOCK_MS / 1000:
            stored = await self._connection.look(schedule_entries.entry(self.keys, name))
            entry = None if stored is None else SchedulerEntry.parse(stored)
            edited = change(entry)
            if edited is entry:
                return edited
            write = schedule_entries.replace(self.keys, name, stored, edited.dump())
            outcome = await self._connection.run(write)
            await wake_all(self._connection, self.keys)
            if outcome == "ok":
                return edited
            if outcome == "locked":
                await asyncio.sleep(_LOCK_PAUSE_S)
        raise SchedulerBusyError(self.name, waited)

    @asynccontextmanager
    async def _locked(self, name: str) -> AsyncIterator[str]:
        """Hold the lock under which schedulers run and other clients edit them; yield its token."""
        _check_name(name)
        token = secrets.token_hex(8)
        began = time.monotonic()
        for _ in range(_LOCK_TRIES):
            if await self._connection.run(schedule_entries.try_lock(self.keys, token)):
                break
            await asyncio.sleep(_LOCK_PAUSE_S)
        else:
            raise SchedulerBusyError(self.name, time.monotonic() - began)
        try:
            yield token
        finally:
            await self._connection.run(schedule_entries.unlock(self.keys, token))


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise InvalidNameError(f"Scheduler name must be a non-empty string, got {name!r}.")
