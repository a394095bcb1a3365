"""Read the events of a run in Dagster's log: all of them, in the order in which they were stored."""

from __future__ import annotations

import os
from collections.abc import Set

import dagster as dg

from orchestration_queue.dagster._compat import EventLogCursor, in_memory_storages, sqlite_event_log
from orchestration_queue.errors import UsageError

__all__ = ["RunLog", "refuse_memory"]

_PAGE = 1_000
_OVERLAP = 100
"""How many events before the last one to read again: a database may commit an event after others with higher ids."""
_ALL = frozenset(dg.DagsterEventType)


class RunLog:
    """Reads the log of a run from its beginning, each event once.

    Args:
        instance: The run's instance.
        run_id: The run.
    """

    def __init__(self, instance: dg.DagsterInstance, run_id: str) -> None:
        self._instance = instance
        self._run_id = run_id
        self._cursor: str | None = None
        self._seen: set[int] = set()
        # SQLite has one writer at a time, so that events appear in the order of their ids.
        is_serial = sqlite_event_log(instance) is not None
        self._overlap = int(os.environ.get("DAGSTER_EXECUTOR_POP_EVENTS_OFFSET", 0 if is_serial else _OVERLAP))

    def read(self, kinds: Set[dg.DagsterEventType] = _ALL) -> list[tuple[dg.DagsterEvent, float]]:
        """Return the events that were stored since the last call, each with its time in epoch seconds.

        Args:
            kinds: Leave out other events that precede the last one of these.
        """
        found: list[tuple[dg.DagsterEvent, float]] = []
        has_more, cursor = True, self._cursor
        while has_more:
            page = self._instance.get_records_for_run(self._run_id, cursor, of_type=set(kinds), limit=_PAGE)
            for record in page.records:
                entry = record.event_log_entry
                if entry.dagster_event is not None and record.storage_id not in self._seen:
                    self._seen.add(record.storage_id)
                    found.append((entry.dagster_event, entry.timestamp))
            has_more, cursor = page.has_more, page.cursor
        self._cursor = self._step_back(cursor)
        return found

    def _step_back(self, cursor: str | None) -> str | None:
        if cursor is None or not self._overlap or not (at := EventLogCursor.parse(cursor)).is_id_cursor():
            return cursor
        return EventLogCursor.from_storage_id(max(-1, at.storage_id() - self._overlap)).to_string()


def refuse_memory(instance: dg.DagsterInstance) -> None:
    """Refuse an instance whose storages no other process can read.

    Raises:
        UsageError: It keeps its event log or its runs in memory.
    """
    if names := in_memory_storages(instance):
        raise UsageError(
            f"This Dagster instance keeps data in the memory of one process ({', '.join(names)}), where the workers "
            "that run steps can't read or store it; configure `storage` in dagster.yaml with SQLite, PostgreSQL or "
            "MySQL."
        )
