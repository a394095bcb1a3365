"""Workers that are stopped for longer than their leases: what they say when they wake counts no more."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from orchestration_queue.client import Queue
from orchestration_queue.options import JobOptions
from orchestration_queue.server.clock import now_ms
from orchestration_queue.states import JobState
from tests.chaos.books import counted, mistakes
from tests.chaos.workers import BUSY_S, LEASE_S, cli_worker, suspend
from tests.waiting import wait_until_sync

pytestmark = pytest.mark.chaos

KEPT_S = 5.0
"""A lease that a living worker keeps, on however busy a machine, while another looks for what it may take over."""


@pytest.fixture
def queue(server_url: str, queue_name: str, raw: redis.Redis) -> Iterator[Queue]:
    with Queue(queue_name, url=server_url) as queue:
        yield queue


@pytest.fixture
def sign(tmp_path: Path) -> Path:
    """What a running job waits for."""
    return tmp_path / "sign"


def let_go(sign: Path, worker: subprocess.Popen[bytes]) -> None:
    """Let the job end, as far as it runs in this process."""
    sign.with_name(f"{sign.name}-{worker.pid}").touch()


@pytest.mark.parametrize("task", ["hold", "stumble"])
@pytest.mark.parametrize(
    "options", [JobOptions(attempts=3), JobOptions(attempts=3, priority=2)], ids=["stream", "list"]
)
def test_a_worker_stopped_beyond_its_lease_settles_nothing_when_it_wakes_and_goes_on(
    queue: Queue,
    server_url: str,
    raw: redis.Redis,
    tmp_path: Path,
    sign: Path,
    recovered: Callable[[float, float], None],
    task: str,
    options: JobOptions,
) -> None:
    log = tmp_path / "sleeper.log"
    job = queue.add(task, {"sign": str(sign)}, options)
    with cli_worker(queue.name, server_url, log=log) as sleeper:
        wait_until_sync(lambda: len(job.logs()) == 1, "the sleeper to run the job")
        suspend(sleeper)
        let_go(sign, sleeper)
        stopped = time.monotonic()
        with cli_worker(queue.name, server_url) as other:
            let_go(sign, other)
            assert job.wait(LEASE_S + BUSY_S)["pid"] == other.pid
            recovered(time.monotonic() - stopped, LEASE_S + BUSY_S)
            other.send_signal(signal.SIGTERM)
            assert other.wait(60) == 0
        sleeper.send_signal(signal.SIGCONT)
        wait_until_sync(lambda: "is no longer ours" in log.read_text(), "the sleeper to be refused")
        later = [queue.add("work", {"seconds": 0}, JobOptions(priority=n % 2)) for n in range(6)]
        assert {one.wait(60)["pid"] for one in later} == {sleeper.pid}
        sleeper.send_signal(signal.SIGTERM)
        assert sleeper.wait(60) == 0
    job.refresh()
    assert (job.record.state, job.record.result["pid"]) == (JobState.COMPLETED, other.pid)
    assert (job.record.attempts_made, job.record.stalled_count, len(job.logs())) == (0, 1, 2)
    assert mistakes(raw, queue.keys, completed=7) == {}


def test_a_worker_that_wakes_beside_the_new_run_does_not_disturb_it(
    queue: Queue, server_url: str, raw: redis.Redis, tmp_path: Path, sign: Path
) -> None:
    log = tmp_path / "sleeper.log"
    job = queue.add("stumble", {"sign": str(sign)}, JobOptions(attempts=3))
    with cli_worker(queue.name, server_url, lease_s=KEPT_S, log=log) as sleeper:
        wait_until_sync(lambda: len(job.logs()) == 1, "the sleeper to run the job")
        suspend(sleeper)
        let_go(sign, sleeper)
        with cli_worker(queue.name, server_url, lease_s=KEPT_S) as other:
            wait_until_sync(lambda: len(job.logs()) == 2, "the other worker to run the job")
            sleeper.send_signal(signal.SIGCONT)
            wait_until_sync(lambda: "is no longer ours" in log.read_text(), "the sleeper to be refused")
            assert counted(raw, queue.keys.metrics_completed) == 0
            let_go(sign, other)
            assert job.wait(60)["pid"] == other.pid
    job.refresh()
    assert (job.record.attempts_made, job.record.stalled_count, len(job.logs())) == (0, 1, 2)
    assert mistakes(raw, queue.keys, completed=1) == {}


def test_a_worker_that_stood_still_alone_does_not_take_its_own_job_for_abandoned(
    queue: Queue, server_url: str, raw: redis.Redis
) -> None:
    job = queue.add("work", {"seconds": 4 * LEASE_S})
    with cli_worker(queue.name, server_url) as sleeper:
        wait_until_sync(lambda: len(job.logs()) == 1, "the sleeper to run the job", 60)
        suspend(sleeper)
        renewed_ms = int(str(raw.hget(queue.keys.job(job.id), "lastActive")))
        wait_until_sync(lambda: now_ms() - renewed_ms > 1500 * LEASE_S, "its lease to be over")
        sleeper.send_signal(signal.SIGCONT)
        assert job.wait(60)["pid"] == sleeper.pid
    assert (len(job.logs()), job.refresh().stalled_count) == (1, 0)
    assert mistakes(raw, queue.keys, completed=1) == {}


def test_a_worker_whose_handler_holds_the_gil_for_longer_than_its_lease_says_so(
    queue: Queue, server_url: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with cli_worker(queue.name, server_url, log=log) as worker:
        job = queue.add("hold_gil", {"seconds": 3 * LEASE_S})
        assert job.wait(60)["pid"] == worker.pid, "no other worker could take it over"
    told = re.search(r"No renewal for (\d+\.\d) s, in which the leases of 1 jobs expired: .*", log.read_text())
    assert told
    assert float(told[1]) > LEASE_S
    assert "make such a handler sandboxed" in told[0]
    assert told[0].endswith(f": {job.id} (hold_gil)")


def test_a_sandboxed_handler_that_holds_its_gil_keeps_its_job(
    queue: Queue, server_url: str, raw: redis.Redis, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with (
        cli_worker(queue.name, server_url, lease_s=KEPT_S, log=log),
        cli_worker(queue.name, server_url, lease_s=KEPT_S),
    ):
        job = queue.add("hold_gil_in_sandbox", {"seconds": 2.5 * KEPT_S})
        job.wait(60)
    assert (len(job.logs()), job.refresh().stalled_count) == (1, 0)
    assert "No renewal" not in log.read_text()
    assert mistakes(raw, queue.keys, completed=1) == {}


def test_a_handler_that_blocks_the_loop_for_longer_than_its_lease_keeps_its_job(
    queue: Queue, server_url: str, raw: redis.Redis
) -> None:
    job = queue.add("block", {"seconds": 2.5 * KEPT_S})
    with cli_worker(queue.name, server_url, lease_s=KEPT_S) as blocked:
        wait_until_sync(lambda: len(job.logs()) == 1, "the job to run")
        with cli_worker(queue.name, server_url, concurrency=2, lease_s=KEPT_S) as watcher:
            watched = queue.add("work", {"seconds": 0})
            assert watched.wait(60)["pid"] == watcher.pid
            assert job.wait(60)["pid"] == blocked.pid
    assert (len(job.logs()), job.refresh().stalled_count) == (1, 0)
    assert mistakes(raw, queue.keys, completed=2) == {}
