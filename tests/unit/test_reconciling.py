"""What a reconciler does about a flow, by the flow's record and those of its jobs alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from orchestration_queue.flows.reconciler import FlowReconciler
from orchestration_queue.flows.record import RecordedOptions
from orchestration_queue.flows.stored import StoredFlow
from orchestration_queue.options import Retention
from orchestration_queue.protocol.call import Call, Reply
from orchestration_queue.protocol.keys import QueueKeys
from tests.conversations import Stored, chain, hold, named

KEYS = QueueKeys("q")
NOW, SECOND = 1_700_000_000_000, 1000
FLOW = chain("a", "b")
COMPLETED = {"state": "completed", "finishedOn": str(NOW - 5 * SECOND)}
FAILED = {"state": "failed", "failedReason": "no such table", "finishedOn": str(NOW - 4 * SECOND)}
UNRUN = {"state": "failed", "outcome": "upstream_failed", "failedReason": "upstream failed"}
ACTIVE = {"state": "active"}
WAITING = {"state": "waiting-children"}
UNDER_WAY: Stored = {"a": ACTIVE, "b": WAITING}
ENDED: Stored = {"a": COMPLETED, "b": COMPLETED}


def flow_with(flow: StoredFlow = FLOW, **options: Any) -> StoredFlow:
    return replace(flow, record=replace(flow.record, options=RecordedOptions(**options)))


def reconcile(
    stored: Stored,
    noted: Mapping[str, object] | None = None,
    flow: StoredFlow = FLOW,
    *,
    rounds: int = 1,
    lock: int = 1,
    older: tuple[bytes, ...] = (),
    state_now: bytes | None = None,
) -> list[Call]:
    """Reconcile the flow ``f``, created a minute ago, of which the record notes this; the calls of the last round."""
    reconciler = FlowReconciler(KEYS, lambda: NOW, interval=timedelta(seconds=10), patience=timedelta(seconds=100))
    fields = {"plan": flow.record.text(), "createdAt": NOW - 60 * SECOND, "state": "running", **(noted or {})}
    record = [str(word).encode() for pair in fields.items() for word in pair] if noted is not None else []

    def answer(call: Call) -> Reply:
        if call.name == "ZRANGEBYSCORE":
            return [b"f"]
        if call.name == "ZREVRANGE":
            return older
        if call.name == "HGETALL":
            return record if call.keys == (KEYS.flow("f"),) else []
        if call.name == "HGET":
            ends = [call for call in calls if call.name == "HSET" and "finishedAt" in call.args]
            return state_now or str(ends[-1].args[1] if ends else fields["state"]).encode()
        return lock if call.name == "glidemq_tryLock" else b"revoked" if call.name == "oq1_revoke" else 1

    calls: list[Call] = []
    for _ in range(rounds):
        calls.clear()
        hold(reconciler.reconcile_flows("token"), stored, answer, calls)
    return calls


def due_in_s(calls: list[Call]) -> list[float]:
    """In how many seconds the flow is checked again."""
    return [(int(call.args[0]) - NOW) / SECOND for call in named(calls, "ZADD") if call.keys == (KEYS.flows_due,)]


def noted_state(calls: list[Call]) -> list[str]:
    """The states that were written to the flow's record."""
    return [str(call.args[1]) for call in named(calls, "HSET") if call.args[0] == "state"]


@pytest.mark.parametrize(("now_ms", "asks"), [(None, ["TIME"]), (lambda: NOW, [])])
def test_the_server_is_asked_for_the_time_unless_a_clock_is_given(
    now_ms: Callable[[], int] | None, asks: list[str]
) -> None:
    first = next(FlowReconciler(KEYS, now_ms).round())
    assert [call.name for call in first if call.name == "TIME"] == asks


def test_only_the_holder_of_the_lock_reconciles() -> None:
    assert [call.name for call in reconcile(UNDER_WAY, {}, lock=0)] == ["ZRANGEBYSCORE", "glidemq_tryLock"]
    assert [call.name for call in reconcile(UNDER_WAY, {})][-1] == "glidemq_unlock"


def test_a_flow_without_a_record_is_forgotten() -> None:
    assert len(named(reconcile({}), "ZREM")) == 3


def test_a_flow_that_is_being_removed_is_removed() -> None:
    assert len(named(reconcile(UNDER_WAY, {"removing": 1}), "oq1_removeJob")) == 2


def test_a_record_that_cannot_be_read_is_left_for_an_hour() -> None:
    assert due_in_s(reconcile(UNDER_WAY, {"plan": "nonsense"})) == [3600]


