"""The history that a job's record keeps: what goes into it, and its bounds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestration_queue.protocol.functions import oq1
from tests.lua.oq1 import Own
from tests.lua.wire import NOW, Wire


@pytest.fixture
def own(wire: Wire) -> Own:
    wire.open_group()
    return Own(wire)


def note(own: Own, job_id: str, **changes: Any) -> object:
    values: dict[str, Any] = {
        "kind": "error",
        "error": "E",
        "reason": "why",
        "traceback": "at a",
        "stalled_count": 0,
    } | changes
    attempt = oq1.AttemptNote(job_id=job_id, taken_ms=int(own.wire.job(job_id)["processedOn"]), **values)
    return own.send(oq1.note_attempts(own.keys, worker="w", host="h", now_ms=NOW + 9, attempts=[attempt]))


def history(own: Own, job_id: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads(own.wire.job(job_id)["history"])
    return entries


def test_a_failed_attempt_is_kept_with_its_last_log_lines(own: Own) -> None:
    job_id, _ = own.wire.active()
    own.wire.ask("RPUSH", own.wire.key(f"log:{job_id}"), *map(str, range(9)), "x" * 600)
    assert note(own, job_id) == 1
    (entry,) = history(own, job_id)
    assert entry.pop("logs") == ["5", "6", "7", "8", "x" * 500]
    assert entry.pop("started") == int(own.wire.job(job_id)["processedOn"])
    assert entry == {
        "event": "failed", "attempt": 1, "worker": "w", "host": "h", "ended": NOW + 9,
        "kind": "error", "error": "E", "reason": "why", "traceback": "at a",
    }  # fmt: skip
    assert own.wire.job(job_id)["failureKind"] == "error"


def test_an_attempt_whose_lease_is_lost_is_not_noted(own: Own) -> None:
    job_id, _ = own.wire.active()
    with own.wire.unchanged():
        assert note(own, job_id, stalled_count=1) == 0


@pytest.mark.parametrize("stored", ["", "x", "5", "null", '[{"a":nan}]'])
def test_a_damaged_history_starts_anew(own: Own, stored: str) -> None:
    job_id, _ = own.wire.active()
    own.wire.set_fields(f"job:{job_id}", history=stored)
    assert note(own, job_id) == 1
    assert len(history(own, job_id)) == 1


@pytest.mark.parametrize("size", [10, 8_000])
def test_twenty_entries_are_kept_in_32_kib_and_the_newest_whole(own: Own, size: int) -> None:
    job_id, _ = own.wire.active()
    for number in range(25):
        assert note(own, job_id, reason=str(number), traceback="t" * size) == 1
    entries = history(own, job_id)
    assert [entry["reason"] for entry in entries] == [str(number) for number in range(5, 25)]
    assert len(own.wire.job(job_id)["history"]) <= 32_768
    assert entries[-1]["traceback"] == "t" * size
    assert ("traceback" in entries[0]) is (size == 10)


def test_a_takeover_names_the_worker_that_was_lost(own: Own) -> None:
    own.wire.add()
    (started,) = own.take(consumer="w-9")
    own.reclaim(NOW + 60_000)
    (stalled,) = history(own, started.job_id)
    assert (stalled["event"], stalled["worker"]) == ("stalled", "w-9")


def test_a_takeover_a_retry_and_a_cancel_are_kept(own: Own) -> None:
    job_id, _ = own.wire.active(lifo=0)
    own.reclaim(NOW + 60_000, max_stalled_count=0)
    job_key = own.wire.key(f"job:{job_id}")
    assert own.send(oq1.retry_job(own.keys, job_key=job_key, job_id=job_id, now_ms=NOW + 60_001)) == "ok"
    assert own.send(oq1.revoke(own.keys, job_id=job_id, now_ms=NOW + 60_002, group="workers")) == "revoked"
    stalled, retried, cancelled = history(own, job_id)
    assert (stalled["event"], stalled["kind"], stalled["attempt"]) == ("stalled", "stalled", 1)
    assert retried == {"event": "retried", "ended": NOW + 60_001}
    assert cancelled == {"event": "cancelled", "ended": NOW + 60_002}
