"""Names and settings that the pipeline's parts share. Cheap to import, because every Dagster process does."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = [
    "CLEAN_FLIGHTS",
    "CLEAN_WEATHER",
    "DAILY",
    "DELAYS",
    "FLIGHTS_IN_2013",
    "FLOW",
    "FRESHNESS",
    "MONTHLY",
    "MONTHS",
    "MONTH_JOB",
    "MONTH_NODES",
    "PREPARE_JOB",
    "QUEUE",
    "RAW_NODES",
    "REPORT",
    "REPORT_JOB",
    "data_dir",
    "scale",
]

QUEUE = "flights"
"""The queue of all jobs."""

FLIGHTS_IN_2013 = 336_776
"""Rows of the flights table, at every stage, times the scale."""

FLOW = "tables"
"""The flow that makes the raw and clean tables."""

PREPARE_JOB = "prepare_flights"
"""The Dagster job that runs the flow."""

MONTH_JOB = "clean_months"
"""The Dagster job that makes some months again."""

REPORT_JOB = "delay_report"
"""The Dagster job that makes the delay table and the report."""

RAW_NODES = {table: f"raw_{table}" for table in ("flights", "weather", "planes", "airports", "airlines")}
MONTHLY = "flights"
"""The asset whose partitions are the clean months."""

MONTHS = {month: f"2013-{month:02d}" for month in range(1, 13)}
"""The partitions' keys."""

MONTH_NODES = {month: f"{MONTHLY}_{key}" for month, key in MONTHS.items()}
CLEAN_FLIGHTS = "clean_flights"
CLEAN_WEATHER = "clean_weather"
DELAYS = "delays"
REPORT = "report"
FRESHNESS = "freshness_check"
"""The repeatable job, every five seconds by a cron with a field for seconds."""

DAILY = "daily_check"
"""The same each morning by New York's clock."""


def data_dir() -> str:
    """Where the tables lie: ``FLIGHTS_DATA``, else ``.demo/data``."""
    return str(Path(os.environ.get("FLIGHTS_DATA", ".demo/data")).absolute())


def scale() -> int:
    """How many times each flight is there, to have more of them: ``FLIGHTS_SCALE``, else 1."""
    return int(os.environ.get("FLIGHTS_SCALE", "1"))
