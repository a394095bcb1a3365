"""Did it really work? Counts what the pipeline wrote, against the table it began with."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from examples.flights import settings
from examples.flights.fleet import DemoError
from examples.flights.watch import Snapshot

__all__ = ["verify_nodes", "verify_runs", "verify_tables"]

_KEY = ["date", "hour", "carrier", "flight", "tailnum", "origin", "dest"]


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
        "the check of all months": snapshot.node(settings.CLEAN_FLIGHTS).rows,
    }
    for what, rows in counted.items():
        if rows != settings.FLIGHTS_IN_2013:
            raise DemoError(f"By their results, {what} have {rows} rows instead of {settings.FLIGHTS_IN_2013:,}.")


def verify_tables(data: Path) -> None:
    """On disk, the clean table holds exactly the raw table's flights: none is missing, none doubled.

    Raises:
        DemoError: It is not so.
    """
    files = sorted((data / "clean" / "flights").glob("month=*/*.parquet"))
    if len(files) != len(settings.MONTH_NODES):
        raise DemoError(f"There are {len(files)} files of clean flights instead of {len(settings.MONTH_NODES)}.")
    raw = pd.read_parquet(data / "raw" / "flights.parquet")
    clean = pd.concat(pd.read_parquet(file) for file in files)
    before = pd.DataFrame({"date": pd.to_datetime(raw[["year", "month", "day"]].astype("int64"))} | _others(raw))
    after = pd.DataFrame(
        {"date": pd.to_datetime(clean["local_date"])} | _others(clean.rename(columns={"local_hour": "hour"}))
    )
    if len(after) != settings.FLIGHTS_IN_2013:
        raise DemoError(f"The clean flights have {len(after):,} rows instead of {settings.FLIGHTS_IN_2013:,}.")
    if not _sorted(before).equals(_sorted(after)):
        raise DemoError("The clean flights are not the raw flights: some are missing while others are doubled.")


def _others(frame: pd.DataFrame) -> dict[str, pd.Series]:
    texts = {name: frame[name].astype("string") for name in _KEY if name not in {"date", "hour", "flight"}}
    return {"hour": frame["hour"].astype("int64"), "flight": frame["flight"].astype("int64")} | texts


def _sorted(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[_KEY].astype({"date": "datetime64[ns]"}).sort_values(_KEY).reset_index(drop=True)
