"""Runs whose process is gone, and that another process resumes: with the steps in flight, and those never launched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.errors import DagsterExecutionInterruptedError
from dagster._core.execution.api import create_execution_plan
from dagster._core.execution.plan.active import ActiveExecution
from dagster._core.execution.plan.objects import StepRetryData
from dagster._core.execution.plan.outputs import StepOutputData, StepOutputHandle
from dagster._core.execution.retries import RetryMode
from dagster._core.execution.step_dependency_config import StepDependencyConfig
from dagster_shared.error import SerializableErrorInfo

from orchestration_queue.dagster.steps.resumption import replay
from orchestration_queue.dagster.steps.run_log import RunLog
from tests.dagster import resumed
from tests.dagster.step_workers import Fleet, home_is
from tests.processes import running_process
from tests.waiting import wait_until_sync

pytestmark = [pytest.mark.dagster, pytest.mark.chaos, pytest.mark.timeout(400)]

NO_RETRIES = {"worker_lost_retries": 0}


@pytest.fixture(scope="module")
def shared(server_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """An instance with a pool of one slot, and a worker that all tests of this module use."""
    pools = {"concurrency": {"pools": {"default_limit": 1}}}
    with dg.instance_for_test(overrides=pools) as instance:
        fleet = Fleet(instance, server_url, f"resumed-{uuid.uuid4().hex[:8]}", tmp_path_factory.mktemp("resumed"))
        with fleet.worker(module="tests.dagster.resumed"):
            yield fleet


@pytest.fixture
def fleet(shared: Fleet, tmp_path: Path) -> Fleet:
    """The same, with traces of this test alone."""
    return Fleet(shared.instance, shared.url, shared.queue, tmp_path)


@contextmanager
def process_of(fleet: Fleet, run_id: str, *, resumes: bool) -> Iterator[subprocess.Popen[bytes]]:
    """The process that executes a run, or its rest."""
    command = [sys.executable, "-m", "tests.dagster.resumed", run_id, *(["resume"] if resumes else [])]
    with home_is(fleet.instance.root_directory), running_process(command, fleet.url) as process:
        yield process


def create(fleet: Fleet, job: str, **config: Any) -> str:
    """Make a run of a job; its id."""
    made = dg.reconstructable(getattr(resumed, job))
    run = fleet.instance.create_run_for_job(
        made.get_definition(),
        run_config={"execution": {"config": {**fleet.config, **config}}},
        job_code_origin=made.get_python_origin(),
    )
    return str(run.run_id)


def kill_when(fleet: Fleet, run_id: str, reached: Any, description: str) -> None:
    """Execute a run, and kill its process when it has come so far."""
    with process_of(fleet, run_id, resumes=False) as process:
        wait_until_sync(reached, description, 200)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(60)


def resume(fleet: Fleet, run_id: str) -> None:
    """Execute the rest of a run in another process."""
    with process_of(fleet, run_id, resumes=True) as process:
        assert process.wait(300) == 0


def ends(fleet: Fleet, run_id: str) -> Mapping[str, Counter[str]]:
    """How often each step succeeded, failed, and was tried again."""
    entries = fleet.instance.all_logs(run_id)
    found: dict[str, Counter[str]] = {
        kind: Counter() for kind in ("STEP_SUCCESS", "STEP_FAILURE", "STEP_UP_FOR_RETRY", "STEP_SKIPPED")
    }
    for entry in entries:
        if entry.dagster_event and entry.dagster_event.event_type_value in found:
            found[entry.dagster_event.event_type_value][str(entry.step_key)] += 1
    return found


def assert_ended_well(fleet: Fleet, run_id: str, succeeded: int, retried: int = 0) -> None:
    """The run succeeded; each of its steps did so once, and none was tried again because of the kill."""
    run = fleet.instance.get_run_by_id(run_id)
    assert run is not None
    log = [entry.user_message for entry in fleet.instance.all_logs(run_id)]
    assert run.status is dg.DagsterRunStatus.SUCCESS, log[-5:]
    found = ends(fleet, run_id)
    assert set(found["STEP_SUCCESS"].values()) == {1}
    assert len(found["STEP_SUCCESS"]) == succeeded
    assert not found["STEP_FAILURE"]
    assert found["STEP_UP_FOR_RETRY"].total() == retried


def has(fleet: Fleet, run_id: str, kind: dg.DagsterEventType, times: int = 1) -> bool:
    """Whether the log of a run has at least this number of events of a kind."""
    return len(fleet.instance.all_logs(run_id, of_type=kind)) >= times


def test_a_log_of_many_pages_is_read_whole_before_the_run_goes_on(fleet: Fleet) -> None:
    run_id = create(fleet, "chatty")
    kill_when(fleet, run_id, lambda: fleet.lines("waits"), "the last step to begin")
    assert len(fleet.instance.all_logs(run_id, of_type=set(dg.DagsterEventType))) > 2_000
    (fleet.scratch / "go").touch()
    resume(fleet, run_id)
    assert_ended_well(fleet, run_id, succeeded=4)


def test_steps_that_nobody_launched_start_and_count_no_retry(fleet: Fleet) -> None:
    run_id = create(fleet, "fan", **NO_RETRIES)
    kill_when(fleet, run_id, lambda: fleet.lines("waits"), "the first step to begin")
    (fleet.scratch / "go").touch()
    wait_until_sync(lambda: has(fleet, run_id, dg.DagsterEventType.STEP_SUCCESS), "the first step to end", 120)
    assert len(fleet.instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_WORKER_STARTING)) == 1
    resume(fleet, run_id)
    assert_ended_well(fleet, run_id, succeeded=13)
    told = "\n".join(entry.user_message for entry in fleet.instance.all_logs(run_id))
    assert "0 steps are in flight, and 12 steps are ready that the run's previous process had not reported" in told


def test_a_step_that_was_added_and_not_reported_runs_once(fleet: Fleet) -> None:
    """As when the process dies between adding a step's job and reporting it."""
    run_id = create(fleet, "fan", **NO_RETRIES)
    with process_of(fleet, run_id, resumes=False) as process:
        wait_until_sync(lambda: fleet.lines("waits"), "the first step to begin", 200)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(60)
    storage = fleet.instance.event_log_storage
    entries = fleet.instance.all_logs(run_id)
    storage.delete_events(run_id)
    for entry in entries:
        if entry.dagster_event is None or entry.dagster_event.event_type_value != "STEP_WORKER_STARTING":
            storage.store_event(entry)
    (fleet.scratch / "go").touch()
    wait_until_sync(lambda: has(fleet, run_id, dg.DagsterEventType.STEP_SUCCESS), "the first step to end", 120)
    resume(fleet, run_id)
    assert_ended_well(fleet, run_id, succeeded=13)
    assert len(fleet.lines("waits")) == 1


