"""Spark work as queue jobs: PySpark functions and scripts, each in a process of its own.

Nothing here imports PySpark: only the process in which the work runs does.
"""

from orchestration_queue.spark.java import bundled_java_home, java_home
from orchestration_queue.spark.options import SparkOptions
from orchestration_queue.spark.run import run_spark
from orchestration_queue.spark.task import spark_script, spark_task

__all__ = ["SparkOptions", "bundled_java_home", "java_home", "run_spark", "spark_script", "spark_task"]
