"""A real daemon, a real instance: the flow's end becomes a run. And the daemon that looks more often."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster._core.scheduler.instigation import SensorInstigatorData
from dagster._daemon import sensor
from dagster._daemon.cli import run_command
from typer.testing import CliRunner

from orchestration_queue.cli.main import app
from orchestration_queue.dagster import queue_event_sensor
from orchestration_queue.dagster._compat import run_daemon
from orchestration_queue.errors import UsageError
from tests.dagster.ticks import target
from tests.processes import OQ
from tests.waiting import wait_until_sync

pytestmark = [pytest.mark.dagster, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
LOCATION = ("-m", "tests.dagster.location", "-d", str(ROOT))
INSTANCE = """\
telemetry: {enabled: false}
sensors: {use_threads: true, num_workers: 2}
"""


heard = queue_event_sensor(lambda *_: None, name="heard", queue="q", job=target)


@dg.sensor(target=target, minimum_interval_seconds=1)
def polled() -> None:
    """A sensor of Dagster's own kind."""


@contextmanager
def in_own_group(*command: str, environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose whole group is gone afterwards."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def test_the_end_of_a_flow_becomes_one_run(
    server_url: str, queue_name: str, tmp_path: Path, worker: subprocess.Popen[bytes]
) -> None:
    (tmp_path / "dagster.yaml").write_text(INSTANCE)
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(tmp_path),
        "OQ_URL": server_url,
        "TEST_QUEUE": queue_name,
        "TEST_SCRATCH": str(tmp_path),
    }
    with (
        dg.DagsterInstance.from_config(str(tmp_path)) as instance,
        in_own_group(OQ, "dagster", "daemon", *LOCATION, environment=environment, log=tmp_path / "daemon.log"),
    ):
        materialize = (str(BIN / "dagster"), "job", "execute", *LOCATION, "-j", "load_job")
        with in_own_group(*materialize, environment=environment, log=tmp_path / "load.log") as load:
            assert load.wait(150) == 0, (tmp_path / "load.log").read_text()

        def requested() -> list[dg.DagsterRun]:
            return list(instance.get_runs(dg.RunsFilter(job_name="summary_job")))

        wait_until_sync(
            lambda: any(run.is_finished for run in requested()), f"the sensor's run, see {tmp_path}", seconds=150
        )
        (run,) = requested()
        assert run.is_success
        assert run.tags["dagster/sensor_name"] == "loaded"
        (flow,) = instance.get_runs(dg.RunsFilter(job_name="load_job"))
        assert run.tags["dagster/run_key"] == run.tags["orchestration_queue/flow_id"] == f"load-{flow.run_id}"


def test_a_daemon_may_look_for_due_sensors_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensor, "MIN_INTERVAL_LOOP_TIME", 5)
    monkeypatch.setattr(sensor, "is_under_min_interval", sensor.is_under_min_interval)
    monkeypatch.setenv("DAGSTER_HOME", "/somewhere")
    told = CliRunner().invoke(app, ["dagster", "daemon", "--sensor-pause", "0.5", "--", "--help"])
    assert told.exit_code == 0
    assert "--workspace" in told.output, "all else is Dagster's own"
    assert sensor.MIN_INTERVAL_LOOP_TIME == 0.5


@pytest.mark.parametrize(
    ("made", "ended_at", "waits"),
    [
        (heard, 1.0, False),
        (heard, None, True),  # it failed, or has not ended
        (polled, 1.0, True),
    ],
)
def test_a_sensor_that_listens_is_due_as_soon_as_its_tick_has_ended_well(
    monkeypatch: pytest.MonkeyPatch, made: dg.SensorDefinition, ended_at: float | None, waits: bool
) -> None:
    monkeypatch.setattr(sensor, "MIN_INTERVAL_LOOP_TIME", 5)
    monkeypatch.setattr(sensor, "is_under_min_interval", sensor.is_under_min_interval)
    monkeypatch.setattr(run_command, "main", lambda **_: None)
    run_daemon([], 0.5)
    began = SensorInstigatorData(last_tick_start_timestamp=time.time(), last_tick_success_timestamp=ended_at)
    remote: Any = SimpleNamespace(tags=made.tags, min_interval_seconds=made.minimum_interval_seconds)
    state: Any = SimpleNamespace(instigator_data=began)
    assert sensor.is_under_min_interval(state, remote) is waits


def test_a_dagster_with_another_loop_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sensor, "MIN_INTERVAL_LOOP_TIME")
    with pytest.raises(UsageError, match="run `dagster-daemon run` instead"):
        run_daemon([], 0.5)


@pytest.mark.parametrize(("home", "pause"), [("", "1"), ("/somewhere", "0"), ("/somewhere", "6"), ("/somewhere", "x")])
def test_a_daemon_without_a_home_or_with_no_pause_is_refused(
    monkeypatch: pytest.MonkeyPatch, home: str, pause: str
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", home)
    assert CliRunner().invoke(app, ["dagster", "daemon", "--sensor-pause", pause]).exit_code != 0
