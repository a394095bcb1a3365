"""A typical Spark application; its first argument says how it ends."""

import json
import os
import signal
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("a name of its own").getOrCreate()
what, *words = sys.argv[1:]
print("started", what, flush=True)  # noqa: T201 (what a job prints is part of the test)
if what == "count":
    conf = {name: spark.conf.get(name, None) for name in words[1:]}
    told = {"words": words, "rows": spark.range(int(words[0])).count(), "conf": conf}
    print("told", json.dumps(told))  # noqa: T201
elif what == "exit":
    sys.exit(3)
elif what == "raise":
    raise ValueError("seven is no number")
elif what == "query":
    spark.sql("select * from nowhere").collect()
elif what == "hoard":
    spark.sql("select explode(sequence(1, 3)) as x, repeat('x', 200000000) as y").toLocalIterator()
    spark.sql("select repeat('x', 300000000) as y from range(8)").collect()
elif what == "kill":
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)
elif what == "steps":

    def step(batches):  # type: ignore[no-untyped-def]
        while not Path(words[0]).exists():
            time.sleep(0.01)
        yield from batches

    spark.range(0, 4, 1, 4).mapInArrow(step, "id long").collect()
elif what == "wait":

    def wait(batches):  # type: ignore[no-untyped-def]
        Path(words[0]).touch()
        time.sleep(600)
        yield from batches

    spark.range(1).mapInArrow(wait, "id long").collect()
