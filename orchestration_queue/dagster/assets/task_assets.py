"""Assets that the queue's workers make: several as one flow, or a single one as one job."""

# No `from __future__ import annotations` here: Dagster reads the annotation of `context`, and a string fails.

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import dagster as dg

from orchestration_queue.dagster.assets.flow_step import FlowStep, NodeOutput
from orchestration_queue.dagster.checks import check_asset, check_function, check_items, check_text, checked
from orchestration_queue.dagster.resources import QueueResource
from orchestration_queue.dagster.routing import with_origin
from orchestration_queue.errors import InvalidOptionError, UsageError
from orchestration_queue.flows import Dag, Node
from orchestration_queue.options import JobOptions
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.tasks import Task, Tasks
from orchestration_queue.tasks.task import Isolation

__all__ = ["Arguments", "AssetTask", "queue_asset", "queue_flow_assets", "queue_task_asset"]

Arguments: TypeAlias = Mapping[str, object] | Callable[[dg.AssetExecutionContext], Mapping[str, object]]
"""A task's keyword arguments, or a function that returns them for a run, for example from its partition."""

_KIND = "queue"


@dataclass(frozen=True, slots=True)
class AssetTask:
    """One asset, and the task that makes it on a worker.

    Attributes:
        asset: The asset, or just its key. Its ``deps`` on assets of the same group become the flow's edges.
        task: The task's name; None: the last part of the asset's key.
        arguments: The task's keyword arguments.
        queue: The queue of the job; None: the group's queue.
        options: The job's options.
        checks: Asset checks whose results the task returns, under the key ``checks`` of its result: for each check,
            whether it passed, or a dict with ``passed`` and optionally ``severity``, ``description`` and ``metadata``.
        partition_arguments: Additional arguments for one partition, by its key. The asset, whose spec has partitions,
            is then one node per partition of the run, in the same flow as assets without partitions.
    """

    asset: dg.AssetSpec | str
    task: str | None = None
    arguments: Arguments = field(default_factory=dict)
    queue: str | None = None
    options: JobOptions = field(default_factory=JobOptions)
    checks: Sequence[dg.AssetCheckSpec | str] = ()
    partition_arguments: Callable[[str], Mapping[str, object]] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.asset, dg.AssetSpec):
            check_asset(self.asset)
        if self.task is not None:
            check_text(self.task, "task")
        if not callable(self.arguments):
            checked(self.arguments, Mapping, "arguments", optional=False)
        if self.queue is not None:
            QueueKeys(self.queue)
        object.__setattr__(self, "options", JobOptions.coerce(self.options, "options"))
        check_items(self.checks, (dg.AssetCheckSpec, str), "checks")
        check_function(self.partition_arguments, "partition_arguments")
        if self.partition_arguments is not None and self.spec.partitions_def is None:
            raise UsageError(
                f"`partition_arguments` of asset {self.node!r} requires partitions; pass "
                "AssetSpec(..., partitions_def=...)."
            )

    @property
    def spec(self) -> dg.AssetSpec:
        """The asset as the UI shows it, marked as made by the queue."""
        spec = self.asset if isinstance(self.asset, dg.AssetSpec) else dg.AssetSpec(self.asset)
        return spec.merge_attributes(kinds={_KIND})

    @property
    def check_specs(self) -> Sequence[dg.AssetCheckSpec]:
        """The checks, as the UI shows them."""
        specs = (
            dg.AssetCheckSpec(check, asset=self.spec.key) if isinstance(check, str) else check for check in self.checks
        )
        return tuple(specs)

    @property
    def node(self) -> str:
        """The node's name in the flow."""
        return self.spec.key.to_user_string()

    def nodes_in(self, context: dg.AssetExecutionContext | None) -> Mapping[str, str | None]:
        """Return the partition of each of the asset's nodes in a run; without a run, of all nodes.

        Raises:
            dagster.Failure: The run has no partition.
        """
        if self.partition_arguments is None or self.spec.partitions_def is None:
            return {self.node: None}
        if context is None:
            keys = self.spec.partitions_def.get_partition_keys()
        elif context.has_partition_key or context.has_partition_key_range:
            keys = context.partition_keys
        else:
            raise dg.Failure(
                f"Asset {self.node!r} has partitions, but the run has none; launch it with a partition or a range.",
                allow_retries=False,
            )
        return {f"{self.node}_{key}": key for key in keys}

    def arguments_in(self, context: dg.AssetExecutionContext, partition: str | None) -> Mapping[str, object]:
        """Return the task's arguments in this run, for one of its partitions."""
        arguments = self.arguments(context) if callable(self.arguments) else self.arguments
        if self.partition_arguments is None or partition is None:
            return arguments
        return {**arguments, **self.partition_arguments(partition)}


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
    """Define assets that are made together, as one flow.

    A run submits a graph of the selected assets' tasks, in Kahn order. Each asset is reported as materialized when its
    node completes, with the task's result, its timing, and its log. A failed node fails the step with its reason and
    the names of the assets that could not be made because of it; nodes that don't depend on it still run. Cancelling
    the run cancels the flow.

    The flow's id is ``{name}-{run id}``, so a retried step joins the flow that it submitted before: completed nodes are
    kept, running ones continue, and failed ones get all their attempts again.

    An asset with ``partition_arguments`` is one node per partition of the run, and Dagster shows the outcome of each.
    Its checks pass if they pass for all of them.

    Args:
        tasks: The assets and their tasks.
        name: The flow's name, and the op's.
        queue: The queue of jobs without their own.
        resource_key: The :class:`QueueResource` among the definitions' resources.
        partitions_def: The partitions of all these assets.
        backfill_policy: How backfills run; default: in one run if any asset has ``partition_arguments``.
        retry_policy: Whether and when Dagster retries the step. The jobs' own attempts are in their options.
        pool: Dagster's concurrency pool for the step.

    Raises:
        FlowError: The tasks are not a valid graph.
    """
    check_items(tasks, AssetTask, "tasks")
    check_text(name, "name")
    check_text(resource_key, "resource_key")
    checked(partitions_def, dg.PartitionsDefinition, "partitions_def")
    checked(backfill_policy, dg.BackfillPolicy, "backfill_policy")
    checked(retry_policy, dg.RetryPolicy, "retry_policy")
    _graph(name, queue, tasks)
    if backfill_policy is None and any(task.partition_arguments for task in tasks):
        backfill_policy = dg.BackfillPolicy.single_run()

    @dg.multi_asset(
        name=name,
        specs=[task.spec for task in tasks],
        check_specs=[check for task in tasks for check in task.check_specs],
        can_subset=True,
        required_resource_keys={resource_key},
        partitions_def=partitions_def,
        backfill_policy=backfill_policy,
        retry_policy=retry_policy,
        pool=pool,
        op_tags={"orchestration_queue/flow_queue": queue},
    )
    def flow_assets(
        context: dg.AssetExecutionContext,
    ) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
        resource: QueueResource = getattr(context.resources, resource_key)
        selected = _select(tasks, context)
        checks = {
            task.spec.key: [check for check in task.check_specs if check.key in context.selected_asset_check_keys]
            for task in selected
        }
        outputs = {
            node: NodeOutput(task.spec.key, partition)
            for task in selected
            for node, partition in task.nodes_in(context).items()
        }
        yield from FlowStep(context, resource, _graph(name, queue, selected, context), outputs, checks).run()

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
    """Define one asset that is made by one job: a flow of one node, with all features of :func:`queue_flow_assets`.

    Args:
        task: The asset and its task.
        queue: The queue of the job, unless the task names one.
        resource_key: The :class:`QueueResource` among the definitions' resources.
        partitions_def: The asset's partitions.
        backfill_policy: How backfills run.
        retry_policy: Whether and when Dagster retries the step. The job's own attempts are in its options.
        pool: Dagster's concurrency pool for the step.
    """
    checked(task, AssetTask, "task", optional=False)
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
    """Build the graph of the tasks; its edges are the dependencies between them. Only a run has arguments."""
    nodes = {task.spec.key: task.nodes_in(context) for task in tasks}
    return Dag(
        name,
        [
            Node(
                name=node,
                task=task.task or task.spec.key.path[-1],
                queue=task.queue,
                data=dict(task.arguments_in(context, partition)) if context else None,
                options=with_origin(task.options, context) if context else task.options,
                deps=tuple(name for dep in task.spec.deps for name in nodes.get(dep.asset_key, ())),
            )
            for task in tasks
            for node, partition in nodes[task.spec.key].items()
        ],
        queue,
    )


