"""How the process of a step or a run uses Dagster's PostgreSQL: one connection, and patience while it restarts."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from inspect import isfunction
from typing import Any, TypeVar

import dagster as dg

from orchestration_queue.dagster._compat import check_captured_interrupt

__all__ = ["await_database", "keep_connection", "outlast_outages"]

log = logging.getLogger("orchestration_queue.dagster")

_OUTAGE_S = 60.0
"""How long the database may be away before a step or a run fails that reads or writes, or a fork server that starts."""
_PAUSE_S = 0.5

T = TypeVar("T")


def await_database(use: Callable[[], T]) -> T:
    """Call what opens or reads a process's first instance, again and again while the database does not answer."""
    ends_at = time.monotonic() + _OUTAGE_S
    while True:
        try:
            return use()
        except Exception as error:
            if not _is_outage(error) or time.monotonic() > ends_at:
                raise
            log.warning("Dagster's database does not answer, which is tried again: %s", error)
        time.sleep(_PAUSE_S)


def _storages(instance: dg.DagsterInstance) -> list[Any]:
    """Return the storages of an instance that are in PostgreSQL."""
    storages = (instance.run_storage, instance.event_log_storage, instance.schedule_storage)
    return [storage for storage in storages if type(storage).__module__.startswith("dagster_postgres.")]


def keep_connection(instance: dg.DagsterInstance) -> None:
    """Have all storages of this process share one pool that keeps a connection, where each query opened its own.

    A process that is forked from this one gets a pool of its own.
    """
    engines = [engine for storage in _storages(instance) if (engine := getattr(storage, "_engine", None))]
    if not engines or len({engine.url for engine in engines}) > 1:
        return
    from sqlalchemy.pool import QueuePool

    first = engines[0]
    bare = first.pool

    def share() -> None:
        pool = QueuePool(
            bare._creator,
            pool_size=1,
            max_overflow=-1,
            pre_ping=True,
            dialect=first.dialect,
            _dispatch=bare.dispatch,
        )
        for engine in engines:
            engine.pool = pool

    share()
    os.register_at_fork(after_in_child=share)


def outlast_outages(instance: dg.DagsterInstance) -> None:
    """Have the storages of this process repeat what failed with its connection, until the database is back.

    An event whose answer was lost may be stored twice, but for the end of a step, of which a run allows only one. Call
    this after :func:`guard_events`, so that what a process may no longer write is not written after an outage either.
    """
    for storage in _storages(instance):
        for name in dir(type(storage)):
            if not name.startswith("_") and isfunction(getattr(type(storage), name)):
                setattr(storage, name, _patient(storage, name, getattr(storage, name)))


def _patient(storage: Any, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        ends_at = time.monotonic() + _OUTAGE_S
        while True:
            try:
                return method(*args, **kwargs)
            except Exception as error:
                if not _is_outage(error) or time.monotonic() > ends_at or check_captured_interrupt():
                    raise
                log.warning("Dagster's database does not answer, which is tried again: %s", error)
            time.sleep(_PAUSE_S)
            if name == "store_event" and _is_stored(storage, args[0]):
                return None

    return call


def _is_outage(error: Exception) -> bool:
    """Return whether the connection failed, and not what was asked for."""
    from sqlalchemy.exc import DBAPIError

    if postgres := sys.modules.get("dagster_postgres.utils"):
        return isinstance(error, postgres.DagsterPostgresException) or (
            isinstance(error, DBAPIError) and error.connection_invalidated
        )
    return False


def _is_stored(storage: Any, entry: dg.EventLogEntry) -> bool:
    """Return whether the end of a step was stored before the connection failed."""
    event = entry.dagster_event
    if event is None or not (event.is_step_success or event.is_step_failure or event.is_step_up_for_retry):
        return False
    stored = storage.get_logs_for_run(entry.run_id, of_type=event.event_type)
    return any((other.step_key, other.timestamp) == (entry.step_key, entry.timestamp) for other in stored)
