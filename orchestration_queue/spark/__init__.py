"""Spark work as queue jobs: PySpark functions on a warm Connect server or in a process of their own, and scripts.

Nothing here imports PySpark: only where the work runs, it is.
"""

from orchestration_queue.spark.connect.server import ConnectServer
from orchestration_queue.spark.java import bundled_java_home, java_home
from orchestration_queue.spark.options import SparkOptions
from orchestration_queue.spark.references import DataFrameRef
from orchestration_queue.spark.run import run_spark
from orchestration_queue.spark.task import spark_script, spark_task

__all__ = [
    "ConnectServer",
    "DataFrameRef",
    "SparkOptions",
    "bundled_java_home",
    "java_home",
    "run_spark",
    "spark_script",
    "spark_task",
]
