"""How a step's process stores: through restarts of PostgreSQL, the end of a step once, and soon in SQLite."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.execution.plan.objects import StepSuccessData
from dagster._core.storage.event_log import SqliteEventLogStorage
from dagster._core.storage.event_log.schema import ConcurrencyLimitsTable
from dagster_postgres import PostgresEventLogStorage
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.exc import OperationalError, ProgrammingError

from orchestration_queue.dagster._compat import warm_up
from orchestration_queue.dagster.steps.database import (
    keep_connection,
    outlast_outages,
    sqlite_engines,
    sync_at_end,
)
from tests.dagster.step_workers import READY, home_is
from tests.dagster.stores import Database, postgres
from tests.processes import OQ, running_process
from tests.waiting import wait_until_sync

pytestmark = [pytest.mark.dagster, pytest.mark.timeout(300)]

LOST_REPLY = OperationalError("INSERT", {}, Exception("the server closed the connection"), connection_invalidated=True)


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    """A PostgreSQL for all tests of this module."""
    with postgres() as made:
        if made is None:
            pytest.skip("PostgreSQL is not installed; `.ci/run` installs it")
        yield made


@pytest.fixture
def instance(database: Database) -> Iterator[dg.DagsterInstance]:
    """An instance as a step's process has it, except for its retries."""
    storage, pools = {"postgres": {"postgres_url": database.url}}, {"default_limit": 1}
    with dg.instance_for_test(overrides={"storage": storage, "concurrency": {"pools": pools}}) as made:
        keep_connection(made)
        yield made
        sqlite_engines.close()  # which would keep the connections of later tests in this process, too


def end_of_step(run_id: str) -> dg.EventLogEntry:
    """Return what a step says last."""
    success = StepSuccessData(duration_ms=1.0)
    event = dg.DagsterEvent(dg.DagsterEventType.STEP_SUCCESS.value, "job", step_key="s", event_specific_data=success)
    return dg.EventLogEntry(
        error_info=None, level=20, user_message="", run_id=run_id, timestamp=1.25, dagster_event=event
    )


def test_what_is_stored_while_the_database_is_away_is_there_afterwards(
    database: Database, instance: dg.DagsterInstance
) -> None:
    outlast_outages(instance)
    storage = instance.event_log_storage
    storage.store_event(end_of_step("before"))
    database.kill()
    waiting = threading.Thread(target=storage.store_event, args=[end_of_step("meanwhile")])
    waiting.start()
    try:
        assert waiting.is_alive()
    finally:
        database.start()
    waiting.join(120)
    for run_id in ("before", "meanwhile"):
        wait_until_sync(lambda run_id=run_id: len(storage.get_logs_for_run(run_id)) == 1, f"one event of {run_id}")  # type: ignore[misc]  # bound at once


def test_the_end_of_a_step_whose_answer_was_lost_is_stored_once(instance: dg.DagsterInstance) -> None:
    storage = instance.event_log_storage
    store, calls = storage.store_event, []

    def store_and_lose_the_answer(event: dg.EventLogEntry) -> None:
        calls.append(event)
        store(event)
        raise LOST_REPLY

    storage.store_event = store_and_lose_the_answer  # type: ignore[method-assign]  # fails as a dead connection does
    outlast_outages(instance)
    storage.store_event(end_of_step("lost"))
    assert len(calls) == len(storage.get_logs_for_run("lost")) == 1


def test_a_pool_that_two_runs_create_at_once_is_created_once(database: Database, instance: dg.DagsterInstance) -> None:
    outlast_outages(instance)
    storage = instance.event_log_storage
    assert isinstance(storage, PostgresEventLogStorage)
    answers: list[bool] = []
    engine = create_engine(database.url)
    with engine.connect() as first:
        values = {"concurrency_key": "narrow", "limit": 1, "using_default_limit": True}
        first.execute(ConcurrencyLimitsTable.insert().values(**values))
        second = threading.Thread(
            target=lambda: answers.append(storage.initialize_concurrency_limit_to_default("narrow"))
        )
        second.start()
        wait_until_sync(lambda: is_blocked(engine), "the second insertion to wait for the first")
        first.commit()
    second.join(60)
    engine.dispose()
    assert answers == [True]