def _select(tasks: Sequence[AssetTask], context: dg.AssetExecutionContext) -> list[AssetTask]:
    """Return the tasks of the assets that this run makes.

    Raises:
        dagster.Failure: A check is selected without its asset.
    """
    for task in tasks:
        alone = [check.name for check in task.check_specs if check.key in context.selected_asset_check_keys]
        if alone and task.spec.key not in context.selected_asset_keys:
            raise dg.Failure(
                f"The task of asset {task.node!r} reports check {alone[0]!r}, but the asset is not selected; "
                "select it, too.",
                allow_retries=False,
            )
    return [task for task in tasks if task.spec.key in context.selected_asset_keys]


def queue_asset(
    tasks: Tasks,
    asset: dg.AssetSpec | str | None = None,
    *,
    arguments: Arguments | None = None,
    queue: str | None = None,
    options: JobOptions | None = None,
    isolation: Isolation | None = None,
    checks: Sequence[dg.AssetCheckSpec | str] = (),
    resource_key: str = "queue",
    partitions_def: dg.PartitionsDefinition[str] | None = None,
    backfill_policy: dg.BackfillPolicy | None = None,
    retry_policy: dg.RetryPolicy | None = None,
    pool: str | None = None,
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Define an asset, and the task that makes it on a worker, from one function.

    Dagster's process only sends the arguments and reports the result. Start workers with the registry, as for any
    task: ``oq worker module:tasks --queue ...``.

    Args:
        tasks: The registry that the workers serve.
        asset: The asset, or just its key; default: the function's name, with its docstring as description.
        arguments: The function's keyword arguments, or a function that returns them for a run.
        queue: The queue of the job; default: the registry's queue.
        options: The job's options.
        isolation: ``process`` runs it in a separate process; see :meth:`Tasks.task`.
        checks: Asset checks whose results the function returns; see :class:`AssetTask`.
        resource_key: The :class:`QueueResource` among the definitions' resources.
        partitions_def: The asset's partitions.
        backfill_policy: How backfills run.
        retry_policy: Whether and when Dagster retries the step. The job's own attempts are in its options.
        pool: Dagster's concurrency pool for the step.

    Raises:
        InvalidOptionError: Neither the registry nor the asset names a queue.
        UsageError: The arguments don't match the function's signature. (If they depend on the run, the run fails
            instead.)

    Examples:
        >>> tasks = Tasks(queue="data")
        >>> @queue_asset(tasks, dg.AssetSpec("clean", deps=["raw"]), arguments={"day": "2013-01-01"})
        ... def clean(day: str) -> dict[str, int]:
        ...     return {"rows": 842}
    """
    target = queue or tasks.queue
    if target is None:
        raise InvalidOptionError("Neither the asset nor its registry names a queue; pass queue=, or Tasks(queue=...).")

    def define(function: Callable[..., Any]) -> dg.AssetsDefinition:
        spec = asset if isinstance(asset, dg.AssetSpec) else dg.AssetSpec(asset or function.__name__)
        if spec.description is None:
            spec = spec.replace_attributes(description=function.__doc__)
        task: Task[..., Any] = tasks.task(
            name=spec.key.to_python_identifier(), options=options or JobOptions(), isolation=isolation
        )(function)
        return queue_task_asset(
            AssetTask(spec, task.name, _check_arguments(task, arguments or {}), options=task.options, checks=checks),
            queue=target,
            resource_key=resource_key,
            partitions_def=partitions_def,
            backfill_policy=backfill_policy,
            retry_policy=retry_policy,
            pool=pool,
        )

    return define


def _check_arguments(task: Task[..., Any], arguments: Arguments) -> Arguments:
    """Return the arguments as the job's data if they match the function's signature."""

    def data(given: Mapping[str, object]) -> Mapping[str, object]:
        bound: Mapping[str, object] = task.job(**given).data
        return bound

    if callable(arguments):
        find = arguments
        return lambda context: data(find(context))
    return data(arguments)
