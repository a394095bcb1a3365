"""The example's DAGs in a whole Airflow, whose triggerer is killed while tasks and an asset's watcher wait in it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.airflow.deployment import AIRFLOW, LONG_S, Airflow
from tests.airflow.provider import connection_json
from tests.processes import worker_process
from tests.waiting import wait_until_sync

pytestmark = pytest.mark.timeout(900)

EXAMPLE = Path(__file__).parents[2] / "examples" / "airflow"


class ExampleAirflow(Airflow):
    """A deployment with the example's DAGs, whose triggerers are taken for dead after five seconds."""

    @property
    def environment(self) -> dict[str, str]:
        settings = {
            "CORE__DAGS_FOLDER": str(EXAMPLE),
            "CORE__EXECUTOR": "LocalExecutor",
            "TRIGGERER__JOB_HEARTBEAT_SEC": "1",
            "TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "5",
        }
        return {
            **super().environment,
            **{f"AIRFLOW__{name}": value for name, value in settings.items()},
            "AIRFLOW_CONN_ORCHESTRATION_QUEUE_DEFAULT": connection_json(self.url),
        }

    def _has_dags(self) -> bool:
        assert not (errors := self.query("select stacktrace from import_error")), errors
        return self.query("select count(*) from serialized_dag") == [(2,)] and self.is_up()


@pytest.fixture
def airflow(server_url: str, raw: redis.Redis, tmp_path: Path) -> Iterator[Airflow]:
    with ExampleAirflow(tmp_path / "airflow", server_url).running() as airflow:
        start_triggerer(airflow)
        yield airflow


def start_triggerer(airflow: Airflow) -> None:
    airflow.start("triggerer", AIRFLOW, "triggerer")


def kill_triggerer(airflow: Airflow) -> None:
    """Kill the triggerer and its process that runs the triggers, without a chance to say anything."""
    triggerer = airflow.programs.pop("triggerer")
    os.killpg(triggerer.pid, signal.SIGKILL)
    triggerer.wait(60)


def outcome(airflow: Airflow, run: str, task: str) -> str:
    return airflow.outcomes(run).get(task, ("", 0))[0]


def runs(airflow: Airflow, dag_id: str) -> list[str]:
    return [run for (run,) in airflow.query("select run_id from dag_run where dag_id = ?", dag_id)]


def test_a_killed_triggerer_loses_and_repeats_nothing(airflow: Airflow, server_url: str, raw: redis.Redis) -> None:
    wait_until_sync(
        lambda: any(str(name).startswith("airflow-") for name in raw.hkeys("glide:{flights}:events:readers")),
        "the watcher has started",
        LONG_S,
    )
    run = airflow.trigger("flights")
    wait_until_sync(lambda: outcome(airflow, run, "extract") == "deferred", "the first task waits", LONG_S)
    kill_triggerer(airflow)
    with worker_process("flights_tasks:tasks", "flights", server_url, directory=EXAMPLE):
        wait_until_sync(lambda: raw.zcard("glide:{flights}:completed") == 1, "the job ends meanwhile", LONG_S)
        start_triggerer(airflow)
        assert airflow.wait(run) == "success"
        wait_until_sync(lambda: runs(airflow, "flights_report"), "the watcher starts the report", LONG_S)
        (report,) = runs(airflow, "flights_report")
        assert airflow.wait(report) == "success"
    assert set(airflow.outcomes(run).values()) == {("success", 1)}
    assert raw.zcard("glide:{flights}:completed") == 4, "no job was added twice"
    assert airflow.query("select count(*) from asset_event") == [(1,)]
    (((reason,),)) = airflow.query("select value from xcom where run_id = ? and key = 'return_value'", report)
    assert "load ended" in reason
