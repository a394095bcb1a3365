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
"""Our own members that describe an entry's progress."""


def _refuse(constant: str) -> object:
    # json.loads() takes NaN and Infinity, which other languages' clients cannot read.
    raise ValueError(f"{constant} is not JSON")


@dataclass(frozen=True, slots=True)
class SchedulerEntry:
    """The stored state of one schedule.

    Attributes:
        members: Everything stored, including members of other clients.
    """

    members: Mapping[str, Any]

    @classmethod
    def parse(cls, text: str) -> SchedulerEntry | None:
        """Parse a stored entry; return None if it is not a JSON object."""
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
            schedule: When it adds jobs.
            template: Which jobs it adds.
            now_ms: Epoch milliseconds by the caller's clock.
            previous: The entry stored with this name. If its times are the same, it continues: only its limit and
                template change.

        Raises:
            ScheduleError: It never runs within its bounds.
            PayloadError: The template's data is not JSON, or larger than 1 MiB.
        """
        timing = schedule.timing
        members = timing.members()
        if schedule.limit is not None:
            members["limit"] = schedule.limit
        extra: dict[str, object] = timing.hidden_members
        continues = previous is not None and previous.timing == timing and previous.is_under_way
        if previous is not None and continues:
            entry = cls({**members, "iterationCount": previous.iteration_count, "template": template.members()})
            extra |= {name: value for name, value in previous.extra.items() if name in _PROGRESS}
            progress = {name: previous.members[name] for name in ("lastRun", "nextRun") if name in previous.members}
        else:
            entry = cls({**members, "iterationCount": 0, "template": template.members()})
            first_ms = timing.first_run(now_ms)
            if first_ms is None:
                raise no_occurrences("the first run would be after the end")
            progress = _plan_run(timing, first_ms, extra)
        entry = entry._with(progress, extra | schedule.policies.members())
        entry.data_text()
        return entry

    @property
    def timing(self) -> Timing:
        """When it runs."""
        return Timing.read(self.members)

    @property
    def limit(self) -> int | None:
        """How many jobs it may add; None for no limit."""
        return positive(self.members.get("limit"))

    @property
    def iteration_count(self) -> int:
        """How many jobs it has added."""
        return whole(self.members.get("iterationCount")) or 0

    @property
    def last_run(self) -> int | None:
        """When it last added a job, epoch ms; None before the first."""
        return whole(self.members.get("lastRun"))

    @property
    def extra(self) -> Mapping[str, Any]:
        """This package's own members, beside the wire's."""
        return own(self.members)

    @property
    def next_run(self) -> int:
        """When the next job is planned, epoch ms; 0 while that depends on a job's end. A pause keeps the plan."""
        shown = whole(self.members.get("nextRun")) or 0
        return shown or whole(self.extra.get("nextRun")) or 0

    @property
    def is_paused(self) -> bool:
        """Whether it is paused."""
        return self.extra.get("paused") is True

    @property
    def is_under_way(self) -> bool:
        """Whether setting it again with the same times lets it continue."""
        return bool(self.next_run) or self.is_paused

    @property
    def policies(self) -> Policies:
        """Its policies for late and overlapping runs."""
        return Policies.read(self.extra)

    @property
    def missed(self) -> str:
        """What happens to late runs: ``skip``, ``fire_once`` or ``fire_all``."""
        return self.policies.missed

    @property
    def overlap(self) -> Overlap:
        """What a run does while the previous run's job has not ended."""
        return self.policies.overlap

    @property
    def jitter(self) -> timedelta:
        """Maximum delay of runs after their planned time."""
        return timedelta(milliseconds=self.policies.jitter_ms)

    @property
    def last_job(self) -> str | None:
        """The id of the last job it added, if it needs to know whether that has ended."""
        job_id = self.extra.get("job")
        return job_id if isinstance(job_id, str) and job_id else None

    @property
    def queued(self) -> int:
        """The due time, epoch ms, of the run to add when the last job has ended; 0 without one."""
        return whole(self.extra.get("queued")) or 0

    def run_at(self, scheduler: str) -> int:
        """When the next job is added, epoch ms: the planned time plus jitter; 0 as for :attr:`next_run`."""
        planned_ms = self.next_run
        return planned_ms and planned_ms + self.policies.delay_ms(scheduler, planned_ms)

    def next_runs(self, now_ms: int, count: int) -> list[datetime]:
        """Return the planned runs, in the schedule's time zone, starting with one that is already due.

        Only what is known now: nothing while it is paused, at most one run if each depends on the end of the previous
        job, and none beyond its end or limit.

        Args:
            now_ms: Epoch milliseconds by the caller's clock.
            count: Maximum number of runs.

        Raises:
            ScheduleError: This machine doesn't know its time zone.
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
        """The jobs it adds: ``name``, ``data`` and ``opts``, each of which may be absent."""
        template = self.members.get("template")
        return template if isinstance(template, dict) else {}

    @property
    def is_exhausted(self) -> bool:
        """Whether it has added all its jobs."""
        return self.limit is not None and self.iteration_count >= self.limit

    def job_name(self, scheduler: str) -> str:
        """Return the name of its jobs."""
        name = self.template.get("name")
        return name if isinstance(name, str) and name else scheduler

    def data_text(self) -> str:
        """Return the data of its jobs, encoded.

        Raises:
            PayloadError: The data is not JSON, or larger than 1 MiB.
        """
        if "data" not in self.template:
            return "{}"
        return encode(self.template["data"], "The data of a schedule's jobs")

    @property
    def job_options(self) -> Mapping[str, Any]:
        """The stored options of its jobs, with the wire's names."""
        options = self.template.get("opts")
        return options if isinstance(options, dict) else {}

    def fired(self, now_ms: int, following_ms: int | None, *, jobs: int = 1, **extra: object) -> SchedulerEntry | None:
        """Return the entry after it added jobs now; None after the last.

        Args:
            now_ms: Epoch milliseconds of the tick.
            following_ms: The run after this one, 0 if it depends on the job's end, None for no further run.
            jobs: How many it added.
            extra: Our own members that change; None removes one.
        """
        count = self.iteration_count + jobs
        if following_ms is None or (self.limit is not None and count >= self.limit):
            return None
        return self._with({"iterationCount": count, "lastRun": now_ms}, extra).planned(following_ms)

    def planned(self, run_ms: int, **extra: object) -> SchedulerEntry:
        """Return the entry with its next run at this time, or 0 if it depends on the end of a job."""
        changes: dict[str, object] = {"nextRun": None, **extra}
        shown = _plan_run(self.timing, run_ms, changes, hidden=self.is_paused)
        return self._with(shown, changes)

    def paused(self) -> SchedulerEntry:
        """Return the entry, paused. Other clients skip it, since it has no next run."""
        return self._with({}, {"paused": True}).planned(self.next_run)

    def resumed(self, now_ms: int) -> SchedulerEntry | None:
        """Return the entry, resumed, without runs that came due while it was paused. None if it never runs again.

        Raises:
            ScheduleError: The pattern or its time zone is invalid, or never occurs again.
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
        """Whether its job has not ended, and the next run depends on that."""
        return self.timing.repeats_after_complete and not self.next_run

    def completed(self, finished_ms: int) -> SchedulerEntry | None:
        """Return the entry after its job ended; None if it adds no more jobs."""
        following_ms = None if self.is_exhausted else self.timing.following_run(0, finished_ms)
        return None if following_ms is None else self.planned(following_ms, job=None)

    def _with(self, members: Mapping[str, object], extra: Mapping[str, object]) -> SchedulerEntry:
        """Return the entry with changed members, and changed members of our own; None removes one of these."""
        ours = {name: value for name, value in {**self.extra, **extra}.items() if value is not None}
        changed = {name: value for name, value in {**self.members, **members}.items() if name != "oq"}
        return SchedulerEntry({**changed, "oq": ours} if ours else changed)


def _plan_run(timing: Timing, run_ms: int, extra: dict[str, object], *, hidden: bool = False) -> dict[str, object]:
    """Return the next run as the wire's member, or in ``extra`` if other clients must not run it."""
    if not (hidden or timing.is_ours):
        return {"nextRun": run_ms}
    extra["nextRun"] = run_ms or None
    return {"nextRun": 0}
