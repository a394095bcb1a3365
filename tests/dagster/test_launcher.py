"""The launcher: runs become jobs, workers execute them, and they can be stopped."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.launcher.base import LaunchRunContext, ResumeRunContext, WorkerStatus
from dagster._daemon.monitoring import RESUME_RUN_LOG_MESSAGE

from orchestration_queue.client import Queue
from orchestration_queue.dagster import QueueRunLauncher
from orchestration_queue.dagster.runs.launcher import LauncherOptions
from orchestration_queue.dagster.runs.run_jobs import JobAddress, find_run_job, find_step_jobs
from orchestration_queue.dagster.steps.work_item import WorkItem
from orchestration_queue.errors import InvalidNameError, InvalidOptionError, TransportError, UsageError
from orchestration_queue.options import JobOptions
from tests.dagster.launches import Launches, launcher_of
from tests.waiting import wait_until_sync

pytestmark = [pytest.mark.dagster, pytest.mark.timeout(300)]

CANCELED, CANCELING, FAILURE, STARTED, STARTING, SUCCESS = (
    dg.DagsterRunStatus[name] for name in ("CANCELED", "CANCELING", "FAILURE", "STARTED", "STARTING", "SUCCESS")
)
NOWHERE = {"orchestration_queue/queue": "no-worker-here"}


@contextmanager
def launcher_with(launched: Launches, **config: object) -> Iterator[QueueRunLauncher]:
    """Another launcher of the same instance, with this configuration."""
    settings = {"url": launched.url, "queue": "runs", "env": {"SCRATCH": str(launched.scratch)}, **config}
    launcher = QueueRunLauncher.from_config_value(None, settings)
    launcher.register_instance(launched.instance)
    yield launcher
    launcher.dispose()


def test_a_run_is_executed_by_a_worker(launched: Launches) -> None:
    run_id = launched.launch("hello_job")
    launched.reaches(run_id, SUCCESS)
    assert launched.lines("hello") == [run_id]
    assert f"Run waits as job 'dagster.{run_id}.-run' on queue 'runs'." in launched.messages(run_id)
    wait_until_sync(lambda: launched.job(run_id).is_finished, "the job to end with the run")
    assert launched.job(run_id).result["exit_code"] == 0


def test_a_run_whose_steps_are_jobs_too(launched: Launches) -> None:
    run_id = launched.launch("flaky_job")
    launched.reaches(run_id, SUCCESS)
    assert launched.lines("flaky") == ["0", "1", "2"]
    assert find_step_jobs(launched.instance, run_id) == []


def test_twenty_runs_are_executed_once_each(launched: Launches) -> None:
    run_ids = [launched.launch("hello_job") for _ in range(20)]
    for run_id in run_ids:
        launched.reaches(run_id, SUCCESS)
    assert sorted(launched.lines("hello")) == sorted(run_ids)


def test_launching_twice_launches_once(launched: Launches) -> None:
    run_id = launched.launch("hello_job", NOWHERE)
    run = launched.instance.get_run_by_id(run_id)
    assert run is not None
    launched.instance.run_launcher.launch_run(LaunchRunContext(run, None))
    with Queue("no-worker-here", url=launched.url) as queue:
        assert [job.id for job in queue.jobs("waiting")].count(f"dagster.{run_id}.-run") == 1
    assert "Run was launched before" in launched.messages(run_id)
    assert launched.instance.run_launcher.terminate(run_id)


def test_a_run_that_nobody_has_taken_is_cancelled_at_once(launched: Launches) -> None:
    run_id = launched.launch("hello_job", NOWHERE)
    run = launched.instance.get_run_by_id(run_id)
    assert run is not None
    info = launched.instance.run_launcher.get_run_worker_debug_info(run)
    assert info is not None
    assert "has no worker; start one with `oq dagster worker -m your.definitions -q no-worker-here`" in info
    assert launched.instance.run_launcher.terminate(run_id)
    assert launched.status(run_id) is CANCELED
    assert launched.job(run_id).failed_reason == "revoked"
    assert not launched.instance.run_launcher.terminate(run_id)
    assert not launched.instance.run_launcher.terminate("no such run")


def test_a_running_run_is_stopped_and_what_it_held_of_a_pool_is_free(launched: Launches) -> None:
    storage = launched.instance.event_log_storage
    storage.set_concurrency_slots("narrow", 1)
    run_id = launched.launch("held_job")
    launched.traces("held")
    assert run_id in str(storage.get_concurrency_info("narrow").claimed_slots)
    assert launched.instance.run_launcher.terminate(run_id)
    assert launched.status(run_id) is CANCELED
    assert not storage.get_concurrency_info("narrow").claimed_slots
    assert not storage.get_concurrency_info("narrow").pending_steps


def test_a_run_that_could_be_resumed_is_stopped_with_its_steps(launched: Launches) -> None:
    """Dagster alone would leave them running: its executors see an interrupt, and take it for a lost worker."""
    run_id = launched.launch("endless_job")
    launched.traces("endless")
    # The run tells where a step is once it has added the step's job, which may have begun by then.
    wait_until_sync(lambda: find_step_jobs(launched.instance, run_id), "the run to tell of its step", 60)
    (step,) = find_step_jobs(launched.instance, run_id)
    assert launched.instance.run_will_resume(run_id)
    assert launched.instance.run_launcher.terminate(run_id)
    assert launched.status(run_id) is CANCELED
    messages = launched.messages(run_id)
    # The step is stopped as well, and may have ended before the run's process sees its own signal.
    assert "termination signal, forwarding to steps" in messages or "Failed steps: ['endless']" in messages
    assert "not forwarding" not in messages
    assert len(launched.lines("cleaned")) == 1
    with Queue(step.queue, url=launched.url) as queue:
        assert queue.get(step.job_id).record.failed_reason == "revoked"


def test_what_a_worker_finds_cancelled_it_does_not_start(launched: Launches) -> None:
    """As when the canceling process died before it canceled the job."""
    run_id = launched.create("hello_job")
    run = launched.instance.get_run_by_id(run_id)
    assert run is not None
    launched.instance.report_run_canceling(run)
    launched.instance.run_launcher.launch_run(LaunchRunContext(run, None))
    launched.reaches(run_id, CANCELED)
    assert launched.lines("hello") == []


def test_a_run_that_takes_too_long_is_stopped_and_has_failed(launched: Launches) -> None:
    run_id = launched.create("held_job")
    run = launched.instance.get_run_by_id(run_id)
    assert run is not None
    # Its time begins with its process, which has to tell of the start within it.
    with launcher_with(launched, run_timeout=6.0) as launcher:
        launcher.launch_run(LaunchRunContext(run, None))
        wait_until_sync(lambda: launched.job(run_id).is_finished, "the job to be stopped", 60)
        assert launched.status(run_id) is STARTED, "Dagster takes the interrupt for a lost worker, and waits"
        launched.monitor()
        assert launched.status(run_id) is FAILURE
        assert "The run took longer than 6 s" in launched.messages(run_id)


def started_ago(launched: Launches, job: str, seconds: float) -> dg.DagsterRun:
    """A run that began so long ago, and whose worker is lost."""
    run_id = launched.create(job)
    start = dg.DagsterEvent(dg.DagsterEventType.RUN_START.value, job_name=job)
    launched.instance.report_dagster_event(start, run_id=run_id, timestamp=time.time() - seconds)
    run = launched.instance.get_run_by_id(run_id)
    assert run is not None
    return run


def test_a_resumed_run_gets_what_is_left_of_its_time(launched: Launches) -> None:
    run = started_ago(launched, "held_job", 60)
    with launcher_with(launched, run_timeout=90.0, queue="elsewhere") as launcher:
        launcher.resume_run(ResumeRunContext(run.with_tags({}), None, 1))
        record = launcher.jobs.record(JobAddress("elsewhere", f"dagster.{run.run_id}.-resume.1"))
        assert record is not None
        assert 1_000 < record.options["timeout"] <= 30_000
        assert WorkItem.from_data(record.data).timeout == timedelta(milliseconds=record.options["timeout"])
        assert launcher.jobs.stop([JobAddress("elsewhere", record.id)], 0)


def test_a_resumed_run_that_uses_up_its_time_has_failed_by_its_whole_limit(launched: Launches) -> None:
    run = started_ago(launched, "held_job", 82)  # so that some time is left, however slow this test is
    with launcher_with(launched, run_timeout=90.0) as launcher:
        launcher.resume_run(ResumeRunContext(run, None, 1))
        place = JobAddress(launched.queue, f"dagster.{run.run_id}.-resume.1")
        wait_until_sync(lambda: (found := launcher.jobs.record(place)) and found.is_finished, "an end", 60)
        launched.instance.report_engine_event(RESUME_RUN_LOG_MESSAGE, run)  # as the monitor does before
        assert launcher.check_run_worker_health(run).status is WorkerStatus.FAILED
    assert launched.status(run.run_id) is FAILURE
    assert "The run took longer than 90 s" in launched.messages(run.run_id)


def test_a_run_whose_time_is_over_is_not_resumed(launched: Launches) -> None:
    run = started_ago(launched, "held_job", 100)
    with launcher_with(launched, run_timeout=90.0) as launcher:
        launcher.resume_run(ResumeRunContext(run, None, 1))
        assert launcher.jobs.record(JobAddress(launched.queue, f"dagster.{run.run_id}.-resume.1")) is None
    assert launched.status(run.run_id) is FAILURE
    assert "The run took longer than 90 s" in launched.messages(run.run_id)


def test_to_terminate_takes_20_seconds_at_most_all_in_all(launched: Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = launched.launch("endless_job")
    launched.traces("endless")
    patience: list[float] = []
    took: list[float] = []
    with launcher_with(launched) as launcher:
        stop = launcher.jobs.stop

        def watched(places: Iterable[JobAddress], timeout_s: float) -> bool:
            begun = time.monotonic()
            has_ended = stop(places, timeout_s)
            patience.append(timeout_s)
            took.append(time.monotonic() - begun)
            return has_ended

        monkeypatch.setattr(launcher.jobs, "stop", watched)
        assert launcher.terminate(run_id)
    first, second = patience  # the run and its steps; and the steps that it had started before it heard
    assert first == 20
    assert 0 < second <= 20 - took[0]


def test_every_field_counts(launched: Launches) -> None:
    config: dict[str, Any] = {
        "prefix": "ours",
        "queue": "elsewhere",
        "lease": 7,
        "run_timeout": 90.0,
        "env": {"COLOR": "green"},
        "code_version": "v7",
        "match_image": True,  # of which this location has none
    }
    assert {*config, "url"} == set(QueueRunLauncher.config_type()) == set(LauncherOptions.model_fields)
    run_id = launched.create("hello_job")
    run = launched.instance.get_run_by_id(run_id)
    assert run is not None
    run = run.with_tags({"dagster/priority": "3"})
    with (
        launcher_with(launched, **config) as launcher,
        Queue("elsewhere", url=launched.url, prefix="ours") as queue,
    ):
        launcher.launch_run(LaunchRunContext(run, None))
        record = queue.get(f"dagster.{run_id}.-run").record
        assert launcher.find_job(run).queue == "elsewhere"
    assert (record.options["lockDuration"], record.options["timeout"]) == (7000, 90_000)
    assert record.options["priority"] < 1025
    work = WorkItem.from_data(record.data)
    assert (work.env, work.code_version) == ({"COLOR": "green"}, "v7")
    assert work.timeout == timedelta(seconds=90)
    assert work.location == "tests.dagster.steps"


def test_the_tag_for_runs_leaves_their_steps_where_they_are(launched: Launches) -> None:
    run_id = launched.launch("hello_job", {"orchestration_queue/run_queue": "no-worker-here"})
    assert find_run_job(launched.instance, run_id, "?").queue == "no-worker-here"
    assert launched.instance.run_launcher.terminate(run_id)


def test_the_server_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch, launched: Launches) -> None:
    monkeypatch.setenv("TEST_SERVER", launched.url)
    overrides = {"run_launcher": launcher_of(url={"env": "TEST_SERVER"})}
    with dg.instance_for_test(overrides=overrides) as instance:
        launcher = instance.run_launcher
        assert isinstance(launcher, QueueRunLauncher)
        with Queue("dagster-runs", url=launched.url) as queue:
            queue.add("dagster.run", {}, JobOptions(job_id="dagster.x.-run"))
        assert launcher.jobs.record(find_run_job(instance, "x", "dagster-runs")) is not None
        queue_health = launcher.jobs.health(find_run_job(instance, "y", "dagster-runs"), None)
        assert queue_health[0] is WorkerStatus.NOT_FOUND


@pytest.mark.parametrize(
    ("config", "error", "words"),
    [
        ({"queue": "a:b"}, InvalidNameError, "':'"),
        ({"queue": ""}, InvalidNameError, "is empty"),
        ({"prefix": "{x}"}, InvalidNameError, "'{'"),
        ({"url": "valkey//host"}, UsageError, "valkey//host"),
        ({"lease": 0.5}, InvalidOptionError, "lease"),
        ({"run_timeout": 0.0}, InvalidOptionError, "run_timeout"),
        ({"run_timeout": -1.0}, InvalidOptionError, "run_timeout"),
        ({"quue": "x"}, dg.DagsterInvalidConfigError, "quue"),
        ({"env": {"A": 1}}, dg.DagsterInvalidConfigError, "env"),
    ],
)
def test_bad_config_is_refused_when_it_is_loaded(config: dict[str, Any], error: type[Exception], words: str) -> None:
    with (
        dg.instance_for_test(overrides={"run_launcher": launcher_of(**config)}) as instance,
        pytest.raises(error, match=words),
    ):
        _ = instance.run_launcher


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        ({"dagster/priority": "high"}, "dagster/priority"),
        ({"orchestration_queue/queue": "a:b"}, "':'"),
        ({"orchestration_queue/run_queue": ""}, "is empty"),
    ],
)
def test_a_bad_tag_fails_the_run_and_adds_nothing(launched: Launches, tags: dict[str, str], words: str) -> None:
    run_id = launched.create("hello_job", tags)
    with pytest.raises(UsageError, match=words):
        launched.instance.launch_run(run_id, launched.context.create_request_context())
    assert launched.status(run_id) is FAILURE
    assert launched.lines("hello") == []


def test_a_server_that_is_away_is_no_sign_of_a_runs_death(launched: Launches, tmp_path: Path) -> None:
    run_id = launched.create("hello_job")
    run = launched.instance.get_run_by_id(run_id)
    assert run is not None
    away = launcher_with(launched, url=f"unix://{tmp_path}/absent.sock")
    with away as launcher, pytest.raises(TransportError):  # which the monitor logs; "unknown" it would take for dead
        launcher.check_run_worker_health(run)


def test_a_run_without_code_is_refused(launched: Launches) -> None:
    run = launched.instance.create_run_for_job(_nothing)
    with pytest.raises(UsageError, match="has no code origin"):
        launched.instance.run_launcher.launch_run(LaunchRunContext(run, None))


@dg.job
def _nothing() -> None:
    pass
