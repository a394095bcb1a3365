"""An address that leads to another server while Dagster's processes run, as a managed service's does."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dagster as dg
import pytest

from tests.dagster import steps
from tests.dagster.step_workers import Fleet
from tests.dagster.test_daemon import ROOT
from tests.dagster.test_sensor_daemon import INSTANCE, daemon, observed
from tests.dagster.ticks import happened
from tests.endpoints import Endpoint, moving_endpoint
from tests.waiting import wait_until_sync

pytestmark = [pytest.mark.dagster, pytest.mark.chaos, pytest.mark.timeout(600)]


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    with moving_endpoint(tmp_path) as made:
        yield made


def test_a_run_and_its_worker_go_on_after_their_address_moved(
    endpoint: Endpoint, instance: dg.DagsterInstance, queue_name: str, tmp_path: Path
) -> None:
    fleet = Fleet(instance, endpoint.url, queue_name, tmp_path)
    with fleet.worker(), ThreadPoolExecutor(1) as pool:
        run = pool.submit(fleet.run, steps.then_job)
        wait_until_sync(lambda: fleet.lines("endless"), "the first step to begin", 120)
        endpoint.move()
        (tmp_path / "go").touch()
        result = run.result(120)
        assert result.success
        assert fleet.run(steps.then_job).success, "the worker runs no further steps"
    assert (len(fleet.lines("endless")), len(fleet.lines("where"))) == (2, 2), "a step ran twice"
    types = Counter(fleet.types(result.run_id))
    assert {kind: types[kind] for kind in ("STEP_START", "STEP_SUCCESS", "STEP_RESTARTED", "STEP_UP_FOR_RETRY")} == {
        "STEP_START": 2,
        "STEP_SUCCESS": 2,
        "STEP_RESTARTED": 0,
        "STEP_UP_FOR_RETRY": 0,
    }


def test_a_daemons_event_sensor_goes_on_after_its_address_moved(
    endpoint: Endpoint, queue_name: str, tmp_path: Path
) -> None:
    (tmp_path / "dagster.yaml").write_text(INSTANCE.format(home=tmp_path))
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(tmp_path),
        "OQ_URL": endpoint.url,
        "PYTHONPATH": str(ROOT),
        "TEST_QUEUES": queue_name,
    }
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:

        def requested() -> Counter[str]:
            return Counter(run.tags["job"] for run in instance.get_runs())

        with daemon(tmp_path, environment, "daemon"):
            events = [happened(endpoint.primary.raw, queue_name, "completed", str(number)) for number in range(5)]
            happened(endpoint.primary.raw, queue_name, "failed", "before")
            wait_until_sync(lambda: requested()["before"], "a run for an event before", seconds=200)
            endpoint.move()
            events += [happened(endpoint.replica.raw, queue_name, "completed", str(number)) for number in range(5)]
            happened(endpoint.replica.raw, queue_name, "failed", "after")
            wait_until_sync(lambda: requested()["after"], "a run for an event after", seconds=200)
            happened(endpoint.replica.raw, queue_name, "failed", "last")
            wait_until_sync(lambda: requested()["last"], "the cursor to move on", seconds=200)
        assert Counter(observed(instance)) == dict.fromkeys(events, 1)
        assert requested() == {"before": 1, "after": 1, "last": 1}
