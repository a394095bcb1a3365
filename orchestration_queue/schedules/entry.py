"""A scheduler's entry, exactly as the wire stores it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from orchestration_queue.errors import ScheduleError
from orchestration_queue.protocol.codec import dump_json, encode
from orchestration_queue.schedules.cron import known_zone, no_occurrences
from orchestration_queue.schedules.policies import Overlap, Policies
from orchestration_queue.schedules.templates import JobTemplate
from orchestration_queue.schedules.timing import Timing, own, positive, whole
from orchestration_queue.schedules.values import Schedule

__all__ = ["SchedulerEntry"]


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PROGRESS = ("nextRun", "paused", "job", "queued")
"""Members of our own that say how far an entry has got."""


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON")


@dataclass(frozen=True, slots=True)
class SchedulerEntry:
    """The stored state of one schedule.

    Attributes:
        members: Everything stored, members of other clients included.
    """

    members: Mapping[str, Any]

    @classmethod
    def parse(cls, text: str) -> SchedulerEntry | None:
        """Read a stored entry; None when it is no JSON object."""
        try:
            members = json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return None
        return cls(members) if isinstance(members, dict) else None

    def dump(self) -> str:
        """Return the entry as it is stored."""
        return dump_json(self.members)

    @classmethod
    def initial(
        cls, schedule: Schedule, template: JobTemplate, now_ms: int, previous: SchedulerEntry | None = None
    ) -> SchedulerEntry:
        """Return the entry of a schedule that is set now.

        Args:
            schedule: When jobs are made.
            template: What they are.
            now_ms: Epoch milliseconds by the caller's clock.
            previous: What is stored under the name so far. If it runs at the same times, it goes on: only its limit
                and template change.

        Raises:
            ScheduleError: It never runs within its bounds.
            PayloadError: The template's data is not JSON, or is larger than 1 MiB.
        """
        timing = schedule.timing
        members = timing.members()
        if schedule.limit is not None:
            members["limit"] = schedule.limit
        extra: dict[str, object] = timing.hidden_members
        goes_on = previous is not None and previous.timing == timing and previous.is_under_way
        if previous is not None and goes_on:
            entry = cls({**members, "iterationCount": previous.iteration_count, "template": template.members()})
            extra |= {name: value for name, value in previous.extra.items() if name in _PROGRESS}
            progress = {name: previous.members[name] for name in ("lastRun", "nextRun") if name in previous.members}
        else:
            entry = cls({**members, "iterationCount": 0, "template": template.members()})
            first_ms = timing.first_run(now_ms)
            if first_ms is None:
                raise no_occurrences("the first run would be after the end")
            progress = _planned(timing, first_ms, extra)
        entry = entry._with(progress, extra | schedule.policies.members())
        entry.data_text()
        return entry

    @property
    def timing(self) -> Timing:
        """When it runs."""
        return Timing.read(self.members)

    @property
    def limit(self) -> int | None:
        """How many jobs it may make; None for no limit."""
        return positive(self.members.get("limit"))

    @property
    def iteration_count(self) -> int:
        """How many jobs it has made."""
        return whole(self.members.get("iterationCount")) or 0

    @property
    def last_run(self) -> int | None:
        """When it last made a job, epoch ms; None before the first."""
        return whole(self.members.get("lastRun"))

    @property
    def extra(self) -> Mapping[str, Any]:
        """What this package keeps in the entry beside the wire's members."""
        return own(self.members)

    @property
    def next_run(self) -> int:
        """When the next job is planned, epoch ms; 0 while that waits for a job to end. A paused one has its plan."""
        shown = whole(self.members.get("nextRun")) or 0
        return shown or whole(self.extra.get("nextRun")) or 0

    @property
    def is_paused(self) -> bool:
        """Whether it makes no jobs for now."""
        return self.extra.get("paused") is True

    @property
    def is_under_way(self) -> bool:
        """Whether setting it again, at the same times, leaves it going on."""
        return bool(self.next_run) or self.is_paused

    @property
    def policies(self) -> Policies:
        """What it does about late and overlapping runs."""
        return Policies.read(self.extra)

    @property
    def missed(self) -> str:
        """What becomes of late runs: ``skip``, ``fire_once`` or ``fire_all``."""
        return self.policies.missed

    @property
    def overlap(self) -> Overlap:
        """What a run does while the job of the run before has not ended."""
        return self.policies.overlap

    @property
    def jitter(self) -> timedelta:
        """How much later than planned runs are made at most."""
        return timedelta(milliseconds=self.policies.jitter_ms)

    @property
    def last_job(self) -> str | None:
        """The id of the job it last made, if it needs to know whether that has ended."""
        job_id = self.extra.get("job")
        return job_id if isinstance(job_id, str) and job_id else None

    @property
    def queued(self) -> int:
        """The run that is made when the last job has ended, as the time it was due, epoch ms; 0 for none."""
        return whole(self.extra.get("queued")) or 0

    def run_at(self, scheduler: str) -> int:
        """When the next job is made, epoch ms: as planned, and its share of the jitter later; 0 as ``next_run``."""
        planned_ms = self.next_run
        return planned_ms and planned_ms + self.policies.delay_ms(scheduler, planned_ms)

    def next_runs(self, now_ms: int, count: int) -> list[datetime]:
        """Return the runs to come as planned, in the schedule's time zone; one that is due already comes first.

        Only what is known now: nothing while it is paused, one run at most when the end of each job decides about the
        next, and none beyond its end or limit.

        Args:
            now_ms: Epoch milliseconds by the caller's clock.
            count: How many at most.

        Raises:
            ScheduleError: This machine knows no such time zone.
        """
        zone = known_zone(self.timing.tz)
        if self.limit is not None:
            count = min(count, self.limit - self.iteration_count)
        runs: list[datetime] = []
        run_ms = None if self.is_paused else self.next_run or None
        try:
            while run_ms is not None and len(runs) < count and not self.timing.ends_before(run_ms):
                runs.append((_EPOCH + timedelta(milliseconds=run_ms)).astimezone(zone))
                repeats = not self.timing.repeats_after_complete
                run_ms = self.timing.following_run(run_ms, max(run_ms, now_ms)) if repeats else None
        except (OverflowError, ScheduleError):
            pass  # the pattern never occurs again, or only after the calendar's end
        return runs

    @property
    def template(self) -> Mapping[str, Any]:
        """What its jobs are: ``name``, ``data`` and ``opts``, each of which may be absent."""
        template = self.members.get("template")
        return template if isinstance(template, dict) else {}

    @property
    def is_exhausted(self) -> bool:
        """Whether it has made all its jobs."""
        return self.limit is not None and self.iteration_count >= self.limit

    def job_name(self, scheduler: str) -> str:
        """Return the name of its jobs."""
        name = self.template.get("name")
        return name if isinstance(name, str) and name else scheduler

    def data_text(self) -> str:
        """Return the data of its jobs, encoded.

        Raises:
            PayloadError: It cannot be written as JSON, or is larger than 1 MiB.
        """
        if "data" not in self.template:
            return "{}"
        return encode(self.template["data"], "The data of a schedule's jobs")

    @property
    def job_options(self) -> Mapping[str, Any]:
        """The stored options of its jobs, in the wire's names."""
        options = self.template.get("opts")
        return options if isinstance(options, dict) else {}

    def fired(self, now_ms: int, following_ms: int | None, *, jobs: int = 1, **extra: object) -> SchedulerEntry | None:
        """Return the entry after it made jobs now; None when that was the last.

        Args:
            now_ms: Epoch milliseconds of the tick.
            following_ms: The run after this one, 0 when the job's end decides, None for no further run.
            jobs: How many it made.
            extra: Members of our own that change; None removes one.
        """
        count = self.iteration_count + jobs
        if following_ms is None or (self.limit is not None and count >= self.limit):
            return None
        return self._with({"iterationCount": count, "lastRun": now_ms}, extra).planned(following_ms)

    def planned(self, run_ms: int, **extra: object) -> SchedulerEntry:
        """Return the entry with its next run at that time, 0 for one that the end of a job decides."""
        changes: dict[str, object] = {"nextRun": None, **extra}
        shown = _planned(self.timing, run_ms, changes, hidden=self.is_paused)
        return self._with(shown, changes)

    def paused(self) -> SchedulerEntry:
        """Return the entry, making no jobs until it is resumed. Other clients skip it, as it shows no next run."""
        return self._with({}, {"paused": True}).planned(self.next_run)

    def resumed(self, now_ms: int) -> SchedulerEntry | None:
        """Return the entry, making jobs again; runs that were due meanwhile are left out. None when none is to come.

        Raises:
            ScheduleError: The pattern or its zone cannot be read, or never occurs again.
        """
        awake = self._with({}, {"paused": None})
        planned_ms = self.next_run
        if not planned_ms or planned_ms > now_ms:
            return awake.planned(planned_ms)
        if self.timing.repeats_after_complete:
            return awake.planned(now_ms)
        following_ms = self.timing.following_run(planned_ms, now_ms)
        return None if following_ms is None else awake.planned(following_ms)

    @property
    def waits_for_completion(self) -> bool:
        """Whether its job is under way, and the next run counts from that job's end."""
        return self.timing.repeats_after_complete and not self.next_run

    def completed(self, finished_ms: int) -> SchedulerEntry | None:
        """Return the entry after its job ended; None when it makes no further one."""
        following_ms = None if self.is_exhausted else self.timing.following_run(0, finished_ms)
        return None if following_ms is None else self.planned(following_ms, job=None)

    def _with(self, members: Mapping[str, object], extra: Mapping[str, object]) -> SchedulerEntry:
        """Return the entry with some members changed, and some of our own; None removes one of these."""
        ours = {name: value for name, value in {**self.extra, **extra}.items() if value is not None}
        changed = {name: value for name, value in {**self.members, **members}.items() if name != "oq"}
        return SchedulerEntry({**changed, "oq": ours} if ours else changed)


def _planned(timing: Timing, run_ms: int, extra: dict[str, object], *, hidden: bool = False) -> dict[str, object]:
    """Return the next run as the wire's member; in ``extra`` instead if others must not make it."""
    if not (hidden or timing.is_ours):
        return {"nextRun": run_ms}
    extra["nextRun"] = run_ms or None
    return {"nextRun": 0}
