"""Spark work for the tests of the Connect runtime."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestration_queue.spark import ConnectServer, DataFrameRef, SparkOptions, spark_task
from orchestration_queue.spark.options import JOB_PROPERTY
from orchestration_queue.tasks import Tasks
from orchestration_queue.worker import ActiveJob

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

# Each of several processes of tests has a server of its own, with all that it starts: some tests kill theirs. Those
# of another run, beside this one, have others.
_RUN = os.environ.setdefault("OQ_TEST_SPARK", uuid.uuid4().hex)
_PROCESS = {"OQ_TEST_PROCESS": f"{_RUN} {os.environ.get('PYTEST_XDIST_WORKER', 'only')}"}
SERVER = ConnectServer(
    SparkOptions(master="local[4]", quick_start=True, env=_PROCESS), linger=timedelta(seconds=1), max_jobs=None
)

tasks = Tasks()


@tasks.task
@spark_task(server=SERVER, options=SparkOptions(conf={"spark.sql.session.timeZone": "UTC"}))
def describe(spark: SparkSession, words: list[str], day: date) -> dict[str, Any]:
    """Something from each side: typed arguments, a Spark result, and how the session is."""
    from pyspark.sql import functions as F  # noqa: N812 (so does everybody)

    print(f"counting {len(words)}", "words\nin Spark", end="")  # noqa: T201 (what a job prints is part of the test)
    spark.createDataFrame([(word,) for word in words], "word string").createOrReplaceTempView("words")
    rows = spark.table("words").groupBy("word").agg(F.count("*").alias("times")).orderBy("word").collect()
    return {
        "times": {row["word"]: row["times"] for row in rows},
        "day": day.replace(day=1),
        "job": spark.conf.get(JOB_PROPERTY),
        "zone": spark.conf.get("spark.sql.session.timeZone"),
    }


@tasks.task
@spark_task(server=SERVER)
def hold_view(spark: SparkSession, mine: str, sign: str, other: str) -> list[str]:
    """Make a view that the neighbour makes, too, meet it, and see whose the view is."""
    spark.conf.set("spark.sql.session.timeZone", mine)
    spark.createDataFrame([(mine,)], "owner string").createOrReplaceTempView("view")
    print(f"I am {mine}")  # noqa: T201
    Path(sign).touch()
    deadline = time.monotonic() + 60
    while not Path(other).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return [spark.table("view").collect()[0]["owner"], str(spark.conf.get("spark.sql.session.timeZone"))]


def beats(sign: str) -> Any:
    """A function for ``mapInArrow`` that appends its process's id to a file, ten times a second, for a minute."""

    def beat(batches: Iterable[Any]) -> Iterator[Any]:
        for _ in range(600):
            with Path(sign).open("a") as file:
                file.write(f"{os.getpid()}\n")
            time.sleep(0.1)
        yield from batches

    return beat


@tasks.task
@spark_task(server=SERVER)
def never_end(spark: SparkSession, sign: str) -> None:
    """Run a query for a minute."""
    spark.range(0, 1, 1, 1).mapInArrow(beats(sign), "id long").collect()


@tasks.task
@spark_task(server=SERVER, options=SparkOptions(timeout=timedelta(seconds=1)))
def take_too_long(spark: SparkSession, sign: str) -> None:
    """The same, with less time; and catching what it can."""
    try:
        spark.range(0, 1, 1, 1).mapInArrow(beats(sign), "id long").collect()
    except Exception:
        spark.range(1).collect()  # its session is closed: it can't continue


@tasks.task
@spark_task
def never_end_first(spark: SparkSession, sign: str) -> str:
    """Run a query for a minute; the second attempt returns at once. On whichever server there is."""
    if Path(sign).exists():
        Path(f"{sign}-again").touch()
        return "second"
    spark.range(0, 1, 1, 1).mapInArrow(beats(sign), "id long").collect()
    return "first"


@tasks.task
@spark_task(server=SERVER)
def outlive_the_first_server(spark: SparkSession, sign: str) -> str:
    """The same, on the server of these tests."""
    return never_end_first.function.__wrapped__(spark, sign)  # type: ignore[attr-defined,no-any-return]


