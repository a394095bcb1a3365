"""How far a flow has come and which dependents may not know of an outcome, read from the records of its jobs alone."""

from __future__ import annotations

import pytest

from orchestration_queue.flows.control import find_pending_notifications
from orchestration_queue.flows.node import TriggerRule
from orchestration_queue.flows.record import FlowRecord, RecordedNode, RecordedOptions
from orchestration_queue.flows.stored import FlowSnapshot, FlowState, StoredFlow, derive_state
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.record import JobRecord

COMPLETED = {"state": "completed"}
FAILED = {"state": "failed", "failedReason": "no such table"}
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
        (COMPLETED, None, COMPLETED, FlowState.COMPLETED),
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
