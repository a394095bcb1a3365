"""The jobs that schedules add."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import timedelta

from orchestration_queue.options import FORBIDDEN_IN_NAMES, MAX_NAME_LENGTH, MAX_PRIORITY, JobOptions
from orchestration_queue.protocol.codec import dump_json
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.placement import new_job
from orchestration_queue.schedules.entry import SchedulerEntry
from orchestration_queue.schedules.policies import Overlap
from orchestration_queue.schedules.timing import whole

__all__ = ["ScheduledRun", "flow_id_of", "scheduled_job_id"]

_LONGEST_FLOW_ID = 180
"""Leaves room for nodes' names in the ids of jobs."""


def scheduled_job_id(scheduler: str, due_ms: int, *, reserve: int = 0) -> str:
    """Return the id of the job for one run of a scheduler, which is unique and the same for every leader.

    Characters that job ids can't contain are written as ``%`` and their bytes in hexadecimal. A name that is too long
    is truncated, and made unique by its digest. ``reserve`` is how many characters may follow.
    """
    name = "".join(_escape(character) for character in scheduler)
    room = MAX_NAME_LENGTH - len(f"repeat..{due_ms}") - reserve
    if len(name) > room:
        digest = hashlib.sha256(scheduler.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        name = f"{name[: room - len(digest) - 2]}%-{digest}"
    return f"repeat.{name}.{due_ms}"


def _escape(character: str) -> str:
    if character == "%" or character in FORBIDDEN_IN_NAMES or not character.isprintable():
        return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))
    return character


def flow_id_of(job_id: str) -> str:
    """Return the id of the flow that a schedule's job submits: the same each time the job runs."""
    kind, _, rest = job_id.partition(".")
    flow_id = (rest if kind == "repeat" and rest else f"scheduled-{job_id}").replace(".", "%2E")
    if len(flow_id) > _LONGEST_FLOW_ID:
        digest = hashlib.sha256(job_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        flow_id = f"{flow_id[:40]}%-{digest}"
    return flow_id


@dataclass(frozen=True, slots=True)
class ScheduledRun:
    """One job that a schedule adds.

    Attributes:
        name: The scheduler.
        job_name: The job's name.
        data_text: The job's encoded data.
        options: How the job is placed. Its id is derived from scheduler and due time, so that a run added twice by
            overlapping leaders is one job.
        options_text: The options in the template, to be stored in the job.
        scheduler_name: The scheduler, if it waits for the job to end; otherwise empty.
        due_ms: When the run was due, epoch ms.
        previous: The previous run's job, if it matters whether it has ended; otherwise empty.
        overlap: What to do while it has not.
    """

    name: str
    job_name: str
    data_text: str
    options: JobOptions
    options_text: str
    scheduler_name: str
    due_ms: int
    previous: str = ""
    overlap: Overlap = Overlap.ALLOW

    @classmethod
    def of(cls, name: str, entry: SchedulerEntry, due_ms: int) -> ScheduledRun:
        """Return one run of a schedule.

        Raises:
            PayloadError: The template's data is not JSON, or larger than 1 MiB.
        """
        stored = entry.job_options
        options = JobOptions(
            job_id=scheduled_job_id(name, due_ms),
            priority=min(_count(stored.get("priority")), MAX_PRIORITY),
            attempts=_count(stored.get("attempts")),
            ttl=timedelta(milliseconds=_count(stored.get("ttl"))),
            lifo=stored.get("lifo") is True,
        )
        return cls(
            name=name,
            job_name=entry.job_name(name),
            data_text=entry.data_text(),
            options=options,
            options_text=dump_json(stored),
            scheduler_name=name if entry.timing.repeats_after_complete or entry.overlap is Overlap.QUEUE_ONE else "",
            due_ms=due_ms,
        )

    @property
    def job_id(self) -> str:
        """The id of its job."""
        return self.options.job_id or ""

    def written(self, now_ms: int) -> tuple[oq1.NewJob, oq1.RunOrigin]:
        """Return the job as it is added now, with the run that it belongs to."""
        job = new_job(
            self.job_name,
            self.data_text,
            self.options,
            now_ms,
            options_text=self.options_text,
            scheduler_name=self.scheduler_name,
        )
        run = oq1.RunOrigin(name=self.name, due_ms=self.due_ms, previous=self.previous, overlap=str(self.overlap))
        return job, run


def _count(value: object) -> int:
    return max(0, whole(value) or 0)
