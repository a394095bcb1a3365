"""Steps whose workers, processes or runs are killed, or suspended for too long."""

from __future__ import annotations

import json
import os
import signal
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import redis

from orchestration_queue.client import Queue
from orchestration_queue.dagster.job_health import LOST
from tests.conftest import start_server
from tests.dagster import steps
from tests.dagster.step_workers import Fleet, home_is
from tests.processes import parent_of, running_process
from tests.waiting import wait_until_sync

pytestmark = [pytest.mark.dagster, pytest.mark.chaos, pytest.mark.timeout(400)]

BRIEF_S = 5.0
"""The lease where a worker's loss is noticed: short enough for a test, longer than a busy machine stops a process."""


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    """An instance that all tests of this module use."""
    with dg.instance_for_test() as made:
        yield made


@pytest.fixture
def fleet(instance: dg.DagsterInstance, server_url: str, tmp_path: Path) -> Fleet:
    """A queue of this test's own, without workers."""
    return Fleet(instance, server_url, f"steps-{uuid.uuid4().hex[:8]}", tmp_path)


@contextmanager
def running(fleet: Fleet, job: dg.JobDefinition, **config: Any) -> Iterator[Future[dg.ExecuteJobResult]]:
    """A run beside the test."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(fleet.run, job, **config)


def is_alive(pid: int) -> bool:
    """Whether a process is there, and no mere record of one."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def begun(fleet: Fleet, name: str, times: int) -> tuple[int, int]:
    """The two process ids that a step has told when it has begun so often."""
    wait_until_sync(lambda: len(fleet.lines(name)) >= times, f"{name} to begin for time {times}", 120)
    first, second = map(int, fleet.lines(name)[times - 1].split())
    return first, second


def finish(fleet: Fleet, run: Future[dg.ExecuteJobResult]) -> dg.ExecuteJobResult:
    """Let endless steps end, and the run with them."""
    (fleet.scratch / "go").touch()
    return run.result(120)


def assert_was_lost_once(fleet: Fleet, result: dg.ExecuteJobResult) -> None:
    """The step was tried again, and only its last attempt reported."""
    assert result.success
    types = fleet.types(result.run_id, "endless")
    assert [types.count(kind) for kind in ("STEP_UP_FOR_RETRY", "STEP_SUCCESS", "STEP_FAILURE")] == [1, 1, 0]
    entries = fleet.instance.all_logs(result.run_id)
    assert sum("ended by itself" in entry.user_message for entry in entries) == 1


def test_a_killed_worker_takes_its_steps_along_and_another_does_them(fleet: Fleet) -> None:
    with fleet.worker(), fleet.worker(), running(fleet, steps.endless_job, lease=BRIEF_S) as run:
        child, host = begun(fleet, "endless", 1)
        os.kill(parent_of(host), signal.SIGKILL)
        wait_until_sync(lambda: not is_alive(child) and not is_alive(host), "all of the worker to die")
        begun(fleet, "endless", 2)
        result = finish(fleet, run)
        assert_was_lost_once(fleet, result)
        with Queue(fleet.queue, url=fleet.url) as queue:
            lost = queue.get(f"dagster.{result.run_id}.endless.1")
            wait_until_sync(lambda: lost.refresh().is_finished, "the other worker to meet what was begun")
            assert lost.record.failed_reason in {
                "revoked",
                f"{LOST}the worker that had begun it did not renew its lease.",
            }, "it was left alone"
    assert len(fleet.lines("cleaned")) == 1


