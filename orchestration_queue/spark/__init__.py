"""Run Spark work as queue jobs: PySpark functions on a warm Connect server or in a separate process, and scripts.

Importing this package does not import PySpark; only the process that runs the work does. Each module is loaded when one
of its names is first used, since Spark's Python workers load the data source again and again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestration_queue._lazy import lazy_names

if TYPE_CHECKING:
    from orchestration_queue.spark.connect.server import ConnectServer
    from orchestration_queue.spark.dataframes import DataFrameRef
    from orchestration_queue.spark.java import bundled_java_home, java_home
    from orchestration_queue.spark.options import SparkOptions
    from orchestration_queue.spark.run import run_spark
    from orchestration_queue.spark.submit.options import SparkSubmit
    from orchestration_queue.spark.submit.run import run_submit
    from orchestration_queue.spark.task import spark_script, spark_submit, spark_task

__all__ = [
    "ConnectServer",
    "DataFrameRef",
    "SparkOptions",
    "SparkSubmit",
    "bundled_java_home",
    "java_home",
    "run_spark",
    "run_submit",
    "spark_script",
    "spark_submit",
    "spark_task",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "ConnectServer": "spark.connect.server",
        "DataFrameRef": "spark.dataframes",
        "SparkOptions": "spark.options",
        "SparkSubmit": "spark.submit.options",
        "bundled_java_home": "spark.java",
        "java_home": "spark.java",
        "run_spark": "spark.run",
        "run_submit": "spark.submit.run",
        "spark_script": "spark.task",
        "spark_submit": "spark.task",
        "spark_task": "spark.task",
    },
)
