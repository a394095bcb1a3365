"""The first Spark stage: turn raw files into typed tables, with check results for each."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's convention

from examples.flights.extract import raw_path

__all__ = ["clean_month", "clean_weather", "join_months"]

HOME_ZONE = "America/New_York"
"""The time zone of all three airports' schedules."""

MAX_WIND_MPH = 200.0
"""Faster is a broken sensor: Newark reports 1,048 mph on an otherwise calm night in February."""

FLIGHT = ("scheduled_at", "carrier", "flight", "origin", "copy")
"""What identifies a flight."""

MEASURED = ("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib")


def clean_month(spark: SparkSession, data_dir: str, month: int) -> tuple[DataFrame, dict[str, Any]]:
    """Type one month's flights, keeping every row.

    Times become UTC; what the airline scheduled by the local clock is unambiguous, for no flight is scheduled within
    the hour that daylight saving repeats. A flight is cancelled when it never departed, and diverted when it departed
    but never arrived where it should.

    Args:
        spark: The session.
        data_dir: The data directory, with the raw flights in it.
        month: 1 to 12.

    Returns:
        The flights, and the outcome of each check.
    """
    raw, landed = _count_later(spark.read.parquet(raw_path(data_dir, "flights")).where(F.col("month") == month))
    year, month_of, day, hour, minute = (F.col(name).cast("int") for name in ("year", "month", "day", "hour", "minute"))
    zero, zone = F.lit(0), F.lit(HOME_ZONE)
    scheduled = F.make_timestamp(year, month_of, day, hour, minute, zero, zone)
    typed = raw.select(
        "carrier",
        F.col("flight").cast("int").alias("flight"),
        "tailnum",
        "origin",
        "dest",
        scheduled.alias("scheduled_at"),
        (scheduled + F.make_dt_interval(mins=F.col("dep_delay").cast("int"))).alias("departed_at"),
        F.make_timestamp(year, month_of, day, hour, zero, zero, zone).alias("hour_utc"),
        F.make_date(year, month_of, day).alias("local_date"),
        F.col("hour").cast("short").alias("local_hour"),
        *(F.col(name).cast("short").alias(name) for name in ("dep_delay", "arr_delay", "air_time")),
        F.col("distance").cast("int").alias("distance"),
        F.col("dep_time").isNull().alias("cancelled"),
        (F.col("dep_time").isNotNull() & F.col("arr_delay").isNull()).alias("diverted"),
        F.col("copy").cast("short").alias("copy"),
        "time_hour",
    )
    checks = _check(
        typed,
        landed=landed,
        required=("scheduled_at", "carrier", "origin", "dest"),
        ranges={"dep_delay": (-120, 2_880), "arr_delay": (-180, 2_880), "distance": (1, 6_000)},
        key=FLIGHT,
        # The raw table has the hour in UTC, too: an independent witness, on both sides of daylight saving.
        clock=F.col("hour_utc") != F.to_timestamp("time_hour"),
    )
    return typed.drop("time_hour"), checks


def clean_weather(spark: SparkSession, data_dir: str) -> tuple[DataFrame, dict[str, Any]]:
    """Type the hourly weather, one row for each airport and hour.

    The hour is UTC. By the local clock one hour of November would be there twice, and join twice.

    Args:
        spark: The session.
        data_dir: The data directory, with the raw weather in it.

    Returns:
        The weather, and the outcome of each check.
    """
    raw, landed = _count_later(spark.read.parquet(raw_path(data_dir, "weather")))
    wind = F.when(F.col("wind_speed") <= MAX_WIND_MPH, F.col("wind_speed"))
    typed = raw.select("origin", F.to_timestamp("time_hour").alias("hour_utc"), *MEASURED)
    clean = typed.withColumn("wind_speed", wind).dropDuplicates(["origin", "hour_utc"])
    ranges = {"wind_speed": (0, MAX_WIND_MPH), "temp": (-60, 130), "humid": (0, 100)}
    key = ("origin", "hour_utc")
    return clean, _check(clean, landed=landed, required=key, ranges=ranges, key=key)


def join_months(months: Mapping[int, DataFrame], expected_rows: int) -> tuple[DataFrame, dict[str, Any]]:
    """Make one table of the months: no flight missing, none twice.

    Args:
        months: The clean months, each of which is known to be without duplicates.
        expected_rows: How many flights the year has.

    Returns:
        The flights with their month, and the outcome of each check.
    """
    numbered = (frame.withColumn("month", F.lit(month).cast("short")) for month, frame in months.items())
    flights = reduce(DataFrame.unionByName, numbered)
    strays = F.count_if(F.month("local_date") != F.col("month")).alias("strays")
    counted = flights.agg(F.count(F.lit(1)).alias("rows"), strays).collect()[0]
    outcomes = {
        "rows": (counted["rows"] == expected_rows, {"rows": counted["rows"], "expected": expected_rows}),
        # Flights without duplicates by month have none in the year when none is in another's month.
        "uniqueness": (counted["strays"] == 0, {"strays": counted["strays"]}),
    }
    return flights, _describe(outcomes)


def _count_later(raw: DataFrame) -> tuple[DataFrame, Observation]:
    """Count the rows on the way of the first query: no pass of their own."""
    landed = Observation()
    return raw.observe(landed, F.count(F.lit(1)).alias("rows")), landed


def _check(
    frame: DataFrame,
    *,
    landed: Observation,
    required: tuple[str, ...],
    ranges: Mapping[str, tuple[float, float]],
    key: tuple[str, ...],
    clock: Column | None = None,
) -> dict[str, Any]:
    """Run all checks in one pass, in the form that Dagster's assets take."""
    outside = [F.count_if(~F.col(name).between(*limits)) for name, limits in ranges.items()]
    counted = frame.agg(
        F.count(F.lit(1)).alias("rows"),
        reduce(operator.add, [F.count_if(F.col(name).isNull()) for name in required], F.lit(0)).alias("nulls"),
        reduce(operator.add, outside, F.lit(0)).alias("ranges"),
        F.count_distinct(*(F.col(name) for name in key)).alias("distinct"),
        F.count_if(clock if clock is not None else F.lit(False)).alias("clock"),
    ).collect()[0]
    rows = landed.get["rows"]
    outcomes = {
        "rows": (counted["rows"] == rows, {"rows": counted["rows"], "expected": rows}),
        "nulls": (counted["nulls"] == 0, {"nulls": counted["nulls"], "columns": list(required)}),
        "ranges": (counted["ranges"] == 0, {"outside": counted["ranges"], "columns": list(ranges)}),
        "uniqueness": (counted["distinct"] == counted["rows"], {"distinct": counted["distinct"], "key": list(key)}),
        "clock": (counted["clock"] == 0, {"differ": counted["clock"]}),
    }
    return _describe(outcomes)


def _describe(outcomes: Mapping[str, tuple[bool, dict[str, Any]]]) -> dict[str, Any]:
    return {name: {"passed": passed, "metadata": facts} for name, (passed, facts) in outcomes.items()}
