"""A queue's repeatable jobs: set, look up, remove. Workers run them."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

from orchestration_queue.client._async.client import AsyncQueueClient
from orchestration_queue.client._async.job import AsyncJob
from orchestration_queue.client._async.waking import run_and_wake
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

_LOCK_TRIES = 200
_LOCK_PAUSE_S = 0.025
_MOST_FORESEEN = 1000


class AsyncJobSchedulers(AsyncQueueClient):
    """The repeatable jobs of one queue.

    Args:
        name: The queue's name.
        url: The server; default ``OQ_URL``, else the embedded server of this directory.
        connection: An open connection to use; it stays open on close.
        prefix: First part of every key.

    Raises:
        InvalidNameError: The wire cannot carry the queue's name.
        UsageError: Both ``url`` and ``connection`` are given.
    """

    async def upsert(self, name: str, schedule: Schedule | str, template: JobTemplate | None = None) -> SchedulerEntry:
        """Set a repeatable job. One that runs at the same times already goes on counting.

        Args:
            name: The scheduler's name, by which it is replaced and removed.
            schedule: When it makes jobs; text is a cron pattern, by UTC.
            template: What jobs it makes; default jobs of the scheduler's name, without data.

        Returns:
            The entry as stored; ``next_run`` says when it first runs.

        Raises:
            InvalidNameError: The name is empty, or no text.
            ScheduleError: The schedule never runs within its bounds.
            PayloadError: The template's data is not JSON, or too large.
            SchedulerBusyError: Another process held the lock for 5 s.
        """
        _check_name(name)
        schedule = Cron(schedule) if isinstance(schedule, str) else schedule
        if not isinstance(schedule, Schedule):
            raise ScheduleError(f"`schedule` must be a schedule or a cron pattern, got {schedule!r}; pass Every(60).")
        template = JobTemplate() if template is None else template
        if not isinstance(template, JobTemplate):
            raise InvalidOptionError(f"`template` must be a JobTemplate, got {template!r}; pass JobTemplate(name=...).")
        # What cannot be set is refused before anybody is made to wait.
        SchedulerEntry.initial(schedule, template, now_ms())
        return await self._edit(name, lambda entry: SchedulerEntry.initial(schedule, template, now_ms(), entry))

    async def find(self, name: str) -> SchedulerEntry | None:
        """Return the scheduler of that name; None if it does not exist or cannot be read."""
        _check_name(name)
        stored = await self._connection.look(schedule_entries.entry(self.keys, name))
        return SchedulerEntry.parse(stored) if stored is not None else None

    async def get(self, name: str) -> SchedulerEntry:
        """Return the scheduler of that name.

        Raises:
            SchedulerNotFoundError: It does not exist, or cannot be read.
        """
        return self._existing(name, await self.find(name))

    def _existing(self, name: str, entry: SchedulerEntry | None) -> SchedulerEntry:
        if entry is None:
            raise SchedulerNotFoundError(self.name, name)
        return entry

    async def remove(self, name: str) -> bool:
        """Remove a scheduler; False when there was none. Jobs it has made stay.

        Raises:
            SchedulerBusyError: Another process held the lock for 5 s.
        """
        async with self._locked(name):
            return await self._connection.run(schedule_entries.drop(self.keys, name))

    async def pause(self, name: str) -> SchedulerEntry:
        """Let a scheduler make no jobs until it is resumed; Node's leaders heed it too. Pausing twice does no harm.

        Raises:
            SchedulerNotFoundError: It does not exist, or cannot be read.
            SchedulerBusyError: Another process held the lock for 5 s.
        """

        def pause(found: SchedulerEntry | None) -> SchedulerEntry:
            entry = self._existing(name, found)
            return entry if entry.is_paused else entry.paused()

        _check_name(name)
        return await self._edit(name, pause)

    async def resume(self, name: str) -> SchedulerEntry:
        """Let a scheduler make jobs again, from its next regular run on: what was due meanwhile is left out.

        Raises:
            SchedulerNotFoundError: It does not exist, or cannot be read.
            StateError: Its schedule has ended.
            ScheduleError: This machine cannot read its pattern or time zone.
            SchedulerBusyError: Another process held the lock for 5 s.
        """

        def resume(found: SchedulerEntry | None) -> SchedulerEntry:
            entry = self._existing(name, found)
            resumed = entry.resumed(now_ms()) if entry.is_paused else entry
            if resumed is None:
                raise StateError(
                    f"Scheduler {name!r} of queue {self.name!r} has no run to come: its end has passed; "
                    "set it again with another end, or remove it."
                )
            return resumed

        _check_name(name)
        return await self._edit(name, resume)

    async def run_now(self, name: str, *, at: datetime | None = None) -> AsyncJob | None:
        """Make one run at once, paused or not; it counts towards no limit and leaves the next planned run as it is.

        The overlap policy holds for it. Of a repeat-after-complete scheduler, whose runs never overlap, it makes the
        run that is to come next. The job's id is ``repeat.{name}.{time in ms}-now``. A flow template's job submits
        the flow whose id ``schedules.flow_id_of(job.id)`` tells. Four trips.

        Args:
            name: The scheduler.
            at: The moment that tells this run from others, about now, with a time zone. To call again when the answer
                was lost, pass the same: a run whose job is still kept is not made again. Without it every call makes
                another.

        Returns:
            The job, not new if it was there; None when the job of the run before has not ended and the schedule does
            not let them overlap: then :meth:`history` says whether the run was left out, or queued to follow that job.

        Raises:
            SchedulerNotFoundError: It does not exist, or cannot be read.
            PayloadError: The data in its template, which another client wrote, are too large.
            SchedulerBusyError: Another process held the lock for 5 s, or took it over meanwhile; nothing was made.
            UsageError: The moment has no time zone.
        """
        moment_ms = None if at is None else epoch_ms(at)
        async with self._locked(name) as token:
            entry = await self.get(name)
            # Nothing is written for a run that was made before: the entry may have gone on since.
            if moment_ms is not None and (standing := await self._standing(manual_job_id(name, moment_ms))):
                return standing
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
                    return self._fired(run, at_ms) if replies == [run.job_id] else None
                at_ms += 1  # a millisecond has one run; who comes second in it takes the next

    async def _standing(self, job_id: str) -> AsyncJob | None:
        record = await self._connection.look(job_records.job(self.keys, job_id))
        return None if record is None else AsyncJob(self._connection, self.keys, job_id, record, is_new=False)

    def _fired(self, run: ScheduledRun, at_ms: int) -> AsyncJob:
        sent = NewJob(run.job_name, EncodedData(run.data_text), run.options, options_text=run.options_text)
        return AsyncJob(
            self._connection, self.keys, run.job_id, additions.as_sent(run.job_id, sent, at_ms), is_new=True
        )

    async def next_runs(self, name: str, count: int = 10) -> Sequence[datetime]:
        """When a scheduler is planned to run next, in its time zone; its jitter comes on top.

        Args:
            name: The scheduler.
            count: How many runs at most, 1 to 1,000; default 10.

        Returns:
            Aware datetimes, the earliest first; a run that is due already is among them. None while it is paused, and
            one at most when the end of each job decides about the next.

        Raises:
            InvalidOptionError: The count is not in its range.
            SchedulerNotFoundError: It does not exist, or cannot be read.
            ScheduleError: This machine knows no such time zone.
        """
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= _MOST_FORESEEN:
            raise InvalidOptionError(
                f"count must be a whole number from 1 to {_MOST_FORESEEN}, and {count!r} is not; "
                "pass how many runs to tell."
            )
        return (await self.get(name)).next_runs(now_ms(), count)

    async def history(self, name: str) -> Sequence[PastRun]:
        """Return what became of a scheduler's last runs, 20 at most, the newest first. Node's leaders note nothing."""
        _check_name(name)
        return await self._connection.look(schedule_entries.history(self.keys, name))

    async def list(self) -> dict[str, SchedulerEntry]:
        """All schedulers by name; those that cannot be read are left out."""
        stored = await self._connection.look(schedule_entries.entries(self.keys))
        entries = {name: SchedulerEntry.parse(text) for name, text in sorted(stored.items())}
        return {name: entry for name, entry in entries.items() if entry is not None}

    async def _edit(self, name: str, change: Callable[[SchedulerEntry | None], SchedulerEntry]) -> SchedulerEntry:
        """Store what ``change`` makes of an entry, unless that is the same, and return it.

        It takes no lock, so that edits do not wait for each other: one that finds the entry changed reads it again.
        """
        began = time.monotonic()
        while (waited := time.monotonic() - began) < schedule_entries.EDIT_LOCK_MS / 1000:
            stored = await self._connection.look(schedule_entries.entry(self.keys, name))
            entry = None if stored is None else SchedulerEntry.parse(stored)
            edited = change(entry)
            if edited is entry:
                return edited
            write = schedule_entries.replace(self.keys, name, stored, edited.dump())
            outcome = await run_and_wake(self._connection, self.keys, write)
            if outcome == "ok":
                return edited
            if outcome == "locked":
                await asyncio.sleep(_LOCK_PAUSE_S)
        raise SchedulerBusyError(self.name, waited)

    @asynccontextmanager
    async def _locked(self, name: str) -> AsyncIterator[str]:
        """Hold the lock under which schedulers are fired, and other clients edit them; yield its token."""
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
