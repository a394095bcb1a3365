"""A scheduler's entry, exactly as the wire stores it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestration_queue.protocol.codec import dump_json, encode
from orchestration_queue.schedules.cron import no_occurrences
from orchestration_queue.schedules.timing import Timing, positive, whole
from orchestration_queue.schedules.values import JobTemplate, Schedule

__all__ = ["SchedulerEntry"]


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON")


@dataclass(frozen=True, slots=True)
class SchedulerEntry:
    """One repeatable job as it stands.

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
        """The entry as it is stored."""
        return dump_json(self.members)

    @classmethod
    def initial(
        cls, schedule: Schedule, template: JobTemplate, now_ms: int, previous: SchedulerEntry | None = None
    ) -> SchedulerEntry:
        """The entry of a schedule that is set now.

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
        if previous is not None and previous.timing == timing and previous.next_run:
            progress = {name: previous.members[name] for name in ("lastRun", "nextRun") if name in previous.members}
            members["iterationCount"] = previous.iteration_count
        else:
            progress = {"nextRun": timing.first_run(now_ms)}
            members["iterationCount"] = 0
        if progress["nextRun"] is None:
            raise no_occurrences("the first run would be after the end")
        entry = cls({**members, "template": template.members(), **progress})
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
    def next_run(self) -> int:
        """When it makes the next job, epoch ms; 0 while that waits for a job to end."""
        return whole(self.members.get("nextRun")) or 0

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
        """The name of its jobs."""
        name = self.template.get("name")
        return name if isinstance(name, str) and name else scheduler

    def data_text(self) -> str:
        """The data of its jobs, encoded.

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

    def fired(self, now_ms: int, following_ms: int | None) -> SchedulerEntry | None:
        """The entry after it made a job now; None when that was the last.

        Args:
            now_ms: Epoch milliseconds of the tick.
            following_ms: The run after this one, 0 when the job's end decides, None when there is none.
        """
        count = self.iteration_count + 1
        if following_ms is None or (self.limit is not None and count >= self.limit):
            return None
        return SchedulerEntry({**self.members, "iterationCount": count, "lastRun": now_ms, "nextRun": following_ms})

    @property
    def waits_for_completion(self) -> bool:
        """Whether its job is under way, and the next run counts from that job's end."""
        return self.timing.repeats_after_complete and not self.next_run

    def completed(self, finished_ms: int) -> SchedulerEntry | None:
        """The entry after its job ended; None when it makes no further one."""
        following_ms = None if self.is_exhausted else self.timing.following_run(0, finished_ms)
        return None if following_ms is None else SchedulerEntry({**self.members, "nextRun": following_ms})
