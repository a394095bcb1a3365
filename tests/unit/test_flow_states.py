"""How far a flow has come, what its dependents may not know, and what is asked for to cancel, retry or undo it.

All of it follows from the records of its jobs alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from orchestration_queue.client import FlowNode
from orchestration_queue.client.flow_status import critical_path
from orchestration_queue.flows.control import (
    cancel,
    find_misinformed,
    find_pending_notifications,
    remove,
    retry,
    undo,
)
from orchestration_queue.flows.mapping import MAP
from orchestration_queue.flows.node import TriggerRule
from orchestration_queue.flows.plan_calls import PlannedCall
from orchestration_queue.flows.record import FlowRecord, RecordedNode, RecordedOptions
from orchestration_queue.flows.stored import FlowSnapshot, FlowState, StoredFlow, derive_state
from orchestration_queue.protocol.call import Call, Reply
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.record import JobRecord
from tests.conversations import Stored, chain, hold, named

NOW = 1_700_000_000_000
COMPLETED = {"state": "completed"}
FAILED = {"state": "failed", "failedReason": "no such table"}
UNRUN = {"state": "failed", "outcome": "upstream_failed", "failedReason": "upstream failed"}
SKIPPED = {"state": "failed", "outcome": "skipped", "failedReason": "skipped"}
ACTIVE = {"state": "active"}
WAITING = {"state": "waiting-children"}


def flow_of(rule: TriggerRule = TriggerRule.ALL_SUCCESS, on_failure: str | None = None) -> StoredFlow:
    nodes = [
        RecordedNode("a", "q", (), "a"),
        RecordedNode("b", "q", (), "b"),
        RecordedNode("c", "q", ("a", "b"), "c", rule),
    ]
    record = FlowRecord("f", {node.name: node for node in nodes}, RecordedOptions(on_failure=on_failure))
    return StoredFlow.of("f", QueueKeys("q"), record)


def records(**fields: dict[str, str] | None) -> dict[str, JobRecord | None]:
    return {name: None if stored is None else JobRecord(f"f.{name}", stored) for name, stored in fields.items()}


@pytest.mark.parametrize(
    ("a", "b", "c", "state"),
    [
        (COMPLETED, COMPLETED, COMPLETED, FlowState.COMPLETED),
        (COMPLETED, COMPLETED, SKIPPED, FlowState.COMPLETED),
        (COMPLETED, None, COMPLETED, FlowState.FAILED),
        (COMPLETED, None, ACTIVE, FlowState.RUNNING),
        (COMPLETED, FAILED, SKIPPED, FlowState.FAILED),
        (COMPLETED, FAILED, ACTIVE, FlowState.RUNNING),
    ],
)
def test_a_flow_fails_by_a_node_that_failed_and_not_by_one_that_was_skipped(
    a: dict[str, str], b: dict[str, str] | None, c: dict[str, str], state: FlowState
) -> None:
    snapshot = FlowSnapshot(flow_of(), FlowState.RUNNING, None, None, False, False, False, None)
    assert derive_state(snapshot, records(a=a, b=b, c=c)) is state


def test_a_callback_that_failed_does_not_fail_the_flow() -> None:
    snapshot = FlowSnapshot(flow_of(on_failure="b"), FlowState.RUNNING, None, None, False, False, False, None)
    assert derive_state(snapshot, records(a=COMPLETED, b=FAILED, c=COMPLETED)) is FlowState.COMPLETED


def test_a_flow_under_submission_stays_so() -> None:
    snapshot = FlowSnapshot(flow_of(), FlowState.SUBMITTING, None, None, False, False, False, None)
    assert derive_state(snapshot, records(a=COMPLETED, b=COMPLETED, c=COMPLETED)) is FlowState.SUBMITTING


@pytest.mark.parametrize(
    ("rule", "a", "b", "pending"),
    [
        (TriggerRule.ALL_SUCCESS, COMPLETED, ACTIVE, (set(), set())),
        (TriggerRule.ALL_SUCCESS, COMPLETED, COMPLETED, ({"a", "b"}, set())),
        (TriggerRule.ALL_SUCCESS, FAILED, ACTIVE, ({"a"}, set())),
        (TriggerRule.ALL_SUCCESS, None, ACTIVE, (set(), {"a"})),
        (TriggerRule.ONE_SUCCESS, COMPLETED, ACTIVE, ({"a"}, set())),
        (TriggerRule.ONE_SUCCESS, ACTIVE, ACTIVE, (set(), set())),
    ],
)
def test_outcomes_that_can_decide_a_waiting_dependent_are_pending(
    rule: TriggerRule, a: dict[str, str] | None, b: dict[str, str], pending: tuple[set[str], set[str]]
) -> None:
    assert find_pending_notifications(flow_of(rule), records(a=a, b=b, c=WAITING)) == pending


def test_a_dependent_that_no_longer_waits_knows() -> None:
    assert find_pending_notifications(flow_of(), records(a=FAILED, b=COMPLETED, c=ACTIVE)) == (set(), set())


def mapped() -> StoredFlow:
    """Return a flow of a node that maps, and of one that waits for it."""
    nodes = [RecordedNode("m", "q", (), MAP), RecordedNode("b", "q", ("m",), "b")]
    return StoredFlow.of("f", QueueKeys("q"), FlowRecord("f", {node.name: node for node in nodes}))


@pytest.mark.parametrize(
    ("stored", "only", "retried"),
    [
        ({"a": COMPLETED, "b": ACTIVE, "c": WAITING}, None, []),
        ({"a": FAILED, "b": UNRUN, "c": UNRUN}, None, ["a", "b", "c"]),
        ({"a": FAILED, "b": UNRUN, "c": UNRUN}, ["b"], ["b"]),
        ({"a": FAILED, "b": UNRUN, "c": UNRUN}, [], []),
        ({"a": FAILED, "b": SKIPPED, "c": COMPLETED}, None, ["a", "b"]),
        ({"a": COMPLETED, "b": SKIPPED, "c": FAILED}, None, ["c"]),
        ({"a": None, "b": FAILED, "c": UNRUN}, None, ["b", "c"]),
    ],
)
def test_what_failed_is_retried_and_what_did_not_run_because_of_it(
    stored: Stored, only: Sequence[str] | None, retried: list[str]
) -> None:
    names, written = hold(retry(chain("a", "b", "c"), NOW, only), stored)
    assert names == retried
    assert bool(written) is bool(retried), "a flow in which nothing failed is left as it is"
    assert sum(str(word).startswith("f.") for call in named(written, "oq1_retryNodes") for word in call.args) == len(
        retried
    )


@pytest.mark.parametrize(
    ("a", "told"),
    [(COMPLETED, True), (FAILED, False), (None, False)],  # one that is retried itself tells by its own end
)
def test_a_retried_node_hears_again_of_what_it_waits_for_in_another_queue(a: dict[str, str] | None, told: bool) -> None:
    _, written = hold(retry(chain("a", "b", queues=("q", "r")), NOW), {"a": a, "b": FAILED})
    revived = [call for call in named(written, "oq1_retryNodes") if "f.a" in str(call.args) and "f.b" in call.args]
    assert bool(revived) is told
    assert bool(named(written, "oq1_propagate")) is told


@pytest.mark.parametrize(
    ("stored", "found"),
    [
        ({"a": COMPLETED, "b": UNRUN, "c": UNRUN}, ["b", "c"]),
        ({"a": COMPLETED, "b": ACTIVE, "c": UNRUN}, ["c"]),
        ({"a": FAILED, "b": UNRUN, "c": UNRUN}, []),
        ({"a": None, "b": UNRUN, "c": UNRUN}, []),
        ({"a": COMPLETED, "b": FAILED, "c": UNRUN}, []),
        ({"a": UNRUN, "b": None, "c": None}, []),
    ],
)
def test_a_node_is_misinformed_that_gave_up_though_nothing_before_it_failed(stored: Stored, found: list[str]) -> None:
    flow = chain("a", "b", "c")
    assert find_misinformed(flow, records(**stored)) == found


def test_a_node_that_maps_is_never_misinformed_as_its_elements_decide() -> None:
    nodes = [RecordedNode("a", "q", (), "a"), RecordedNode("m", "q", ("a",), MAP)]
    flow = StoredFlow.of("f", QueueKeys("q"), FlowRecord("f", {node.name: node for node in nodes}))
    assert find_misinformed(flow, records(a=COMPLETED, m=UNRUN)) == []


@pytest.mark.parametrize(
    ("m", "retried"),
    [(COMPLETED, []), (FAILED, ["m[0]", "m"]), (None, ["m[0]"])],  # what has completed has read its elements
)
def test_elements_are_retried_unless_the_node_that_maps_has_completed(
    m: dict[str, str] | None, retried: list[str]
) -> None:
    stored: Stored = {"m[0]": FAILED, "m[1]": COMPLETED, "m": m, "b": WAITING}
    assert hold(retry(mapped(), NOW), stored)[0] == retried


def test_elements_are_removed_before_the_node_by_which_they_are_found() -> None:
    _, written = hold(remove(mapped(), NOW), {})
    assert [call.args[0] for call in named(written, "oq1_removeJob")] == ["f.m[0]", "f.m[1]", "f.b", "f.m"]


@pytest.mark.parametrize(
    ("reply", "count"),
    [(b"flagged", 2 * 2), (b"revoked", 2 * 5)],  # one that ended at once may have made another ready
)
def test_a_cancelled_flow_is_surveyed_again_while_nodes_end_at_once(reply: bytes, count: int) -> None:
    stored: Stored = {"a": COMPLETED, "b": ACTIVE, "c": WAITING}
    stopped, written = hold(cancel(chain("a", "b", "c"), "why", NOW), stored, lambda _: reply)
    assert stopped == ["b", "c"]
    assert len(named(written, "oq1_revoke")) == count
    assert named(written, "HSET")[0].args == ("stopped", "why")
    assert not named(written, "oq1_releaseGraph")


def test_what_is_spared_or_gone_is_not_cancelled_and_what_is_held_is_let_go() -> None:
    stored: Stored = {"a": None, "b": ACTIVE, "c": WAITING}
    flow = chain("a", "b", "c")
    stopped, written = hold(cancel(flow, "", NOW, is_held=True, is_recorded=False, spare=["b"]), stored, lambda _: b"")
    assert stopped == ["c"]
    assert named(written, "oq1_releaseGraph")
    assert not named(written, "HSET")


CREATED = Call("HSET", ("flow",), ("plan", "{}", "createdAt", NOW))
MINE = {"id": "f.b", "timestamp": str(NOW)}
THEIRS = {"id": "f.b", "timestamp": str(NOW - 1)}
REFUSED = ValueError("the server is full")


@pytest.mark.parametrize(
    ("replies", "b", "removed"),
    [
        ([2, b"f.a", b"f.b"], None, ["f.b", "f.a"]),
        ([1, b"f.a", REFUSED], MINE, []),  # the record is of an earlier submission
        ([2, b"duplicate", b"f.b"], None, ["f.b"]),
        ([2, b"f.a", REFUSED], MINE, ["f.b", "f.a"]),
        ([2, b"f.a", REFUSED], THEIRS, ["f.a"]),
        ([2, b"f.a", REFUSED], None, ["f.b", "f.a"]),
        ([2, b"f.a", REFUSED], {"timestamp": str(NOW - 1)}, ["f.b", "f.a"]),
    ],
)
def test_undoing_removes_what_the_transaction_created_and_nothing_older(
    replies: list[Reply], b: dict[str, str] | None, removed: list[str]
) -> None:
    planned = [PlannedCall("", (), CREATED), *[PlannedCall(name, (), Call("glidemq_addJob")) for name in "ab"]]
    _, written = hold(undo(chain("a", "b"), planned, replies, NOW), {"a": None, "b": b})
    assert [call.args[0] for call in named(written, "oq1_removeJob")] == removed


def test_a_path_ends_with_the_last_of_nodes_that_ended_in_the_same_millisecond() -> None:
    at = datetime(2026, 11, 29, 12, tzinfo=UTC)
    first = FlowNode("first", "1", "q", started_at=at, finished_at=at)
    last = FlowNode("last", "2", "q", deps=("first",), started_at=at, finished_at=at)
    assert critical_path([first, last, FlowNode("skipped", "3", "q", deps=("last",))]) == [first, last]
