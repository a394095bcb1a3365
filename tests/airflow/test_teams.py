"""Executors of several teams, and what Airflow has executors run besides tasks, in a whole Airflow."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from orchestration_queue.client import Queue
from tests.airflow.deployment import AIRFLOW, DAGS, EXECUTOR, LONG_S, Airflow
from tests.waiting import wait_until_sync

pytestmark = pytest.mark.timeout(900)
TEAMS: Final = ("red", "blue")


@pytest.fixture(scope="module")
def teams(server_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    """An Airflow whose teams have a DAG, and an executor of their own, each."""
    home = tmp_path_factory.mktemp("teams")
    bundles = [_bundle(home / "dags" / name, name, name) for name in TEAMS] + [_bundle(home / "dags" / "all", "all")]
    settings = {
        "CORE__EXECUTOR": ";".join([EXECUTOR, *(f"{name}={EXECUTOR}" for name in TEAMS)]),
        "CORE__MULTI_TEAM": "True",
        "CORE__TEST_CONNECTION": "Enabled",
        "DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
        **{f"{name.upper()}___ORCHESTRATION_QUEUE__URL": server_url for name in TEAMS},
        **{f"{name.upper()}___ORCHESTRATION_QUEUE__PREFIX": name for name in TEAMS},
    }
    airflow = Airflow(home, server_url, settings=settings)
    with airflow.running(before=lambda: _create_teams(airflow)):
        yield airflow


def _bundle(path: Path, name: str, team: str | None = None) -> dict[str, Any]:
    path.mkdir(parents=True)
    shutil.copy(DAGS / "teamed.py", path)
    classpath = "airflow.dag_processing.bundles.local.LocalDagBundle"
    return {"name": name, "classpath": classpath, "kwargs": {"path": str(path)}, "team_name": team}


def _create_teams(airflow: Airflow) -> None:
    for name in TEAMS:
        command = [AIRFLOW, "teams", "create", name]
        subprocess.run(command, env=airflow.environment, check=True, capture_output=True, timeout=LONG_S)


def test_each_team_s_tasks_run_on_its_own_workers(teams: Airflow, server_url: str) -> None:
    runs = {name: teams.trigger(f"of_{name}") for name in (*TEAMS, "all")}
    with teams.team_worker("red"):
        assert teams.wait(runs["red"]) == "success"
        wait_until_sync(lambda: set(teams.outcomes(runs["blue"]).values()) == {("queued", 1)}, "it waits", LONG_S)
        assert set(teams.outcomes(runs["all"]).values()) == {("queued", 1)}
    with teams.team_worker("blue"), teams.worker():
        assert teams.wait(runs["blue"]) == teams.wait(runs["all"]) == "success"
    for name, prefix in [("red", "red"), ("blue", "blue"), ("all", "glide")]:
        with Queue("airflow.default", url=server_url, prefix=prefix) as queue:
            assert {job.name for job in queue.jobs("completed")} == {f"of_{name}.where"}


def test_a_connection_is_tested_by_a_worker_of_the_queue_that_was_asked_for(teams: Airflow, server_url: str) -> None:
    body = {"connection_id": "tried", "conn_type": "orchestration_queue", "host": server_url, "queue": "tests"}
    asked = teams.call("POST", "connections/enqueue-test", body)
    with teams.worker("tests"):

        def answer() -> Any:
            headers = {"Airflow-Connection-Test-Token": asked["token"]}
            return teams.call("GET", "connections/enqueue-test", headers=headers)

        wait_until_sync(lambda: answer()["state"] in {"success", "failed"}, "it was tested", LONG_S)
        assert answer()["state"] == "success", answer()
