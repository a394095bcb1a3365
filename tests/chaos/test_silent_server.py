"""A stalled server keeps no worker from leaving."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen

import pytest
import redis

from orchestration_queue.client import Queue
from tests.chaos.workers import cli_worker, insist, is_waiting, suspend
from tests.conftest import start_server
from tests.waiting import wait_until_sync

pytestmark = pytest.mark.chaos


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Popen[bytes], str]]:
    """A server of the test's own, and its address."""
    process = start_server(tmp_path / "own.sock")
    yield process, f"unix://{tmp_path}/own.sock"
    process.kill()
    process.wait(60)


@pytest.mark.parametrize("is_busy", [False, True], ids=["waiting", "with a job"])
def test_a_worker_told_twice_leaves_without_an_answer(
    server: tuple[Popen[bytes], str], tmp_path: Path, is_busy: bool
) -> None:
    process, url = server
    log = tmp_path / "log"
    with (
        Queue("q", url=url) as queue,
        redis.Redis(unix_socket_path=url.removeprefix("unix://")) as raw,
        cli_worker("q", url, log=log) as worker,
    ):
        if is_busy:
            job = queue.add("hold", {"sign": str(tmp_path / "sign")})
            wait_until_sync(job.logs, "the job to run")
        else:
            wait_until_sync(lambda: is_waiting(raw), "the worker to wait for jobs")
        suspend(process)
        worker.send_signal(signal.SIGTERM)
        wait_until_sync(lambda: "is draining" in log.read_text(), "the worker to have heard")
        assert worker.poll() is None
        assert insist(worker) == 1
        process.send_signal(signal.SIGCONT)
    assert "leaves without a reply from its server" in log.read_text()
