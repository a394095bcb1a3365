"""Components for assets that the queue's workers make."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the fields, and strings fail.

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any, ClassVar

import dagster as dg
from pydantic import Field

from orchestration_queue.dagster.assets.task_assets import AssetTask, queue_flow_assets
from orchestration_queue.dagster.components.base import QueueScaffolder, list_of
from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options import JobOptions

__all__ = ["FlowNodeModel", "QueueFlowComponent", "QueueTaskComponent"]


class FlowNodeModel(dg.Model, dg.Resolvable):
    """One asset, and the task that makes it on a worker."""

    asset: str = Field(description="The asset's key; parts are separated by '/'.")
    task: str | None = Field(default=None, description="The task's name; default the last part of the key.")
    arguments: dict[str, Any] = Field(default_factory=dict, description="The task's keyword arguments.")
    deps: list[str] = Field(default_factory=list, description="Keys of assets it depends on, of this flow or others.")
    checks: list[str] = Field(default_factory=list, description="Names of the checks that the task reports on.")
    partitions: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="Keys of the partitions, each with its additional arguments; each gets a job.",
    )
    queue: str | None = Field(default=None, description="The queue of its job; default the flow's queue.")
    description: str | None = Field(default=None, description="Text for the UI.")
    group: str | None = Field(default=None, description="The asset's group.")
    owners: list[str] = Field(default_factory=list, description="Email addresses, or team:name.")
    tags: dict[str, str] = Field(default_factory=dict, description="The asset's tags.")
    kinds: list[str] = Field(default_factory=list, description="Kinds that the UI shows, such as spark.")
    attempts: int = Field(default=1, description="Maximum attempts of the job.")
    timeout_seconds: float | None = Field(default=None, description="The task's time limit.")
    priority: int = Field(default=0, description="1 is the most urgent, 0 means no priority.")

    def model_post_init(self, context: Any) -> None:
        """Check the values; constraints of the fields themselves would reject templates."""
        super().model_post_init(context)
        self.asset_task()

    def asset_task(self) -> AssetTask:
        """Build the asset's task."""
        key = dg.AssetKey.from_user_string(self.asset)
        spec = dg.AssetSpec(
            key,
            deps=[dg.AssetKey.from_user_string(dep) for dep in self.deps],
            description=self.description,
            group_name=self.group,
            owners=self.owners,
            tags=self.tags,
            kinds=set(self.kinds),
            partitions_def=dg.StaticPartitionsDefinition(list(self.partitions)) if self.partitions else None,
        )
        timeout = None if self.timeout_seconds is None else timedelta(seconds=self.timeout_seconds)
        options = JobOptions(attempts=self.attempts, timeout=timeout, priority=self.priority)
        return AssetTask(
            spec,
            self.task,
            self.arguments,
            self.queue,
            options,
            self.checks,
            self.partitions.__getitem__ if self.partitions else None,
        )


class _FlowScaffolder(QueueScaffolder):
    example: ClassVar[dict[str, Any]] = {
        "name": "{name}",
        "queue": "{queue}",
        "nodes": [
            {"asset": "{name}/raw", "task": "extract", "arguments": {"day": "2024-01-01"}},
            {"asset": "{name}/clean", "deps": ["{name}/raw"]},
        ],
    }


class _TaskScaffolder(QueueScaffolder):
    example: ClassVar[dict[str, Any]] = {"asset": "{name}", "queue": "{queue}", "arguments": {"day": "2024-01-01"}}


def _definitions(
    tasks: Sequence[AssetTask], name: str, queue: str, resource_key: str, retries: int, pool: str | None
) -> dg.Definitions:
    if retries < 0:
        raise InvalidOptionError(f"`retries` must be >= 0, got {retries}.")
    policy = dg.RetryPolicy(max_retries=retries) if retries else None
    assets = queue_flow_assets(tasks, name=name, queue=queue, resource_key=resource_key, retry_policy=policy, pool=pool)
    return dg.Definitions(assets=[assets])


@dg.scaffold_with(_FlowScaffolder)
class QueueFlowComponent(dg.Component, dg.Model, dg.Resolvable):
    """Assets that are made together, as one flow on the queue. Dependencies between them are the flow's edges."""

    name: str = Field(description="The flow's name.")
    queue: str = Field(description="The queue of jobs without their own.")
    nodes: Annotated[Sequence[FlowNodeModel], list_of(FlowNodeModel, "nodes")]
    resource_key: str = Field(default="queue", description="The QueueResource among the definitions' resources.")
    retries: int = Field(default=0, description="How often Dagster retries the step.")
    pool: str | None = Field(default=None, description="Dagster's concurrency pool for the step.")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:  # noqa: ARG002  Dagster's
        """Build the assets as one step."""
        tasks = [node.asset_task() for node in self.nodes]
        return _definitions(tasks, self.name, self.queue, self.resource_key, self.retries, self.pool)


@dg.scaffold_with(_TaskScaffolder)
class QueueTaskComponent(dg.Component, FlowNodeModel):
    """One asset that is made by one job on the queue."""

    queue: str = Field(description="The queue of the job.")
    resource_key: str = Field(default="queue", description="The QueueResource among the definitions' resources.")
    retries: int = Field(default=0, description="How often Dagster retries the step.")
    pool: str | None = Field(default=None, description="Dagster's concurrency pool for the step.")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:  # noqa: ARG002  Dagster's
        """Build the asset."""
        task = self.asset_task()
        name = task.spec.key.to_python_identifier()
        return _definitions([task], name, self.queue, self.resource_key, self.retries, self.pool)
