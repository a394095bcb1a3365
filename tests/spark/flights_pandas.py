"""The flights pipeline once more in pandas: what the Spark one must agree with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from examples.flights.clean import HOME_ZONE, MAX_WIND_MPH, MEASURED
from examples.flights.extract import raw_path

__all__ = ["KEY", "clean_flights", "clean_weather", "delay_table"]

KEY = ["scheduled_at", "carrier", "flight", "origin", "copy"]


def clean_flights(data: Path) -> pd.DataFrame:
    """Type all flights."""
    raw = pd.read_parquet(raw_path(str(data), "flights"))
    local = pd.to_datetime(raw[["year", "month", "day", "hour", "minute"]].astype("int64"))
    scheduled_at = local.dt.tz_localize(HOME_ZONE, ambiguous="raise", nonexistent="raise").dt.tz_convert("UTC")
    return pd.DataFrame(
        {
            **{name: raw[name] for name in ("carrier", "flight", "tailnum", "origin", "dest")},
            "scheduled_at": scheduled_at,
            "departed_at": scheduled_at + pd.to_timedelta(raw["dep_delay"].astype("Float64"), unit="min"),
            "hour_utc": scheduled_at.dt.floor("h"),
            "local_date": local.dt.normalize(),
            "local_hour": raw["hour"],
            **{name: raw[name] for name in ("dep_delay", "arr_delay", "air_time", "distance")},
            "cancelled": raw["dep_time"].isna(),
            "diverted": raw["dep_time"].notna() & raw["arr_delay"].isna(),
            "copy": raw["copy"],
            "month": raw["month"],
        }
    )


def clean_weather(data: Path) -> pd.DataFrame:
    """Type the weather."""
    raw = pd.read_parquet(raw_path(str(data), "weather"))
    clean = raw[["origin", *MEASURED]].assign(hour_utc=pd.to_datetime(raw["time_hour"], utc=True))
    clean["wind_speed"] = clean["wind_speed"].mask(clean["wind_speed"] > MAX_WIND_MPH)
    return clean.drop_duplicates(["origin", "hour_utc"])


def delay_table(data: Path, by: list[str]) -> pd.DataFrame:
    """Return flights, cancelled, late ones and mean delays, sorted by what they are grouped by."""
    weather = clean_weather(data)[["origin", "hour_utc", "wind_speed"]]
    planes = pd.read_parquet(raw_path(str(data), "planes"))[["tailnum", "year"]].rename(columns={"year": "built"})
    joined = clean_flights(data).merge(weather, "left", ["origin", "hour_utc"]).merge(planes, "left", "tailnum")
    joined["wind"] = _cut(joined["wind_speed"], [5, 10, 15, 20, 25], ["0-5", "5-10", "10-15", "15-20", "20-25", "25+"])
    age = joined["local_date"].dt.year - joined["built"]
    joined["plane_age"] = _cut(age, [5, 10, 15, 20], ["0-5", "5-10", "10-15", "15-20", "20+"])
    joined["late"] = (joined["dep_delay"] >= 15).fillna(value=False)
    table = joined.groupby(by, as_index=False).agg(
        flights=("flight", "size"),
        cancelled=("cancelled", "sum"),
        late=("late", "sum"),
        mean_dep_delay=("dep_delay", "mean"),
        mean_arr_delay=("arr_delay", "mean"),
    )
    return table.sort_values(by, ignore_index=True)


def _cut(values: pd.Series, edges: list[int], names: list[str]) -> pd.Series:
    bands = pd.cut(values.astype("float64"), [-np.inf, *edges, np.inf], right=False, labels=names)
    return bands.astype("object").fillna("unknown")
