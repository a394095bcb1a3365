"""Dagster's limits with the queue's executor and launcher, under either coordinator, in SQLite and PostgreSQL."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.storage.event_log import SqlEventLogStorage
from dagster._core.storage.tags import PARENT_RUN_ID_TAG
from dagster._daemon.auto_run_reexecution.auto_run_reexecution import consume_new_runs_for_automatic_reexecution
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon

from orchestration_queue.client import Queue
from orchestration_queue.dagster.runs.launcher import LauncherOptions
from orchestration_queue.dagster.steps.step_handler import ExecutorOptions
from tests.dagster.days import DAYS
from tests.dagster.launches import Launches, launches, serving
from tests.dagster.stores import postgres
from tests.waiting import wait_until_sync

pytestmark = [pytest.mark.dagster, pytest.mark.timeout(400)]

FAILURE, QUEUED, SUCCESS = (dg.DagsterRunStatus[name] for name in ("FAILURE", "QUEUED", "SUCCESS"))
STOCK = {"module": "dagster._core.run_coordinator.queued_run_coordinator", "class": "QueuedRunCoordinator"}
log = logging.getLogger("limits")


@pytest.fixture(scope="module", params=["SQLite", "PostgreSQL"])
def storage(request: pytest.FixtureRequest) -> Iterator[dict[str, object]]:
    """What ``dagster.yaml`` says of the storage."""
    if request.param == "SQLite":
        yield {}
        return
    with postgres() as database:
        if database is None:
            pytest.skip("PostgreSQL is not installed; `.ci/run` installs it")
        yield {"storage": {"postgres": {"postgres_url": database.url}}}


@pytest.fixture(scope="module")
def stock(storage: dict[str, object], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launches]:
    """An instance with Dagster's own coordinator and all its limits, our launcher, and a worker."""
    limits = {
        "runs": {
            "max_concurrent_runs": 2,
            "tag_concurrency_limits": [{"key": "team", "value": "slow", "limit": 1}],
        },
        "pools": {"granularity": "run"},
    }
    overrides = {"concurrency": limits, "run_retries": {"enabled": True, "max_retries": 1}, **storage}
    with serving(tmp_path_factory.mktemp("stock"), run_coordinator=STOCK, **overrides) as made:
        yield made


@pytest.fixture(scope="module")
def yard(storage: dict[str, object], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launches]:
    """An instance with the queue's coordinator and launcher, and a worker."""
    with serving(tmp_path_factory.mktemp("yard"), **storage) as made:
        yield made


def dequeue(made: Launches) -> None:
    """Do what Dagster's daemon does for its coordinator."""
    with QueuedRunCoordinatorDaemon(1) as daemon:
        for error in daemon.run_iteration(made.context):
            assert error is None, error


def assert_begin(made: Launches, run_ids: list[str], at_once: int) -> None:
    """Only this number of the runs is begun, and each of the others when one of them has ended."""
    go = made.scratch / "go"
    go.unlink(missing_ok=True)
    for _ in range(2):
        dequeue(made)
        assert sum(made.status(run_id) is not QUEUED for run_id in run_ids) == at_once
    go.touch()

    def have_ended() -> bool:
        dequeue(made)
        return all(made.status(run_id) is SUCCESS for run_id in run_ids)

    wait_until_sync(have_ended, "all runs to end", 180)


def pools_of(made: Launches) -> SqlEventLogStorage:
    """What keeps the slots of pools."""
    storage = made.instance.event_log_storage
    assert isinstance(storage, SqlEventLogStorage)
    return storage


def unassigned(storage: SqlEventLogStorage) -> int:
    """How many steps wait for a slot of the pool."""
    waiting = storage.get_concurrency_info("narrow").pending_steps
    return sum(step.assigned_timestamp is None for step in waiting)


# With Dagster's coordinator, the queue's launcher and executor.


def test_dagsters_coordinator_limits_runs(stock: Launches) -> None:
    assert_begin(stock, [stock.submit("endless_job") for _ in range(3)], 2)


def test_dagsters_coordinator_limits_runs_by_tag(stock: Launches) -> None:
    assert_begin(stock, [stock.submit("endless_job", {"team": "slow"}) for _ in range(2)], 1)


def test_dagsters_coordinator_limits_runs_by_pool(stock: Launches) -> None:
    stock.instance.event_log_storage.set_concurrency_slots("narrow", 1)
    assert_begin(stock, [stock.submit("held_step_job") for _ in range(2)], 1)


