"""A Spark application for a driver on a cluster; its first argument says how it ends."""

import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def imported_there(batches: Iterable[Any]) -> Iterator[Any]:
    """Import in an executor what was shipped there."""
    import shipped  # type: ignore[import-not-found]  # comes with the application

    assert shipped.WORD == "here"
    yield from batches


what, sign, *out = sys.argv[1:]
spark = SparkSession.builder.appName("a name of its own").getOrCreate()
print("master", spark.sparkContext.master, flush=True)  # noqa: T201 (what a job prints is part of the test)
Path(sign).touch()
if what == "raise":
    raise ValueError("seven is no number")
while not Path(f"{sign}-go").exists():  # busy outside of Spark
    time.sleep(0.1)
spark.range(0, 100, 1, 2).mapInArrow(imported_there, "id long").write.parquet(*out)
print("done", flush=True)  # noqa: T201
