"""The second Spark stage: join each flight with its weather and its plane, and aggregate the delays.

Reads the tables of :mod:`examples.flights.clean`, and writes one small table per question::

    <data>/delays/<table>/*.parquet      by_origin_hour, by_carrier, by_wind, by_month, by_plane_age, by_destination
"""

from __future__ import annotations

import time
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's convention

from examples.flights import settings
from examples.flights.extract import raw_path

__all__ = ["TABLES", "compute_delays"]

TABLES = {
    "by_origin_hour": ("origin", "local_hour"),
    "by_carrier": ("carrier",),
    "by_wind": ("origin", "wind"),
    "by_month": ("origin", "month"),
    "by_plane_age": ("plane_age",),
    "by_destination": ("dest",),
}
"""Each table, and what it groups by. Every flight counts once in every table."""

DIMENSIONS = ("origin", "local_hour", "carrier", "wind", "month", "plane_age", "dest")

WIND_BANDS = ((5, "0-5"), (10, "5-10"), (15, "10-15"), (20, "15-20"), (25, "20-25"))
"""Miles per hour, each below its first number; what is above is ``25+``, what was not measured is ``unknown``."""

AGE_BANDS = ((5, "0-5"), (10, "5-10"), (15, "10-15"), (20, "15-20"))
"""Years since the plane was built, named likewise."""

NAMES = {"by_carrier": ("airlines", "carrier"), "by_destination": ("airports", "faa")}
"""Tables whose key has a name to be looked up: in which raw table, and by which column."""

LATE_MINUTES = 15
"""From here on the authorities count a departure as late."""

FLIGHTS_TO_RANK = 500
"""Rarer combinations do not enter the ranking: their mean says little."""


def compute_delays(spark: SparkSession, flights: DataFrame, weather: DataFrame, data_dir: str) -> dict[str, Any]:
    """Join flights with weather and planes, and write the mean delays by what may explain them.

    Args:
        spark: The session.
        flights: The clean flights.
        weather: The clean weather.
        data_dir: The data directory, with the raw planes, airports and airlines in it.

    Returns:
        ``flights``, ``joined``, ``with_weather``, ``with_plane`` (rows), ``tables`` (rows and path of each), ``worst``
        (the origins and hours with the longest mean delay, longest first), ``seconds``.

    Raises:
        ValueError: The joins lost or doubled flights, or a table does not count each exactly once.
    """
    started = time.monotonic()
    data = Path(data_dir).absolute()
    planes = spark.read.parquet(raw_path(data_dir, "planes"))
    joined = _join(flights, weather, planes)
    # One pass over the flights for all tables; what is left after it is a few hundred rows.
    sets = joined.groupingSets([list(by) for by in TABLES.values()], *DIMENSIONS)
    cells = sets.agg(F.grouping_id().alias("set"), *_measures()).cache()
    expected = flights.count()
    totals, rows = _checked_totals(cells, expected)
    print(f"Joined {totals['flights']:,} flights, {totals['with_weather']:,} of them with weather.")
    tables = {name: {"rows": rows[name], "path": _write(spark, data, cells, name)} for name in TABLES}
    return {
        "flights": expected,
        "joined": totals["flights"],
        "with_weather": totals["with_weather"],
        "with_plane": totals["with_plane"],
        "tables": tables,
        "worst": _worst(cells),
        "seconds": round(time.monotonic() - started, 3),
    }


def _join(flights: DataFrame, weather: DataFrame, planes: DataFrame) -> DataFrame:
    """Return every flight once, with what is known of its weather and its plane."""
    # Both are unique by what they are joined on, or flights would multiply; _checked_totals makes sure of it.
    hours = weather.select("origin", "hour_utc", "wind_speed", F.lit(1).alias("has_weather"))
    built = planes.select("tailnum", F.col("year").alias("built"), F.lit(1).alias("has_plane"))
    return (
        flights.join(hours, ["origin", "hour_utc"], "left")
        .join(built, ["tailnum"], "left")
        .withColumn("wind", _band(F.col("wind_speed"), WIND_BANDS, "25+"))
        .withColumn("plane_age", _band(F.year("local_date") - F.col("built"), AGE_BANDS, "20+"))
    )


