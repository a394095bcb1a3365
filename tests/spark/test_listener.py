"""The listener in an application's driver: what it reports, for whom, and that it never holds up the application."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from orchestration_queue.spark import SparkOptions, SparkSubmit, java_home, run_submit
from orchestration_queue.spark.environment import spark_environment, spark_home
from orchestration_queue.spark.progress import with_listener
from tests.spark.conftest import MARK, Marked

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]  # seconds of processor time, on however busy a machine

APP = Path(__file__).with_name("app.py")
GENERATOR = "org.apache.spark.mllib.util.KMeansDataGenerator"
"""A main class in Spark's own jars, unaware of anybody: writes points as text."""


def test_a_main_class_of_a_jar_tells_how_far_it_is(marked: Marked, tmp_path: Path) -> None:
    (jar,) = Path(spark_home({}), "jars").glob("spark-mllib_*.jar")
    told: list[dict[str, Any]] = []
    words = ["local[2]", str(tmp_path / "points"), "5000", "3", "2", "1.0", "20"]
    options = SparkSubmit(master="local[2]", main_class=GENERATOR, env={MARK: marked.id})
    result = run_submit(jar, words, options, progress=told.append)
    rows = [line for part in (tmp_path / "points").glob("part-*") for line in part.read_text().splitlines()]
    assert len(rows) == 5000
    application = result.pop("application")
    assert result.pop("output_bytes") >= sum(part.stat().st_size for part in (tmp_path / "points").glob("part-*"))
    assert result == {"exit_code": 0, "input_rows": 0, "input_bytes": 0, "output_rows": 5000}
    assert told[-1] == {"percent": 100, "text": "done", "spark": {"application": application}}
    assert [one["percent"] for one in told] == sorted(one["percent"] for one in told), "it is one query"
    assert all(one["text"].startswith("query 1: ") and " of 20 tasks, " in one["text"] for one in told[:-1])


def test_an_application_is_followed_while_it_runs(marked: Marked, tmp_path: Path) -> None:
    sign = tmp_path / "sign"
    told: list[dict[str, Any]] = []

    def progress(report: dict[str, Any]) -> None:
        """It continues once its progress was reported."""
        told.append(report)
        sign.touch()

    run_submit(APP, ["steps", str(sign)], SparkSubmit(master="local[2]", env={MARK: marked.id}), progress=progress)
    assert told[0]["text"].startswith("query 1: 0 of 4 tasks, ")
    assert told[-1]["text"] == "done"


def test_a_listener_that_cannot_write_costs_the_application_nothing(tmp_path: Path) -> None:
    options = SparkOptions(master="local[2]")
    properties = with_listener(options.properties(tmp_path, "app", None), "/proc/nowhere/progress.json")
    given = [word for name, value in properties.items() for word in ("--conf", f"{name}={value}")]
    submit = [f"{spark_home({})}/bin/spark-submit", *given, str(APP), "count", "5"]
    done = subprocess.run(submit, env=spark_environment(options, tmp_path), capture_output=True, text=True, timeout=280)
    assert done.returncode == 0
    assert [line.partition(" ")[0] for line in done.stdout.splitlines()] == ["started", "told"]
    assert "orchestrationqueue" not in done.stderr


def test_the_java_that_runs_it_may_be_the_oldest_of_spark_4() -> None:
    names = ["ProgressListener", "Sink", "Tally"]
    jar = Path(with_listener({}, "stderr")["spark.jars"])
    javap = java_home() / "bin" / "javap"
    if not javap.exists():
        pytest.skip("a runtime without javap")
    classes = [f"orchestrationqueue.{name}" for name in names]
    said = subprocess.check_output(
        [str(javap), "-v", "-cp", str(jar), *classes], text=True, stderr=subprocess.DEVNULL, timeout=280
    )
    assert said.count("major version: 61") == len(names)