@pytest.mark.parametrize(
    ("age_s", "is_removed", "due"), [(60, False, 10), (95, False, 5), (99.999, False, 0.001), (100, True, 0)]
)
def test_a_submission_is_given_up_after_a_while(age_s: float, is_removed: bool, due: float) -> None:
    calls = reconcile(UNDER_WAY, {"state": "submitting", "createdAt": NOW - round(age_s * SECOND)})
    assert bool(named(calls, "oq1_removeJob")) is is_removed
    assert due_in_s(calls) == [due]


@pytest.mark.parametrize(
    ("noted", "is_released", "due"),
    [
        ({"held": NOW - 10 * SECOND}, False, 0),
        ({"held": NOW - 10 * SECOND - 1}, True, 10),
        ({"held": 0}, True, 10),  # as submissions note it: since it was created
        ({"held": 0, "createdAt": NOW - 4 * SECOND}, False, 6),
        ({"held": 0, "paused": 1}, False, 10),
        ({}, False, 10),
    ],
)
def test_what_a_submitter_held_and_left_is_let_go(noted: dict[str, int], is_released: bool, due: float) -> None:
    calls = reconcile(UNDER_WAY, noted)
    assert bool(named(calls, "oq1_releaseGraph")) is is_released
    assert due_in_s(calls) == [due]


@pytest.mark.parametrize(
    ("noted", "is_retried"), [({"retried": 1}, True), ({}, False), ({"retried": 1, "stopped": "why"}, False)]
)
def test_a_node_that_was_misinformed_before_a_retry_waits_again(noted: dict[str, object], is_retried: bool) -> None:
    calls = reconcile({"a": COMPLETED, "b": UNRUN}, noted)
    assert bool(named(calls, "oq1_retryNodes")) is is_retried
    if is_retried:
        assert due_in_s(calls)[-1] == 10


