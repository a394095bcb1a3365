"""Access of a step's or run's process to Dagster's database: one connection, with retries while it is unavailable."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from inspect import isfunction
from pathlib import Path
from typing import Any, TypeVar

import dagster as dg

from orchestration_queue._logging import get_logger
from orchestration_queue.dagster._compat import check_captured_interrupt, sqlite_event_log, sqlite_storages

__all__ = [
    "await_database",
    "keep_connection",
    "outlast_outages",
    "sqlite_engines",
    "sqlite_kept_open",
    "sync_at_end",
]

log = get_logger("orchestration_queue.dagster")

_OUTAGE_S = 60.0
"""How long to retry while the database is unavailable, before the step, the run or the start of a fork server fails."""
_PAUSE_S = 0.5
_ENDS = frozenset(
    {
        dg.DagsterEventType.STEP_SUCCESS,
        dg.DagsterEventType.STEP_FAILURE,
        dg.DagsterEventType.STEP_UP_FOR_RETRY,
        dg.DagsterEventType.STEP_SKIPPED,
    }
)

T = TypeVar("T")


def await_database(use: Callable[[], T]) -> T:
    """Call a function that opens or reads a process's first instance; retry while the database is unavailable."""
    ends_at = time.monotonic() + _OUTAGE_S
    while True:
        try:
            return use()
        except Exception as error:
            if not _is_outage(error) or time.monotonic() > ends_at:
                raise
            log.warning("Dagster's database is unavailable; retrying: %s", error)
        time.sleep(_PAUSE_S)


def _storages(instance: dg.DagsterInstance) -> list[Any]:
    """Return the storages of an instance that are in PostgreSQL."""
    storages = (instance.run_storage, instance.event_log_storage, instance.schedule_storage)
    return [storage for storage in storages if type(storage).__module__.startswith("dagster_postgres.")]


_MOST_ENGINES = 50
"""Each run has its own file, and a long-lived process may write those of many runs."""


class _SqliteEngines:
    """One engine for each SQLite file, where Dagster creates one for each statement, and compiles the statement.

    The engines share their compiled statements. They keep no connection, so forked processes and threads may use them,
    until the process of one work item calls :meth:`keep_connections`.
    """

    def __init__(self) -> None:
        self._engines: dict[str, Any] = {}
        self._bare: dict[str, Any] = {}
        self._inherited: list[object] = []
        self.keeps_connections = False
        self._is_registered = False
        self._eager = ""

    def share(self) -> None:
        """Make Dagster's storages use these engines."""
        for module in sqlite_storages():
            if not isinstance(make := getattr(module, "create_engine"), partial):  # noqa: B009  not a name it exports
                setattr(module, "create_engine", partial(self._create, make))  # noqa: B010  the same

    def adopt(self, engine: Any) -> None:
        """Make another SQLite engine share the compiled statements."""
        if self._engines:
            first = next(iter(self._engines.values()))
            engine.dialect, engine._compiled_cache = first.dialect, first._compiled_cache

    def keep_connections(self) -> None:
        """Keep a connection to each file from now on.

        Dagster opens and closes one for each statement. Closing the last connection of a file also copies its
        write-ahead log back, with waits for the disk that take longer than most statements.
        """
        if not self._is_registered:
            os.register_at_fork(after_in_child=self._reset_connections)
        self._is_registered = True
        self.keeps_connections = True
        for url in self._engines:
            self._keep(url)

    def hurry(self, url: str) -> None:
        """Make commits to a file that is not open yet return before they are on the disk, until :meth:`sync`."""
        self._eager = url

    def sync(self) -> None:
        """Make the next commit return after it and all earlier ones are on the disk."""
        if (engine := self._engines.get(self._eager)) is not None:
            with closing(engine.raw_connection()) as connection:
                connection.execute("PRAGMA synchronous=FULL")

    def close(self) -> None:
        """Close the connections, so that the last process of a file leaves no write-ahead log."""
        self.keeps_connections = False
        for url, bare in self._bare.items():
            self._engines[url].pool.dispose()
            self._engines[url].pool = bare
        self._bare.clear()

    def _create(self, make: Callable[..., Any], url: str, **options: Any) -> Any:
        if (engine := self._engines.get(url)) is None:
            engine = make(url, **options)
            engine.dispose = lambda: None  # Dagster calls it after each statement
            self.adopt(engine)
            self._engines[url] = engine
            if self.keeps_connections:
                self._keep(url)
            if len(self._engines) > _MOST_ENGINES:
                oldest = list(self._engines)[1]  # not the first, which has the compiled statements
                self._engines.pop(oldest, None)  # another thread may have removed it
                self._bare.pop(oldest, None)
        return engine

    def _keep(self, url: str) -> None:
        engine = self._engines[url]
        if url not in self._bare:
            from sqlalchemy import event

            self._bare[url] = engine.pool
            engine.pool = _one_connection(engine.pool, engine.dialect)
            event.listen(engine.pool, "connect", lambda connection, _: self._note_connection(url, connection))

    def _note_connection(self, url: str, connection: Any) -> None:
        if url == self._eager:
            connection.execute("PRAGMA synchronous=NORMAL")

    def _reset_connections(self) -> None:
        """Open new connections in a fork. The inherited ones stay open, because SQLite forbids to close them."""
        if self.keeps_connections:
            for url, bare in self._bare.items():
                self._inherited.append(self._engines[url].pool)
                self._engines[url].pool = _one_connection(bare, self._engines[url].dialect)


