"""Components for the queue as a resource, sensors for its events, and its schedulers."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the fields, and strings fail.

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

import dagster as dg
from pydantic import Field

from orchestration_queue.dagster.components.base import (
    TARGET,
    EventSensorScaffolder,
    Function,
    QueueScaffolder,
    SensorComponent,
    function,
    list_of,
    parse_target,
    words,
)
from orchestration_queue.dagster.resources import CARRIER, QueueResource
from orchestration_queue.dagster.sensors import queue_event_sensor, request_run
from orchestration_queue.dagster.sensors.options import SensorOptions
from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options import JobOptions
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.protocol.record import when
from orchestration_queue.schedules import Cron, Every, JobTemplate, RepeatAfterComplete, Schedule

__all__ = ["QueueEventSensorComponent", "QueueResourceComponent", "QueueSchedulersComponent", "SchedulerSpec"]


class QueueResourceComponent(dg.Component, dg.Model, dg.Resolvable):
    """The queue's server, for the other components. Its URL comes from the environment, never from the file."""

    resource_key: str = Field(default="queue", description="The key by which other components refer to it.")
    url_variable: str = Field(default="OQ_URL", description="The environment variable with the server's URL.")
    prefix: str = Field(default=DEFAULT_PREFIX, description="Prefix of all keys.")
    carrier: Literal["transaction", "packed"] | None = Field(default=None, description=CARRIER)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:  # noqa: ARG002  Dagster's
        """Build the resource."""
        resource = QueueResource(url=dg.EnvVar(self.url_variable), prefix=self.prefix, carrier=self.carrier)
        return dg.Definitions(resources={self.resource_key: resource})


@dg.scaffold_with(EventSensorScaffolder)
class QueueEventSensorComponent(SensorComponent):
    """A sensor that requests a run for each event of one or several queues, within about a second.

    It has the options of :func:`queue_event_sensor`. Pass functions as template variables.
    """

    queue: Annotated[str | Sequence[str], words("queue", or_one=True)] = Field(
        description="The queue to listen to, or a list of several."
    )
    target: str | None = Field(default=None, description=TARGET)
    react: Annotated[Function | None, function("react")] = Field(
        default=None,
        description="'{{ name }}' of a function that handles an event; default requests a run of the target.",
    )
    events: Annotated[Sequence[str], words("events")] = Field(
        default=("completed",), description="The types of events to react to."
    )
    job_names: Annotated[Sequence[str], words("job_names")] = Field(
        default=(), description="React to events of jobs with these names only."
    )
    where: Annotated[Function | None, function("where")] = Field(
        default=None, description="'{{ name }}' of a function that is true for the events to react to."
    )
    partition: Annotated[Function | None, function("partition")] = Field(
        default=None, description="'{{ name }}' of a function that returns the partition of an event."
    )
    dynamic_partitions: str | None = Field(
        default=None, description="The name of dynamic partitions to add the events' partitions to."
    )
    start: Literal["now", "oldest"] = Field(default="now", description="Where to start without a cursor.")
    wait_seconds: float = Field(default=20.0, description="How long one tick listens, at most 50.")
    linger_seconds: float = Field(default=0.1, description="How long it continues to listen after an event.")
    limit: int = Field(default=500, description="Most events of a queue that one tick reads at once.")
    tick_limit_seconds: float = Field(
        default=50.0, description="The longest tick, at most 50; the next tick handles further events."
    )
    on_gap: Literal["warn", "observe", "fail"] = Field(
        default="warn", description="What to do about events that were dropped before the sensor read them."
    )
    gap_asset: str | None = Field(default=None, description="The asset to observe with `on_gap: observe`.")
    resource_key: str = Field(default="queue", description="The QueueResource among the definitions' resources.")

    def sensor(self, options: SensorOptions) -> dg.SensorDefinition:
        """Build the sensor."""
        if self.target is None and self.react is None:
            raise InvalidOptionError(
                "`target`, the assets of its runs, or `react`, a function that handles events, must be set; add one."
            )
        added_to = self.dynamic_partitions
        return queue_event_sensor(
            self.react or request_run,
            name=self.name,
            queue=self.queue,
            job=None if self.target is None else parse_target(self.target),
            events=self.events,
            job_names=self.job_names,
            where=self.where,
            partition=self.partition,
            dynamic_partitions=None if added_to is None else dg.DynamicPartitionsDefinition(name=added_to),
            start=self.start,
            wait=timedelta(seconds=self.wait_seconds),
            linger=timedelta(seconds=self.linger_seconds),
            limit=self.limit,
            tick_limit=timedelta(seconds=self.tick_limit_seconds),
            on_gap=self.on_gap,
            gap_asset=self.gap_asset,
            **options,
        )


