"""What the tests' workers serve: scripts of a directory, and a Spark task that reports."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from orchestration_queue.dagster.pipes import open_job_pipes
from orchestration_queue.dagster.spark import spark_steps
from orchestration_queue.spark import SparkSubmit, spark_task
from orchestration_queue.tasks import Tasks
from orchestration_queue.worker import ActiveJob
from tests.spark.connect_work import SERVER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

tasks = Tasks()
options = SparkSubmit(master="local[1]")
history = "http://history:18080/history/{application}"
tasks.task(spark_steps(os.environ["TEST_SCRIPTS"], options=options, server=SERVER, ui=history))


@tasks.task
@spark_task(server=SERVER)
def count_rows(spark: SparkSession, rows: int, job: ActiveJob) -> int:
    """Count, and report."""
    with open_job_pipes(job) as pipes:
        counted = spark.range(rows).count()
        pipes.report_asset_materialization(metadata={"rows": counted, "shift": pipes.get_extra("shift")})
    return counted
