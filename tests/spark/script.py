"""A PySpark script as people have them, with its words on the command line."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 (so does everybody)

spark = SparkSession.builder.appName("a name of its own").getOrCreate()
print("words:", *sys.argv[1:])  # noqa: T201 (what a job prints is part of the test)
version = F.reflect(F.lit("java.lang.System"), F.lit("getProperty"), F.lit("java.specification.version"))
rows = spark.range(int(sys.argv[1])).select("id", version.alias("java")).collect()
result = {"sum": sum(row["id"] for row in rows), "java": rows[0]["java"], "module": __name__}
