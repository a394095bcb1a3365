"""A program that runs a declarative pipeline in a job's session; workers start it for steps.

Its arguments are the specification, and the datasets to refresh, none for all; ``--full-refresh=NAME`` names a dataset
to fill from the beginning. Each dataset is reported when Spark has completed all its flows.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dagster_pipes import PipesContext, open_dagster_pipes
from pyspark.errors import PySparkException
from pyspark.pipelines.cli import load_pipeline_spec, register_definitions
from pyspark.pipelines.flow import AutoCdcFlow, Flow
from pyspark.pipelines.graph_element_registry import GraphElementRegistry
from pyspark.pipelines.output import Output, StreamingTable
from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, start_run
from pyspark.sql import SparkSession

from orchestration_queue.dagster.pipes import PipesStreamContextLoader, PipesStreamMessageWriter
from orchestration_queue.dagster.spark.pipeline_graph import FULL_REFRESH, DatasetRegistry, Pipeline
from orchestration_queue.errors import UnrecoverableError

__all__ = ["PlacedTables", "main"]

_LOCATION = "location"
_CLEARED = "oq_cleared"
"""The column of a table that was cleared and not filled again."""
# Spark says the second of a directory without files.
_DOES_NOT_EXIST = frozenset({"PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA"})


class PlacedTables(GraphElementRegistry):
    """Passes a pipeline's definitions on, and adds a location to streaming tables that would be lost with the server.

    Args:
        spark: The session.
        behind: Spark's own registry.
        storage: The pipeline's storage.
        catalog: The pipeline's catalog; None for the session's.
        database: The pipeline's database; None for the session's.
    """

    def __init__(
        self, spark: Any, behind: GraphElementRegistry, storage: str, catalog: str | None, database: str | None
    ) -> None:
        self._spark, self._behind, self._storage = spark, behind, storage.rstrip("/")
        self._catalog = catalog or spark.catalog.currentCatalog()
        self._database = database or spark.catalog.currentDatabase()
        implementation = spark.conf.get("spark.sql.catalogImplementation", "in-memory")
        self._is_volatile = self._catalog == "spark_catalog" and implementation == "in-memory"
        self._placed: dict[str, tuple[str, str]] = {}  # format and location

    def register_output(self, output: Output) -> None:
        """Pass an output on; add a location to a streaming table without one."""
        if self._is_volatile and isinstance(output, StreamingTable) and _LOCATION not in output.table_properties:
            location = f"{self._storage}/_tables/{'/'.join(self._path(output.name))}"
            self._placed[output.name] = (output.format or "parquet", location)
            output = replace(output, table_properties={**output.table_properties, _LOCATION: location})
        self._behind.register_output(output)

    def register_flow(self, flow: Flow) -> None:
        """Pass a flow on."""
        self._behind.register_flow(flow)

    def register_auto_cdc_flow(self, flow: AutoCdcFlow) -> None:
        """Pass a flow on."""
        self._behind.register_auto_cdc_flow(flow)

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        """Pass SQL on; its tables have the locations of its text, or none."""
        self._behind.register_sql(sql_text, file_path)

    def table_name(self, name: str) -> str:
        """Return a dataset's name in the catalog."""
        return ".".join(f"`{word}`" for word in self._path(name))

    def clear(self, names: Collection[str]) -> None:
        """Clear placed tables that are filled from the beginning; Spark truncates other tables itself."""
        for name in names:
            if name in self._placed:
                form, location = self._placed[name]
                self._spark.sql(f"DROP TABLE IF EXISTS {self.table_name(name)}")
                # Dropping a table that has a location leaves its files; an empty table replaces them.
                empty = self._spark.range(0).withColumnRenamed("id", _CLEARED)
                empty.write.format(form).mode("overwrite").save(location)

    def refuse_lost(self, names: Collection[str]) -> None:
        """Check that no table to continue was lost.

        Raises:
            UnrecoverableError: A table has checkpoints, but does not exist.
        """
        for name in names:
            checkpoints = f"{self._storage}/_checkpoints/{'/'.join(self._path(name))}"
            if self._has_files(f"{checkpoints}/*/*/commits") and not self._exists(name):
                raise UnrecoverableError(
                    f"Table {self.table_name(name)} has checkpoints in {checkpoints}, but does not exist, for example "
                    "because its catalog in memory ended with the server; fill it again by a run with full_refresh: "
                    f"[{name!r}], and set a location for SQL tables, or a persistent catalog for the server."
                )

    def _exists(self, name: str) -> bool:
        if name not in self._placed:
            return bool(self._spark.catalog.tableExists(self.table_name(name)))
        form, location = self._placed[name]
        try:
            columns = self._spark.read.format(form).load(location).columns
        except PySparkException as error:
            if error.getCondition() in _DOES_NOT_EXIST:
                return False
            raise
        return bool(columns != [_CLEARED])

    def _has_files(self, path: str) -> bool:
        """Return whether a path has files, by Spark, which supports its own file systems."""
        files = self._spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        try:
            return len(files.load(path).select("path").take(1)) > 0
        except PySparkException as error:
            if error.getCondition() in _DOES_NOT_EXIST:
                return False
            raise

    def _path(self, name: str) -> list[str]:
        words = name.replace("`", "").split(".")
        return [*[self._catalog, self._database][: 3 - len(words)], *words]