def test_slots_of_pools_are_kept_by_steps_in_flight_and_freed_by_those_that_ended(fleet: Fleet) -> None:
    run_id = create(fleet, "pooled", **NO_RETRIES)
    kill_when(fleet, run_id, lambda: len(fleet.lines("waits")) == 2, "the second step of the pool to begin")
    (fleet.scratch / "go").touch()
    wait_until_sync(lambda: has(fleet, run_id, dg.DagsterEventType.STEP_SUCCESS, 2), "that step to end", 120)
    resume(fleet, run_id)
    assert_ended_well(fleet, run_id, succeeded=4)
    info = fleet.instance.event_log_storage.get_concurrency_info("narrow")
    assert (info.claimed_slots, info.pending_steps) == ([], [])


def test_skipped_mapped_and_retried_steps_are_found_again(fleet: Fleet) -> None:
    run_id = create(fleet, "mixed", **NO_RETRIES)
    kill_when(fleet, run_id, lambda: fleet.lines("waits"), "the last step to begin")
    (fleet.scratch / "go").touch()
    resume(fleet, run_id)
    assert_ended_well(fleet, run_id, succeeded=9, retried=1)
    assert ends(fleet, run_id)["STEP_SKIPPED"] == {"unneeded": 1}


def test_a_retry_waits_from_its_failure_not_from_the_resumption(fleet: Fleet) -> None:
    run_id = create(fleet, "slowly_retried", **NO_RETRIES)
    kill_when(fleet, run_id, lambda: has(fleet, run_id, dg.DagsterEventType.STEP_UP_FOR_RETRY), "the step to fail")
    with ActiveExecution(create_execution_plan(resumed.slowly_retried), RetryMode.ENABLED) as state:
        replay(state, RunLog(fleet.instance, run_id).read())
        (failure,) = fleet.instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_UP_FOR_RETRY)
        assert state._waiting_to_retry == {"tries": failure.timestamp + 20}
        state._waiting_to_retry.clear()  # a state that is left must be complete


