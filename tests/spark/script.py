"""A PySpark script as people have them, with its words on the command line."""

import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("a name of its own").getOrCreate()
java = spark._jvm.java.lang.System.getProperty("java.version")
print("words:", *sys.argv[1:])
result = {"sum": spark.range(int(sys.argv[1])).groupBy().sum().first()[0], "java": java, "file": __name__}
