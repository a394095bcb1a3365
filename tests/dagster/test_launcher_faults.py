"""Runs whose processes, workers or server are killed."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.launcher.base import WorkerStatus

from orchestration_queue.client import Queue
from orchestration_queue.dagster.runs.run_jobs import find_step_jobs
from tests.chaos.saboteur import Saboteur
from tests.conftest import start_server
from tests.dagster.launches import Launches, launcher_of
from tests.processes import parent_of
from tests.waiting import wait_until_sync

pytestmark = [pytest.mark.dagster, pytest.mark.chaos, pytest.mark.timeout(400)]

CANCELED, FAILURE, QUEUED, STARTED, SUCCESS = (
    dg.DagsterRunStatus[name] for name in ("CANCELED", "FAILURE", "QUEUED", "STARTED", "SUCCESS")
)


ELSEWHERE = {"orchestration_queue/queue": "unserved"}


def process_of(launched: Launches, run_id: str) -> int:
    """The newest process that executes a run."""
    pids = [
        int(entry.message.partition("(pid: ")[2].partition(")")[0])
        for entry in launched.instance.all_logs(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)
        if "Started process for" in entry.message
    ]
    return pids[-1]


def kill_run(launched: Launches, run_id: str) -> None:
    """End the run's process as the kernel does, once it has reported its step, and wait until the queue knows.

    A run adds a step's job first and reports it second: a step without a report is not resumed or stopped.
    """
    wait_until_sync(lambda: find_step_jobs(launched.instance, run_id), "the run to tell of its step")
    job_id = launched.job(run_id).id
    os.kill(process_of(launched, run_id), signal.SIGKILL)
    with Queue(launched.queue, url=launched.url) as queue:
        wait_until_sync(lambda: queue.get(job_id).record.is_finished, "the run's job to fail", 60)


def health(launched: Launches, run_id: str) -> tuple[WorkerStatus, str]:
    """What the launcher says of the run."""
    run = launched.instance.get_run_by_id(run_id)
    assert run is not None
    found = launched.instance.run_launcher.check_run_worker_health(run)
    return found.status, found.msg or ""


def test_a_killed_run_goes_on_with_its_steps_in_flight_and_fails_the_second_time(launched: Launches) -> None:
    storage = launched.instance.event_log_storage
    storage.set_concurrency_slots("narrow", 1)
    run_id = launched.launch("held_step_job")
    (step,) = launched.traces("held")
    assert health(launched, run_id)[0] is WorkerStatus.RUNNING

    kill_run(launched, run_id)
    status, message = health(launched, run_id)
    assert status is WorkerStatus.FAILED
    assert "SIGKILL" in message
    launched.monitor()
    wait_until_sync(lambda: "Started process for resuming" in launched.messages(run_id), "the run to continue", 120)
    assert launched.job(run_id).id.endswith("-resume.1")
    wait_until_sync(lambda: health(launched, run_id)[0] is WorkerStatus.RUNNING, "its worker to be seen")
    assert launched.lines("held") == [step], "the step was kept"
    (place,) = find_step_jobs(launched.instance, run_id)
    assert run_id in str(storage.get_concurrency_info("narrow").claimed_slots)

    kill_run(launched, run_id)
    launched.monitor()
    assert launched.status(run_id) is FAILURE
    assert "surpassed the configured maximum" in launched.messages(run_id)
    with Queue(place.queue, url=launched.url) as queue:
        assert queue.get(place.job_id).record.failed_reason == "revoked", "no run waits for the step"
    assert not storage.get_concurrency_info("narrow").claimed_slots


def test_a_resumed_run_ends_well_and_its_step_ran_once(launched: Launches) -> None:
    run_id = launched.submit("endless_job")
    launched.traces("endless")
    kill_run(launched, run_id)
    launched.monitor()
    wait_until_sync(lambda: "Started process for resuming" in launched.messages(run_id), "the run to continue", 120)
    (launched.scratch / "go").touch()
    launched.reaches(run_id, SUCCESS)
    assert len(launched.lines("endless")) == 1
    assert launched.types(run_id, "endless").count("STEP_SUCCESS") == 1


def test_a_resumed_run_can_be_cancelled(launched: Launches) -> None:
    run_id = launched.submit("endless_job")
    launched.traces("endless")
    kill_run(launched, run_id)
    launched.monitor()
    wait_until_sync(lambda: "Started process for resuming" in launched.messages(run_id), "the run to continue", 120)
    assert launched.instance.run_coordinator.cancel_run(run_id)
    assert launched.status(run_id) is CANCELED
    assert len(launched.lines("cleaned")) == 1


def test_a_run_is_cancelled_whose_process_is_gone_already(launched: Launches) -> None:
    run_id = launched.submit("endless_job")
    launched.traces("endless")
    kill_run(launched, run_id)
    assert launched.instance.run_coordinator.cancel_run(run_id)
    assert launched.status(run_id) is CANCELED
    assert len(launched.lines("cleaned")) == 1, "its step was stopped"


@pytest.mark.parametrize("is_killed_first", [False, True])
def test_a_step_that_must_be_killed_ends_before_its_run(launched: Launches, is_killed_first: bool) -> None:
    run_id = launched.submit("deaf_job")
    launched.traces("deaf")
    if is_killed_first:
        kill_run(launched, run_id)
    assert launched.instance.run_coordinator.cancel_run(run_id)
    assert launched.status(run_id) is CANCELED
    types = launched.types(run_id)
    assert types.count("STEP_FAILURE") == 1
    assert types.index("STEP_FAILURE") < types.index("PIPELINE_CANCELED")
    assert "not forwarding" not in launched.messages(run_id)


def test_a_run_whose_step_waits_is_cancelled_at_once(launched: Launches) -> None:
    run_id = launched.create("endless_job", {"orchestration_queue/run_queue": launched.queue, **ELSEWHERE})
    launched.instance.submit_run(run_id, launched.context.create_request_context())
    wait_until_sync(lambda: find_step_jobs(launched.instance, run_id), "the run to tell of its step", 120)
    assert launched.instance.run_coordinator.cancel_run(run_id)
    assert launched.status(run_id) is CANCELED
    assert "did not end within" not in launched.messages(run_id)
    assert "STEP_FAILURE" not in launched.types(run_id)


def test_without_monitoring_a_killed_run_has_failed_at_once(launched: Launches) -> None:
    launcher = launcher_of(url=launched.url, queue="alone", env={"SCRATCH": str(launched.scratch)})
    with dg.instance_for_test(overrides={"run_launcher": launcher}) as instance:
        own = replace(launched, instance=instance, queue="alone")
        with own.worker():
            run_id = own.launch("held_job")
            os.kill(int(own.traces("held")[0]), signal.SIGKILL)
            own.reaches(run_id, FAILURE)
        assert "The run can't continue: Crashed: its process" in own.messages(run_id)


def test_a_run_whose_job_was_removed_is_not_found(launched: Launches) -> None:
    run_id = launched.submit("held_job")
    launched.traces("held")
    run = launched.instance.get_run_by_id(run_id)
    assert run is not None
    assert launched.instance.run_coordinator.cancel_run(run_id)
    with Queue(launched.queue, url=launched.url) as queue:
        assert queue.remove(f"dagster.{run_id}.-run")
    found = launched.instance.run_launcher.check_run_worker_health(run)
    assert found.status is WorkerStatus.NOT_FOUND
    assert "does not exist: it was removed" in str(found.msg)
    assert found.run_worker_id == f"dagster.{run_id}.-run"


def test_a_killed_worker_is_noticed_and_a_run_that_it_had_not_begun_starts_elsewhere(launched: Launches) -> None:
    own = replace(launched, queue="mortal")
    with ExitStack() as stack:
        worker = stack.enter_context(own.worker())
        begun = own.submit("held_job")
        host = parent_of(int(own.traces("held")[0]))
        os.kill(host, signal.SIGSTOP)  # from now on the worker takes jobs, and no process begins them
        taken = own.submit("hello_job")
        wait_until_sync(lambda: own.job(taken).state == "active", "the run to be taken", 60)
        assert own.status(taken) is QUEUED
        for pid in (worker.pid, host):
            os.kill(pid, signal.SIGKILL)

        wait_until_sync(lambda: health(own, begun)[0] is WorkerStatus.FAILED, "the loss to be noticed")
        assert "has not renewed its lease" in health(own, begun)[1]
        stack.enter_context(own.worker())
        own.reaches(taken, SUCCESS)
        assert own.lines("hello") == [taken]
        assert own.status(begun) is STARTED
        wait_until_sync(lambda: own.job(begun).is_finished, "the other worker to meet what had begun, and to leave it")
        own.monitor()
        wait_until_sync(lambda: "Started process for resuming" in own.messages(begun), "the run to continue", 120)
        (own.scratch / "go").touch()
        own.reaches(begun, SUCCESS)
        assert len(own.lines("held")) == 2, "what runs in the run's own process is lost with it, and done again"


def test_a_run_is_launched_although_the_reply_to_its_job_is_lost(launched: Launches, tmp_path: Path) -> None:
    with Saboteur(Path(launched.url.removeprefix("unix://")), tmp_path / "proxy.sock") as proxy:
        launcher = launcher_of(url=proxy.url, queue="outage")
        with dg.instance_for_test(overrides={"run_launcher": launcher}) as instance:
            own = replace(launched, instance=instance, url=proxy.url, queue="outage")
            proxy.lose_replies("glidemq_addJob", every=2)
            runs = [own.launch("hello_job") for _ in range(3)]
            assert proxy.lost > 0
            assert [own.job(run_id).id for run_id in runs] == [f"dagster.{run_id}.-run" for run_id in runs]


def test_a_server_that_restarts_between_submit_and_claim_loses_no_run(launched: Launches, tmp_path: Path) -> None:
    socket = tmp_path / "own.sock"
    durable = ("--appendonly", "yes", "--appendfsync", "always")
    server = start_server(socket, *durable)
    launcher = launcher_of(url=f"unix://{socket}", queue="outage", env={"SCRATCH": str(launched.scratch)})
    ours = {"module": "orchestration_queue.dagster", "class": "QueueRunCoordinator"}
    try:
        with dg.instance_for_test(overrides={"run_launcher": launcher, "run_coordinator": ours}) as instance:
            own = replace(launched, instance=instance, url=f"unix://{socket}", queue="outage")
            run_id = own.submit("hello_job")
            server.kill()
            server.wait()
            assert own.status(run_id) is QUEUED
            server = start_server(socket, *durable)
            with own.worker():
                own.reaches(run_id, SUCCESS)
            assert own.lines("hello") == [run_id]
            server.kill()
            server.wait()
    finally:
        server.kill()
        server.wait()
