"""An asset whose function runs on a worker, written like any asset."""

# No `from __future__ import annotations` here: Dagster reads the annotation of `context`, and a string fails.

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dagster as dg

from orchestration_queue.dagster.assets.task_assets import Arguments, AssetTask, queue_task_asset
from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options import JobOptions
from orchestration_queue.tasks import Task, Tasks
from orchestration_queue.tasks.task import Isolation

__all__ = ["queue_asset"]


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
    """Make a function an asset, and a task that makes it on a worker.

    Dagster's process only passes the arguments on, and reports what the function returned. Start workers with the
    registry, as for any task: ``oq worker module:tasks --queue ...``.

    Args:
        tasks: The registry that the workers serve.
        asset: The asset, or just its key; default the function's name, with its docstring as description.
        arguments: The function's keyword arguments, or how to find them when the run is there.
        queue: Where the job runs; default the registry's.
        options: How the job is retried, limited and kept.
        isolation: ``process`` runs it in a process of its own; see :meth:`Tasks.task`.
        checks: What the function tells of the asset's quality; see :class:`AssetTask`.
        resource_key: The :class:`QueueResource` among the definitions' resources.
        partitions_def: The asset's partitions.
        backfill_policy: How backfills run.
        retry_policy: Whether and when Dagster tries the step again. The job's own attempts are in its options.
        pool: Dagster's concurrency pool for the step.

    Raises:
        InvalidOptionError: Neither the registry nor the asset names a queue.
        UsageError: The arguments do not fit the function; those that depend on the run fail it instead.

    Examples:
        >>> tasks = Tasks(queue="data")
        >>> @queue_asset(tasks, dg.AssetSpec("clean", deps=["raw"]), arguments={"day": "2013-01-01"})
        ... def clean(day: str) -> dict[str, int]:
        ...     return {"rows": 842}
    """
    target = queue or tasks.queue
    if target is None:
        raise InvalidOptionError("Neither the asset nor its registry names a queue; pass queue=, or Tasks(queue=...).")

    def made(function: Callable[..., Any]) -> dg.AssetsDefinition:
        spec = asset if isinstance(asset, dg.AssetSpec) else dg.AssetSpec(asset or function.__name__)
        if spec.description is None:
            spec = spec.replace_attributes(description=function.__doc__)
        task: Task[..., Any] = tasks.task(
            name=spec.key.to_python_identifier(), options=options or JobOptions(), isolation=isolation
        )(function)
        return queue_task_asset(
            AssetTask(spec, task.name, _checked(task, arguments or {}), options=task.options, checks=checks),
            queue=target,
            resource_key=resource_key,
            partitions_def=partitions_def,
            backfill_policy=backfill_policy,
            retry_policy=retry_policy,
            pool=pool,
        )

    return made


def _checked(task: Task[..., Any], arguments: Arguments) -> Arguments:
    """The arguments as the job's data, once they fit the function."""

    def data(given: Mapping[str, object]) -> Mapping[str, object]:
        fitting: Mapping[str, object] = task.job(**given).data
        return fitting

    if callable(arguments):
        find = arguments
        return lambda context: data(find(context))
    return data(arguments)
