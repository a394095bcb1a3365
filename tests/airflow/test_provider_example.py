"""The example's DAGs in a whole Airflow, whose triggerer is killed while tasks and an asset's watcher wait in it."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
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


@pytest.fixture(scope="module")
def airflow(server_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    with ExampleAirflow(tmp_path_factory.mktemp("example") / "airflow", server_url).running() as airflow:
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


def test_a_task_that_a_user_ends_cancels_its_job(airflow: Airflow, raw: redis.Redis) -> None:
    run = airflow.trigger("flights")
    wait_until_sync(lambda: outcome(airflow, run, "extract") == "deferred", "the task waits", LONG_S)
    (job_id,) = [name.rpartition(":")[2] for name in map(str, raw.scan_iter("glide:{flights}:job:*"))]
    logs = airflow.home / "logs" / "dag_id=flights" / f"run_id={run}" / "task_id=extract"
    wait_until_sync(lambda: any(logs.glob("*.trigger.*")), "the triggerer waits for it", LONG_S)
    mark_as_failed(airflow, run, "extract")
    reason = functools.partial(raw.hget, f"glide:{{flights}}:job:{job_id}", "failedReason")
    wait_until_sync(lambda: reason() == "revoked", "the job is cancelled", LONG_S)


def mark_as_failed(airflow: Airflow, run: str, task: str) -> None:
    """Mark a task as failed, as a user does in Airflow's UI."""
    base = f"http://127.0.0.1:{airflow.port}"
    token = httpx.get(f"{base}/auth/token", timeout=60).json()["access_token"]
    answer = httpx.patch(
        f"{base}/api/v2/dags/flights/dagRuns/{run}/taskInstances/{task}",
        json={"new_state": "failed"},
        headers={"Authorization": f"Bearer {token}"},
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
