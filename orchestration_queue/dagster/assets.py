"""Assets whose work is done by the queue's workers: a group of them as one flow, or a single one as one job."""

# No `from __future__ import annotations` here: Dagster looks at the type of `context`, and would find a text.

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import dagster as dg

from orchestration_queue.client import Flow
from orchestration_queue.dagster.following import Follower
from orchestration_queue.dagster.metadata import job_metadata
from orchestration_queue.dagster.resources import QueueResource
from orchestration_queue.flows import Dag, Node, Step
from orchestration_queue.options import JobOptions
from orchestration_queue.protocol.operations import reading
from orchestration_queue.protocol.record import JobRecord

__all__ = ["Arguments", "AssetTask", "queue_flow_assets", "queue_task_asset"]

Arguments: TypeAlias = Mapping[str, object] | Callable[[dg.AssetExecutionContext], Mapping[str, object]]
"""A task's keyword arguments, or how to find them when the run is there (its partition key, for instance)."""

_KIND = "queue"


@dataclass(frozen=True, slots=True)
class AssetTask:
    """One asset, and the task by which a worker makes it.

    Attributes:
        asset: The asset, or just its key. Its ``deps`` on assets of the same group become the flow's edges.
        task: The task's name; None takes the last part of the asset's key.
        arguments: The task's keyword arguments.
        queue: Where the job runs; None takes the group's queue.
        options: How the job is retried, limited and kept.
    """

    asset: dg.AssetSpec | str
    task: str | None = None
    arguments: Arguments = field(default_factory=dict)
    queue: str | None = None
    options: JobOptions = field(default_factory=JobOptions)

    @property
    def spec(self) -> dg.AssetSpec:
        """The asset as the UI shows it: marked as the queue's work."""
        spec = self.asset if isinstance(self.asset, dg.AssetSpec) else dg.AssetSpec(self.asset)
        return spec.merge_attributes(kinds={_KIND})

    @property
    def node(self) -> str:
        """The node's name in the flow."""
        return self.spec.key.to_user_string()

    def arguments_in(self, context: dg.AssetExecutionContext) -> Mapping[str, object]:
        """The task's arguments in this run."""
        return self.arguments(context) if callable(self.arguments) else self.arguments


def queue_flow_assets(
    tasks: Sequence[AssetTask],
    *,
    name: str,
    queue: str,
    resource_key: str = "queue",
    partitions_def: dg.PartitionsDefinition[str] | None = None,
    backfill_policy: dg.BackfillPolicy | None = None,
    retry_policy: dg.RetryPolicy | None = None,
    pool: str | None = None,
) -> dg.AssetsDefinition:
    """Assets that are made together, as one flow.

    A run submits a graph of the selected assets' tasks, in Kahn order, and reports each asset as materialized when
    its node completes, with what the task returned, how it ran, and its log. A failed node fails the step with its
    reason and the names of the assets that therefore could not be made; nodes that do not depend on it run to their
    end all the same. Cancelling the run cancels the flow.

    The flow's id is ``{name}-{run id}``, so a step that is tried again joins the flow it submitted before: what is
    done stays done, what runs goes on, and what failed is given its attempts again.

    Args:
        tasks: The assets and their tasks.
        name: The flow's name, and the op's.
        queue: Where the jobs run that name no queue.
        resource_key: The :class:`QueueResource` among the definitions' resources.
        partitions_def: The partitions of all these assets.
        backfill_policy: How backfills run.
        retry_policy: Whether and when Dagster tries the step again. The jobs' own attempts are in their options.
        pool: Dagster's concurrency pool for the step.

    Raises:
        FlowError: The tasks are no graph that can run.
    """
    _graph(name, queue, tasks)

    @dg.multi_asset(
        name=name,
        specs=[task.spec for task in tasks],
        can_subset=True,
        required_resource_keys={resource_key},
        partitions_def=partitions_def,
        backfill_policy=backfill_policy,
        retry_policy=retry_policy,
        pool=pool,
        op_tags={"orchestration_queue/queue": queue},
    )
    def flow_assets(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[None]]:
        resource: QueueResource = getattr(context.resources, resource_key)
        selected = [task for task in tasks if task.spec.key in context.selected_asset_keys]
        dag = _graph(name, queue, selected, context)
        keys = {task.node: task.spec.key for task in selected}
        yield from _FlowStep(context, resource, dag, keys).run()

    return flow_assets


