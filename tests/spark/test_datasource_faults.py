"""Rows become jobs once, although drivers, Spark's Python workers and tasks die, and shuffles change their order."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.spark import SparkOptions
from orchestration_queue.spark.environment import spark_environment
from tests.spark.datasource_program import FILES
from tests.spark.standalone import QUICKLY
from tests.waiting import wait_until_sync

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
ROWS = int(os.environ.get("OQ_CHAOS_ROWS", "30000"))
"""How many rows are written."""


@contextmanager
def program(
    kind: str, master: str, directory: Path, url: str, queue: str, rows: int
) -> Iterator[subprocess.Popen[bytes]]:
    """A program of :mod:`tests.spark.datasource_program`, in a process group of its own; killed in the end."""
    words = [kind, master, str(directory), url, queue, str(rows)]
    command = [sys.executable, "-W", "ignore", "-m", "tests.spark.datasource_program", *words]
    with (directory / "log").open("ab") as log:  # Spark says much about what fails on purpose
        process = subprocess.Popen(command, cwd=ROOT, start_new_session=True, stderr=log)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)


def names(raw: redis.Redis, queue: str) -> list[str]:
    """The job ids in the queue's stream: each of them is one that a worker would run."""
    entries: Any = raw.xrange(QueueKeys(queue).stream)
    return [fields["jobId"] for _, fields in entries]


def write_lines(directory: Path, numbers: Iterable[int]) -> None:
    """Write some of the files of which the stream is made."""
    for number in numbers:
        some = range(number * ROWS // FILES, (number + 1) * ROWS // FILES)
        (directory / f"{number}.txt").write_text("".join(f"{row}\n" for row in some))


@pytest.mark.timeout(900)  # it starts four drivers, on however busy a machine
def test_a_stream_of_which_everything_dies_adds_each_row_once(
    raw: redis.Redis, server_url: str, queue_name: str, tmp_path: Path
) -> None:
    """In each batch a task fails and a Python worker dies, and three times the driver."""
    (tmp_path / "lines").mkdir()
    more_will_come = tmp_path / "more-will-come"
    more_will_come.touch()
    write_lines(tmp_path / "lines", range(FILES - 2))
    stream = QueueKeys(queue_name).stream
    for killed_at in (ROWS * 7 // 100, ROWS * 35 // 100, ROWS * 75 // 100):
        with program("stream", "local[2,4]", tmp_path, server_url, queue_name, ROWS):
            wait_until_sync(lambda most=killed_at: raw.xlen(stream) >= most, f"{killed_at} jobs", 300)  # type: ignore[misc]
    assert raw.xlen(stream) < ROWS
    more_will_come.unlink()
    write_lines(tmp_path / "lines", range(FILES - 2, FILES))
    with program("stream", "local[2,4]", tmp_path, server_url, queue_name, ROWS) as driver:
        assert driver.wait(400) == 0
    found = names(raw, queue_name)
    assert (len(found), set(found)) == (ROWS, {f"load-{row}" for row in range(ROWS)})
    raw.flushall()  # the fixture reads every key that is left, one by one


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def cluster(directory: Path) -> Iterator[str]:
    """A standalone master with two workers of one core each; its URL."""
    import pyspark

    options = SparkOptions(master="local[1]")
    environment = spark_environment(options, directory) | {
        "SPARK_WORKER_DIR": str(directory),
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_JAVA_OPTS": QUICKLY,
    }
    port, page = free_port(), free_port()
    base = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), "org.apache.spark.deploy"]
    with ExitStack() as stack:

        def start(role: str, *words: str) -> None:
            process = subprocess.Popen(
                [base[0], f"{base[1]}.{role}", "--host", "127.0.0.1", *words],
                env=environment,
                cwd=directory,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            stack.callback(process.wait, 60)
            stack.callback(os.killpg, process.pid, signal.SIGKILL)

        def alive(words: str) -> bool:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{page}/json/", timeout=10) as answer:
                    return words in answer.read().decode()
            except OSError:
                return False

        start("master.Master", "--port", str(port), "--webui-port", str(page))
        wait_until_sync(lambda: alive("aliveworkers"), "the master", 240)
        for _ in range(2):
            start("worker.Worker", "-c", "1", "-m", "1g", "--webui-port", "0", f"spark://127.0.0.1:{port}")
        wait_until_sync(lambda: alive('"aliveworkers" : 2'), "two workers", 240)
        yield f"spark://127.0.0.1:{port}"


def test_after_a_shuffle_on_two_executors_a_write_is_repeated_without_doubles(
    raw: redis.Redis, server_url: str, queue_name: str, tmp_path: Path
) -> None:
    rows = 20_000
    with (
        cluster(tmp_path) as master,
        program("shuffle", master, tmp_path, server_url, queue_name, rows) as driver,
    ):
        assert driver.wait(400) == 0
    found = names(raw, queue_name)
    assert (len(found), set(found)) == (rows, {f"load-{row}" for row in range(rows)})
