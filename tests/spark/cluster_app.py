"""A Spark application for a driver on a cluster; its first word says what becomes of it."""

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

what, sign, *out = sys.argv[1:]
spark = SparkSession.builder.appName("a name of its own").getOrCreate()
print("master", spark.sparkContext.master, flush=True)  # noqa: T201 (what a job prints is part of the test)
Path(sign).touch()
if what == "raise":
    raise ValueError("seven is no number")
while not Path(f"{sign}-go").exists():  # busy outside of Spark
    time.sleep(0.1)
spark.range(0, 100, 1, 2).write.parquet(*out)
print("done", flush=True)  # noqa: T201
