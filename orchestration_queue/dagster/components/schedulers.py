"""A component for a queue's repeatable jobs."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the fields, and strings fail.

import re
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import dagster as dg
from pydantic import Field

from orchestration_queue.dagster.components.lists import listed
from orchestration_queue.dagster.components.scaffolding import QueueScaffolder
from orchestration_queue.dagster.resources import QueueResource
from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options import JobOptions
from orchestration_queue.protocol.record import when
from orchestration_queue.schedules import Cron, Every, JobTemplate, RepeatAfterComplete, Schedule

__all__ = ["QueueSchedulersComponent", "SchedulerSpec"]


class SchedulerSpec(dg.Model, dg.Resolvable):
    """One repeatable job."""

    name: str = Field(description="The scheduler's name; writing it again replaces it.")
    cron: str | None = Field(
        default=None, description="Run at the times of this pattern: 'minute hour day month weekday'."
    )
    tz: str | None = Field(default=None, description="The time zone whose clock the pattern means; default UTC.")
    every_seconds: float | None = Field(default=None, description="Run at even distances instead.")
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
            raise InvalidOptionError("tz says whose clock a cron pattern means, and there is no pattern; drop tz.")
        if self.every_seconds is not None:
            return Every(self.every_seconds)
        return RepeatAfterComplete(self.after_seconds or 0)

    def template(self) -> JobTemplate:
        """What each run adds."""
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
        """The job that writes them."""
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
