"""A script as people write them for a step: it opens Pipes, computes, reports. Its first word says what."""

import sys
import time
from pathlib import Path

from dagster_pipes import open_dagster_pipes
from pyspark.sql import SparkSession

from orchestration_queue.dagster.pipes import PipesStreamContextLoader, PipesStreamMessageWriter

with open_dagster_pipes(context_loader=PipesStreamContextLoader(), message_writer=PipesStreamMessageWriter()) as pipes:
    what, *words = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    print("started", what, flush=True)  # noqa: T201 (what a job prints is part of the test)
    if what == "wait":
        scratch = Path(words[0])
        with (scratch / "launches").open("a") as launches:
            launches.write("x\n")
        pipes.log.info("before the break")

        def wait(batches):  # type: ignore[no-untyped-def]
            with (scratch / "beats").open("a") as beats:
                deadline = time.monotonic() + 60
                while not (scratch / "go").exists() and time.monotonic() < deadline:
                    beats.write("x")
                    beats.flush()
                    time.sleep(0.05)
            yield from batches

        spark.range(0, 1, 1, 1).mapInArrow(wait, "id long").collect()
    rows = spark.range(7).where(f"id >= {len(words)}").count()
    pipes.report_asset_materialization(
        metadata={
            "rows": rows,
            "shift": pipes.get_extra("shift"),
            "remote": "connect" in type(spark).__module__,
            "partitions": spark.conf.get("spark.sql.shuffle.partitions"),
        }
    )
    pipes.report_asset_check("not_empty", passed=rows > 0)
result = {"rows": rows}
