"""Convert jobs and schedules between ChasquiMQ's protocol and this package's."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from orchestration_queue.client.values import encode_data
from orchestration_queue.errors import PayloadError, UsageError
from orchestration_queue.options import Backoff, JobOptions
from orchestration_queue.protocol.call import Reply
from orchestration_queue.protocol.codec import decode
from orchestration_queue.protocol.operations.additions import NewJob
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.schedules import Cron, Every, JobTemplate, MissedRuns, Overlap, Schedule, SchedulerEntry
from orchestration_queue.schedules.cron import CronPattern
from orchestration_queue.wires.chasquimq.entries import moment
from orchestration_queue.wires.chasquimq.envelope import BackoffSpec, Envelope
from orchestration_queue.wires.chasquimq.jobs import NewChasquiJob
from orchestration_queue.wires.chasquimq.packing import unpack
from orchestration_queue.wires.chasquimq.repeat import EveryPattern, RepeatSpec
from orchestration_queue.wires.identity import own_id

__all__ = ["Moved", "chasqui_job", "chasqui_schedule", "due_ms", "own_job", "own_schedule"]

_DEFAULT_ATTEMPTS = 25
"""Attempts of the original's workers for a job without its own number."""
# Scores of our wire are `priority * 2**42` plus the time.
_PRIORITY_SHIFT = 2**42
_STAYS = ("parentId", "parentIds", "groupKey", "orderingKey", "deps")
"""Fields of jobs that depend on others, which only this package's protocol has."""


@dataclass(slots=True)
class Moved:
    """The result of a move.

    Attributes:
        jobs: How many ready jobs were moved.
        delayed: How many delayed jobs.
        schedules: How many repeatable jobs.
        left: How many were not moved, by the reason.
    """

    jobs: int = 0
    delayed: int = 0
    schedules: int = 0
    left: Counter[str] = field(default_factory=Counter)


def own_job(queue: str, name: str, envelope: Envelope, delay: timedelta) -> NewJob:
    """Convert a ChasquiMQ job.

    Raises:
        OrchestrationQueueError: Our protocol can't represent it.
    """
    retry = envelope.retry
    most = _DEFAULT_ATTEMPTS if retry is None or retry.max_attempts is None else retry.max_attempts
    pauses = retry.backoff if retry is not None and retry.backoff is not None else BackoffSpec("exponential", 100)
    options = JobOptions(
        job_id=own_id(envelope.id),
        delay=delay,
        attempts=max(1, most - envelope.attempt),
        backoff=Backoff(
            type="fixed" if pauses.kind == "fixed" else "exponential", delay=timedelta(milliseconds=pauses.delay_ms)
        ),
    )
    data = unpack(envelope.payload)
    if decode(encode_data(name, data)) != data:
        raise PayloadError("The payload has bytes, times or keys that are not text, and JSON would change them.")
    return NewJob(name or queue, data, options)


def due_ms(score: Reply) -> int:
    """Return when a job may start, from its score among the delayed and prioritized ones; 0 for immediately."""
    return 0 if score is None else int(float(score)) % _PRIORITY_SHIFT


def chasqui_job(record: JobRecord, now_ms: int, due: int) -> NewChasquiJob:
    """Convert a job to one of ChasquiMQ.

    Raises:
        UsageError: It uses something that ChasquiMQ does not have.
    """
    if found := next((name for name in _STAYS if record.fields.get(name)), None):
        raise UsageError(f"it has {found}, but ChasquiMQ has no dependent jobs")
    backoff = record.options.get("backoff")
    pauses = BackoffSpec(backoff["type"], int(backoff["delay"])).checked() if isinstance(backoff, dict) else None
    return NewChasquiJob(
        record.name,
        record.data,
        delay_until=moment(str(due)) if due > now_ms else None,
        attempts=max(1, record.max_attempts - record.attempts_made),
        backoff=pauses,
        job_id=record.id,
    )


def own_schedule(spec: RepeatSpec, fired: int) -> tuple[Schedule, JobTemplate]:
    """Convert a ChasquiMQ repeatable job to a schedule and its template.

    Raises:
        OrchestrationQueueError: Our schedules can't represent it.
    """
    common: dict[str, Any] = {
        "start": None if spec.start_after_ms is None else moment(str(spec.start_after_ms)),
        "end": None if spec.end_before_ms is None else moment(str(spec.end_before_ms)),
        "limit": None if spec.limit is None else max(1, spec.limit - fired),
        "missed": MissedRuns(mode=spec.missed_fires, max=spec.max_catchup if spec.missed_fires == "fire_all" else None),
    }
    template = JobTemplate(name=spec.job_name or None, data=unpack(spec.payload))
    if isinstance(spec.pattern, EveryPattern):
        return Every(timedelta(milliseconds=spec.pattern.interval_ms), **common), template
    return Cron(spec.pattern.expression, spec.pattern.tz, day_or=True, **common), template


def chasqui_schedule(name: str, entry: SchedulerEntry) -> dict[str, Any]:
    """Convert a schedule to the arguments of :meth:`ChasquiQueue.put_schedule`.

    Raises:
        UsageError: ChasquiMQ's schedules can't represent it.
    """
    timing, policies, data = entry.timing, entry.policies, entry.template.get("data")
    strange = {
        "runs after its last job's end": timing.repeats_after_complete,
        "is paused": entry.is_paused,
        "has jitter": policies.jitter_ms,
        "has an overlap policy": policies.overlap is not Overlap.ALLOW,
        "adds jobs with options": entry.template.get("opts"),
        # Without `day_or` ours means AND; theirs always means OR.
        "restricts both day fields": timing.pattern
        and not timing.day_or
        and CronPattern.parse(timing.pattern).restricts_both_days,
    }
    if found := next((what for what, is_so in strange.items() if is_so), None):
        raise UsageError(f"it {found}, which ChasquiMQ does not support")
    return {
        "name": entry.template.get("name") or name,
        "data": data,
        "every": None if timing.every is None else timing.every / 1000,
        "cron": timing.pattern,
        "tz": timing.tz,
        "key": name,
        "limit": None if entry.limit is None else max(1, entry.limit - entry.iteration_count),
        "start": None if timing.start_date is None else moment(str(timing.start_date)),
        "end": None if timing.end_date is None else moment(str(timing.end_date)),
        "missed_fires": policies.missed,
        "max_catchup": policies.missed_max,
    }