@pytest.mark.parametrize("lost_before", [0, 3])
def test_a_step_that_killed_workers_had_not_started_runs_elsewhere_as_the_same_attempt(
    fleet: Fleet, raw: redis.Redis, lost_before: int
) -> None:
    with ExitStack() as stack:
        worker = stack.enter_context(fleet.worker())
        (fleet.scratch / "go").touch()
        assert fleet.run(steps.endless_job).success
        (fleet.scratch / "go").unlink()
        host = int(fleet.lines("endless")[0].split()[1])
        os.kill(host, signal.SIGSTOP)  # from now on the worker takes jobs, and no process begins them
        run = stack.enter_context(running(fleet, steps.endless_job, lease=BRIEF_S, worker_lost_retries=0))
        with Queue(fleet.queue, url=fleet.url) as queue:
            wait_until_sync(lambda: queue.counts().active, "the step to be taken", 120)
            (job,) = queue.jobs("active")
            raw.hset(queue.keys.job(job.id), "stalledCount", str(lost_before))
        for pid in (worker.pid, host):
            os.kill(pid, signal.SIGKILL)
        stack.enter_context(fleet.worker())
        begun(fleet, "endless", 2)
        result = finish(fleet, run)
    assert result.success
    types = fleet.types(result.run_id, "endless")
    assert [types.count(kind) for kind in ("STEP_UP_FOR_RETRY", "STEP_SUCCESS", "STEP_FAILURE")] == [0, 1, 0]


def test_a_killed_host_is_replaced_and_its_steps_are_tried_again(fleet: Fleet) -> None:
    with fleet.worker(), running(fleet, steps.endless_job) as run:
        child, host = begun(fleet, "endless", 1)
        os.kill(host, signal.SIGKILL)
        wait_until_sync(lambda: not is_alive(child), "the step's process to die")
        _, successor = begun(fleet, "endless", 2)
        assert successor != host
        assert_was_lost_once(fleet, finish(fleet, run))


def test_a_step_that_wakes_after_its_lease_tells_nothing_any_more(fleet: Fleet) -> None:
    with fleet.worker(), fleet.worker(), running(fleet, steps.endless_job, lease=BRIEF_S) as run:
        child, host = begun(fleet, "endless", 1)
        asleep = (parent_of(host), host, child)
        try:
            for pid in asleep:
                os.kill(pid, signal.SIGSTOP)
            begun(fleet, "endless", 2)
            (fleet.scratch / "go").touch()
            os.kill(child, signal.SIGCONT)  # alone: neither its worker nor its host can hold it back
            wait_until_sync(lambda: not is_alive(child), "the step's process to end itself")
            result = run.result(120)
        finally:
            for pid in asleep:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        assert_was_lost_once(fleet, result)


def test_a_step_ends_when_its_sleeping_worker_cannot_renew_its_lease(fleet: Fleet) -> None:
    with fleet.worker() as worker, running(fleet, steps.endless_job, lease=BRIEF_S, worker_lost_retries=0) as run:
        child, _ = begun(fleet, "endless", 1)
        os.kill(worker.pid, signal.SIGSTOP)
        try:
            wait_until_sync(lambda: not is_alive(child), "the host to end it")
            result = run.result(120)
        finally:
            os.kill(worker.pid, signal.SIGCONT)
    assert not result.success
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    assert "has not renewed its lease" in str(failure.step_failure_data.error)


def test_a_worker_that_is_told_to_stop_lets_its_steps_end(fleet: Fleet) -> None:
    with fleet.worker("--drain", "60") as worker, running(fleet, steps.endless_job) as run:
        begun(fleet, "endless", 1)
        worker.send_signal(signal.SIGTERM)
        assert finish(fleet, run).success
        assert worker.wait(60) == 0
    assert len(fleet.lines("endless")) == 1


def test_steps_that_outlast_the_drain_are_done_by_another_worker(fleet: Fleet) -> None:
    brief = ("--drain", "0.2")
    with fleet.worker(*brief), fleet.worker(*brief), running(fleet, steps.endless_job, lease=BRIEF_S) as run:
        child, host = begun(fleet, "endless", 1)
        os.kill(parent_of(host), signal.SIGTERM)
        wait_until_sync(lambda: not is_alive(child), "the step's process to be ended")
        begun(fleet, "endless", 2)
        assert_was_lost_once(fleet, finish(fleet, run))


