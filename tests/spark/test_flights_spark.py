"""The example's Spark work on the real data: every flight of the year counted once, in every table."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from examples.flights import clean, extract
from examples.flights.delays import TABLES, compute_delays
from examples.flights.report import write_report
from orchestration_queue.spark import ConnectServer, DataFrameRef, SparkOptions, run_spark
from orchestration_queue.spark.connect.run import run_connect
from orchestration_queue.spark.result_files import call_with_frames
from tests.spark import flights_pandas
from tests.spark.conftest import Marked
from tests.spark.standalone import QUICKLY, standalone_cluster

# The first test waits for all of Spark's work, on however busy a machine.
pytestmark = pytest.mark.timeout(300)

FLIGHTS, CANCELLED = 336_776, 8_255
MONTHS = (3, 11)
"""Those in which the clock changes."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory: the raw files, and the clean tables by pandas."""
    directory = tmp_path_factory.mktemp("flights data")
    for table in extract.TABLES:
        extract.extract_table(str(directory), table)
    clean = directory / "clean"
    clean.mkdir()
    flights_pandas.clean_flights(directory).to_parquet(clean / "flights", partition_cols=["month"], **MICROSECONDS)
    flights_pandas.clean_weather(directory).to_parquet(clean / "weather", **MICROSECONDS)
    return directory


MICROSECONDS: dict[str, Any] = {"index": False, "coerce_timestamps": "us"}
"""Spark reads no finer ones."""


