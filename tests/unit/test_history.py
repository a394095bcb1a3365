"""Reading a job's history: what other clients may have stored costs an entry, never the job."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from orchestration_queue.protocol.history import HistoryEvent, read_history


@pytest.mark.parametrize("stored", ["", "x", "5", "null", "{}", "[1]", "[{}]", '[{"event":"odd"}]', '[{"event":[]}]'])
def test_what_is_no_history_has_no_entries(stored: str) -> None:
    assert read_history(stored) == ()


@pytest.mark.parametrize("ended", ['"soon"', "1e300", "[]", "null"])
def test_an_odd_time_is_none(ended: str) -> None:
    (entry,) = read_history(f'[{{"event":"failed","ended":{ended},"attempt":"x","logs":5}}]')
    assert (entry.ended_at, entry.attempt, entry.logs) == (None, None, ())


def test_an_entry_is_typed() -> None:
    (entry,) = read_history('[{"event":"failed","ended":1500,"attempt":2,"worker":"w","logs":["a"]}]')
    assert entry.event is HistoryEvent.FAILED
    assert entry.ended_at == datetime.fromtimestamp(1.5, UTC)
    assert (entry.attempt, entry.worker, entry.logs, entry.reason) == (2, "w", ("a",), "")
