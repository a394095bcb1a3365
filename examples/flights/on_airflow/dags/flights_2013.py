"""The flights pipeline as a DAG: its tasks are named after the flow's nodes in ``make demo``, and do the same work."""

from __future__ import annotations

import shutil
import uuid
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, task
from airflow.sdk.exceptions import AirflowFailException

from examples.flights import extract, settings
from examples.flights.tasks import SPARK
from orchestration_queue.spark import spark_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DATA = settings.data_dir()
CLEAN = Path(DATA, "clean")


@task(multiple_outputs=True)
def extract_table(table: str) -> dict[str, Any]:
    """Land one raw table."""
    return {**extract.extract_table(DATA, table, settings.scale())}


@task(multiple_outputs=False)
@spark_task(server=SPARK)
def clean_month(spark: SparkSession, month: int) -> dict[str, Any]:
    """Type one month of flights."""
    from examples.flights import clean

    return _write(*clean.clean_month(spark, DATA, month), settings.MONTH_NODES[month])


@task(multiple_outputs=False)
@spark_task(server=SPARK)
def clean_weather(spark: SparkSession) -> dict[str, Any]:
    """Type the hourly weather."""
    from examples.flights import clean

    return _write(*clean.clean_weather(spark, DATA), settings.CLEAN_WEATHER)


@task(multiple_outputs=False)
@spark_task(server=SPARK)
def join_months(spark: SparkSession, expected_rows: int) -> dict[str, Any]:
    """Join the months to one table, partitioned by month: the year must be whole."""
    from examples.flights import clean

    frames = {month: spark.read.parquet(str(CLEAN / node)) for month, node in settings.MONTH_NODES.items()}
    return _write(*clean.join_months(frames, expected_rows), settings.CLEAN_FLIGHTS, "month")


@task(multiple_outputs=False)
@spark_task(server=SPARK)
def delay_table(spark: SparkSession) -> dict[str, Any]:
    """Join every flight with its weather and plane, and aggregate what delays them."""
    from examples.flights.delays import compute_delays

    flights = spark.read.parquet(str(CLEAN / settings.CLEAN_FLIGHTS))
    weather = spark.read.parquet(str(CLEAN / settings.CLEAN_WEATHER))
    found = compute_delays(spark, flights, weather, DATA)
    return {"rows": found["flights"], "worst": found["worst"]}


@task(multiple_outputs=False)
def write_report() -> dict[str, Any]:
    """Draw the chart and the page."""
    from examples.flights.report import write_report as write

    return {**write(DATA)}


def _write(table: DataFrame, checks: dict[str, Any], name: str, *partition_by: str) -> dict[str, Any]:
    """Write a table, unless it fails a check."""
    if failed := [check for check, outcome in checks.items() if not outcome["passed"]]:
        raise AirflowFailException(f"{name} fails the checks {failed}: {checks[failed[0]]['metadata']}.")
    draft = CLEAN / f".{name}-{uuid.uuid4().hex}"  # a try whose worker was killed may still be writing to its own
    table.write.partitionBy(*partition_by).parquet(str(draft))
    shutil.rmtree(CLEAN / name, ignore_errors=True)
    draft.rename(CLEAN / name)
    rows = checks["rows"]["metadata"]["rows"]
    print(f"{rows:,} rows; passed {', '.join(checks)}")
    return {"rows": rows}


with DAG(
    "flights_2013", schedule=None, tags=["example"], default_args={"retries": 2, "retry_delay": timedelta(seconds=1)}
):
    raw = {table: extract_table.override(task_id=node)(table) for table, node in settings.RAW_NODES.items()}
    months = [clean_month.override(task_id=node)(month) for month, node in settings.MONTH_NODES.items()]
    rows: Any = raw["flights"]
    flights = join_months.override(task_id=settings.CLEAN_FLIGHTS)(rows["rows"])
    weather = clean_weather.override(task_id=settings.CLEAN_WEATHER)()
    delays = delay_table.override(task_id=settings.DELAYS)()
    raw["flights"] >> months >> flights
    raw["weather"] >> weather
    [flights, weather, *raw.values()] >> delays >> write_report.override(task_id=settings.REPORT)()
