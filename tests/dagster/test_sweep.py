"""The sweep: no job runs for a run that is over, and no run waits for a job that is gone."""

from __future__ import annotations

import json
import subprocess
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest
import redis

from orchestration_queue.client import Queue
from orchestration_queue.dagster import sweep_sensor
from orchestration_queue.dagster.routing import instance_id
from orchestration_queue.dagster.runs.sweep import Swept, sweep
from orchestration_queue.dagster.testing import SensorTick, evaluate_sensor
from orchestration_queue.errors import InvalidNameError, InvalidOptionError, UsageError
from tests.dagster.launches import Launches, launcher_of
from tests.dagster.step_workers import home_is
from tests.processes import OQ
from tests.waiting import wait_until_sync

pytestmark = [pytest.mark.dagster, pytest.mark.timeout(300)]

ELSEWHERE = {"orchestration_queue/queue": "swept"}
NOW = timedelta(seconds=-1)


def test_jobs_of_runs_that_are_over_or_deleted_are_stopped(launched: Launches) -> None:
    over, deleted, wanted = (launched.submit("hello_job", ELSEWHERE) for _ in range(3))
    run = launched.instance.get_run_by_id(over)
    assert run is not None
    launched.instance.report_run_canceled(run)
    launched.instance.delete_run(deleted)
    assert sweep(launched.instance, ["swept"], timedelta(hours=1)).stopped == (f"dagster.{deleted}.-run",)
    assert sweep(launched.instance, ["swept"], NOW).stopped == (f"dagster.{over}.-run",)
    with Queue("swept", url=launched.url) as queue:
        assert [job.id for job in queue.jobs("waiting")] == [f"dagster.{wanted}.-run"]


def test_the_jobs_of_another_instance_are_left_to_it(launched: Launches) -> None:
    """It knows none of our runs, and has the same launcher and queues."""
    theirs = launched.submit("hello_job", ELSEWHERE)
    config = {"run_launcher": launcher_of(url=launched.url, queue=launched.queue)}
    with dg.instance_for_test(overrides=config) as other:
        assert sweep(other, ["swept"], NOW) == Swept((), (), ())
    with Queue("swept", url=launched.url) as queue:
        assert [job.id for job in queue.jobs("waiting")] == [f"dagster.{theirs}.-run"]


def test_a_run_that_is_over_is_stopped_where_it_runs(launched: Launches) -> None:
    run_id = launched.submit("held_job")
    launched.traces("held")
    run = launched.instance.get_run_by_id(run_id)
    assert run is not None
    launched.instance.report_run_canceled(run)  # as the UI does it, when it is told to use force
    assert sweep(launched.instance, grace=NOW).stopped == (f"dagster.{run_id}.-run",)
    assert launched.job(run_id).failed_reason == "revoked"


def test_queued_runs_without_a_job_get_one_and_those_whose_job_has_ended_fail(launched: Launches) -> None:
    bare, spent, waiting = (launched.submit("hello_job", ELSEWHERE) for _ in range(3))
    with Queue("swept", url=launched.url) as queue:
        queue.remove(f"dagster.{bare}.-run")
        queue.cancel(f"dagster.{spent}.-run")
        assert sweep(launched.instance, ["swept"]).queued == ()
        swept = sweep(launched.instance, ["swept"], NOW)
        assert (swept.queued, swept.failed) == ((bare,), (spent,))
        assert launched.status(spent) is dg.DagsterRunStatus.FAILURE
        assert {job.id for job in queue.jobs("waiting")} >= {f"dagster.{run}.-run" for run in (bare, waiting)}


def test_the_command_says_what_it_did(launched: Launches) -> None:
    run_id = launched.submit("hello_job", ELSEWHERE)
    launched.instance.delete_run(run_id)
    with home_is(launched.instance.root_directory):
        done = subprocess.run(
            [OQ, "dagster", "sweep", "-q", "swept", "--json"], capture_output=True, check=True, timeout=100
        )
    assert json.loads(done.stdout) == {"stopped": [f"dagster.{run_id}.-run"], "queued": [], "failed": []}


def test_it_refuses_another_launcher() -> None:
    with dg.instance_for_test() as instance, pytest.raises(UsageError, match="configure QueueRunLauncher"):
        sweep(instance)


def test_a_run_that_lives_is_left_alone(launched: Launches) -> None:
    run_id = launched.submit("endless_job")
    launched.traces("endless")
    assert sweep(launched.instance, ["swept"], NOW) == Swept((), (), ())
    assert launched.status(run_id) is dg.DagsterRunStatus.STARTED
    (launched.scratch / "go").touch()
    launched.reaches(run_id, dg.DagsterRunStatus.SUCCESS)


