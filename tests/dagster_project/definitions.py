"""The whole project: partitions, jobs, schedules, sensors and automation, beside the plain assets and those in YAML."""

import os
import time
from datetime import timedelta
from pathlib import Path

import dagster as dg

from orchestration_queue.dagster import queue_executor
from tests.dagster_project.assets import CHECKS, CLIENTS, OTHERS, PLAIN
from tests.dagster_project.traces import is_set, note, signs

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2025-05-15")  # 500
REGIONS = dg.StaticPartitionsDefinition([f"region_{number}" for number in range(8)])
CUSTOMERS = dg.DynamicPartitionsDefinition(name="customers")


@dg.asset(partitions_def=DAYS, backfill_policy=dg.BackfillPolicy.single_run())
def days_at_once(context: dg.AssetExecutionContext) -> None:
    """All days of a backfill in one run."""
    note("days", len(context.partition_keys))


@dg.asset(partitions_def=REGIONS)
def by_region(context: dg.AssetExecutionContext) -> None:
    """A run for each region."""
    note("regions", context.partition_key)


@dg.asset(partitions_def=dg.MultiPartitionsDefinition({"day": DAYS, "region": REGIONS}))
def by_day_and_region(context: dg.AssetExecutionContext) -> None:
    """Has two dimensions."""
    note("days_and_regions", context.partition_key)


@dg.asset(partitions_def=CUSTOMERS)
def by_customer(context: dg.AssetExecutionContext) -> None:
    """A sensor adds its partitions."""
    note("customers", context.partition_key)


@dg.asset(deps=["table_0"], automation_condition=dg.AutomationCondition.eager())
def eager() -> None:
    """Is made whenever its upstream was."""
    note("eager", os.getpid())


@dg.asset(freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(minutes=1)))
def fresh() -> None:
    """Is stale as soon as Dagster allows."""


@dg.asset
def heard(context: dg.AssetExecutionContext) -> None:
    """A sensor in YAML asks for it."""
    note("heard", context.run.run_id)


@dg.op(out=dg.DynamicOut(int))
def split() -> list[dg.DynamicOutput[int]]:
    """As many steps as there are parts."""
    return [dg.DynamicOutput(number, mapping_key=f"part_{number}") for number in range(4)]


@dg.op
def square(number: int) -> int:
    """One part."""
    return number * number


@dg.op
def gather(numbers: list[int]) -> None:
    """All parts together."""
    note("gathered", sum(numbers))


@dg.job
def mapped() -> None:
    """Dynamic outputs, mapped and collected."""
    gather(split().map(square).collect())


@dg.op
def endure(context: dg.OpExecutionContext, number: int) -> int:
    """Takes until the test lets it end."""
    note("enduring", f"{context.run_id} {number}")
    while not is_set(f"go-{context.run_id}"):
        time.sleep(0.05)
    note(f"endured-{context.run_id}", number)
    return number * number


@dg.op
def add_up(context: dg.OpExecutionContext, numbers: list[int]) -> None:
    """All parts together, of this run."""
    note(f"sum-{context.run_id}", sum(numbers))


@dg.job
def enduring() -> None:
    """Continues while servers restart."""
    add_up(split().map(endure).collect())


@dg.op
def sleep() -> None:
    """Takes longer than any test."""
    note("sleep", os.getpid())
    time.sleep(600)


@dg.job(tags={"dagster/max_runtime": "1"})
def too_long() -> None:
    """Takes longer than it may."""
    sleep()


@dg.op(tags={"kind": "heavy"})
def heavy() -> None:
    """One of those that must not run together."""
    began = time.time()
    time.sleep(0.3)
    note("heavy", f"{began} {time.time()}")


@dg.job(
    executor_def=queue_executor.configured({"tag_concurrency_limits": [{"key": "kind", "value": "heavy", "limit": 1}]})
)
def limited() -> None:
    """Steps with a limit by tag."""
    for number in range(3):
        heavy.alias(f"heavy_{number}")()


@dg.op
def tick() -> None:
    """What a schedule asks for."""
    note("ticks", time.time())


@dg.job
def ticking() -> None:
    """Runs every minute."""
    tick()


every_minute = dg.ScheduleDefinition(name="every_minute", job=ticking, cron_schedule="* * * * *")
customers = dg.define_asset_job("customers_job", dg.AssetSelection.assets(by_customer), partitions_def=CUSTOMERS)


@dg.sensor(job=customers, minimum_interval_seconds=5)
def new_customers() -> dg.SensorResult | dg.SkipReason:
    """Adds a partition, and asks for its run, for each file that is there."""
    if not (names := signs("customer-")):
        return dg.SkipReason("no customer")
    requests = [CUSTOMERS.build_add_request(names)]
    return dg.SensorResult(
        [dg.RunRequest(name, partition_key=name) for name in names], dynamic_partitions_requests=requests
    )


defs = dg.Definitions.merge(
    dg.Definitions(
        assets=[*PLAIN, *OTHERS, days_at_once, by_region, by_day_and_region, by_customer, eager, fresh, heard],
        asset_checks=CHECKS,
        jobs=[
            mapped,
            enduring,
            too_long,
            limited,
            ticking,
            customers,
            dg.define_asset_job("chain", dg.AssetSelection.groups("chain")),
            dg.define_asset_job("repairable", dg.AssetSelection.assets("breakable", "broken_once")),
            dg.define_asset_job("gated", dg.AssetSelection.assets("checked", "after_check")),
            dg.define_asset_job("plain", dg.AssetSelection.assets(*PLAIN)),
        ],
        schedules=[every_minute],
        sensors=[
            new_customers,
            dg.AutomationConditionSensorDefinition(
                "automation", target=dg.AssetSelection.assets("eager"), minimum_interval_seconds=5
            ),
        ],
        resources=CLIENTS,
        executor=queue_executor.configured({"lease": 8.0}),
    ),
    dg.load_from_defs_folder(path_within_project=Path(__file__).parent),
)