@contextmanager
def own_process(fleet: Fleet, job: str) -> Iterator[Callable[[], None]]:
    """A run in a process of its own; gives what interrupts it, and waits for its end."""
    command = [sys.executable, "-m", "tests.dagster.run_here", job, "x", json.dumps(fleet.config)]
    with home_is(fleet.instance.root_directory), running_process(command, fleet.url) as process:

        def interrupt() -> None:
            process.send_signal(signal.SIGINT)
            process.wait(120)

        yield interrupt


def test_a_cancelled_run_stops_its_steps_and_waits_until_they_have(fleet: Fleet) -> None:
    with fleet.worker(), own_process(fleet, "endless_job") as interrupt:
        child, _ = begun(fleet, "endless", 1)
        interrupt()
        assert fleet.lines("cleaned") == [str(child)]
        (run,) = fleet.instance.get_runs(limit=1)
        told = [entry.message for entry in fleet.instance.all_logs(run.run_id)]
        assert "Step 'endless' was stopped." in told, "it has said so, and the run did not wait for it in vain"
        wait_until_sync(lambda: not is_alive(child), "the step's process to leave, which has reported its end")
        with Queue(fleet.queue, url=fleet.url) as queue:
            job = queue.get(f"dagster.{run.run_id}.endless.1")
            wait_until_sync(lambda: job.refresh().is_finished, "its worker to notify the queue, too")
            assert job.record.failed_reason == "revoked"
    assert_ended_before_the_run(fleet, run.run_id)


def assert_ended_before_the_run(fleet: Fleet, run_id: str) -> None:
    """The run's only step has one end before the run's, in Dagster's log and in what the caller got."""
    for types in (fleet.types(run_id), fleet.lines("result")):
        assert types.count("STEP_FAILURE") == 1
        assert types.index("STEP_FAILURE") < max(types.index(kind) for kind in types if kind.startswith("PIPELINE_"))


def test_a_step_that_does_not_listen_is_killed_with_all_it_has_started(fleet: Fleet) -> None:
    with fleet.worker("--grace", "1"), own_process(fleet, "deaf_job") as interrupt:
        child, grandchild = begun(fleet, "deaf", 1)
        interrupt()
        wait_until_sync(lambda: not is_alive(child) and not is_alive(grandchild), "all of the step to die")
    (run,) = fleet.instance.get_runs(limit=1)
    assert_ended_before_the_run(fleet, run.run_id)
    told = [entry.message for entry in fleet.instance.all_logs(run.run_id)]
    assert "Step 'deaf' was killed, because it did not end in time after it was asked to stop." in told


def test_a_step_that_was_not_started_has_no_end(fleet: Fleet) -> None:
    with own_process(fleet, "endless_job") as interrupt, Queue(fleet.queue, url=fleet.url) as queue:
        wait_until_sync(lambda: queue.counts().waiting, "the step to wait for a worker", 120)
        interrupt()
    (run,) = fleet.instance.get_runs(limit=1)
    assert "STEP_FAILURE" not in fleet.types(run.run_id)
    told = [entry.message for entry in fleet.instance.all_logs(run.run_id)]
    assert "Step 'endless' was stopped before it started." in told


def test_a_server_that_is_killed_and_comes_back_stops_no_run(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    socket = tmp_path / "own.sock"
    durable = ("--appendonly", "yes", "--appendfsync", "always")
    server = start_server(socket, *durable)
    fleet = Fleet(instance, f"unix://{socket}", "outage", tmp_path)
    try:
        with fleet.worker(), running(fleet, steps.then_job) as run:
            begun(fleet, "endless", 1)
            server.kill()
            server.wait()
            (tmp_path / "go").touch()  # the step ends, and the next cannot be added
            wait_until_sync(lambda: fleet.lines("cleaned"), "the step to end", 60)
            server = start_server(socket, *durable)
            assert run.result(120).success
    finally:
        server.kill()
        server.wait()
    assert len(fleet.lines("endless")) == 1
    assert len(fleet.lines("where")) == 1
