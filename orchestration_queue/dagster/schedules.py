"""Add the queue's jobs by Dagster's schedules, or request Dagster's runs by the queue's schedulers."""

# No `from __future__ import annotations` here: Dagster reads the annotation of `context`, and a string fails.

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias, Unpack

import dagster as dg

from orchestration_queue.dagster._compat import RunTarget
from orchestration_queue.dagster.checks import (
    check_function,
    check_mapping,
    check_target,
    check_text,
    check_word,
    checked,
)
from orchestration_queue.dagster.resources import QueueResource
from orchestration_queue.dagster.sensors import QueueEvent, queue_event_sensor
from orchestration_queue.dagster.sensors.options import ListenOptions, default_name
from orchestration_queue.errors import InvalidNameError, InvalidOptionError, StateError
from orchestration_queue.options import milliseconds
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.schedules import Cron, JobTemplate, Schedule
from orchestration_queue.schedules.scheduled_run import scheduled_job_id

__all__ = ["Scheduled", "queue_schedules", "scheduler_sensor"]

Scheduled: TypeAlias = Schedule | tuple[Schedule, JobTemplate]
"""A schedule, optionally with a template of its jobs; default: jobs with the scheduler's name and no data."""

_OURS = "orchestration_queue/"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def queue_schedules(
    queue: str,
    schedulers: Mapping[str, Scheduled],
    *,
    resource_key: str = "queue",
    job_name: str | None = None,
    default_status: dg.DefaultScheduleStatus = dg.DefaultScheduleStatus.STOPPED,
) -> dg.Definitions:
    """Define a queue's repeatable jobs as Dagster schedules: Dagster's daemon adds them, the queue's workers run them.

    Each time a schedule is due, a run of a small Dagster job adds the queue's job. The run key is the scheduled time,
    and the added job has the id that the queue's own scheduler would use, so no time runs twice, even if a run is
    launched again manually. If the queue has a scheduler with the same name that is not paused, the run fails, because
    both would add jobs.

    Args:
        queue: The queue.
        schedulers: The schedules by name: a ``Cron``, or ``(Cron, JobTemplate)``.
        resource_key: The :class:`QueueResource` among the definitions' resources.
        job_name: The Dagster job's name; default: derived from the queue's.
        default_status: Whether the schedules run without being switched on.

    Returns:
        Definitions of the schedules, with the schedulers' names, and of the job; merge them with yours.

    Raises:
        InvalidOptionError: Only the queue's own scheduler can run a schedule, or no schedule is given.
        InvalidNameError: The queue's name, or a scheduler's name in Dagster, is invalid.
    """
    QueueKeys(queue)
    check_mapping(schedulers, "schedulers")
    check_text(resource_key, "resource_key")
    checked(default_status, dg.DefaultScheduleStatus, "default_status", optional=False)
    if not schedulers:
        raise InvalidOptionError(f"`schedulers` of queue {queue!r} is empty; name at least one.")
    parts = {name: _split(name, entry) for name, entry in schedulers.items()}
    patterns = {name: _check_schedule(name, schedule) for name, (schedule, _) in parts.items()}
    templates = {name: template for name, (_, template) in parts.items()}
    add_jobs = _build_add_job(queue, templates, job_name or default_name("add_scheduled", queue), resource_key)
    schedules = [_build_schedule(queue, name, cron, add_jobs, default_status) for name, cron in patterns.items()]
    return dg.Definitions(jobs=[add_jobs], schedules=schedules)


def _split(name: str, entry: Scheduled) -> tuple[Schedule, JobTemplate]:
    """Return a scheduler's schedule and the template of its jobs."""
    match entry:
        case Schedule() as schedule, JobTemplate() as template:
            return schedule, template
        case Schedule():
            return entry, JobTemplate()
    raise InvalidOptionError(
        f"Scheduler {name!r} must be a Cron, or a tuple of it and a JobTemplate, got {entry!r}; "
        "pass `{'name': Cron('0 6 * * *')}`."
    )


def _check_schedule(name: str, schedule: Schedule) -> Cron:
    """Return the schedule if Dagster supports it and reads it in the same way as the queue."""
    if not (name.isascii() and name.isidentifier()):
        raise InvalidNameError(
            f"{name!r} is not a valid name for a Dagster schedule; use letters, digits and _, and don't begin with "
            "a digit."
        )
    if not isinstance(schedule, Cron) or schedule != Cron(schedule.pattern, schedule.tz, day_or=schedule.day_or):
        raise InvalidOptionError(
            f"Dagster's schedules support only cron patterns and time zones, but scheduler {name!r} has other "
            "options; upsert it in the queue instead, and let scheduler_sensor request the runs."
        )
    if len(schedule.pattern.split()) != 5:
        raise InvalidOptionError(
            f"Dagster's schedules don't support seconds, but scheduler {name!r} has some; remove that field, or "
            "upsert it in the queue instead, and let scheduler_sensor request the runs."
        )
    days, weekdays = schedule.pattern.split()[2], schedule.pattern.split()[4]
    if "*" not in (days, weekdays) and not (schedule.day_or and not days.startswith("*") and weekdays[0] != "*"):
        raise InvalidOptionError(
            f"Scheduler {name!r} restricts the days of the month and of the week: the queue requires both to match, "
            "Dagster either; restrict one of them, or pass day_or=True with plain numbers."
        )
    return schedule


