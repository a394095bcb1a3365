"""Dagster's steps on Spark: scripts and tasks as queue jobs, DataFrames as assets, sessions, components, pipelines.

Only this package imports both Dagster and Spark, and loads each name on first use. A worker that serves
:func:`spark_steps` needs no Dagster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestration_queue._lazy import lazy_names

if TYPE_CHECKING:
    from orchestration_queue.dagster.spark.client import PipesSparkClient
    from orchestration_queue.dagster.spark.io_manager import ParquetIOManager
    from orchestration_queue.dagster.spark.pipelines import pipeline_assets
    from orchestration_queue.dagster.spark.session import SparkSessionResource
    from orchestration_queue.dagster.spark.steps import spark_steps

__all__ = ["ParquetIOManager", "PipesSparkClient", "SparkSessionResource", "pipeline_assets", "spark_steps"]

_HOMES = {
    "client": "PipesSparkClient",
    "io_manager": "ParquetIOManager",
    "pipelines": "pipeline_assets",
    "session": "SparkSessionResource",
    "steps": "spark_steps",
}
__getattr__, __dir__ = lazy_names(
    __name__, {name: f"dagster.spark.{home}" for home, names in _HOMES.items() for name in names.split()}
)
