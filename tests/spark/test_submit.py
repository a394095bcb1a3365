"""Applications by a real spark-submit: what they say, how they fail, and that nothing of them is ever left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncQueue
from orchestration_queue.errors import (
    InvalidOptionError,
    JobFailedError,
    SparkCancelledError,
    SparkFailedError,
    SparkTimeoutError,
)
from orchestration_queue.spark import SparkSubmit, run_submit, spark_submit
from orchestration_queue.spark.environment import spark_home
from orchestration_queue.spark.options import JOB_PROPERTY
from orchestration_queue.tasks import Tasks
from tests.spark.conftest import MARK, Marked
from tests.waiting import at_load, wait_until, wait_until_sync
from tests.workers import HEARS_SOON, working

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]  # seconds of processor time, on however busy a machine

APP = Path(__file__).with_name("app.py")


def submit(marked: Marked, **more: Any) -> SparkSubmit:
    """Options under which all processes can be found."""
    return SparkSubmit(**{"master": "local[2]", "env": {MARK: marked.id}, **more})


async def test_an_application_runs_as_a_queue_job(
    server_url: str, queue_name: str, raw: redis.Redis, marked: Marked, tmp_path: Path
) -> None:
    file = tmp_path / "spark.properties"
    file.write_text(
        "spark.sql.shuffle.partitions 5\nspark.app.note: from \\\n   the file\nspark.sql.ansi.enabled=true\n"
    )
    conf = {"spark.sql.ansi.enabled": "false"}
    words = ["7", "two words; $(touch x) 'and'", JOB_PROPERTY, *(asked := list(conf)), "spark.sql.shuffle.partitions"]
    tasks = Tasks()
    tasks.task(spark_submit(APP, submit(marked, conf=conf, properties_file=file)))
    async with AsyncQueue(queue_name, url=server_url) as queue, working(queue, tasks, server_url):
        job = await queue.add("app", {"arguments": ["count", *words, "spark.app.note"]})
        result = await job.wait(timedelta(seconds=100))
        first, last = await job.logs()
        progress = await job.progress()
    assert result.pop("application").startswith("local-")
    assert result == {"exit_code": 0, "input_rows": 7, "input_bytes": 0, "output_rows": 0, "output_bytes": 0}
    assert (progress["percent"], progress["text"]) == (100, "done")
    told = json.loads(last.removeprefix("told "))
    assert first == "started count"
    assert told["words"] == [*words, "spark.app.note"]
    assert told["rows"] == 7
    assert {
        name: told["conf"][name] for name in (JOB_PROPERTY, *asked, "spark.sql.shuffle.partitions", "spark.app.note")
    } == {
        JOB_PROPERTY: job.id,
        "spark.sql.ansi.enabled": "false",
        "spark.sql.shuffle.partitions": "5",
        "spark.app.note": "from the file",
    }


@pytest.mark.parametrize(
    ("what", "more", "says", "code"),
    [
        ("exit", {}, r"Spark application 'app' exited with code 3; its last line: started exit$", 3),
        ("raise", {}, r"^ValueError: seven is no number \(app\.py:\d+ in <module>\)$", 1),
        (
            "query",
            {},
            r"^AnalysisException: \[TABLE_OR_VIEW_NOT_FOUND\] .*`nowhere` .* \(app\.py:\d+ in <module>\)$",
            1,
        ),
        ("hoard", {"memory": "600m"}, r"'app' ran out of memory \(its heap is 600m\); raise SparkSubmit\.memory", None),
        ("kill", {}, r"^Spark application 'app' was killed by SIGKILL", -signal.SIGKILL),
        ("count", {"master": "nowhere"}, r"^SparkException: Master must either be yarn or start with", 1),
    ],
)
def test_what_goes_wrong_is_said_in_one_line(
    marked: Marked, what: str, more: dict[str, Any], says: str, code: int | None
) -> None:
    lines: list[str] = []
    with pytest.raises(SparkFailedError, match=says) as failed:
        run_submit(APP, [what, "1"], submit(marked, **more), log=lines.append)
    assert "\n" not in str(failed.value)
    assert code in (failed.value.exit_code, None)
    assert not [line for line in lines if line.startswith("\tat ")], "no Java stack in the log either"
    assert marked.processes() == {}


def test_a_main_class_that_is_none_is_named(marked: Marked) -> None:
    (jar,) = Path(spark_home({}), "jars").glob("spark-mllib_*.jar")
    with pytest.raises(SparkFailedError, match=r"Failed to load class com\.example\.None"):
        run_submit(jar, [], submit(marked, main_class="com.example.None"))


async def test_a_cancelled_job_leaves_nobody_within_two_seconds(
    server_url: str, queue_name: str, raw: redis.Redis, marked: Marked, tmp_path: Path
) -> None:
    sign = tmp_path / "at-work"
    tasks = Tasks()
    tasks.task(spark_submit(APP, submit(marked)))
    async with AsyncQueue(queue_name, url=server_url) as queue, working(queue, tasks, server_url):
        job = await queue.add("app", {"arguments": ["wait", str(sign)]}, HEARS_SOON)
        await wait_until(sign.exists, "Spark to be at work", 240)
        commands = " ".join(marked.processes().values())
        assert "java" in commands
        assert "pyspark.daemon" in commands
        started = time.monotonic()
        await job.cancel()
        await wait_until(lambda: not marked.processes(), "all of them to be gone", 60)
        assert time.monotonic() - started < at_load(2)
        with pytest.raises(JobFailedError):
            await asyncio.wait_for(job.wait(timedelta(seconds=60)), 60)


def test_an_application_over_its_time_leaves_nobody(marked: Marked, tmp_path: Path) -> None:
    options = submit(marked, timeout=timedelta(seconds=4))
    with pytest.raises(SparkTimeoutError, match=r"'app' took longer than 0:00:04 .* raise SparkSubmit\.timeout"):
        run_submit(APP, ["wait", str(tmp_path / "x")], options)
    marked.gone()


def test_being_told_to_stop_is_said(marked: Marked) -> None:
    with pytest.raises(SparkCancelledError, match="'app' was asked to stop, and was stopped with all its processes"):
        run_submit(APP, ["count", "1"], submit(marked), should_stop=lambda: True)
    assert marked.processes() == {}


@pytest.mark.parametrize("victim", ["worker", "launcher"])
def test_an_application_dies_with_whoever_runs_it(marked: Marked, tmp_path: Path, victim: str) -> None:
    sign = tmp_path / "at-work"
    program = (
        "from orchestration_queue.spark import SparkSubmit, run_submit\n"
        f"run_submit({str(APP)!r}, ['wait', {str(sign)!r}], SparkSubmit(master='local[2]'))"
    )
    worker = subprocess.Popen(
        [sys.executable, "-c", program], env=os.environ | {MARK: marked.id}, stderr=subprocess.DEVNULL
    )
    try:
        wait_until_sync(sign.exists, "Spark to be at work", 240)
        (launcher,) = (process for process, words in marked.processes().items() if "submit.launch" in words)
        os.kill(worker.pid if victim == "worker" else launcher, signal.SIGKILL)
        wait_until_sync(lambda: not [p for p in marked.processes() if p != worker.pid], "all of them to be gone")
    finally:
        worker.kill()
        worker.wait()


@pytest.mark.parametrize(
    ("application", "arguments", "options", "says"),
    [
        ("/no/such/app.py", [], {}, "Application /no/such/app.py does not exist; correct the path"),
        (str(APP.parent), [], {}, "Application .* does not exist"),
        (str(APP), "count 1", {}, "must be a list of strings without null characters; pass"),
        (str(APP), ["a\0b"], {}, "must be a list of strings without null characters; pass"),
        (str(APP), [1], {}, "must be a list of strings without null characters; pass"),
        (str(APP), [], {"main_class": "Main"}, "`main_class` needs a jar, got the application .*; remove it"),
        (str(APP), [], {"properties_file": "/no/such/file"}, "Cannot read the properties file /no/such/file"),
    ],
)
def test_what_cannot_be_submitted_is_refused_before_anything_starts(
    application: str, arguments: Any, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidOptionError, match=says):
        run_submit(application, arguments, SparkSubmit(**options))
