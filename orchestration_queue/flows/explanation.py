"""Explain a flow's state: one sentence, and the reason for each node that blocks others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from orchestration_queue.flows.control import survey
from orchestration_queue.flows.elements import with_elements
from orchestration_queue.flows.stored import FlowSnapshot, FlowState, StoredFlow, derive_state, outcome_of
from orchestration_queue.protocol.call import Conversation
from orchestration_queue.protocol.operations.explanation import Explanation, explain
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.states import JobState

__all__ = ["FlowExplanation", "explain_flow"]

_MOST_EXPLAINED = 5
"""How many nodes' own reasons are read; other nodes wait for them, or for the same."""


@dataclass(frozen=True, slots=True)
class FlowExplanation:
    """The explanation of a flow's state.

    Attributes:
        flow_id: The submission's id.
        state: The flow's state.
        sentence: The reason, as text.
        action: What to do about it; None if nothing needs to be done.
        nodes: The explanations of the nodes that the sentence is about, at most five, by node.
    """

    flow_id: str
    state: FlowState
    sentence: str
    action: str | None = None
    nodes: Mapping[str, Explanation] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.sentence


def explain_flow(snapshot: FlowSnapshot, now_ms: int) -> Conversation[FlowExplanation]:
    """Explain a flow's state. One exchange per thousand nodes, and :func:`explain` for at most five of them."""
    flow = yield from with_elements(snapshot.flow)
    records = yield from survey(flow)
    state = derive_state(snapshot, {name: records[name] for name in snapshot.flow.jobs})
    outcomes = {name: outcome_of(record) for name, record in records.items()}
    there = f"{flow.keys.queue} {flow.id}"
    if state is FlowState.SUBMITTING:
        sentence = "Its submission is not complete, so none of its nodes starts."
        return FlowExplanation(flow.id, state, sentence, "submit it again with the same id if its submitter has died")
    chosen = _list_failed(outcomes) if state.is_final else _list_unblocked(flow, records)
    nodes = yield from _explain_nodes(flow, chosen, now_ms)
    if state.is_final:
        advice = f"oq flow retry {there}" if nodes else "submit it again with another id"
        action = None if state is FlowState.COMPLETED else advice
        return FlowExplanation(flow.id, state, _explain_end(snapshot, outcomes, nodes), action, nodes)
    open_nodes = [name for name, record in records.items() if record is not None and not record.is_finished]
    left = f"{len(open_nodes):,} of {len(records):,} nodes have not ended"
    if snapshot.is_paused:
        return FlowExplanation(flow.id, state, f"It is paused, and {left}.", f"oq flow resume {there}", nodes)
    if not nodes:
        sentence = f"{left}, and all wait for nodes that have ended without a notification."
        return FlowExplanation(flow.id, state, sentence, f"oq flow keep {flow.keys.queue} --once")
    name, first = next(iter(nodes.items()))
    others = len(chosen) - 1
    more = f" {others:,} more {'waits' if others == 1 else 'wait'} for no other node." if others else ""
    return FlowExplanation(
        flow.id, state, f"{left}. Node {name!r} is {first.state}: {first.sentence}{more}", first.action, nodes
    )


def _list_failed(outcomes: Mapping[str, str]) -> list[str]:
    return [name for name, outcome in outcomes.items() if outcome == "failed"]


def _list_unblocked(flow: StoredFlow, records: Mapping[str, JobRecord | None]) -> list[str]:
    """Return unfinished nodes that wait for no other node: those without a worker or due time before running ones."""
    found = [
        (record.state is JobState.ACTIVE, flow.jobs[name].depth, name)
        for name, record in records.items()
        if record is not None and not record.is_finished and record.state is not JobState.WAITING_CHILDREN
    ]
    return [name for *_, name in sorted(found)]


def _explain_nodes(flow: StoredFlow, names: Sequence[str], now_ms: int) -> Conversation[dict[str, Explanation]]:
    found: dict[str, Explanation] = {}
    for name in names[:_MOST_EXPLAINED]:
        job = flow.jobs[name]
        reason = yield from explain(job.keys, job.job_id, now_ms)
        if reason is not None:
            found[name] = reason
    return found


def _explain_end(snapshot: FlowSnapshot, outcomes: Mapping[str, str], nodes: Mapping[str, Explanation]) -> str:
    unrun = sum(outcome in ("upstream_failed", "skipped") for outcome in outcomes.values())
    because = f" It was stopped: {snapshot.stopped}." if snapshot.stopped else ""
    gone = [name for name in snapshot.flow.jobs if outcomes[name] == "gone"]
    if gone:
        more = f" and {len(gone) - 1:,} more" if len(gone) > 1 else ""
        because = (
            f" Node {gone[0]!r}{more} counts as failed: its job is gone, and nothing says that it completed.{because}"
        )
    if not nodes:
        rest = f", {unrun:,} of them without running" if unrun else ""
        return f"All {len(outcomes):,} nodes have ended{rest}.{because}"
    named = " ".join(f"Node {name!r}: {reason.sentence}" for name, reason in nodes.items())
    more = _more(_list_failed(outcomes), nodes)
    return f"{named}{more} {unrun:,} {'node' if unrun == 1 else 'nodes'} did not run.{because}"


def _more(failed: Collection[str], named: Collection[str]) -> str:
    left = len(failed) - len(named)
    return f" {left:,} more failed." if left > 0 else ""