def queue_task_asset(
    task: AssetTask,
    *,
    queue: str,
    resource_key: str = "queue",
    partitions_def: dg.PartitionsDefinition[str] | None = None,
    backfill_policy: dg.BackfillPolicy | None = None,
    retry_policy: dg.RetryPolicy | None = None,
    pool: str | None = None,
) -> dg.AssetsDefinition:
    """One asset that is made by one job: a flow of one node, with all that :func:`queue_flow_assets` promises.

    Args:
        task: The asset and its task.
        queue: Where the job runs, unless the task names a queue.
        resource_key: The :class:`QueueResource` among the definitions' resources.
        partitions_def: The asset's partitions.
        backfill_policy: How backfills run.
        retry_policy: Whether and when Dagster tries the step again. The job's own attempts are in its options.
        pool: Dagster's concurrency pool for the step.
    """
    return queue_flow_assets(
        [task],
        name=task.spec.key.to_python_identifier(),
        queue=queue,
        resource_key=resource_key,
        partitions_def=partitions_def,
        backfill_policy=backfill_policy,
        retry_policy=retry_policy,
        pool=pool,
    )


def _graph(name: str, queue: str, tasks: Sequence[AssetTask], context: dg.AssetExecutionContext | None = None) -> Dag:
    """The tasks as a graph; an edge is a dependency between two of them. Arguments are known in a run only."""
    nodes = {task.spec.key: task.node for task in tasks}
    return Dag(
        name,
        [
            Node(
                name=task.node,
                task=task.task or task.spec.key.path[-1],
                queue=task.queue,
                data=dict(task.arguments_in(context)) if context else None,
                options=task.options,
                deps=tuple(nodes[dep.asset_key] for dep in task.spec.deps if dep.asset_key in nodes),
            )
            for task in tasks
        ],
        queue,
    )


@dataclass(frozen=True, slots=True)
class _FlowStep:
    """One attempt of a step: it submits the flow, or joins it, and stays until its end."""

    context: dg.AssetExecutionContext
    resource: QueueResource
    dag: Dag
    keys: Mapping[str, dg.AssetKey]

    def run(self) -> Iterator[dg.MaterializeResult[None]]:
        flow_id = f"{self.dag.name}-{self.context.run.run_id}"
        flow = self.resource.flow_producer().submit(self.dag, flow_id=flow_id)
        follower = Follower(flow, self.resource.connection)
        try:
            self._take_up(flow)
            for step, record in follower.completed():
                yield self._materialized(flow, step, record)
        except (dg.DagsterExecutionInterruptedError, GeneratorExit):
            self.context.log.info(f"Cancelling flow {flow.id}")
            flow.cancel()
            raise
        if follower.failed:
            raise _failure(flow, follower.failed, follower.blocked)

    def _take_up(self, flow: Flow) -> None:
        """In a further attempt the flow was there already, and what failed gets its attempts again."""
        queues = ", ".join(sorted({step.keys.queue for step in flow.plan.steps.values()}))
        verb = "Submitted" if flow.is_new else "Joined"
        self.context.log.info(f"{verb} flow {flow.id}: {len(flow.plan.steps)} nodes in {queues}")
        if flow.is_new:
            return
        records = flow.records()
        for name in flow.retry():
            reason = records[name].failed_reason if name in records else None
            self.context.log.info(f"Retrying node {name}, which failed before: {reason}")

    def _materialized(self, flow: Flow, step: Step, record: JobRecord) -> dg.MaterializeResult[None]:
        logs = self.resource.connection.run(reading.logs(step.keys, record.id), repeatable=True)
        for line in logs:
            self.context.log.info(f"{step.node.name}: {line}")
        metadata = job_metadata(record, queue=step.keys.queue, flow_id=flow.id, logs=logs)
        return dg.MaterializeResult(asset_key=self.keys[step.node.name], metadata=metadata)


def _failure(flow: Flow, failed: Mapping[str, str], blocked: Sequence[str]) -> dg.Failure:
    """The flow's failure: which nodes, why, and which others could not run for it."""
    reasons = "; ".join(f"node {name!r} failed: {reason}" for name, reason in failed.items())
    rest = f" Not run, because they depend on it: {', '.join(blocked)}." if blocked else ""
    return dg.Failure(
        f"Flow {flow.id}: {reasons.rstrip('.')}.{rest}",
        metadata={
            "orchestration_queue/flow_id": flow.id,
            "orchestration_queue/failed": dg.MetadataValue.json(dict(failed)),
            "orchestration_queue/not_run": dg.MetadataValue.json(list(blocked)),
        },
    )
