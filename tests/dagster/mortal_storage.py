"""A storage for events that kills its process after a number of observations, so that it dies in the middle of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import Any, Self

import dagster as dg
from dagster._core.storage.event_log import SqliteEventLogStorage
from dagster._serdes import ConfigurableClassData


class MortalEventLogStorage(SqliteEventLogStorage):
    """Dagster's own, and ``TEST_OBSERVATIONS`` says how many observations a process may store; default all."""

    _stored = 0

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]) -> Self:
        """Make one of what ``dagster.yaml`` says."""
        return cls(inst_data=inst_data, **config_value)

    def store_event(self, event: dg.EventLogEntry) -> None:
        """Store an event; the last observation is the last thing that this process does."""
        super().store_event(event)
        self._stored += event.dagster_event_type is dg.DagsterEventType.ASSET_OBSERVATION
        if str(self._stored) == os.environ.get("TEST_OBSERVATIONS"):
            os.kill(os.getpid(), signal.SIGKILL)
