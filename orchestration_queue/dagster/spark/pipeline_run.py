"""The program that runs a declarative pipeline in a job's session. Only workers start it, for steps.

Its words are the specification, and the datasets to refresh, none for all; ``--full-refresh=`` precedes the name of one
to fill from the beginning. Each dataset is reported as soon as Spark
says that all its flows are complete.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dagster_pipes import PipesContext, open_dagster_pipes
from pyspark.pipelines.cli import load_pipeline_spec, register_definitions
from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, start_run
from pyspark.sql import SparkSession

from orchestration_queue.dagster.pipes import PipesStreamContextLoader, PipesStreamMessageWriter
from orchestration_queue.dagster.spark.pipeline_graph import FULL_REFRESH, Pipeline, Reading
from orchestration_queue.dagster.spark.pipeline_tables import PlacedTables

__all__ = ["main"]

_EVENT = re.compile(r"Flow '?(?P<flow>[^\s']+)'? (?:is|has) (?P<state>[A-Z]+)")
_RETRIES = "spark.sql.pipelines.maxFlowRetryAttempts"


def main(spec_path: Path, refresh: Sequence[str], full_refresh: Sequence[str] = ()) -> dict[str, Any]:
    """Run a pipeline.

    Args:
        spec_path: Its specification.
        refresh: The datasets to refresh; none for all.
        full_refresh: Those of them to fill from the beginning.

    Returns:
        ``completed``, the datasets that are.
    """
    with open_dagster_pipes(
        context_loader=PipesStreamContextLoader(), message_writer=PipesStreamMessageWriter()
    ) as pipes:
        spark: Any = SparkSession.builder.getOrCreate()
        spec = load_pipeline_spec(spec_path)
        # Whether a pipeline is tried again, its job says; Spark's own tries would hold it up.
        conf = {_RETRIES: "0", **spec.configuration}
        for name, value in spec.configuration.items():
            spark.conf.set(name, value)
        graph = create_dataflow_graph(spark, spec.catalog, spec.database, conf)
        registry = SparkConnectGraphElementRegistry(spark, graph)
        tables = PlacedTables(spark, registry, spec.storage, spec.catalog, spec.database)
        reading = Reading(spark, tables)
        register_definitions(spec_path, reading, spec, spark, graph)
        pipeline = Pipeline(spec.name, reading.datasets)
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
    # The runner of scripts puts a script's directory first: here, where our own modules have everybody's names.
    sys.path[:] = [entry for entry in sys.path if Path(entry) != Path(__file__).parent]
    words = [word for word in sys.argv[2:] if not word.startswith(FULL_REFRESH)]
    full = [word.removeprefix(FULL_REFRESH) for word in sys.argv[2:] if word.startswith(FULL_REFRESH)]
    result = main(Path(sys.argv[1]), words, full)
