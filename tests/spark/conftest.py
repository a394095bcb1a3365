"""What tests of Spark share: a classic session, and the processes that a test started."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncJob, AsyncQueue
from orchestration_queue.errors import JobFailedError
from orchestration_queue.spark import SparkOptions
from orchestration_queue.spark.connect.address import ServerState
from tests.spark.classic import classic_session
from tests.spark.connect_work import tasks
from tests.waiting import wait_until_sync
from tests.workers import working

MARK = "OQ_TEST_RUN"


class Marked:
    """Everything that one test starts, found by a variable in its environment, whichever group or parent it has."""

    def __init__(self) -> None:
        self.id = uuid.uuid4().hex
        self.options = SparkOptions(master="local[2]", env={MARK: self.id}, grace=timedelta(seconds=10))

    def processes(self) -> dict[int, str]:
        """The living ones: process id and command."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    if f"{MARK}={self.id}".encode() in (entry / "environ").read_bytes():
                        found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:120]
                except OSError:  # it ended while we looked
                    continue
        return found

    def gone(self) -> None:
        """See them all leave: Spark's Python daemon notices that its Java has gone, a moment after the fact."""
        wait_until_sync(lambda: not self.processes(), "all processes to be gone")


@pytest.fixture
def marked() -> Iterator[Marked]:
    """A mark whose processes are all gone soon after the test has ended."""
    marked = Marked()
    yield marked
    try:
        marked.gone()
    finally:
        for process in marked.processes():
            os.kill(process, signal.SIGKILL)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A classic session with two threads, which tries each task three times."""
    conf = {"spark.sql.python.filterPushdown.enabled": "true", "spark.sql.shuffle.partitions": "2"}
    with classic_session(tmp_path_factory.mktemp("classic"), conf=conf) as session:
        yield session


def processes_in(directory: Path) -> list[int]:
    """Ids of the processes whose working directory is this one, or below it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if (entry / "cwd").resolve(strict=True).is_relative_to(directory):
                    found.append(int(entry.name))
            except OSError:  # it ended while we looked
                continue
    return found


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where DataFrames are kept."""
    monkeypatch.setenv("OQ_SPARK_RESULTS", str(tmp_path / "results"))
    return tmp_path / "results"


@pytest.fixture
async def queue(
    server_url: str, queue_name: str, raw: redis.Redis, connect_state: ServerState
) -> AsyncIterator[AsyncQueue]:
    """A queue whose jobs, on a Connect server, a worker of this process does."""
    async with AsyncQueue(queue_name, url=server_url) as queue, working(queue, tasks, server_url):
        yield queue


async def reason(job: AsyncJob) -> str:
    """Return why a job failed."""
    with pytest.raises(JobFailedError) as failed:
        await job.wait(100)
    return str(failed.value)