def _band(value: Column, bands: tuple[tuple[int, str], ...], above: str) -> Column:
    """Return the name of a value's band."""
    unknown = F.when(value.isNull(), "unknown")
    return reduce(lambda chain, band: chain.when(value < band[0], band[1]), bands, unknown).otherwise(above)


def _measures() -> list[Column]:
    return [
        F.count("*").alias("flights"),
        F.count_if("cancelled").alias("cancelled"),
        F.avg("dep_delay").alias("mean_dep_delay"),
        F.avg("arr_delay").alias("mean_arr_delay"),
        F.count_if(F.col("dep_delay") >= LATE_MINUTES).alias("late"),
        F.count("has_weather").alias("with_weather"),
        F.count("has_plane").alias("with_plane"),
    ]


def _cells_of(cells: DataFrame, name: str) -> DataFrame:
    """Return the rows of one table."""
    return cells.where(F.col("set") == _set_of(name))


def _set_of(name: str) -> int:
    """Return the number of a table's grouping set, which has a bit for each dimension that it sums over."""
    return int("".join("0" if dimension in TABLES[name] else "1" for dimension in DIMENSIONS), 2)


def _checked_totals(cells: DataFrame, expected: int) -> tuple[dict[str, int], dict[str, int]]:
    """Sum every table back up to the year, and refuse any that does not give the flights there are.

    Returns:
        The year's flights, and those with weather and plane; and how many rows each table has.
    """
    counts = ("flights", "with_weather", "with_plane")
    sums = [F.sum(name).alias(name) for name in counts]
    rows = cells.groupBy("set").agg(F.count(F.lit(1)).alias("cells"), *sums).collect()
    if wrong := sorted({row["flights"] for row in rows} - {expected}) or len(rows) != len(TABLES):
        raise ValueError(
            f"The joins made {wrong} of {expected} flights; weather and planes must be unique by their keys."
        )
    sizes = {row["set"]: row["cells"] for row in rows}
    return {name: rows[0][name] for name in counts}, {name: sizes[_set_of(name)] for name in TABLES}


def _write(spark: SparkSession, data: Path, cells: DataFrame, name: str) -> str:
    by, path = TABLES[name], data / "delays" / name
    table = _cells_of(cells, name).select(
        *by,
        "flights",
        "cancelled",
        "late",
        F.round("mean_dep_delay", 3).alias("mean_dep_delay"),
        F.round("mean_arr_delay", 3).alias("mean_arr_delay"),
        F.round(F.try_divide(F.col("late"), F.col("flights") - F.col("cancelled")), 4).alias("late_share"),
        F.round(F.col("cancelled") / F.col("flights"), 4).alias("cancelled_share"),
    )
    if (named := NAMES.get(name)) is not None:
        raw, key = named
        names = spark.read.parquet(raw_path(str(data), raw)).select(F.col(key).alias(by[0]), "name")
        table = table.join(names, [*by], "left")
    table.coalesce(1).sortWithinPartitions(*by).write.mode("overwrite").parquet(str(path))
    return str(path)


def _worst(cells: DataFrame) -> list[dict[str, Any]]:
    ranked = _cells_of(cells, "by_origin_hour").where(F.col("flights") >= FLIGHTS_TO_RANK * settings.scale())
    rows = ranked.orderBy(F.desc("mean_dep_delay")).limit(10).collect()
    return [
        {
            "origin": row["origin"],
            "hour": row["local_hour"],
            "flights": row["flights"],
            "mean_dep_delay": round(row["mean_dep_delay"], 1),
            "late_share": round(row["late"] / (row["flights"] - row["cancelled"]), 3),
        }
        for row in rows
    ]