def test_the_order_of_launches_need_not_be_guessed(fleet: Fleet) -> None:
    """Two steps that end together are read in one go, and one that they make ready may precede one that waited."""
    run_id = create(fleet, "urgent_late", max_concurrent=2, **NO_RETRIES)
    kill_when(fleet, run_id, lambda: len(fleet.lines("waits")) == 2, "the urgent steps to begin")
    (fleet.scratch / "go").touch()
    resume(fleet, run_id)
    assert_ended_well(fleet, run_id, succeeded=6)


def test_an_instance_in_memory_is_refused_before_anything_is_added(server_url: str, tmp_path: Path) -> None:
    storage = {"module": "dagster._core.storage.event_log", "class": "InMemoryEventLogStorage"}
    with dg.instance_for_test(overrides={"event_log_storage": storage}) as instance:
        fleet = Fleet(instance, server_url, f"memory-{uuid.uuid4().hex[:8]}", tmp_path)
        result = fleet.run(resumed.slowly_retried)
        assert not result.success
        (failure,) = [event for event in result.all_events if event.is_run_failure]
        assert "keeps data in the memory of one process (InMemoryEventLogStorage)" in str(failure.event_specific_data)
        assert not [event for event in result.all_events if event.event_type_value == "STEP_WORKER_STARTING"]


@dg.op
def yields() -> int:
    """Yield an output, and be killed before it is stored."""
    return 1


@dg.op
def takes(x: int) -> int:
    """Need the output."""
    return x


@dg.job
def early() -> None:
    """A step, and one that starts when the first has yielded its output."""
    takes(yields())


def test_an_output_that_a_lost_attempt_yielded_starts_no_step() -> None:
    """The attempt may have been killed before it stored the output."""

    def event(kind: dg.DagsterEventType, data: Any = None) -> dg.DagsterEvent:
        return dg.DagsterEvent(kind.value, "early", step_key="yields", event_specific_data=data)

    output = event(dg.DagsterEventType.STEP_OUTPUT, StepOutputData(StepOutputHandle("yields", "result")))
    started = event(dg.DagsterEventType.STEP_START)
    lost = event(dg.DagsterEventType.STEP_UP_FOR_RETRY, StepRetryData(SerializableErrorInfo("lost", [], None)))
    at_output = StepDependencyConfig(require_upstream_step_success=False)
    for log, ready in (([started, output], ["takes"]), ([started, output, lost], ["yields"])):
        plan = create_execution_plan(early)
        state = ActiveExecution(plan, RetryMode.ENABLED, step_dependency_config=at_output)
        with suppress(DagsterExecutionInterruptedError), state:  # two steps are left
            replay(state, [(each, 0.0) for each in log])
            assert [step.key for step in state.get_steps_to_execute()] == ready
            state.mark_interrupted()
