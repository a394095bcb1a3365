"""From what PySpark raises to what a person reads. The texts are what Spark 4.3 says."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException, PythonException

from orchestration_queue.spark.failure import SparkFailure, describe_exit, is_noise

WORKER_ERROR = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/venv/lib/pyspark/python/lib/pyspark.zip/pyspark/worker.py", line 4327, in invoke_udf
    run_process()
  File "/app/etl/clean.py", line 9, in parse
    raise ValueError(f"{x} is no number")
etl.errors.BadValue: seven is no number
of any kind
"""

JAVA_ERROR = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.hadoop.mapred.InvalidInputException: Input path does not exist: file:/nope
\tat org.apache.hadoop.mapred.FileInputFormat.singleThreadedListStatus(FileInputFormat.java:306)
\tat org.apache.spark.rdd.RDD.$anonfun$partitions$2(RDD.scala:301)
Caused by: java.io.IOException: Input path does not exist: file:/nope
\t... 35 more
"""

PLAN_ERROR = """[TABLE_OR_VIEW_NOT_FOUND] The table or view `nope` cannot be found. SQLSTATE: 42P01;
'Project ['zz]
+- 'UnresolvedRelation [nope], [], false
"""

GONE = """<_MultiThreadedRendezvous of RPC that terminated with:
\tstatus = StatusCode.UNAVAILABLE
\tdetails = "failed to connect to all addresses; last error: Connection refused"
\tdebug_error_string = "UNAVAILABLE:failed to connect to all addresses"
>"""


def raised(error: Exception) -> SparkFailure:
    try:
        raise error
    except Exception as caught:
        return SparkFailure.of(caught)


def test_the_users_own_exception_keeps_its_words_and_place() -> None:
    failure = raised(KeyError("month"))
    assert (failure.kind, failure.message) == ("KeyError", "'month'")
    assert str(failure).startswith("KeyError: 'month' (test_spark_failure.py:")
    assert str(failure).endswith(" in raised)")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PythonException(WORKER_ERROR, messageParameters={}), "BadValue: seven is no number (clean.py:9 in parse)"),
        (
            Py4JError(JAVA_ERROR),
            "Py4JError: org.apache.hadoop.mapred.InvalidInputException: Input path does not exist: file:/nope",
        ),
        (
            AnalysisException(PLAN_ERROR, messageParameters={}),
            "AnalysisException: [TABLE_OR_VIEW_NOT_FOUND] The table or view `nope` cannot be found. SQLSTATE: 42P01 (",
        ),
        (
            PySparkException(GONE, messageParameters={}),
            "PySparkException: failed to connect to all addresses; last error: Connection refused (",
        ),
    ],
)
def test_sparks_exceptions_become_one_line(error: Exception, reason: str) -> None:
    assert str(raised(error)).startswith(reason)
    assert "\n" not in str(raised(error))


def test_an_exception_without_words_is_its_type() -> None:
    assert str(SparkFailure.of(ValueError())) == "ValueError"


def test_a_long_message_is_cut() -> None:
    assert len(str(SparkFailure.of(ValueError("x" * 5_000)))) < 1_100


@pytest.mark.parametrize(
    "line",
    [
        "\tat org.apache.spark.scheduler.Task.run(Task.scala:147)",
        "\tat java.base/java.lang.Thread.run(Thread.java:840)",
        "\t... 35 more",
        "WARNING: Using incubator modules: jdk.incubator.vector",
        'Setting default log level to "WARN".',
        "   ",
    ],
)
def test_noise_is_known(line: str) -> None:
    assert is_noise(line)


@pytest.mark.parametrize(
    "line", ["at noon", "WARN TaskSetManager: Lost task 0.0", "WARNING: disk is full", "  at home"]
)
def test_what_the_work_says_is_no_noise(line: str) -> None:
    assert not is_noise(line)


def test_endings_are_told_in_words() -> None:
    assert describe_exit(3) == "exited with code 3"
    assert describe_exit(-9) == "was killed by SIGKILL (unless intended, the machine ran out of memory)"


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("(java.lang.OutOfMemoryError) Java heap space", "raise SparkOptions.memory"),
        ("Total size of results is bigger than spark.driver.maxResultSize (1024.0 MiB)", "instead of collecting it"),
        ("[INVALID_HANDLE.SESSION_CLOSED] The handle is invalid.", "session.manager.defaultSessionTimeout"),
        ("[INVALID_HANDLE.SESSION_CHANGED] The handle is invalid.", "retry the job"),
    ],
)
def test_a_failure_that_says_nothing_about_it_gets_advice(text: str, advice: str) -> None:
    assert advice in str(raised(PySparkException(text)))
