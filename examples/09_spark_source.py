"""Use a queue as a Spark table: write rows as jobs, without duplicates when written again, and read the results.

Prints::

    added 3, then 0
    +---+------+
    |job|result|
    +---+------+
    |1  |1     |
    |2  |4     |
    |3  |9     |
    +---+------+
"""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  Spark's convention

from orchestration_queue import Queue, Tasks
from orchestration_queue.spark import java_home
from orchestration_queue.testing import running_worker

tasks = Tasks(queue="squares")


@tasks.task
def square(number: int) -> int:
    """Work that Spark is no good at: calls of a service, say."""
    return number * number


if __name__ == "__main__":
    os.environ["OQ_URL"] = f"embedded://{Path('.oq').absolute()}"  # Spark's own processes read it, too
    os.environ["PYSPARK_PYTHON"] = sys.executable  # where this package is installed, and with it the data source
    os.environ.setdefault("JAVA_HOME", str(java_home()))
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    rows = spark.createDataFrame([(1,), (2,), (3,)], "number long")
    wanted = {"queue": "squares", "task": "square", "idColumn": "number"}

    with Queue("squares") as queue:
        counts = []
        for _ in range(2):
            before = queue.count()
            rows.write.format("orchestration_queue").options(**wanted).mode("append").save()
            counts.append(queue.count() - before)
        print(f"added {counts[0]}, then {counts[1]}")

        with running_worker(queue, tasks):
            for job in queue.jobs("waiting"):
                job.wait(timeout=30)
        done = spark.read.format("orchestration_queue").options(queue="squares", read="results").load()
        done.select(F.substring_index("id", "-", -1).alias("job"), "result").orderBy("job").show(truncate=False)
    spark.stop()