_EVENT = re.compile(r"Flow '?(?P<flow>[^\s']+)'? (?:is|has) (?P<state>[A-Z]+)")
_RETRIES = "spark.sql.pipelines.maxFlowRetryAttempts"


def main(spec_path: Path, refresh: Sequence[str], full_refresh: Sequence[str] = ()) -> dict[str, Any]:
    """Run a pipeline.

    Args:
        spec_path: The specification.
        refresh: The datasets to refresh; none for all.
        full_refresh: The datasets to fill from the beginning.

    Returns:
        A dict with ``completed``, the names of completed datasets.
    """
    with open_dagster_pipes(
        context_loader=PipesStreamContextLoader(), message_writer=PipesStreamMessageWriter()
    ) as pipes:
        spark: Any = SparkSession.builder.getOrCreate()
        spec = load_pipeline_spec(spec_path)
        # The job retries a pipeline; Spark's own retries would delay that.
        conf = {_RETRIES: "0", **spec.configuration}
        for name, value in spec.configuration.items():
            spark.conf.set(name, value)
        graph = create_dataflow_graph(spark, spec.catalog, spec.database, conf)
        registry = SparkConnectGraphElementRegistry(spark, graph)
        tables = PlacedTables(spark, registry, spec.storage, spec.catalog, spec.database)
        datasets = DatasetRegistry(spark, tables)
        register_definitions(spec_path, datasets, spec, spark, graph)
        pipeline = Pipeline(spec.name, datasets.datasets)
        chosen = [*refresh] or [dataset.name for dataset in pipeline.kept]
        tables.refuse_lost([name for name in chosen if name not in full_refresh])
        tables.clear(full_refresh)
        reporter = _Reporter(pipes, pipeline, lambda name: spark.table(tables.table_name(name)).count())
        partly = [name for name in chosen if name not in full_refresh] if refresh or full_refresh else []
        for result in start_run(spark, graph, [*full_refresh], False, partly, False, spec.storage):
            if "pipeline_event_result" in result:
                reporter.handle(result["pipeline_event_result"].event.message)
        return {"completed": reporter.completed}


class _Reporter:
    """Turns Spark's events into reports to the step."""

    def __init__(self, pipes: PipesContext, pipeline: Pipeline, count_rows: Callable[[str], int]) -> None:
        self.completed: list[str] = []
        self._pipes, self._pipeline, self._count_rows = pipes, pipeline, count_rows
        self._keys: dict[str, str] = pipes.get_extra("datasets")
        self._open = {dataset.name: set(dataset.flows) for dataset in pipeline.datasets.values()}
        self._began: dict[str, float] = {}

    def handle(self, message: str) -> None:
        print(message, flush=True)  # noqa: T201 (what a job prints is its log)
        event = _EVENT.search(message)
        dataset = self._pipeline.of_flow(event["flow"]) if event else None
        if event is None or dataset is None:
            return
        if event["state"] == "RUNNING":
            self._began.setdefault(dataset.name, time.monotonic())
        elif event["state"] == "COMPLETED":
            left = self._open[dataset.name]
            left -= {name for name in left if f".{event['flow']}".endswith(f".{name}")}
            if not left and dataset.name in self._keys:
                self._report(dataset.name, event["flow"])

    def _report(self, name: str, flow: str) -> None:
        self.completed.append(name)
        seconds = time.monotonic() - self._began.get(name, time.monotonic())
        self._pipes.report_asset_materialization(
            asset_key=self._keys[name],
            metadata={
                "dagster/table_name": flow,
                "dagster/row_count": self._count_rows(name),
                "orchestration_queue/dataset_seconds": round(seconds, 3),
            },
        )


if __name__ == "__main__":
    # The runner of scripts puts a script's directory first; modules of this directory would shadow others.
    sys.path[:] = [entry for entry in sys.path if Path(entry) != Path(__file__).parent]
    words = [word for word in sys.argv[2:] if not word.startswith(FULL_REFRESH)]
    full = [word.removeprefix(FULL_REFRESH) for word in sys.argv[2:] if word.startswith(FULL_REFRESH)]
    result = main(Path(sys.argv[1]), words, full)
