"""The example's Spark work on the real data: every flight of the year counted once, in every table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from examples.flights import extract
from examples.flights.delays import TABLES, compute_delays
from examples.flights.report import write_report
from orchestration_queue.spark import ConnectServer, SparkOptions, run_spark
from orchestration_queue.spark.connect.run import run_connect
from tests.spark.conftest import Marked
from tests.spark.standalone import QUICKLY, standalone_cluster

# The first test waits for all of Spark's work, on however busy a machine.
pytestmark = pytest.mark.timeout(300)

FLIGHTS, CANCELLED, DIVERTED = 336_776, 8_255, 1_175


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory, raw and clean."""
    directory = tmp_path_factory.mktemp("flights data")
    for table in extract.TABLES:
        extract.extract_table(str(directory), table)
    for month in extract.MONTHS:
        extract.clean_flights(str(directory), month)
    extract.clean_weather(str(directory))
    return directory


@pytest.fixture(scope="module")
def computed(data: Path) -> dict[str, Any]:
    """What the Spark work returned: one start of Spark for all tests of this file."""
    result: dict[str, Any] = run_spark("examples.flights.delays:compute_delays", {"data_dir": str(data)})
    return result


def test_cleaning_keeps_every_flight_and_says_what_became_of_it(data: Path) -> None:
    flights = pd.read_parquet(data / "clean" / "flights")
    assert len(flights) == FLIGHTS
    assert (flights["cancelled"].sum(), flights["diverted"].sum()) == (CANCELLED, DIVERTED)
    assert flights["dep_delay"].isna().sum() == CANCELLED
    assert not flights.duplicated(["scheduled_at", "carrier", "flight", "origin"]).any()


def test_schedules_are_read_by_new_yorks_clock(data: Path) -> None:
    """The raw table has the hour in UTC, too: an independent witness, on both sides of daylight saving."""
    raw = pd.read_parquet(data / "raw" / "flights.parquet")
    flights = pd.read_parquet(data / "clean" / "flights").sort_values("month", kind="stable")
    raw = raw.sort_values("month", kind="stable")
    assert (flights["hour_utc"].to_numpy() == pd.to_datetime(raw["time_hour"]).to_numpy()).all()


def test_cleaning_again_changes_nothing(data: Path) -> None:
    first = extract.clean_flights(str(data), 11)
    assert first["rows"] == extract.clean_flights(str(data), 11)["rows"] == 27_268
    assert [path.name for path in Path(first["path"]).parent.iterdir()] == ["flights.parquet"]


def test_the_hour_that_november_repeats_stands_once_for_each_time(data: Path) -> None:
    weather = pd.read_parquet(data / "clean" / "weather.parquet")
    assert len(weather) == 26_115
    assert not weather.duplicated(["origin", "hour_utc"]).any()
    night = weather[weather["hour_utc"].between("2013-11-03T05:00Z", "2013-11-03T06:00Z")]
    assert night.groupby("origin").size().to_dict() == {"EWR": 2, "JFK": 2, "LGA": 2}
    assert weather["wind_speed"].max() < extract.MAX_WIND_MPH


@pytest.mark.spark
def test_the_joins_lose_and_double_nothing(computed: dict[str, Any]) -> None:
    assert computed["flights"] == computed["joined"] == FLIGHTS
    assert (computed["with_weather"], computed["with_plane"]) == (335_220, 284_170)


@pytest.mark.spark
@pytest.mark.parametrize("table", TABLES)
def test_every_table_counts_every_flight_once(computed: dict[str, Any], table: str) -> None:
    written = pd.read_parquet(computed["tables"][table]["path"])
    assert len(written) == computed["tables"][table]["rows"] > 0
    assert (written["flights"].sum(), written["cancelled"].sum()) == (FLIGHTS, CANCELLED)
    assert not written.duplicated(list(TABLES[table])).any()


@pytest.mark.spark
def test_spark_and_pandas_agree_to_the_last_cell(computed: dict[str, Any], data: Path) -> None:
    flights = pd.read_parquet(data / "clean" / "flights")
    grouped = flights.groupby(["origin", "local_hour"])
    expected = grouped.agg(flights=("flight", "size"), mean_dep_delay=("dep_delay", "mean"))
    expected = expected.astype({"mean_dep_delay": "float64"})
    found = pd.read_parquet(computed["tables"]["by_origin_hour"]["path"]).set_index(["origin", "local_hour"])
    pd.testing.assert_frame_equal(
        found[["flights", "mean_dep_delay"]].sort_index(),
        expected,
        check_dtype=False,
        check_index_type=False,
        atol=1e-3,
    )
    worst = computed["worst"][0]
    assert (worst["origin"], worst["hour"], worst["mean_dep_delay"]) == ("EWR", 19, 31.1)


def the_same(data: Path, directory: Path) -> str:
    """A data directory with the same tables to read, and none written yet."""
    for part in ("raw", "clean"):
        (directory / part).symlink_to(data / part)
    return str(directory)


def assert_the_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Compare tables by every row; means may differ by the order in which they were summed up."""
    counts = ("flights", "joined", "with_weather", "with_plane", "worst")
    assert {name: found[name] for name in counts} == {name: expected[name] for name in counts}
    for name, keys in TABLES.items():
        one, other = (
            pd.read_parquet(result["tables"][name]["path"]).sort_values(list(keys), ignore_index=True)
            for result in (found, expected)
        )
        pd.testing.assert_frame_equal(one, other, rtol=1e-9)


@pytest.mark.spark
def test_a_connect_server_gives_the_same_to_the_last_row(
    computed: dict[str, Any], data: Path, connect_server: ConnectServer, tmp_path: Path
) -> None:
    directory = the_same(data, tmp_path)
    found = run_connect("delays", lambda spark: compute_delays(spark, directory), connect_server, SparkOptions())
    assert_the_same(found, computed)


@pytest.mark.spark
def test_a_standalone_cluster_gives_the_same_to_the_last_row(
    computed: dict[str, Any], data: Path, marked: Marked, tmp_path: Path
) -> None:
    with standalone_cluster(tmp_path, dict(marked.options.env)) as cluster:
        quickly = dict.fromkeys(("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"), QUICKLY)
        conf = {"spark.cores.max": "2", **quickly}
        options = SparkOptions(master=cluster.options.master, shuffle_partitions=8, conf=conf)
        found = run_spark(compute_delays, {"data_dir": the_same(data, tmp_path)}, options)
    assert_the_same(found, computed)


@pytest.mark.spark
def test_the_report_needs_nothing_but_itself(computed: dict[str, Any], data: Path) -> None:
    report = write_report(str(data))
    page = Path(report["path"]).read_text(encoding="utf-8")
    assert Path(report["picture"]).read_bytes().startswith(b"\x89PNG")
    assert "336,776 flights, of which 8,255 were cancelled" in page
    assert "<td>Newark, 19:00</td><td>5,976</td><td>31.1</td>" in page
    assert page.count('src="data:image/png;base64,') == page.count("src=") == 1
