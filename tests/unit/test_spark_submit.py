"""What spark-submit is told, and what is read from what an application has printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.spark import SparkSubmit, spark_submit
from orchestration_queue.spark.failure import Failure
from orchestration_queue.spark.options import write_properties

SCRATCH = Path("/scratch dir")


def test_options_become_sparks_properties() -> None:
    options = SparkSubmit(
        master="spark://host:7077",
        memory="2g",
        driver_cores=2,
        executors=3,
        executor_memory="8g",
        executor_cores=4,
        packages=("a:b:1", "c:d:2"),
        jars=("x.jar",),
        py_files=("lib.zip", "more.py"),
        files=("data.csv",),
        conf={"spark.executor.memory": "9g"},
    )
    properties = options.properties(SCRATCH, "nightly", "j-1")
    expected = {
        "spark.master": "spark://host:7077",
        "spark.app.name": "nightly",
        "spark.driver.memory": "2g",
        "spark.driver.cores": "2",
        "spark.executor.instances": "3",
        "spark.executor.memory": "9g",
        "spark.executor.cores": "4",
        "spark.jars.packages": "a:b:1,c:d:2",
        "spark.jars": "x.jar",
        "spark.submit.pyFiles": "lib.zip,more.py",
        "spark.files": "data.csv",
        "spark.orchestration_queue.job": "j-1",
    }
    assert {name: properties.get(name) for name in expected} == expected
    assert SparkSubmit().own_properties == {}


@pytest.mark.parametrize(
    "options", [{"executors": 0}, {"executor_memory": "lots"}, {"executor_cores": -1}, {"driver_cores": 0}], ids=str
)
def test_options_that_spark_would_choke_on_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError, match=rf"SparkSubmit\.{next(iter(options))} \(given"):
        SparkSubmit(**options)


def test_a_properties_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "spark.properties"
    file.write_text(
        "# a note\n! another\n\nspark.a=1\n spark.b : two words \nspark.c three\\tfour\n"
        "spark.d=goes on\\\n    here\nspark\\:e=C:\\\\temp\nspark.f\nspark.master=spark://host:7077\n"
    )
    options = SparkSubmit(properties_file=file, conf={"spark.a": "mine"}).complete()
    assert options.conf == {
        "spark.a": "mine",
        "spark.b": "two words",
        "spark.c": "three\tfour",
        "spark.d": "goes onhere",
        "spark:e": "C:\\temp",
        "spark.f": "",
    }
    assert options.master == "spark://host:7077"
    assert not options.is_local
    assert SparkSubmit(master="local[3]", properties_file=file).complete().master == "local[3]"
    assert SparkSubmit(memory="3g").complete() == SparkSubmit(memory="3g")


def test_what_is_written_is_for_its_owner_only_and_reads_as_it_was(tmp_path: Path) -> None:
    path = write_properties(tmp_path, {"spark.a": "C:\\temp\nline", "spark.b": "ü"})
    assert path.stat().st_mode & 0o777 == 0o600
    assert SparkSubmit(properties_file=path).complete().conf == {"spark.a": "C:\\temp\nline", "spark.b": "ü"}


def test_a_task_is_named_after_the_application() -> None:
    assert spark_submit("/jobs/nightly.py").__name__ == "nightly"
    assert spark_submit("s3a://bucket/daily.jar", SparkSubmit(main_class="Daily")).__name__ == "daily"


PYTHON = """started
Traceback (most recent call last):
  File "/app/first.py", line 1, in <module>
KeyError: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/app/etl/nightly.py", line 9, in main
    rows = clean(rows)
           ^^^^^^^^^^^
  File "/venv/pyspark/sql/classic/dataframe.py", line 443, in collect
py4j.protocol.Py4JJavaError: An error occurred while calling o45.collect.
: org.apache.spark.SparkException: Job aborted due to stage failure
"""


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        (
            PYTHON,
            "Py4JJavaError: org.apache.spark.SparkException: Job aborted due to stage failure (nightly.py:9 in main)",
        ),
        (
            'WARN x\nException in thread "main" org.apache.spark.SparkException: No master\nlast',
            "SparkException: No master",
        ),
        ('Exception in thread "main" java.lang.StackOverflowError', "StackOverflowError"),
        ("Error: Failed to load class Main.\n", "Error: Failed to load class Main."),
        ("all is well\nAn Error: it was not", None),
        ("", None),
    ],
)
def test_the_last_exception_that_was_printed_is_the_reason(printed: str, reason: str | None) -> None:
    failure = Failure.of_output(printed.splitlines())
    assert (str(failure) if failure else None) == reason
