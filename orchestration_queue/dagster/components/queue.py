"""Components for the queue as a resource, sensors on its events, and its schedulers."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the fields, and strings fail.

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

import dagster as dg
from pydantic import Field

from orchestration_queue.dagster.components.base import QueueScaffolder, function, listed, words
from orchestration_queue.dagster.components.sensors import TARGET, Function, SensorComponent, selected
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

    resource_key: str = Field(default="queue", description="What the other components call it.")
    url_variable: str = Field(default="OQ_URL", description="The environment variable that says where the server is.")
    prefix: str = Field(default=DEFAULT_PREFIX, description="What the server's keys begin with.")
    carrier: Literal["transaction", "packed"] | None = Field(default=None, description=CARRIER)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:  # noqa: ARG002  Dagster's
        """Build the resource."""
        resource = QueueResource(url=dg.EnvVar(self.url_variable), prefix=self.prefix, carrier=self.carrier)
        return dg.Definitions(resources={self.resource_key: resource})


class _EventSensorScaffolder(QueueScaffolder):
    example: ClassVar[dict[str, Any]] = {
        "name": "{name}",
        "queue": "{queue}",
        "events": ["completed"],
        "target": "key:report",
    }


@dg.scaffold_with(_EventSensorScaffolder)
class QueueEventSensorComponent(SensorComponent):
    """A sensor that requests a run for each event of a queue, or of several, within a second or so.

    It has the options of :func:`queue_event_sensor`. Those that are functions are the values of template variables.
    """

    queue: Annotated[str | Sequence[str], words("queue", or_one=True)] = Field(
        description="The queue to listen to, or a list of several."
    )
    target: str | None = Field(default=None, description=TARGET)
    react: Annotated[Function | None, function("react")] = Field(
        default=None,
        description="'{{ name }}' of a function that says what an event asks for; default a run of the target.",
    )
    events: Annotated[Sequence[str], words("events")] = Field(
        default=("completed",), description="The types of events to react to."
    )
    job_names: Annotated[Sequence[str], words("job_names")] = Field(
        default=(), description="React to events of these kinds of jobs only."
    )
    where: Annotated[Function | None, function("where")] = Field(
        default=None, description="'{{ name }}' of a function that is true for the events to react to."
    )
    partition: Annotated[Function | None, function("partition")] = Field(
        default=None, description="'{{ name }}' of a function that says which partition an event is about."
    )
    dynamic_partitions: str | None = Field(
        default=None, description="The name of dynamic partitions, which are added as they come."
    )
    start: Literal["now", "oldest"] = Field(default="now", description="Where to begin without a cursor.")
    wait_seconds: float = Field(default=20.0, description="How long one tick listens, at most 50.")
    linger_seconds: float = Field(default=0.1, description="How long it continues to listen after an event.")
    limit: int = Field(default=500, description="Most events of a queue that one tick reads at once.")
    tick_limit_seconds: float = Field(
        default=50.0, description="When a tick with many events leaves the rest to the next, at most 50."
    )
    on_gap: Literal["warn", "observe", "fail"] = Field(
        default="warn", description="What to do about events that were dropped before they were heard."
    )
    gap_asset: str | None = Field(default=None, description="The asset that `on_gap: observe` observes.")
    resource_key: str = Field(default="queue", description="The QueueResource among the definitions' resources.")

    def sensor(self, options: SensorOptions) -> dg.SensorDefinition:
        """Return the same as code would write it."""
        if self.target is None and self.react is None:
            raise InvalidOptionError(
                "It has neither `target`, what its runs execute, nor `react`, a function that handles events; add one."
            )
        added_to = self.dynamic_partitions
        return queue_event_sensor(
            self.react or request_run,
            name=self.name,
            queue=self.queue,
            job=None if self.target is None else selected(self.target),
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

    name: str = Field(description="The scheduler's name; writing it again replaces it.")
    cron: str | None = Field(
        default=None, description="Run at the times of this pattern: 'minute hour day month weekday'."
    )
    tz: str | None = Field(default=None, description="The time zone whose clock the pattern means; default UTC.")
    every_seconds: float | None = Field(default=None, description="Run at a fixed interval instead.")
    after_seconds: float | None = Field(default=None, description="Run so long after each job has ended instead.")
    task: str | None = Field(default=None, description="The task's name; default the scheduler's.")
    data: dict[str, Any] = Field(default_factory=dict, description="The task's keyword arguments.")
    attempts: int = Field(default=1, description="How often each job is tried.")
    priority: int = Field(default=0, description="1 is the most urgent, 0 means no priority.")

    def model_post_init(self, context: Any) -> None:
        """Refuse at once what could never run."""
        super().model_post_init(context)
        self.schedule()
        self.template()

    def schedule(self) -> Schedule:
        """When it runs.

        Raises:
            InvalidOptionError: It says not exactly one of the three ways.
            ScheduleError: What it says cannot be read, or never comes.
        """
        ways = [way for way in (self.cron, self.every_seconds, self.after_seconds) if way is not None]
        if len(ways) != 1:
            raise InvalidOptionError(
                f"{len(ways)} of cron, every_seconds and after_seconds say when it runs; give exactly one."
            )
        if self.cron is not None:
            return Cron(self.cron, tz=self.tz)
        if self.tz is not None:
            raise InvalidOptionError("`tz` is the time zone of a cron pattern, and there is no pattern; drop `tz`.")
        if self.every_seconds is not None:
            return Every(self.every_seconds)
        return RepeatAfterComplete(self.after_seconds or 0)

    def template(self) -> JobTemplate:
        """Return what each run adds."""
        options = JobOptions(attempts=self.attempts, priority=self.priority)
        return JobTemplate(name=self.task, data=self.data, options=options)


class _SchedulersScaffolder(QueueScaffolder):
    example: ClassVar[dict[str, Any]] = {
        "queue": "{queue}",
        "schedulers": [{"name": "{name}", "cron": "0 6 * * *", "tz": "Europe/Berlin", "task": "extract"}],
    }


@dg.scaffold_with(_SchedulersScaffolder)
class QueueSchedulersComponent(dg.Component, dg.Model, dg.Resolvable):
    """Repeatable jobs of a queue, and a job that writes them there: to be launched when they have changed.

    The queue's workers run them, whether Dagster is up or not. Loading the component writes nothing.
    """

    queue: str = Field(description="The queue.")
    schedulers: Annotated[Sequence[SchedulerSpec], listed(SchedulerSpec, "schedulers")]
    job_name: str | None = Field(default=None, description="The job's name; default write_<queue>_schedulers.")
    resource_key: str = Field(default="queue", description="The QueueResource among the definitions' resources.")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:  # noqa: ARG002  Dagster's
        """Build the job that writes them."""
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
