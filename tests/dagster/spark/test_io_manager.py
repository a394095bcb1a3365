"""DataFrames as assets: where they lie, what a reader takes for complete, partitions, references, the flights."""

# No `from __future__ import annotations` here: Dagster reads the annotations of parameters, and strings fail.

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest
from pyspark.sql import DataFrame

from examples.flights import extract, settings
from examples.flights.clean import clean_month
from orchestration_queue.dagster.spark import ParquetIOManager, SparkSessionResource
from orchestration_queue.dagster.spark.io_manager import VersionedDirectory, partition_words
from orchestration_queue.errors import StateError, UnrecoverableError, UsageError
from orchestration_queue.spark import DataFrameRef
from orchestration_queue.spark.connect.address import ServerState
from tests.waiting import wait_until_sync

pytestmark = [
    pytest.mark.dagster,
    pytest.mark.spark,
    pytest.mark.timeout(300),  # seconds of processor time, on however busy a machine
    pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated"),  # Dagster's own, when it nests
    pytest.mark.filterwarnings("ignore:Parameter `backfill_policy`"),  # a beta, says Dagster
]

Materialize = Callable[..., dg.ExecuteInProcessResult]


@pytest.fixture
def materialize(instance: dg.DagsterInstance, lake: ParquetIOManager, session: SparkSessionResource) -> Materialize:
    """Runs assets with the lake as their IO manager, and sessions beside."""

    def run(*assets: dg.AssetsDefinition, **more: Any) -> dg.ExecuteInProcessResult:
        resources = {"io_manager": lake, "spark": session}
        return dg.materialize([*assets], instance=instance, resources=resources, **more)

    return run


def metadata_of(result: dg.ExecuteInProcessResult, key: str) -> dict[str, Any]:
    """What one asset's materialization tells."""
    (event,) = (event for event in result.get_asset_materialization_events() if event.asset_key == dg.AssetKey(key))
    return {name: value.value for name, value in event.materialization.metadata.items()}


@dg.asset
def numbers(spark: SparkSessionResource) -> DataFrame:
    return spark.session.range(10).selectExpr("id", "cast(id % 3 as string) as kind")


@dg.asset
def kinds(spark: SparkSessionResource, numbers: DataFrame) -> DataFrame:
    names = spark.session.createDataFrame([("0", "zero"), ("1", "one")], "kind string, name string")
    return numbers.join(names, "kind").groupBy("name").count().orderBy("name")


@dg.asset
def counted(kinds: DataFrame, numbers: DataFrameRef) -> dg.MaterializeResult[None]:
    rows = {row["name"]: row["count"] for row in kinds.collect()}
    return dg.MaterializeResult(metadata={**rows, "of": numbers.rows})


def test_dataframes_go_from_asset_to_asset_and_are_described(materialize: Materialize, lake: ParquetIOManager) -> None:
    result = materialize(numbers, kinds, counted)
    assert result.success
    assert {"zero": 4, "one": 3, "of": 10}.items() <= metadata_of(result, "counted").items()
    told = metadata_of(result, "numbers")
    assert told["dagster/row_count"] == 10
    assert "dagster/partition_row_count" not in told
    assert [(column.name, column.type) for column in told["dagster/column_schema"].columns] == [
        ("id", "bigint"),
        ("kind", "string"),
    ]
    reference = VersionedDirectory.of(lake.root, ["numbers"], None).read()
    assert reference is not None
    files = [*Path(reference.location).glob("*.parquet")]
    assert told["orchestration_queue/bytes"] == sum(file.stat().st_size for file in files) == reference.bytes
    assert told["dagster/uri"] == f"file://{reference.location}"


def test_a_new_version_replaces_the_old_one_and_readers_of_the_old_go_on(
    materialize: Materialize, lake: ParquetIOManager, session: SparkSessionResource, tmp_path: Path
) -> None:
    @dg.asset
    def grown(spark: SparkSessionResource) -> DataFrame:
        return spark.session.range(int((tmp_path / "size").read_text()))

    (tmp_path / "size").write_text("3")
    materialize(grown)
    place = VersionedDirectory.of(lake.root, ["grown"], None)
    first = place.read()
    assert first is not None
    old = first.load(session.session)
    (tmp_path / "size").write_text("5")
    materialize(grown)
    second = place.read()
    assert second is not None
    assert (old.count(), second.load(session.session).count()) == (3, 5)
    materialize(grown)
    assert not Path(first.location).exists(), "the version before the last is of no use to anybody"
    assert Path(second.location).exists()


PROGRAM = """
import os, signal, sys
import dagster as dg
import pandas as pd
from orchestration_queue.dagster.spark import ParquetIOManager, SparkSessionResource

def slow(sign):
    def beat(batches):
        import time
        from pathlib import Path
        Path(sign).touch()
        end = time.monotonic() + 60
        while not Path(sign + "-go").exists() and time.monotonic() < end:
            time.sleep(0.05)
        yield from batches
    return beat

@dg.asset
def grown(spark: SparkSessionResource):
    return spark.session.range(0, 4, 1, 2).mapInArrow(slow(sys.argv[2]), "id long")

spark = SparkSessionResource(url=os.environ["CONNECT"])
dg.materialize([grown], resources={"io_manager": ParquetIOManager(root=sys.argv[1], spark=spark), "spark": spark})
"""