def is_blocked(engine: Engine) -> bool:
    """Return whether a statement waits for another's transaction."""
    with engine.connect() as third:
        return bool(third.execute(text("SELECT count(*) FROM pg_locks WHERE NOT granted")).scalar())


def test_a_worker_that_starts_while_the_database_is_away_waits_for_it(
    database: Database, instance: dg.DagsterInstance, server_url: str, queue_name: str, tmp_path: Path
) -> None:
    command = [OQ, "dagster", "worker", "-m", "tests.dagster.steps", "-q", queue_name]
    log = tmp_path / "log"
    database.kill()
    try:
        with home_is(instance.root_directory), running_process(command, server_url, log):
            told = "Dagster's database is unavailable"
            wait_until_sync(lambda: told in log.read_text(), f"the worker to miss the database, see {log}", 120)
            database.start()
            wait_until_sync(lambda: READY in log.read_text(), f"the worker to be ready, see {log}", 120)
    finally:
        with suppress(subprocess.CalledProcessError):  # it runs already
            database.start()


@dg.asset(partitions_def=dg.StaticPartitionsDefinition(["a"]), code_version="1")
def tagged() -> dg.MaterializeResult[None]:
    """Return what has tags, which Dagster stores apart."""
    return dg.MaterializeResult(tags={"kind": "full"})


def test_a_step_needs_one_connection(instance: dg.DagsterInstance) -> None:
    connected: list[object] = []
    warm_up(instance)  # which opens the one
    storage = instance.event_log_storage
    assert isinstance(storage, PostgresEventLogStorage)
    event.listen(storage._engine.pool, "connect", lambda *made: connected.append(made))
    assert dg.materialize([tagged], instance=instance, partition_key="a").success
    assert not connected


def test_other_errors_are_raised_at_once(instance: dg.DagsterInstance) -> None:
    storage, error, calls = instance.event_log_storage, ProgrammingError("SELECT", {}, Exception("no table")), []

    def fail(event: dg.EventLogEntry) -> None:
        calls.append(error)
        raise error

    storage.store_event = fail  # type: ignore[method-assign]  # fails as a wrong statement does
    outlast_outages(instance)
    with pytest.raises(ProgrammingError, match="no table"):
        storage.store_event(end_of_step("wrong"))
    assert len(calls) == 1


@pytest.mark.parametrize("is_known", [False, True], ids=["new", "known"])
def test_a_step_in_sqlite_waits_for_the_disk_at_its_end_alone(is_known: bool) -> None:
    """The commit of the end takes to the disk all that was committed to the run's file before."""
    with dg.instance_for_test() as instance:
        if is_known:  # the process has an engine of the file before it keeps connections
            sqlite_engines.share()
        run = instance.create_run_for_job(nothing_to_do)
        instance.report_engine_event("as the run's own process has made the file", run)
        storage = instance.event_log_storage
        assert isinstance(storage, SqliteEventLogStorage)

        def level(connect: Callable[[], Any]) -> int:
            with connect() as connection:
                return int(connection.exec_driver_sql("PRAGMA synchronous").scalar())

        of_the_run, normal, full = partial(storage.run_connection, run.run_id), 1, 2
        sqlite_engines.share()
        keep_connection(instance)
        try:
            sync_at_end(instance, run.run_id)
            instance.report_engine_event("in the middle", run)
            assert (level(of_the_run), level(storage.index_connection)) == (normal, full)
            storage.store_event(end_of_step(run.run_id))
            assert level(of_the_run) == full
        finally:
            sqlite_engines.close()
        assert len(instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_SUCCESS)) == 1


@dg.job
def nothing_to_do() -> None:
    """A job of a run that is not executed."""