def test_a_run_that_ended_well_while_it_was_looked_at_has_not_failed(
    launched: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = launched.submit("hello_job")
    launched.reaches(run_id, dg.DagsterRunStatus.SUCCESS)
    wait_until_sync(lambda: launched.job(run_id).is_finished, "the job to end with the run", 60)
    run = launched.instance.get_run_by_id(run_id)
    assert run is not None
    for status in (dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.STARTING):
        a_moment_ago = [run.with_status(status)]
        with monkeypatch.context() as patched:
            patched.setattr(launched.instance, "get_runs", lambda _, known=a_moment_ago: known)
            assert sweep(launched.instance, grace=NOW).failed == ()
        assert launched.status(run_id) is dg.DagsterRunStatus.SUCCESS


def swept(launched: Launches, **options: Any) -> SensorTick:
    """One tick of a sensor that spares nothing, with these options."""
    sensor = sweep_sensor("swept", **{"grace": timedelta(0), **options})
    return evaluate_sensor(sensor, {}, instance=launched.instance)


def turn(launched: Launches, queue: str) -> str:
    """The key that exists until the next sweep of this instance is due."""
    return f"glide:{{{queue}}}:dagster:swept:{instance_id(launched.instance)}"


def an_orphan(launched: Launches) -> str:
    """A job whose run was deleted."""
    run_id = launched.submit("hello_job", ELSEWHERE)
    launched.instance.delete_run(run_id)
    return f"dagster.{run_id}.-run"


def test_a_sensor_sweeps_by_itself_once_an_interval_for_the_whole_fleet(launched: Launches) -> None:
    first = an_orphan(launched)
    tick = swept(launched)
    assert list(tick.log) == [f"Stopped: {first}"]
    assert tick.skip_message == "1 jobs stopped, 0 runs queued again, 0 runs failed."
    second = an_orphan(launched)
    assert not swept(launched, name="the_same_elsewhere").log, "it is no other's turn yet"
    with redis.Redis(unix_socket_path=launched.url.removeprefix("unix://")) as raw:
        assert 0 < raw.pttl(turn(launched, "swept")) <= 600_000
        raw.delete(turn(launched, "swept"))  # as time does
    assert list(swept(launched).log) == [f"Stopped: {second}"]


def test_a_sensor_spares_what_has_just_changed(launched: Launches) -> None:
    run_id = launched.submit("hello_job", {"orchestration_queue/queue": "spared"})
    run = launched.instance.get_run_by_id(run_id)
    assert run is not None
    launched.instance.report_run_canceled(run)
    for grace, stopped in ((timedelta(hours=1), []), (timedelta(0), [f"Stopped: dagster.{run_id}.-run"])):
        sensor = sweep_sensor("spared", grace=grace)
        with redis.Redis(unix_socket_path=launched.url.removeprefix("unix://")) as raw:
            raw.delete(turn(launched, "spared"))
        assert list(evaluate_sensor(sensor, {}, instance=launched.instance).log) == stopped


def test_a_sensor_on_another_launcher_has_nothing_to_do() -> None:
    with dg.instance_for_test() as instance:
        tick = evaluate_sensor(sweep_sensor(), {}, instance=instance)
    assert "has a DefaultRunLauncher, which doesn't use queues" in (tick.skip_message or "")


def test_a_sensor_warns_where_lost_runs_stay_started(launched: Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not swept(launched).log
    settings = {**launched.instance.get_settings("run_monitoring"), "enabled": False}
    original = dg.DagsterInstance.get_settings
    monkeypatch.setattr(
        dg.DagsterInstance,
        "get_settings",
        lambda instance, name: settings if name == "run_monitoring" else original(instance, name),
    )
    (line,) = swept(launched, name="another").log
    assert "Run monitoring is off" in line


def test_the_sensor_stands_as_its_options_say() -> None:
    plain = sweep_sensor(["steps", "more-steps"])
    assert (plain.name, plain.minimum_interval_seconds) == ("sweep_of_steps_more_steps", 600)
    assert plain.default_status is dg.DefaultSensorStatus.RUNNING, "it needs no operator"
    assert "'steps', 'more-steps'" in str(plain.description)
    stopped = dg.DefaultSensorStatus.STOPPED
    other = sweep_sensor(name="tidy", interval=timedelta(hours=1), default_status=stopped, description="Tidies.")
    assert (other.name, other.minimum_interval_seconds, other.description) == ("tidy", 3600, "Tidies.")
    assert other.default_status is stopped


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"interval": timedelta(0)}, InvalidOptionError),
        ({"grace": timedelta(seconds=-1)}, InvalidOptionError),
        ({"queue": []}, InvalidOptionError),
        ({"queue": "a:b"}, InvalidNameError),
    ],
)
def test_bad_options_of_the_sensor_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        sweep_sensor(**options)