@pytest.fixture(scope="module")
def extract_of_the_year(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """The same with the flights of two days of two months only: those on which the clock changes are among them."""
    directory = tmp_path_factory.mktemp("extract")
    (directory / "raw").mkdir()
    for table in extract.TABLES:
        if table != "flights":
            (directory / "raw" / table).symlink_to(extract.raw_path(str(data), table))
    flights = pd.read_parquet(extract.raw_path(str(data), "flights"))
    folder = Path(extract.raw_path(str(directory), "flights"))
    folder.mkdir()
    flights[flights["month"].isin(MONTHS) & flights["day"].isin([3, 10])].to_parquet(
        folder / "part-000.parquet", index=False
    )
    return directory


def write_clean_tables(spark: Any, data: Path, target: Path) -> dict[str, Any]:
    """Run the first half; returns every check's outcome by table."""
    months, checks = {}, {}
    for month in MONTHS:
        months[month], checks[f"month {month}"] = clean.clean_month(spark, str(data), month)
    rows = sum(outcome["rows"]["metadata"]["rows"] for outcome in checks.values())
    flights, checks["flights"] = clean.join_months(months, rows)
    weather, checks["weather"] = clean.clean_weather(spark, str(data))
    flights.write.partitionBy("month").parquet(str(target / "flights"))
    weather.write.parquet(str(target / "weather"))
    return checks


@pytest.fixture(scope="module")
def cleaned(extract_of_the_year: Path, connect_server: ConnectServer) -> dict[str, Any]:
    """The outcomes of all checks, once Spark's clean tables are beside the extract."""
    target = extract_of_the_year / "clean"
    found: dict[str, Any] = run_connect(
        "clean", lambda spark: write_clean_tables(spark, extract_of_the_year, target), connect_server, SparkOptions()
    )
    return found


def arguments(data: Path) -> dict[str, Any]:
    """What the delays are computed from."""
    refs = {
        name: DataFrameRef(location=str(data / "clean" / name), columns={}, rows=0).model_dump(mode="json")
        for name in ("flights", "weather")
    }
    return {"data_dir": str(data), **refs}


@pytest.fixture(scope="module")
def computed(data: Path) -> dict[str, Any]:
    """What the Spark work returned, in a process of its own."""
    result: dict[str, Any] = run_spark("examples.flights.delays:compute_delays", arguments(data))
    return result


@pytest.mark.spark
def test_good_tables_pass_every_check(cleaned: dict[str, Any]) -> None:
    assert len(cleaned) == len(MONTHS) + 2
    assert {name: passed for name, passed in outcomes(cleaned).items() if not all(passed.values())} == {}


def outcomes(checks: dict[str, Any]) -> dict[str, dict[str, bool]]:
    """Return which checks passed, by table."""
    return {table: {name: check["passed"] for name, check in found.items()} for table, found in checks.items()}


@pytest.mark.spark
def test_the_hour_that_november_repeats_is_there_once_for_each_time(
    extract_of_the_year: Path, cleaned: dict[str, Any]
) -> None:
    assert cleaned
    weather = pd.read_parquet(extract_of_the_year / "clean" / "weather")
    assert len(weather) == 26_115
    assert not weather.duplicated(["origin", "hour_utc"]).any()
    night = weather[weather["hour_utc"].between("2013-11-03T05:00", "2013-11-03T06:00")]
    assert night.groupby("origin").size().to_dict() == {"EWR": 2, "JFK": 2, "LGA": 2}
    assert weather["wind_speed"].max() < clean.MAX_WIND_MPH


@pytest.mark.spark
def test_checks_find_what_is_wrong(extract_of_the_year: Path, connect_server: ConnectServer, tmp_path: Path) -> None:
    """A flight twice, one from nowhere, one to the moon, one by another clock: each fails its own check."""
    raw = pd.read_parquet(extract.raw_path(str(extract_of_the_year), "flights"))
    month = raw[raw["month"] == 11].reset_index(drop=True)
    month.loc[0, "origin"], month.loc[1, "distance"], month.loc[2, "time_hour"] = None, 384_400, "2013-01-01T00:00:00Z"
    folder = Path(extract.raw_path(str(tmp_path), "flights"))
    folder.mkdir(parents=True)
    pd.concat([month, month.tail(1)]).to_parquet(folder / "part-000.parquet", index=False)
    _, checks = run_connect(
        "broken", lambda spark: (None, clean.clean_month(spark, str(tmp_path), 11)[1]), connect_server, SparkOptions()
    )
    assert outcomes({"month": checks})["month"] == {
        "rows": True, "nulls": False, "ranges": False, "uniqueness": False, "clock": False,
    }  # fmt: skip
    assert [checks[name]["metadata"][fact] for name, fact in WRONG.items()] == [1, 1, 1]


WRONG = {"nulls": "nulls", "ranges": "outside", "clock": "differ"}


@pytest.mark.spark
def test_spark_and_pandas_agree_to_the_last_cell(
    extract_of_the_year: Path, cleaned: dict[str, Any], connect_server: ConnectServer
) -> None:
    assert cleaned
    flights = pd.read_parquet(extract_of_the_year / "clean" / "flights")
    assert_same_frame(flights, flights_pandas.clean_flights(extract_of_the_year), flights_pandas.KEY)
    weather = pd.read_parquet(extract_of_the_year / "clean" / "weather")
    assert_same_frame(weather, flights_pandas.clean_weather(extract_of_the_year), ["origin", "hour_utc"])
    found = run_delays(extract_of_the_year, connect_server)
    for name, by in TABLES.items():
        table = pd.read_parquet(found["tables"][name]["path"])
        expected = flights_pandas.delay_table(extract_of_the_year, list(by))
        assert len(table) == found["tables"][name]["rows"]
        assert_same_frame(table[list(expected)], expected, list(by))


def run_delays(data: Path, server: ConnectServer) -> dict[str, Any]:
    """Compute the delays in a session of a server."""
    work = partial(call_with_frames, compute_delays, arguments=arguments(data), results=None)
    found: dict[str, Any] = run_connect("delays", lambda spark: work(spark=spark), server, SparkOptions())
    return found


def assert_same_frame(found: pd.DataFrame, expected: pd.DataFrame, key: list[str]) -> None:
    """Compare frames by every cell, whatever the order of rows and the width of numbers."""
    numbers = set(expected.select_dtypes("number"))
    times = set(expected) & {"local_date", "scheduled_at", "departed_at", "hour_utc"}

    def normal(frame: pd.DataFrame) -> pd.DataFrame:
        typed = {
            name: pd.to_datetime(column, utc=True).astype("datetime64[us, UTC]")
            if name in times
            else column.astype("float64" if name in numbers else "object")
            for name, column in frame[list(expected)].items()
        }
        return pd.DataFrame(typed).sort_values(key, ignore_index=True).where(lambda each: each.notna(), None)

    pd.testing.assert_frame_equal(normal(found), normal(expected), atol=1e-3)


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
def test_the_worst_hour_is_known(computed: dict[str, Any]) -> None:
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
    found = run_delays(Path(directory), connect_server)
    assert_the_same(found, computed)


@pytest.mark.spark
def test_a_standalone_cluster_gives_the_same_to_the_last_row(
    computed: dict[str, Any], data: Path, marked: Marked, tmp_path: Path
) -> None:
    with standalone_cluster(tmp_path, dict(marked.options.env)) as cluster:
        quickly = dict.fromkeys(("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"), QUICKLY)
        conf = {"spark.cores.max": "2", **quickly}
        options = SparkOptions(master=cluster.options.master, shuffle_partitions=8, conf=conf)
        found = run_spark(compute_delays, arguments(Path(the_same(data, tmp_path))), options)
    assert_the_same(found, computed)


@pytest.mark.spark
def test_the_report_needs_nothing_but_itself(computed: dict[str, Any], data: Path) -> None:
    report = write_report(str(data))
    page = Path(report["path"]).read_text(encoding="utf-8")
    assert Path(report["picture"]).read_bytes().startswith(b"\x89PNG")
    assert "336,776 flights, of which 8,255 were cancelled" in page
    assert "<td>Newark, 19:00</td><td>5,976</td><td>31.1</td>" in page
    assert page.count('src="data:image/png;base64,') == page.count("src=") == 1
