"""Why a job is suspended, and the signals that resumed it, as any client stored them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestration_queue.errors import UsageError
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.suspension import (
    Signal,
    SuspendInfo,
    read_signals,
    signal,
    suspend_info,
)

KEYS = QueueKeys("q")
NOW = 1_700_000_000_000
AT = datetime.fromtimestamp(NOW / 1000, UTC)


@pytest.mark.parametrize(
    ("stored", "data"),
    [('{"ok":true}', {"ok": True}), ("", None), ("not {", "not {"), (5, 5), (None, None), ([1], [1])],
)
def test_a_signal_has_its_payload(stored: object, data: object) -> None:
    text = json.dumps([{"name": "approved", "data": stored, "receivedAt": NOW}])
    assert read_signals(text) == (Signal("approved", data, AT),)


@pytest.mark.parametrize("stored", [None, "", "{", "{}", "5", "[]", "[5]"])
def test_what_is_no_signal_is_left_out(stored: str | None) -> None:
    assert read_signals(stored) == ()


def test_only_a_suspended_job_says_why() -> None:
    read = suspend_info(KEYS, "7").read
    assert read([b"active", None, None, None, None]) is None
    assert read([None] * 5) is None
    assert read([b"suspended", None, None, None, None]) == SuspendInfo(None, None, None, ())
    told = read([b"suspended", b"approval", str(NOW).encode(), b"5000", b'[{"name":"a"}]'])
    assert told == SuspendInfo("approval", AT, timedelta(seconds=5), (Signal("a", None, None),))


@pytest.mark.parametrize("name", ["", 5, None])
def test_a_signal_has_a_name(name: Any) -> None:
    sending = signal(KEYS, "7", "approved", {"by": "me"}, NOW)
    assert "approved" in sending.call.args
    assert '{"by":"me"}' in sending.call.args
    assert [sending.read(reply) for reply in (b"ok", b"not_suspended")] == [True, False]
    with pytest.raises(UsageError, match="Signal name must be a non-empty string"):
        signal(KEYS, "7", name, None, NOW)
