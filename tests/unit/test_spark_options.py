"""What options mean to Spark, what can be handed to another process, and how a decorated function looks."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestration_queue.errors import InvalidOptionError, PayloadError, UsageError
from orchestration_queue.spark import SparkOptions, run_spark, spark_script, spark_task
from orchestration_queue.spark.environment import spark_environment, spark_home
from orchestration_queue.spark.options import properties_text
from orchestration_queue.tasks import Tasks
from orchestration_queue.worker import ActiveJob

SCRATCH = Path("/scratch dir")


def daily(spark: Any, day: str, parts: int = 4) -> int:
    return parts


def test_local_mode_is_set_up_for_short_jobs() -> None:
    properties = SparkOptions().properties(SCRATCH, "daily", "j-1")
    assert properties["spark.master"] == "local[*]"
    assert properties["spark.app.name"] == "daily"
    assert properties["spark.sql.shuffle.partitions"] == "8"
    assert properties["spark.sql.warehouse.dir"] == "/scratch dir/warehouse"
    assert properties["spark.ui.enabled"] == properties["spark.ui.showConsoleProgress"] == "false"
    assert properties["spark.orchestration_queue.job"] == "j-1"
    assert "-XX:TieredStopAtLevel=1" in properties["spark.driver.extraJavaOptions"].split()
    assert '-Dderby.system.home="/scratch dir"' in properties["spark.driver.extraJavaOptions"]


def test_a_cluster_keeps_its_own_ways() -> None:
    properties = SparkOptions(master="spark://h:7077").properties(SCRATCH, "daily", None)
    assert properties.keys().isdisjoint(
        {"spark.sql.shuffle.partitions", "spark.sql.warehouse.dir", "spark.orchestration_queue.job"}
    )
    assert "-XX:TieredStopAtLevel=1" not in properties["spark.driver.extraJavaOptions"]


def test_the_users_properties_win() -> None:
    conf = {"spark.ui.enabled": "true", "spark.app.name": "mine", "spark.driver.extraJavaOptions": "-Da=b"}
    properties = SparkOptions(conf=conf, app_name="x", quick_start=False).properties(SCRATCH, "daily", None)
    assert (properties["spark.ui.enabled"], properties["spark.app.name"]) == ("true", "mine")
    assert properties["spark.driver.extraJavaOptions"].endswith(" -Da=b")
    assert "-XX:TieredStopAtLevel=1" not in properties["spark.driver.extraJavaOptions"]


def _java_options(options: SparkOptions) -> list[str]:
    return options.properties(SCRATCH, "x", None)["spark.driver.extraJavaOptions"].split()


def test_a_long_lived_java_collects_garbage_for_throughput() -> None:
    lasting = _java_options(SparkOptions(quick_start=False))
    assert "-XX:+UseParallelGC" in lasting
    assert "-XX:+UseSerialGC" not in lasting
    assert not [option for option in _java_options(SparkOptions(master="yarn", quick_start=False)) if "GC" in option]


@pytest.mark.parametrize("quick_start", [True, False])
@pytest.mark.parametrize("where", ["extraJavaOptions", "defaultJavaOptions", "env", "environ"])
def test_a_collector_of_the_users_is_the_only_one(
    quick_start: bool, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java does not start with two."""
    theirs = "-Xlog:gc -XX:+UseZGC"
    if where == "environ":
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", theirs)
    options = SparkOptions(
        quick_start=quick_start,
        conf={f"spark.driver.{where}": theirs} if where.endswith("JavaOptions") else {},
        env={"SPARK_SUBMIT_OPTS": theirs} if where == "env" else {},
    )
    found = [option for option in _java_options(options) if option.startswith("-XX:+Use")]
    assert found == (["-XX:+UseZGC"] if where == "extraJavaOptions" else [])


