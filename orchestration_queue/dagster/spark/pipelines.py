"""Spark's declarative pipelines as assets: one step runs one job, and reports each dataset when it is complete."""

# No `from __future__ import annotations` here: Dagster reads the annotation of `context`, and a string fails.

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from orchestration_queue.dagster.pipes.client import PipesJobFailure
from orchestration_queue.dagster.spark.client import PipesSparkClient
from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options import JobOptions

__all__ = ["PipelineConfig", "pipeline_assets"]

_ROWS = "dagster/row_count"
_NOT_SHRUNK = "has_not_shrunk"


class PipelineConfig(dg.Config):
    """Run configuration of a declarative pipeline."""

    full_refresh: list[str] = Field(
        default=[], description="Datasets to fill from the beginning, by the pipeline's names; `*` for all."
    )

    def select(self, chosen: Sequence[str]) -> list[str]:
        """Return the datasets to fill from the beginning.

        Args:
            chosen: The datasets that the run refreshes.

        Raises:
            dg.Failure: A dataset is not among those of the run.
        """
        if "*" in self.full_refresh:
            return [*chosen]
        if unknown := [name for name in self.full_refresh if name not in chosen]:
            raise dg.Failure(
                f"`full_refresh` has {unknown[0]!r}, but the run refreshes {', '.join(chosen)}; use one of these.",
                allow_retries=False,
            )
        return [*self.full_refresh]


def pipeline_assets(
    spec: str | Path,
    *,
    scripts: str | Path,
    queue: str | None = None,
    options: JobOptions | None = None,
    key_prefix: Sequence[str] = (),
    group_name: str | None = None,
    resource_key: str = "spark",
    retry_policy: dg.RetryPolicy | None = None,
    pool: str | None = None,
) -> dg.AssetsDefinition:
    """Define the datasets of a declarative pipeline (``pyspark.pipelines``) as one multi-asset.

    A run refreshes the selected datasets, as one job in a session of the workers' Connect server, and reports each one
    that completed, even if another failed. Dependencies are derived from the queries, also through temporary views;
    tables that the pipeline does not define become dependencies on assets with their names.

    Args:
        spec: The pipeline's specification, ``spark-pipeline.yml``. It is read here, and run by workers.
        scripts: The directory that workers serve with :func:`spark_steps`, which contains the pipeline there, too.
        queue: The queue of the job; default: the client's.
        options: The job's options.
        key_prefix: Prefix of the assets' keys, before the datasets' names.
        group_name: The assets' group.
        resource_key: The :class:`PipesSparkClient` among the definitions' resources.
        retry_policy: Whether and when Dagster retries the step.
        pool: Dagster's concurrency pool for the step.

    Raises:
        InvalidOptionError: The specification is not below the directory, is invalid, or defines no dataset that is
            stored.
    """
    from orchestration_queue.dagster.spark.pipeline_graph import FULL_REFRESH, read_pipeline  # it imports PySpark

    path, root = Path(spec).absolute(), Path(scripts).absolute()
    if not path.is_relative_to(root):
        raise InvalidOptionError(f"The pipeline {path} is not below {root}, where workers read it; move it there.")
    pipeline = read_pipeline(path)
    if not pipeline.kept:
        raise InvalidOptionError(
            f"The pipeline {path} defines no table or materialized view; check the libraries of its specification."
        )

    def key_of(name: str) -> dg.AssetKey:
        return dg.AssetKey([*key_prefix, *name.split(".")])

    def dep_of(name: str) -> dg.AssetKey:
        return key_of(name) if name in pipeline.datasets else dg.AssetKey(name.split("."))

    specs = [
        dg.AssetSpec(
            key_of(dataset.name),
            deps=[dep_of(name) for name in pipeline.upstream(dataset)],
            description=dataset.comment,
            group_name=group_name,
            kinds={"spark", "queue"},
            metadata={"orchestration_queue/defined_at": dataset.place},
            skippable=True,
        )
        for dataset in pipeline.kept
    ]
    names = {key_of(dataset.name): dataset.name for dataset in pipeline.kept}

    checks = {key: _NOT_SHRUNK for key, name in names.items() if pipeline.datasets[name].is_append_only}

    @dg.multi_asset(
        name=dg.AssetKey([*key_prefix, pipeline.name]).to_python_identifier(),
        specs=specs,
        check_specs=[
            dg.AssetCheckSpec(name, asset=key, description="An append-only table has all rows of its last run.")
            for key, name in checks.items()
        ],
        can_subset=True,
        required_resource_keys={resource_key},
        retry_policy=retry_policy,
        pool=pool,
    )
    def refreshed(
        context: dg.AssetExecutionContext, config: PipelineConfig
    ) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
        client: PipesSparkClient = getattr(context.resources, resource_key)
        chosen = {
            name: key.to_escaped_user_string() for key, name in names.items() if key in context.selected_asset_keys
        }
        full = config.select([*chosen])
        before = {key: _row_count(context.instance, key) for key in checks if names[key] in chosen}

        def results(done: dg.PipesClientCompletedInvocation) -> Iterator[Any]:
            for result in done.get_results(implicit_materializations=False):
                if isinstance(result, dg.MaterializeResult):
                    yield result
                    if (key := result.asset_key) in before and dg.AssetCheckKey(key, _NOT_SHRUNK) in wanted:
                        yield _compare(key, None if names[key] in full else before[key], result.metadata or {})

        wanted = context.selected_asset_check_keys
        try:
            done = client.run(
                context=context,
                script=path.relative_to(root).as_posix(),
                arguments=[
                    *([] if len(chosen) == len(names) else chosen),
                    *(f"{FULL_REFRESH}{name}" for name in full),
                ],
                extras={"datasets": chosen},
                queue=queue,
                options=options,
            )
        except PipesJobFailure as failure:
            if failure.invocation is not None:
                yield from results(failure.invocation)
            raise
        yield from results(done)

    return refreshed


def _row_count(instance: dg.DagsterInstance, key: dg.AssetKey) -> int | None:
    """Return the number of rows of an asset's last materialization."""
    event = instance.get_latest_materialization_event(key)
    count = event.asset_materialization.metadata.get(_ROWS) if event and event.asset_materialization else None
    return count.value if isinstance(count, dg.IntMetadataValue) else None


def _compare(key: dg.AssetKey, before: int | None, metadata: Mapping[str, Any]) -> dg.AssetCheckResult:
    count = metadata.get(_ROWS)
    rows = count.value if isinstance(count, dg.IntMetadataValue) else count
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=_NOT_SHRUNK,
        passed=before is None or (isinstance(rows, int) and rows >= before),
        metadata={name: value for name, value in (("rows_before", before), ("rows", rows)) if value is not None},
    )
