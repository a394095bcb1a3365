"""The application of 10_dagster_spark_submit.py, written for ``spark-submit`` and unaware of any queue."""

import sys

from pyspark.sql import SparkSession

if __name__ == "__main__":
    source, target = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    lines = spark.read.csv(source, schema="origin string, dest string")
    lines.groupBy("origin").count().write.mode("overwrite").parquet(target)
    print("wrote", target)
