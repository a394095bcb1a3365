"""The coordinator: runs stay queued until a worker takes them, and are cancelled before that or after."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

import dagster as dg
import pytest
from dagster._core.run_coordinator.base import SubmitRunContext

from orchestration_queue.client import Queue
from orchestration_queue.dagster import QueueRunCoordinator
from orchestration_queue.dagster._compat import ExecuteRunArgs
from orchestration_queue.dagster.steps.work_item import WorkItem, perform
from orchestration_queue.errors import UsageError
from tests.dagster.launches import Launches
from tests.waiting import wait_until_sync

pytestmark = [pytest.mark.dagster, pytest.mark.timeout(300)]

CANCELED, QUEUED, SUCCESS = (dg.DagsterRunStatus[name] for name in ("CANCELED", "QUEUED", "SUCCESS"))
NOWHERE = {"orchestration_queue/queue": "no-worker-here"}


def test_a_run_is_queued_until_a_worker_takes_it(launched: Launches) -> None:
    with Queue(launched.queue, url=launched.url) as queue:
        queue.pause()
        run_id = launched.submit("hello_job")
        assert launched.status(run_id) is QUEUED
        queue.resume()
    launched.reaches(run_id, SUCCESS)
    types = launched.types(run_id)
    expected = ["PIPELINE_ENQUEUED", "PIPELINE_STARTING", "PIPELINE_START", "PIPELINE_SUCCESS"]
    assert [kind for kind in types if kind in expected] == expected


def test_urgent_runs_go_first(launched: Launches) -> None:
    run_ids = {priority: launched.submit("hello_job", {**NOWHERE, "dagster/priority": priority}) for priority in "19"}
    with Queue("no-worker-here", url=launched.url) as queue:
        assert [job.id for job in queue.jobs("delayed")] == [f"dagster.{run_ids[key]}.-run" for key in "91"]


def test_a_queued_run_is_cancelled_at_once_and_never_starts(launched: Launches) -> None:
    run_id = launched.submit("hello_job", NOWHERE)
    assert launched.instance.run_coordinator.cancel_run(run_id)
    assert launched.status(run_id) is CANCELED
    assert launched.job(run_id).failed_reason == "revoked"
    assert not launched.instance.run_coordinator.cancel_run(run_id)


def test_a_running_run_is_cancelled_by_its_worker(launched: Launches) -> None:
    run_id = launched.submit("held_job")
    launched.traces("held")
    assert launched.instance.run_coordinator.cancel_run(run_id)
    assert launched.status(run_id) is CANCELED
    assert launched.job(run_id).failed_reason == "revoked"


def test_cancelling_while_workers_take_runs_leaves_none_between(launched: Launches) -> None:
    """In either order, a run is either canceled or done, and its job has ended."""
    with ThreadPoolExecutor(2) as pool:
        run_ids = [launched.submit("hello_job") for _ in range(6)]
        list(pool.map(launched.instance.run_coordinator.cancel_run, run_ids))
    for run_id in run_ids:
        wait_until_sync(lambda run_id=run_id: launched.status(run_id) in (CANCELED, SUCCESS), "an end", 60)  # type: ignore[misc]  # bound at once
        wait_until_sync(lambda run_id=run_id: launched.job(run_id).is_finished, "its job's end", 60)  # type: ignore[misc]  # bound at once
        ends = [kind for kind in launched.types(run_id) if kind in ("PIPELINE_CANCELED", "PIPELINE_SUCCESS")]
        # Dagster takes a cancellation that comes in the very moment of a run's end, and so does everybody.
        assert ends in (["PIPELINE_CANCELED"], ["PIPELINE_SUCCESS"], ["PIPELINE_SUCCESS", "PIPELINE_CANCELED"]), (
            launched.messages(run_id)
        )
        assert ends[-1] == f"PIPELINE_{launched.status(run_id).value}"


def test_a_cancellation_in_the_moment_of_the_start_wins(launched: Launches) -> None:
    """The worker has read that the run is queued; then it is cancelled; then the worker writes that it starts."""
    run_id = launched.submit("hello_job", NOWHERE)
    queued = launched.instance.get_run_by_id(run_id)
    assert queued is not None
    assert queued.job_code_origin is not None
    launched.instance.report_run_canceling(queued)
    args = ExecuteRunArgs(queued.job_code_origin, run_id, None)

    class AMomentAgo:
        """The instance as the worker saw it at first."""

        def __getattr__(self, name: str) -> object:
            return getattr(launched.instance, name)

        def get_run_by_id(self, _: str) -> dg.DagsterRun | None:
            return queued

    assert perform(WorkItem(args), AMomentAgo()) == 0  # type: ignore[arg-type]  # it is one in all that is asked
    assert launched.status(run_id) is CANCELED
    assert launched.lines("hello") == []


def test_a_worker_that_died_before_it_set_the_status_leaves_one_cancellation(launched: Launches) -> None:
    run_id = launched.submit("hello_job", NOWHERE)
    run = launched.instance.get_run_by_id(run_id)
    assert run is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launched.instance.run_storage, "handle_run_event", lambda *_: None)
        launched.instance.report_run_canceled(run, "The worker's last words.")
    assert launched.status(run_id) is QUEUED
    assert launched.instance.run_coordinator.cancel_run(run_id)
    assert launched.status(run_id) is CANCELED
    assert launched.types(run_id).count("PIPELINE_CANCELED") == 1


def test_submitting_twice_queues_once(launched: Launches) -> None:
    run_id = launched.submit("hello_job", NOWHERE)

    def submit_again() -> dg.DagsterRunStatus:
        run = launched.instance.get_run_by_id(run_id)
        assert run is not None
        context = SubmitRunContext(run, launched.context.create_request_context())
        return launched.instance.run_coordinator.submit_run(context).status

    assert submit_again() is QUEUED
    with Queue("no-worker-here", url=launched.url) as queue:
        assert [job.id for job in queue.jobs("waiting")].count(f"dagster.{run_id}.-run") == 1
    assert launched.instance.run_coordinator.cancel_run(run_id)
    assert submit_again() is CANCELED
    assert launched.types(run_id).count("PIPELINE_ENQUEUED") == 1


def test_a_queued_run_is_left_alone_by_the_monitor(launched: Launches, caplog: pytest.LogCaptureFixture) -> None:
    run_id = launched.submit("hello_job", NOWHERE)
    with caplog.at_level(logging.INFO):
        launched.monitor()
    assert launched.status(run_id) is QUEUED
    assert launched.instance.run_coordinator.cancel_run(run_id)


def test_it_refuses_another_launcher(launched: Launches) -> None:
    ours = {"module": "orchestration_queue.dagster", "class": "QueueRunCoordinator"}
    with dg.instance_for_test(overrides={"run_coordinator": ours}) as instance:
        assert isinstance(instance.run_coordinator, QueueRunCoordinator)
        with pytest.raises(UsageError, match=r"configure run_launcher in dagster\.yaml"):
            instance.run_coordinator.cancel_run("x")


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        ({"runs": {"max_concurrent_runs": 5}}, r"concurrency\.runs\.max_concurrent_runs"),
        ({"pools": {"granularity": "run"}}, r"concurrency\.pools\.granularity: run"),
    ],
)
def test_it_refuses_limits_that_it_does_not_enforce(limits: dict[str, object], named: str) -> None:
    ours = {"module": "orchestration_queue.dagster", "class": "QueueRunCoordinator"}
    with (
        dg.instance_for_test(overrides={"run_coordinator": ours, "concurrency": limits}) as instance,
        pytest.raises(UsageError, match=f"does not enforce {named}"),
    ):
        _ = instance.run_coordinator


def test_it_has_no_configuration() -> None:
    ours = {"module": "orchestration_queue.dagster", "class": "QueueRunCoordinator", "config": {"queue": "x"}}
    with (
        dg.instance_for_test(overrides={"run_coordinator": ours}) as instance,
        pytest.raises(dg.DagsterInvalidConfigError, match="queue"),
    ):
        _ = instance.run_coordinator