def test_dagsters_coordinator_holds_runs_whose_pool_is_full(server_url: str, scratch: str) -> None:
    limits = {"pools": {"granularity": "op", "op_granularity_run_buffer": 0}}
    with launches(server_url, Path(scratch), run_coordinator=STOCK, concurrency=limits) as made:
        storage = made.instance.event_log_storage
        storage.set_concurrency_slots("narrow", 1)
        assert storage.claim_concurrency_slot("narrow", "another-run", "a-step").is_claimed
        run_id = made.submit("held_step_job")
        dequeue(made)
        assert made.status(run_id) is QUEUED
        storage.free_concurrency_slots_for_run("another-run")
        dequeue(made)
        assert made.status(run_id) is not QUEUED


def test_a_failed_run_is_run_again(stock: Launches) -> None:
    failed = stock.submit("mortal_job")
    dequeue(stock)
    stock.reaches(failed, FAILURE)
    records = stock.instance.get_run_records(dg.RunsFilter(run_ids=[failed]))
    for _ in consume_new_runs_for_automatic_reexecution(stock.context, records, log):
        pass
    (again,) = stock.instance.get_runs(dg.RunsFilter(tags={PARENT_RUN_ID_TAG: failed}))
    dequeue(stock)
    stock.reaches(again.run_id, SUCCESS)


# With the queue's coordinator.


def test_a_limit_of_the_queue_is_one_of_runs(launched: Launches) -> None:
    with Queue(launched.queue, url=launched.url) as queue:
        queue.set_global_concurrency(1)
        try:
            run_ids = [launched.submit("held_job") for _ in range(2)]
            launched.traces("held")
            wait_until_sync(lambda: queue.counts().active == 1, "one run to be taken")
            assert sorted(launched.status(run_id).value for run_id in run_ids) == ["QUEUED", "STARTED"]
            (launched.scratch / "go").touch()
            for run_id in run_ids:
                launched.reaches(run_id, SUCCESS)
        finally:
            queue.set_global_concurrency(None)


def test_the_limit_of_a_pool_holds_over_runs(launched: Launches) -> None:
    storage = pools_of(launched)
    storage.set_concurrency_slots("narrow", 1)
    run_ids = [launched.submit("held_step_job") for _ in range(2)]
    launched.traces("held")
    wait_until_sync(lambda: unassigned(storage) == 1, "the other step to wait", 120)
    assert len(launched.lines("held")) == 1
    (launched.scratch / "go").touch()
    for run_id in run_ids:
        launched.reaches(run_id, SUCCESS)
    assert len(launched.lines("held")) == 2


def test_a_slot_that_dagster_assigned_to_no_step_is_claimed(launched: Launches) -> None:
    storage = pools_of(launched)
    storage.set_concurrency_slots("narrow", 1)
    (launched.scratch / "go").touch()
    assert storage.claim_concurrency_slot("narrow", "another-run", "a-step").is_claimed
    run_id = launched.submit("held_step_job")
    wait_until_sync(lambda: unassigned(storage) == 1, "the step to wait", 120)
    # The other step ends as it does when it has looked for waiting steps just before this one was stored.
    storage._free_concurrency_slots("another-run")
    storage._remove_pending_steps("another-run")
    launched.reaches(run_id, SUCCESS)


def test_a_run_that_takes_longer_than_its_tag_allows_fails(launched: Launches) -> None:
    run_id = launched.submit("endless_job", {"dagster/max_runtime": "1"})
    launched.traces("endless")

    def has_failed() -> bool:
        launched.monitor()
        return launched.status(run_id) is FAILURE

    wait_until_sync(has_failed, "the run to be stopped", 120)
    assert "Exceeded maximum runtime of 1 seconds" in launched.messages(run_id)
    assert launched.traces("cleaned")


@pytest.mark.filterwarnings("ignore:Function `AssetSelection.sources`:DeprecationWarning")  # Dagster uses it itself
def test_a_backfill_of_many_partitions_is_one_run(launched: Launches) -> None:
    launched.backfill("days_at_once", DAYS.get_partition_keys()[:100])
    assert launched.lines("days") == ["100"]


@pytest.mark.filterwarnings("ignore:Function `AssetSelection.sources`:DeprecationWarning")  # Dagster uses it itself
def test_a_backfill_is_a_run_for_each_partition(launched: Launches) -> None:
    days = DAYS.get_partition_keys()[:4]
    launched.backfill("day_by_day", days)
    assert sorted(launched.lines("days")) == list(days)


def test_leases_outlast_a_restart_of_the_server() -> None:
    assert ExecutorOptions().lease == LauncherOptions().lease == timedelta(seconds=30)