@tasks.task
@spark_task(server=SERVER)
def raise_here(spark: SparkSession, word: str) -> None:
    """Raise in the function itself."""
    spark.range(1).collect()
    raise ValueError(f"{word} is no number")


@tasks.task
@spark_task(server=SERVER)
def raise_there(spark: SparkSession, word: str) -> None:
    """Raise in a Python function that runs inside Spark's own Python worker."""

    def explode(batches: Iterable[Any]) -> Iterator[Any]:
        for _ in batches:
            raise ValueError(f"{word} is no number")
        yield from ()

    spark.range(1).mapInArrow(explode, "id long").collect()


@tasks.task
@spark_task(server=SERVER)
def query(spark: SparkSession, sql: str) -> int:
    """Run a query."""
    return len(spark.sql(sql).collect())


@tasks.task
@spark_task(runtime="process", options=SparkOptions(master="local[1]"))
def query_in_process(spark: SparkSession, sql: str) -> int:
    """Run a query, in a process with a Java of its own."""
    return len(spark.sql(sql).collect())


@tasks.task
@spark_task(server=SERVER, options=SparkOptions(conf={"spark.driver.memory": "3g"}))
def want_too_much(spark: SparkSession) -> None:
    """Never called: the property is the server's."""


@tasks.task
@spark_task(server=SERVER)
def take_steps(spark: SparkSession, sign: str, first: int, parts: int) -> int:
    """A query of many tasks, to be seen advancing: after the first ones, they wait for a sign."""

    def step(batches: Iterable[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        while context is not None and context.partitionId() >= first and not Path(sign).exists():
            time.sleep(0.01)
        yield from batches

    return int(spark.range(0, parts, 1, parts).mapInArrow(step, "id long").count())


@tasks.task
@spark_task(server=SERVER)
def numbers(spark: SparkSession, count: int) -> DataFrame:
    """A DataFrame, to be handed on."""
    return spark.range(count).selectExpr("id", "cast(id % 3 as string) as kind")


@tasks.task
@spark_task(server=SERVER)
def kinds(spark: SparkSession, numbers: DataFrame, least: int = 0) -> DataFrame:
    """What another task has made, counted."""
    return numbers.where(numbers["id"] >= least).groupBy("kind").count().orderBy("kind")


@tasks.task
@spark_task(server=SERVER)
def read_both(spark: SparkSession, numbers: DataFrame, kinds: DataFrame) -> dict[str, int]:
    """Two DataFrames, each from the node of its name."""
    return {"numbers": numbers.count(), **{row["kind"]: row["count"] for row in kinds.collect()}}


@tasks.task
@spark_task(runtime="process", options=SparkOptions(master="local[2]"))
def kinds_apart(spark: SparkSession, numbers: DataFrame) -> DataFrame:
    """The same in a process of its own."""
    return numbers.groupBy("kind").count()


@tasks.task
@spark_task(server=SERVER)
def saved_table(spark: SparkSession, name: str) -> DataFrameRef:
    """A table of the server's catalog, by reference."""
    spark.range(5).write.mode("overwrite").saveAsTable(name)
    return DataFrameRef.of_table(spark, name)


@tasks.task
@spark_task(server=SERVER)
def count_table(spark: SparkSession, table: DataFrame) -> int:
    """A table that another task has made."""
    return table.count()


@tasks.task
@spark_task(server=SERVER)
def read_path(spark: SparkSession, path: str) -> DataFrame:
    """Files that no task has made."""
    return spark.read.parquet(path)


@tasks.task
@spark_task(server=SERVER)
def best_kind(spark: SparkSession, numbers: DataFrame) -> Row | None:
    """A row, with one inside."""
    rows = numbers.selectExpr("kind", "named_struct('id', id, 'days', array(DATE'2013-07-04')) AS of")
    return rows.orderBy("of.id").first()


@tasks.task
@spark_task(server=SERVER)
def all_kinds(spark: SparkSession, numbers: DataFrame) -> dict[str, list[Row] | int]:
    """Rows among other values."""
    rows = numbers.groupBy("kind").count().orderBy("kind").collect()
    return {"rows": rows, "in all": len(rows)}


@tasks.task
@spark_task(server=SERVER)
def make_views(spark: SparkSession, name: str) -> None:
    """Leave two views, of either kind."""
    spark.range(3).createOrReplaceTempView(name)
    spark.range(3).createOrReplaceGlobalTempView(name)


@tasks.task
@spark_task(server=SERVER, options=SparkOptions(result_format="delta"))
def as_delta(spark: SparkSession) -> DataFrame:
    """A DataFrame for a format that this Spark does not have."""
    return spark.range(1)


@tasks.task
@spark_task(server=SERVER, options=SparkOptions(result_format="orc", result_partition_by=("kind",), result_files=1))
def split(spark: SparkSession, numbers: DataFrame) -> dict[str, DataFrame | int]:
    """Several DataFrames among other values, in files of another kind."""
    return {"even": numbers.where("id % 2 = 0"), "odd/ones": numbers.where("id % 2 = 1"), "count": numbers.count()}


@tasks.task
@spark_task(server=SERVER)
def gather(spark: SparkSession, parts: dict[str, DataFrame], extra: DataFrame | None = None) -> list[DataFrame]:
    """What all nodes before this one returned, in one; and how many rows came from each."""
    rows = [(name, frame.count()) for name, frame in sorted(parts.items())]
    both = reduce(lambda left, right: left.unionByName(right), parts.values())
    return [both, spark.createDataFrame(rows, "node string, rows long")]


@tasks.task
@spark_task(runtime="process", options=SparkOptions(master="local[2]"))
def gather_apart(spark: SparkSession, parts: list[DataFrame]) -> tuple[DataFrame, ...]:
    """Likewise in a process of its own."""
    return tuple(part.limit(1) for part in parts)


@tasks.task
@spark_task(server=SERVER)
def import_there(spark: SparkSession, directory: str, module: str) -> dict[str, int]:
    """What a module says that Spark's Python imports, and which daemon's child that Python is."""

    def read(batches: Iterable[Any]) -> Iterator[Any]:
        import sys
        from importlib import import_module

        import pyarrow as pa

        if directory not in sys.path:
            sys.path.append(directory)
        value = import_module(module).VALUE
        yield from (pa.record_batch({"value": [value], "daemon": [os.getppid()]}) for _ in batches)

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(read, "value long, daemon long").collect()
    return {"value": row["value"], "daemon": row["daemon"]}


@tasks.task
@spark_task(server=SERVER)
def add_artifact(spark: SparkSession, path: str) -> None:
    """Give the session a file."""
    spark.addArtifacts(path, file=True)


@tasks.task
@spark_task(server=SERVER)
def in_steps(spark: SparkSession, job: ActiveJob, count: int) -> dict[str, Any]:
    """Two durable steps with DataFrames, a pause between them, and an error in the first attempt."""

    def count_off() -> DataFrame:
        print("runs numbers")  # noqa: T201
        return spark.range(count)

    numbers = job.step("numbers", count_off)
    job.sleep("pause", 0.01)

    @job.step("halves")
    def halve() -> dict[str, Any]:
        print("runs halves")  # noqa: T201
        return {"even": numbers.where("id % 2 = 0"), "odd": [numbers.where("id % 2 = 1")], "of": count}

    halves = halve()
    if job.attempt == 1:
        raise ValueError("once")
    return {"rows": numbers.count(), "even": halves["even"].count(), "odd": halves["odd"][0].count()}


@tasks.task
@spark_task(runtime="process")
def in_steps_apart(spark: SparkSession, job: ActiveJob) -> None:
    """A process of its own has no job."""


@tasks.task
def call_spark(job: ActiveJob, count: int) -> list[Any]:
    """Call tasks of Spark from a plain one: a value, a DataFrame, and tasks that read this one."""
    rows = job.call("rows", query, sql="select * from range(5)")
    made = job.call("numbers", numbers, count=count)
    best, counted = job.gather(best_kind.node("best")(numbers=made), kinds.node("kinds")(numbers=made))
    return [rows, made, best, counted]