def test_an_attempt_killed_while_it_writes_leaves_nothing_that_counts(
    materialize: Materialize, lake: ParquetIOManager, connect_state: ServerState, tmp_path: Path
) -> None:
    sign = tmp_path / "writing"
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, lake.root, str(sign)],
        env={**os.environ, "CONNECT": connect_state.url},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until_sync(sign.exists, "Spark to be writing", 240)
    os.kill(program.pid, signal.SIGKILL)
    program.wait()
    (left,) = Path(lake.root, "grown", "@versions").iterdir()
    Path(f"{sign}-go").touch()
    wait_until_sync((left / "_SUCCESS").exists, "Spark to end the abandoned write", 60)
    place = VersionedDirectory.of(lake.root, ["grown"], None)
    assert place.read() is None, "complete or not, no pointer names it"

    @dg.asset
    def reader(grown: DataFrame) -> None: ...

    grown_elsewhere = dg.AssetSpec("grown")
    with pytest.raises(StateError, match=r"Data of asset grown do not exist below .*; materialize it first"):
        dg.materialize(
            [reader, grown_elsewhere], selection=[reader], resources={"io_manager": lake}, raise_on_error=True
        )

    @dg.asset(name="grown")
    def whole(spark: SparkSessionResource) -> DataFrame:
        return spark.session.range(4)

    materialize(whole)
    reference = place.read()
    assert reference is not None
    assert reference.rows == 4
    assert [*Path(lake.root, "grown", "@versions").iterdir()] == [Path(reference.location)], "the wreck is gone, too"


DAYS = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-01-06")
GRID = dg.MultiPartitionsDefinition({"color": dg.StaticPartitionsDefinition(["red", "a/b"]), "day": DAYS})


@dg.asset(partitions_def=DAYS)
def daily(context: dg.AssetExecutionContext, spark: SparkSessionResource) -> DataFrame:
    day = context.partition_key
    return spark.session.range(int(day[-1])).selectExpr("id", f"'{day}' as day")


@dg.asset(partitions_def=GRID)
def grid(context: dg.AssetExecutionContext, spark: SparkSessionResource) -> DataFrame:
    return spark.session.createDataFrame([(str(context.partition_key),)], "cell string")


def test_partitions_lie_apart_and_load_as_one(materialize: Materialize, lake: ParquetIOManager) -> None:
    for day in ("2013-01-02", "2013-01-03"):
        told = metadata_of(materialize(daily, partition_key=day), "daily")
        assert told["dagster/partition_row_count"] == told["dagster/row_count"] == int(day[-1])
    assert Path(lake.root, "daily", "partition=2013-01-02", "@dataframe.json").exists()

    window = dg.TimeWindowPartitionMapping(start_offset=-1)
    ins = {"daily": dg.AssetIn(partition_mapping=window)}

    @dg.asset(partitions_def=DAYS, ins=ins)
    def two_days(daily: DataFrame) -> DataFrame:
        return daily.groupBy("day").count()

    told = metadata_of(materialize(daily, two_days, selection=[two_days], partition_key="2013-01-03"), "two_days")
    assert told["dagster/row_count"] == 2

    @dg.asset(ins={"daily": dg.AssetIn(metadata={"allow_missing_partitions": True})})
    def all_there_is(daily: DataFrame) -> dg.MaterializeResult[None]:
        return dg.MaterializeResult(metadata={"rows": daily.count()})

    assert metadata_of(materialize(daily, all_there_is, selection=[all_there_is]), "all_there_is")["rows"] == 5

    @dg.asset
    def all_days(daily: DataFrame) -> None: ...

    with pytest.raises(
        StateError, match=r"Data of asset daily for partition '2013-01-01' and 2 others do not exist below"
    ):
        materialize(daily, all_days, selection=[all_days])


def test_several_dimensions_are_several_steps_of_the_path(materialize: Materialize, lake: ParquetIOManager) -> None:
    key = dg.MultiPartitionKey({"day": "2013-01-02", "color": "a/b"})
    assert partition_words(key) == ["color=a%2Fb", "day=2013-01-02"]
    materialize(grid, partition_key=key)
    assert Path(lake.root, "grid", "color=a%2Fb", "day=2013-01-02", "@dataframe.json").exists()

    @dg.asset(partitions_def=GRID)
    def below(grid: DataFrame) -> dg.MaterializeResult[None]:
        return dg.MaterializeResult(metadata={"cell": grid.collect()[0]["cell"]})

    result = materialize(grid, below, selection=[below], partition_key=key)
    assert metadata_of(result, "below")["cell"] == str(key)