sqlite_engines = _SqliteEngines()
"""The engines of this process."""


def _one_connection(bare: Any, dialect: Any) -> Any:
    """Return a pool that keeps one connection, with the options of a pool that keeps none."""
    from sqlalchemy.pool import QueuePool

    # Dagster reads on a second connection within transactions: with a maximum of one, it would wait for itself. A
    # ping finds connections that a restart of the database has closed.
    return QueuePool(
        bare._creator, pool_size=1, max_overflow=-1, pre_ping=True, dialect=dialect, _dispatch=bare.dispatch
    )


def keep_connection(instance: dg.DagsterInstance) -> None:
    """Make all storages of this process share one pool that keeps a connection, instead of one per query.

    With SQLite, each file has such a pool. Forks of this process get their own pools.
    """
    sqlite_engines.keep_connections()
    engines = [engine for storage in _storages(instance) if (engine := getattr(storage, "_engine", None))]
    if not engines or len({engine.url for engine in engines}) > 1:
        return
    first = engines[0]
    bare = first.pool

    def share() -> None:
        pool = _one_connection(bare, first.dialect)
        for engine in engines:
            engine.pool = pool

    share()
    os.register_at_fork(after_in_child=share)


def sync_at_end(instance: dg.DagsterInstance, run_id: str) -> None:
    """Make a step's process wait for the disk only at the step's end, in SQLite.

    Events before the end may be lost by a power failure, which the step does not survive either. The commit of its end
    writes all of them to the disk. Call this after :func:`keep_connection`, and before the run's file is used.
    """
    if (storage := sqlite_event_log(instance)) is None or not Path(storage.path_for_shard(run_id)).exists():
        return
    storage._initialized_dbs.add(run_id)  # the run's process has created it, which Dagster would check slowly
    sqlite_engines.hurry(storage.conn_string_for_shard(run_id))
    store = storage.store_event

    def sync_and_store(entry: dg.EventLogEntry) -> None:
        if (event := entry.dagster_event) and event.event_type in _ENDS:
            sqlite_engines.sync()
        store(entry)

    setattr(storage, "store_event", sync_and_store)  # noqa: B010  mypy knows it as a method


@contextmanager
def sqlite_kept_open(instance: dg.DagsterInstance) -> Iterator[None]:
    """Keep a connection to each SQLite file while this process executes a run.

    So a connection that a step closes is never the last one of its file; closing that would wait for the disk.
    """
    if sqlite_engines.keeps_connections or sqlite_event_log(instance) is None:
        yield
        return
    sqlite_engines.share()
    sqlite_engines.keep_connections()
    try:
        yield
    finally:
        sqlite_engines.close()


def outlast_outages(instance: dg.DagsterInstance) -> None:
    """Make the storages of this process retry calls whose connection failed, until the database is available.

    An event whose reply was lost may be stored twice, except the end of a step, of which a run allows only one. A pool
    that two runs create at once is created by one of them. Call this after :func:`guard_events`, so that events after
    an outage are checked, too.
    """
    for storage in _storages(instance):
        for name in dir(type(storage)):
            if not name.startswith("_") and isfunction(getattr(type(storage), name)):
                setattr(storage, name, _with_retries(storage, name, getattr(storage, name)))


def _with_retries(storage: Any, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        ends_at = time.monotonic() + _OUTAGE_S
        while True:
            try:
                return method(*args, **kwargs)
            except Exception as error:
                if name == "initialize_concurrency_limit_to_default" and _was_second(error):
                    return True
                if not _is_outage(error) or time.monotonic() > ends_at or check_captured_interrupt():
                    raise
                log.warning("Dagster's database is unavailable; retrying: %s", error)
            time.sleep(_PAUSE_S)
            if name == "store_event" and _is_stored(storage, args[0]):
                return None

    return call


def _is_outage(error: Exception) -> bool:
    """Return whether an error is one of the connection, and not of the query."""
    from sqlalchemy.exc import DBAPIError

    if postgres := sys.modules.get("dagster_postgres.utils"):
        return isinstance(error, postgres.DagsterPostgresException) or (
            isinstance(error, DBAPIError) and error.connection_invalidated
        )
    return False


def _was_second(error: Exception) -> bool:
    """Return whether another process created a pool first.

    Dagster updates the row that it could not insert, in the transaction that PostgreSQL ended for that.
    """
    return getattr(getattr(error, "orig", None), "pgcode", "") == "25P02"  # in_failed_sql_transaction


def _is_stored(storage: Any, entry: dg.EventLogEntry) -> bool:
    """Return whether the end of a step was stored before the connection failed."""
    event = entry.dagster_event
    if event is None or not (event.is_step_success or event.is_step_failure or event.is_step_up_for_retry):
        return False
    stored = storage.get_logs_for_run(entry.run_id, of_type=event.event_type)
    return any((other.step_key, other.timestamp) == (entry.step_key, entry.timestamp) for other in stored)