class SchedulerSpec(dg.Model, dg.Resolvable):
    """One repeatable job."""

    name: str = Field(description="The scheduler's name; an existing one is replaced.")
    cron: str | None = Field(
        default=None, description="Run at the times of this pattern: 'minute hour day month weekday'."
    )
    tz: str | None = Field(default=None, description="The time zone of the pattern; default UTC.")
    every_seconds: float | None = Field(default=None, description="Run at a fixed interval instead.")
    after_seconds: float | None = Field(default=None, description="Run this long after each job ends instead.")
    task: str | None = Field(default=None, description="The task's name; default the scheduler's.")
    data: dict[str, Any] = Field(default_factory=dict, description="The task's keyword arguments.")
    attempts: int = Field(default=1, description="Maximum attempts of each job.")
    priority: int = Field(default=0, description="1 is the most urgent, 0 means no priority.")

    def model_post_init(self, context: Any) -> None:
        """Check the schedule and the job's options."""
        super().model_post_init(context)
        self.schedule()
        self.template()

    def schedule(self) -> Schedule:
        """Build the schedule.

        Raises:
            InvalidOptionError: Not exactly one of cron, every_seconds and after_seconds is set.
            ScheduleError: The schedule is invalid, or never due.
        """
        ways = [way for way in (self.cron, self.every_seconds, self.after_seconds) if way is not None]
        if len(ways) != 1:
            raise InvalidOptionError(
                f"Exactly one of cron, every_seconds and after_seconds must be set, got {len(ways)}; keep one."
            )
        if self.cron is not None:
            return Cron(self.cron, tz=self.tz)
        if self.tz is not None:
            raise InvalidOptionError("`tz` applies to cron patterns only; remove it, or set `cron`.")
        if self.every_seconds is not None:
            return Every(self.every_seconds)
        return RepeatAfterComplete(self.after_seconds or 0)

    def template(self) -> JobTemplate:
        """Build the template of its jobs."""
        options = JobOptions(attempts=self.attempts, priority=self.priority)
        return JobTemplate(name=self.task, data=self.data, options=options)


class _SchedulersScaffolder(QueueScaffolder):
    example: ClassVar[dict[str, Any]] = {
        "queue": "{queue}",
        "schedulers": [{"name": "{name}", "cron": "0 6 * * *", "tz": "Europe/Berlin", "task": "extract"}],
    }


@dg.scaffold_with(_SchedulersScaffolder)
class QueueSchedulersComponent(dg.Component, dg.Model, dg.Resolvable):
    """Repeatable jobs of a queue, and a Dagster job that writes them; launch it when they have changed.

    The queue's workers run the jobs even while Dagster is down. Loading the component writes nothing.
    """

    queue: str = Field(description="The queue.")
    schedulers: Annotated[Sequence[SchedulerSpec], list_of(SchedulerSpec, "schedulers")]
    job_name: str | None = Field(default=None, description="The job's name; default write_<queue>_schedulers.")
    resource_key: str = Field(default="queue", description="The QueueResource among the definitions' resources.")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:  # noqa: ARG002  Dagster's
        """Build the job that writes the schedulers."""
        name = self.job_name or re.sub(r"\W", "_", f"write_{self.queue}_schedulers", flags=re.ASCII)

        @dg.op(name=f"{name}_op", required_resource_keys={self.resource_key})
        def write(context: dg.OpExecutionContext) -> None:
            resource: QueueResource = getattr(context.resources, self.resource_key)
            with resource.queue(self.queue) as queue:
                for spec in self.schedulers:
                    entry = queue.schedulers.upsert(spec.name, spec.schedule(), spec.template())
                    context.log.info(f"Scheduler {spec.name} of queue {self.queue} runs next at {when(entry.next_run)}")

        @dg.job(
            name=name, description=f"Write the schedulers of queue {self.queue!r}.", executor_def=dg.in_process_executor
        )
        def write_schedulers() -> None:
            write()

        return dg.Definitions(jobs=[write_schedulers])