@pytest.mark.parametrize(
    ("options", "noted", "stored", "reason"),
    [
        ({}, {}, {"a": FAILED, "b": ACTIVE}, None),
        ({"fail_fast": True}, {}, {"a": FAILED, "b": ACTIVE}, "fail_fast"),
        ({"fail_fast": True}, {}, {"a": UNRUN, "b": ACTIVE}, None),
        ({"fail_fast": True}, {}, {"a": None, "b": ACTIVE}, None),
        ({"fail_fast": True, "on_failure": "a"}, {}, {"a": FAILED, "b": ACTIVE}, None),
        ({"timeout": timedelta(seconds=60)}, {}, UNDER_WAY, "timeout"),
        ({"timeout": timedelta(seconds=61)}, {}, UNDER_WAY, None),
        ({}, {"stopped": "why"}, UNDER_WAY, "why"),
        ({"fail_fast": True}, {"stopped": "why"}, {"a": FAILED, "b": ACTIVE}, "why"),
    ],
)
def test_a_flow_is_stopped_by_its_options_and_again_where_it_was_stopped(
    options: dict[str, Any],
    noted: dict[str, object],
    stored: Stored,
    reason: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls = reconcile(stored, noted, flow_with(**options))
    assert ("is stopped" in caplog.text) is (reason is not None and not noted), "it is said when it is stopped first"
    assert [call.args[1] for call in named(calls, "HSET") if call.args[0] == "stopped"] == ([reason] if reason else [])
    assert bool(named(calls, "oq1_revoke")) is (reason is not None)
    assert not named(calls, "oq1_releaseGraph")


@pytest.mark.parametrize("noted", [{"held": 0, "paused": 1}, {"paused": 1}])
def test_what_is_held_is_let_go_when_it_is_stopped(noted: dict[str, object]) -> None:
    assert named(reconcile(UNDER_WAY, {"stopped": "why", **noted}), "oq1_releaseGraph")


@pytest.mark.parametrize(("stopped", "count"), [("timeout", 1), ("why", 2)])
def test_callbacks_of_a_flow_run_unless_a_caller_cancelled_it(stopped: str, count: int) -> None:
    calls = reconcile(UNDER_WAY, {"stopped": stopped}, flow_with(on_failure="b"))
    assert len({call.args[0] for call in named(calls, "oq1_revoke")}) == count


@pytest.mark.parametrize(("timeout_s", "due"), [(None, 10), (100, 10), (65, 5), (60, 10)])
def test_a_flow_is_checked_again_when_its_time_is_up(timeout_s: int | None, due: float) -> None:
    timeout = timedelta(seconds=timeout_s) if timeout_s else None
    assert due_in_s(reconcile(UNDER_WAY, {}, flow_with(timeout=timeout)))[-1] == due


def test_a_large_flow_is_checked_more_rarely() -> None:
    names = [f"n{number}" for number in range(3000)]
    assert due_in_s(reconcile(dict.fromkeys(names, ACTIVE), {}, chain(*names))) == [15]


@pytest.mark.parametrize("stored", [{"a": COMPLETED, "b": WAITING}, {"a": FAILED, "b": WAITING}])
def test_what_waits_for_one_that_ended_is_told(stored: Stored) -> None:
    (told,) = named(reconcile(stored, {}), "oq1_propagate")
    assert "f.a" in told.args


def test_a_job_that_is_gone_counts_as_failed_when_that_was_so_twice() -> None:
    stored: Stored = {"a": None, "b": WAITING}
    assert not named(reconcile(stored, {}), "oq1_propagate")
    (told,) = named(reconcile(stored, {}, rounds=2), "oq1_propagate")
    assert {"f.b", KEYS.member("f.a"), "failed"} <= set(told.args)


@pytest.mark.parametrize(
    ("stored", "noted", "state"),
    [
        (ENDED, {}, "completed"),
        ({"a": FAILED, "b": UNRUN}, {}, "failed"),
        ({"a": FAILED, "b": UNRUN}, {"stopped": "why"}, "cancelled"),
        ({"a": FAILED, "b": UNRUN}, {"stopped": "timeout"}, "failed"),
    ],
)
def test_an_end_is_noted_with_its_time_and_confirmed_later(
    stored: Stored, noted: dict[str, object], state: str
) -> None:
    calls = reconcile(stored, noted)
    assert noted_state(calls) == [state]
    ends = [int(its["finishedOn"]) for its in stored.values() if its and "finishedOn" in its]
    (ended,) = [call.args for call in named(calls, "ZADD") if call.keys == (KEYS.flows_ended,)]
    assert ended == (max(ends), "f")
    assert due_in_s(calls) == [60]


def test_a_flow_whose_jobs_are_gone_ends_now() -> None:
    (ended,) = [c.args for c in named(reconcile({"a": None, "b": None}, {}), "ZADD") if c.keys == (KEYS.flows_ended,)]
    assert ended == (NOW, "f")


@pytest.mark.parametrize(
    ("age_s", "is_known", "due"),
    [(None, False, 60), (None, True, None), (45, False, 40), (600, False, 60), (45, True, 40)],
)
def test_an_end_that_is_known_is_left_until_retention_removes_the_flow(
    age_s: int | None, is_known: bool, due: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    retention = Retention(age=timedelta(seconds=age_s)) if age_s else None
    known = {"state": "completed", "finishedAt": NOW - 5 * SECOND} if is_known else {}
    calls = reconcile(ENDED, known, flow_with(retention=retention))
    assert due_in_s(calls) == ([] if due is None else [due])
    assert bool(named(calls, "ZREM")) is (due is None)
    assert noted_state(calls) == ([] if is_known else ["completed"])
    assert ("has ended" in caplog.text) is not is_known


@pytest.mark.parametrize("noted", [{"state": "failed", "finishedAt": NOW - 5 * SECOND}, {"state": "completed"}])
def test_an_end_that_was_noted_otherwise_is_noted_again(noted: dict[str, object]) -> None:
    assert noted_state(reconcile(ENDED, noted)) == ["completed"]


def test_a_flow_that_goes_on_after_its_end_runs() -> None:
    assert noted_state(reconcile(UNDER_WAY, {"state": "failed"})) == ["running"]
    assert noted_state(reconcile(UNDER_WAY, {})) == []


def test_a_retry_while_the_end_was_noted_is_heeded_at_once() -> None:
    assert due_in_s(reconcile(ENDED, {}, state_now=b"running")) == [60, 0]


@pytest.mark.parametrize(("age_s", "is_removed"), [(6, False), (5, True), (4, True)])
def test_a_flow_is_removed_when_its_retention_is_over(age_s: int, is_removed: bool) -> None:
    noted = {"state": "completed", "finishedAt": NOW - 5 * SECOND}
    calls = reconcile(ENDED, noted, flow_with(retention=Retention(age=timedelta(seconds=age_s))))
    assert bool(named(calls, "oq1_removeJob")) is is_removed


def test_flows_that_ended_before_the_newest_are_removed_page_by_page() -> None:
    calls = reconcile(ENDED, {}, flow_with(retention=Retention(count=3)), older=(b"f", b"unknown"))
    (asked,) = named(calls, "ZREVRANGE")
    assert asked.args == (3, 102)
    assert {call.args[0] for call in named(calls, "oq1_removeJob")} == {"f.a", "f.b"}
    assert ("unknown",) in [call.args for call in named(calls, "ZREM")]
    assert not named(reconcile(ENDED, {}, flow_with(retention=Retention(age=timedelta(days=1)))), "ZREVRANGE")