def test_sparks_python_imports_the_installed_pyspark_and_not_the_archive_of_its_sources(tmp_path: Path) -> None:
    python = spark_environment(SparkOptions(), tmp_path)["PYSPARK_PYTHON"]
    home = Path(spark_home({}))
    archives = [str(home / "python/lib/pyspark.zip"), *map(str, home.glob("python/lib/py4j-*-src.zip"))]
    program = "import pyspark, sys; print(pyspark.__file__, sys.executable, sys.path[1], sys.argv[1], sep='\\n')"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*archives, "/a", "/b"])}
    said = subprocess.check_output([python, "-c", program, "two words"], env=environment, text=True, timeout=60)
    assert said.splitlines() == [str(home / "__init__.py"), sys.executable, "/a", "two words"]


def test_another_python_or_spark_keeps_its_own_pyspark(tmp_path: Path) -> None:
    for options, python in (
        (SparkOptions(python=Path("/usr/bin/python3")), "/usr/bin/python3"),
        (SparkOptions(env={"SPARK_HOME": "/opt/spark"}), sys.executable),
    ):
        assert spark_environment(options, tmp_path)["PYSPARK_PYTHON"] == python


def test_a_properties_file_survives_any_value() -> None:
    assert properties_text({"a": "b\\c", "d": "e\nf = g"}) == "a=b\\\\c\nd=e\\nf = g\n"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"memory": "much"}, r"SparkOptions\.memory \(given 'much'\)"),
        ({"timeout": 0}, r"SparkOptions\.timeout .*greater than 0"),
        ({"shuffle_partitions": 0}, r"SparkOptions\.shuffle_partitions"),
        ({"cores": 2}, r"SparkOptions has no option 'cores'"),
    ],
)
def test_bad_options_are_one_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidOptionError, match=sentence):
        SparkOptions(**options)


@pytest.mark.parametrize(
    ("target", "arguments", "error", "sentence"),
    [
        (lambda spark: None, {}, InvalidOptionError, "define the function at the top level of an importable module"),
        ("m:f", ["a"], InvalidOptionError, "`arguments` of function m:f must be a mapping"),
        ("no/such.py", [], InvalidOptionError, "Script .*/no/such.py does not exist; correct the path"),
        (__file__, {"a": 1}, InvalidOptionError, "must be a list of strings"),
        ("m:f", {"a": "x" * 1_100_000}, PayloadError, "The arguments of the Spark work exceeds maximum size"),
    ],
)
def test_what_cannot_be_handed_over_starts_nothing(
    target: Any, arguments: Any, error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        run_spark(target, arguments)


def test_a_decorated_function_is_a_task_without_the_session() -> None:
    tasks = Tasks()
    task = tasks.task(spark_task(daily))
    assert task.name == "daily"
    assert task.job("2013-01-31", parts=3).data == {"day": "2013-01-31", "parts": 3}
    with pytest.raises(UsageError, match="unexpected keyword argument '_job'"):
        task.job("2013-01-31", parts=3, _job=None)  # type: ignore[call-arg]  # that is the point
    assert task.function.__wrapped__ is daily  # type: ignore[attr-defined]  # functools.wraps sets it
    assert list(inspect.signature(task.function).parameters) == ["day", "parts", "_job"]


def test_a_decorated_function_checks_its_arguments_before_it_starts_anything() -> None:
    with pytest.raises(TypeError, match="missing a required argument: 'day'"):
        spark_task(daily)()  # type: ignore[call-arg]  # that is the point


def test_a_function_without_a_session_is_refused() -> None:
    with pytest.raises(UsageError, match=r"needs a first parameter for the session; define it as f\(spark"):
        spark_task(without_session)  # type: ignore[arg-type]  # that is the point


def without_session() -> None: ...


def test_a_script_is_a_task_named_after_its_file() -> None:
    tasks = Tasks()
    task = tasks.task(spark_script("etl/clean_words.py"))
    assert task.name == "clean_words"
    assert task.job(["a", "b"]).data == {"arguments": ["a", "b"]}
    assert inspect.get_annotations(task.function)["_job"] is ActiveJob