def _build_add_job(queue: str, templates: Mapping[str, JobTemplate], name: str, resource_key: str) -> dg.JobDefinition:
    """Build the Dagster job that adds one scheduler's job for one time."""

    @dg.op(
        name=f"{name}_op",
        required_resource_keys={resource_key},
        config_schema={"scheduler": str, "due_ms": int},
    )
    def add(context: dg.OpExecutionContext) -> str:
        scheduler, due_ms = str(context.op_config["scheduler"]), int(context.op_config["due_ms"])
        resource: QueueResource = getattr(context.resources, resource_key)
        client = resource.queue(queue)
        own = client.schedulers.find(scheduler)
        if own is not None and not own.is_paused:
            raise StateError(
                f"Queue {queue!r} has its own scheduler {scheduler!r}, so both would add its jobs; remove it with `oq "
                f"scheduler rm {queue} {scheduler}`, or remove Dagster's schedule."
            )
        template = templates[scheduler]
        members = {"name": scheduler, "data": {}, **template.members()}
        options = template.options.model_copy(update={"job_id": scheduled_job_id(scheduler, due_ms)})
        job = client.add(str(members["name"]), members["data"], options)
        context.log.info(f"Job {job.id} of queue {queue} {'was added' if job.is_new else 'had been added before'}.")
        return job.id

    @dg.job(name=name, description=f"Add a scheduled job to queue {queue!r}.", executor_def=dg.in_process_executor)
    def add_scheduled() -> None:
        add()

    return add_scheduled


def _build_schedule(
    queue: str, name: str, schedule: Cron, job: dg.JobDefinition, default_status: dg.DefaultScheduleStatus
) -> dg.ScheduleDefinition:
    def request(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
        due_ms = milliseconds(context.scheduled_execution_time - _EPOCH)
        config = {"scheduler": name, "due_ms": due_ms}
        return dg.RunRequest(
            run_key=_instant(due_ms),
            run_config={"ops": {f"{job.name}_op": {"config": config}}},
            tags={_OURS + "scheduler": name, _OURS + "scheduled_at": _instant(due_ms)},
        )

    return dg.ScheduleDefinition(
        name=name,
        cron_schedule=schedule.pattern,
        execution_timezone=schedule.tz or "UTC",
        job=job,
        execution_fn=request,
        default_status=default_status,
        description=f"Adds a job to queue {queue!r}.",
    )


def scheduler_sensor(
    queue: str,
    scheduler: str,
    *,
    job: RunTarget,
    on: Literal["added", "completed"] = "added",
    name: str | None = None,
    partition: Callable[[datetime], str] | None = None,
    **options: Unpack[ListenOptions],
) -> dg.SensorDefinition:
    """Build a sensor that requests a run for each job of one of the queue's own schedulers.

    The queue's workers evaluate the scheduler with all its options: intervals, jitter, limits, missed and overlapping
    runs. The run key is the scheduled time, so no time runs twice. A worker runs the job like any other; its task may
    do nothing.

    Args:
        queue: The queue.
        scheduler: The scheduler's name.
        job: The target of its runs: a job, or an asset selection.
        on: Whether to request the run when the job is added or when it has completed.
        name: The sensor's name; default: derived from queue and scheduler.
        partition: Returns the partition for a scheduled time (in UTC); default: none.
        options: As for :func:`queue_event_sensor`.

    Raises:
        InvalidOptionError: An option is out of range, or ``on`` is another event.
        InvalidNameError: The queue's name is invalid, or the scheduler's is empty.
    """
    check_target(job)
    check_function(partition, "partition")
    if not isinstance(scheduler, str) or not scheduler:
        raise InvalidNameError(f"`scheduler` must be a scheduler's name, got {scheduler!r}.")
    check_word(on, "on", ("added", "completed"))

    def react(event: QueueEvent, _resource: QueueResource) -> dg.RunRequest | None:
        due_ms = _due_ms(scheduler, event.job_id)
        if due_ms is None:
            return None
        tags = {
            _OURS + "scheduler": scheduler,
            _OURS + "scheduled_at": _instant(due_ms),
            _OURS + "job_id": event.job_id,
        }
        at = _EPOCH + timedelta(milliseconds=due_ms)
        return dg.RunRequest(
            run_key=f"{scheduler}:{_instant(due_ms)}", tags=tags, partition_key=partition(at) if partition else None
        )

    if not options.get("description"):
        options["description"] = f"Requests a run when scheduler {scheduler!r} of queue {queue!r} fires."
    return queue_event_sensor(
        react,
        queue=queue,
        job=job,
        name=name or default_name("scheduled", queue, scheduler),
        events=[on],
        where=lambda event: _due_ms(scheduler, event.job_id) is not None,
        **options,
    )


def _due_ms(scheduler: str, job_id: str) -> int | None:
    """Return the time at which the scheduler's job was due, from its id; None for any other job."""
    due = job_id.rpartition(".")[2]
    if not (due.isascii() and due.isdecimal() and len(due) < 16):
        return None
    return int(due) if scheduled_job_id(scheduler, int(due)) == job_id else None


def _instant(due_ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=due_ms)).isoformat()
