"""Verify the pipeline: compare what it wrote with the table it started from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from examples.flights import settings
from examples.flights.extract import raw_path
from examples.flights.fleet import DemoError

if TYPE_CHECKING:
    import dagster as dg

    from examples.flights.watch import Snapshot

__all__ = ["verify_checks", "verify_nodes", "verify_runs", "verify_tables"]

_KEY = ("hour", "carrier", "flight", "tailnum", "origin", "dest", "copy")
_TEXTS = {"carrier", "tailnum", "origin", "dest"}


def verify_runs(snapshot: Snapshot, sensor: str) -> None:
    """Both Dagster runs ended well, and it was the sensor that asked for the second.

    Raises:
        DemoError: It is not so.
    """
    for run in snapshot.runs:
        if run.status != "SUCCESS":
            raise DemoError(f"Dagster run {run.run_id} of {run.job} ended as {run.status}.")
    if snapshot.runs[1].sensor != sensor:
        raise DemoError(f"Run {snapshot.runs[1].run_id} was not requested by the sensor {sensor}.")
    if not snapshot.scheduled_runs:
        raise DemoError("The repeatable job has not run once.")


def verify_nodes(snapshot: Snapshot) -> None:
    """Every node completed, and the twelve months add up.

    Raises:
        DemoError: It is not so.
    """
    for node in snapshot.nodes:
        if not node.is_done:
            raise DemoError(f"Node {node.name} is {node.state} instead of completed.")
    counted = {
        "the raw table": snapshot.node(settings.RAW_NODES["flights"]).rows,
        "the twelve months together": sum(snapshot.node(name).rows or 0 for name in settings.MONTH_NODES.values()),
        "the table of all months": snapshot.node(settings.CLEAN_FLIGHTS).rows,
    }
    expected = settings.FLIGHTS_IN_2013 * settings.scale()
    for what, rows in counted.items():
        if rows != expected:
            raise DemoError(f"By their results, {what} have {rows} rows instead of {expected:,}.")


def verify_checks(instance: dg.DagsterInstance) -> None:
    """Dagster has the outcome of every check, and all passed.

    Raises:
        DemoError: It is not so.
    """
    from examples.flights.definitions import TASKS  # it reads the environment that the demo sets

    keys = [check.key for task in TASKS for check in task.check_specs]
    found = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    for key in keys:
        record = found.get(key)
        status = record.status.value if record else "missing"
        if status != "SUCCEEDED":
            raise DemoError(f"Check {key.name} of {key.asset_key.to_user_string()} is {status}.")


def verify_tables(data: Path, clean: Path) -> None:
    """On disk, the clean table holds exactly the raw table's flights, month by month: none is missing, none doubled.

    Args:
        data: The data directory.
        clean: The clean flights, partitioned by month.

    Raises:
        DemoError: It is not so.
    """
    months = sorted(clean.glob("month=*"), key=lambda folder: int(folder.name.removeprefix("month=")))
    if [folder.name for folder in months] != [f"month={month}" for month in settings.MONTH_NODES]:
        raise DemoError(f"The months of clean flights are {[folder.name for folder in months]}, not the year's twelve.")
    total = 0
    for month, folder in zip(settings.MONTH_NODES, months, strict=True):
        before = pq.read_table(raw_path(str(data), "flights"), columns=["day", *_KEY], filters=[("month", "==", month)])
        after = pq.read_table(folder, columns=["local_date", "local_hour", *_KEY[1:]], partitioning=None)
        after = after.append_column("day", pc.day(after["local_date"])).rename_columns({"local_hour": "hour"})
        if not _sort(before).equals(_sort(after)):
            raise DemoError(f"The clean flights of month {month} are not the raw ones: some are missing or doubled.")
        total += len(after)
    if total != settings.FLIGHTS_IN_2013 * settings.scale():
        raise DemoError(f"The clean flights have {total:,} rows instead of {settings.FLIGHTS_IN_2013:,} a copy.")


def _sort(table: pa.Table) -> pa.Table:
    columns = {name: table[name].cast(pa.string() if name in _TEXTS else pa.int64()) for name in ("day", *_KEY)}
    return pa.table(columns).sort_by([(name, "ascending") for name in columns]).combine_chunks()