def test_schemas_that_have_grown_load_together(lake: ParquetIOManager, session: SparkSessionResource) -> None:
    spark = session.session

    def output(key: str) -> dg.OutputContext:
        return dg.build_output_context(
            asset_key="wide", partition_key=key, asset_partitions_def=DAYS, run_id="r", step_key="wide"
        )

    columns = {"2013-01-01": "id", "2013-01-02": "id, 'x' as word"}
    for key, chosen in columns.items():
        reference = VersionedDirectory.of(lake.root, ["wide"], key)
        assert reference.read() is None
        lake.handle_output(output(key), spark.range(1).selectExpr(*chosen.split(", ")))
    context = dg.build_input_context(
        asset_key="wide",
        asset_partitions_def=DAYS,
        asset_partition_key_range=dg.PartitionKeyRange("2013-01-01", "2013-01-02"),
        dagster_type=dg.PythonObjectDagsterType(object),
    )
    plain = ParquetIOManager(root=lake.root)  # the session that is active here
    assert sorted(map(tuple, plain.load_input(context).collect()), key=str) == [(0, "x"), (0, None)]


def test_a_reference_is_the_same_thing_as_its_dataframe(
    materialize: Materialize, session: SparkSessionResource, tmp_path: Path
) -> None:
    elsewhere = str(tmp_path / "made-by-a-task")
    session.session.range(6).write.parquet(elsewhere)

    @dg.asset
    def handed_on() -> DataFrameRef:
        return DataFrameRef(location=elsewhere, columns={"id": "bigint"}, rows=6, bytes=1234)

    @dg.asset
    def summed(handed_on: DataFrame) -> dg.MaterializeResult[None]:
        return dg.MaterializeResult(metadata={"sum": handed_on.groupBy().sum("id").collect()[0][0]})

    result = materialize(handed_on, summed)
    assert metadata_of(result, "summed")["sum"] == 15
    told = metadata_of(result, "handed_on")
    assert (told["dagster/row_count"], told["orchestration_queue/bytes"]) == (6, 1234)


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (7, "Asset wrong returned a int, which ParquetIOManager can't store"),
        ({"2013-01-01": 7}, "This step makes 1 partitions of asset wrong, but returned a dict"),
    ],
)
def test_what_is_no_dataframe_is_refused(lake: ParquetIOManager, returned: object, words: str) -> None:
    context = dg.build_output_context(asset_key="wrong", run_id="r", step_key="wrong")
    with pytest.raises(UsageError, match=words):
        lake.handle_output(context, returned)
    assert not Path(lake.root).exists()


def test_a_pointer_that_is_none_is_said_to_be(lake: ParquetIOManager) -> None:
    pointer = Path(lake.root, "a", "@dataframe.json")
    pointer.parent.mkdir(parents=True)
    pointer.write_text("{}")
    with pytest.raises(StateError, match="is not a reference to a DataFrame; remove it"):
        VersionedDirectory.of(lake.root, ["a"], None).read()


def test_files_are_of_the_format_that_was_asked_for(
    instance: dg.DagsterInstance, lake: ParquetIOManager, session: SparkSessionResource
) -> None:
    def run(name: str) -> dg.ExecuteInProcessResult:
        resources = {"io_manager": ParquetIOManager(root=lake.root, spark=session, format=name), "spark": session}
        return dg.materialize([numbers, kinds, counted], instance=instance, resources=resources)

    assert metadata_of(run("orc"), "counted")["zero"] == 4
    reference = VersionedDirectory.of(lake.root, ["numbers"], None).read()
    assert reference is not None
    assert (reference.format, reference.rows) == ("orc", 10)
    assert [*Path(reference.location).glob("*.orc")]
    with pytest.raises(UnrecoverableError, match="The format 'delta' needs Delta Lake, which Spark does not have"):
        run("delta")
    assert VersionedDirectory.of(lake.root, ["numbers"], None).read() == reference, "what was there stays"
    with pytest.raises(ValueError, match="`format` must be one of parquet, orc, delta, got 'csv'"):
        ParquetIOManager(root=lake.root, format="csv")


MONTHS = dg.StaticPartitionsDefinition([f"{month:02d}" for month in settings.MONTH_NODES])


def test_the_flights_by_month_are_those_of_the_raw_table(materialize: Materialize, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    extract.extract_table(data, "flights")
    months = pd.read_parquet(extract.raw_path(data, "flights"), columns=["month"])["month"].value_counts()
    raw = {f"{month:02d}": int(rows) for month, rows in months.items()}

    @dg.asset(partitions_def=MONTHS, backfill_policy=dg.BackfillPolicy.single_run())
    def flights(context: dg.AssetExecutionContext, spark: SparkSessionResource) -> dict[str, DataFrame]:
        return {month: clean_month(spark.session, data, int(month))[0] for month in context.partition_keys}

    @dg.asset
    def totals(flights: DataFrame) -> DataFrame:
        return flights.selectExpr("date_format(local_date, 'MM') as month").groupBy("month").count()

    @dg.asset
    def told(totals: DataFrame) -> dg.MaterializeResult[None]:
        return dg.MaterializeResult(metadata={row["month"]: row["count"] for row in totals.collect()})

    whole_year = {"dagster/asset_partition_range_start": "01", "dagster/asset_partition_range_end": "12"}
    assert materialize(flights, tags=whole_year).success
    result = materialize(flights, totals, told, selection=[totals, told])
    assert metadata_of(result, "told") == raw
    assert sum(raw.values()) == 336_776
