"""A plan as one transaction: the calls of glide-mq's library, what our library adds to their jobs, and the record.

Nothing else reaches the server between these calls, so nothing starts before all of it is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from orchestration_queue.flows.dag import Dag
from orchestration_queue.flows.glidemq_plan import PlannedCall, node_calls
from orchestration_queue.flows.planned_node import PlannedNode, PlannedNodes, dependents_first
from orchestration_queue.flows.record import FlowRecord
from orchestration_queue.flows.rules import TriggerRule
from orchestration_queue.flows.submission import RUNNING, limit_calls
from orchestration_queue.protocol.call import Call, Word
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import graphs

__all__ = ["MAX_CALLS", "OUR_OPTIONS", "needs_our_library", "transaction_calls"]

MAX_CALLS: Final = 300
"""Most calls of one transaction: the server serves nobody else meanwhile, some 5 ms for so many."""

_NEEDS_MORE = (TriggerRule.ALL_FAILED, TriggerRule.ONE_FAILED)
"""Rules by which a node does not run once all that it waits for have completed."""


def needs_our_library(dag: Dag) -> bool:
    """Return whether a graph needs workers of ours, and our library, to run as it says."""
    special = [node for node in dag.all_nodes if node.trigger_rule is not TriggerRule.ALL_SUCCESS or node.optional_deps]
    return bool(special or [name for name in OUR_OPTIONS if getattr(dag.options, name)])


OUR_OPTIONS: Final = ("fail_fast", "timeout", "retention", "concurrency", "budget")
"""Options of flows that glide-mq's library does not know."""


def transaction_calls(
    flow_id: str, dag: Dag, keys: QueueKeys, nodes: PlannedNodes, now_ms: int, *, registers_all: bool = False
) -> list[PlannedCall]:
    """Return the calls that submit a graph: its record, then its nodes from the last level of Kahn's order on.

    Args:
        flow_id: The submission's id.
        dag: The graph.
        keys: The flow's own queue.
        nodes: The nodes, dependencies before dependents.
        now_ms: Epoch milliseconds by the caller's clock.
        registers_all: As for :func:`node_calls`.
    """
    record = ("plan", FlowRecord.of(dag).text(), "createdAt", now_ms, "state", RUNNING)
    planned_calls = [
        PlannedCall("", (), Call("HSET", (keys.flow(flow_id),), record)),
        *[PlannedCall("", (), Call("ZADD", (index,), (now_ms, flow_id))) for index in (keys.flows, keys.flows_due)],
    ]
    for planned in dependents_first(nodes):
        calls = node_calls(nodes, planned, now_ms, registers_all=registers_all)
        noted = calls.pop().call.args if calls[-1].call.name == "HSET" else ()
        own_calls = _own_calls(flow_id, nodes, planned, now_ms, noted)
        planned_calls += [*calls, *[PlannedCall(planned.node.name, (), call) for call in own_calls]]
    limits = [PlannedCall("", (), call) for call in limit_calls(flow_id, dag, keys, nodes)]
    return planned_calls + limits


def _own_calls(
    flow_id: str, nodes: PlannedNodes, planned: PlannedNode, now_ms: int, noted: Sequence[Word]
) -> list[Call]:
    """Return the calls that note of a node its flow, its rule, and which of its dependencies are optional."""
    node, keys = planned.node, planned.keys
    fields: list[Word] = [*noted, "flow", flow_id]
    if node.waits_for and node.trigger_rule is not TriggerRule.ALL_SUCCESS:
        fields += ["triggerRule", node.trigger_rule]
    if node.optional_deps:
        fields += ["depsOptional", len(node.optional_deps)]
        fields += [word for name in node.optional_deps for word in (f"depweak:{nodes[name].member}", 1)]
    calls = [Call("HSET", (keys.job(planned.job_id),), tuple(fields))]
    if not node.waits_for:
        return calls
    if node.trigger_rule in _NEEDS_MORE:
        calls.append(Call("SADD", (keys.deps(planned.job_id),), (keys.member("__rule__"),)))
    if node.trigger_rule is TriggerRule.ALWAYS:
        calls.append(Call("SADD", (keys.deps(planned.job_id),), (keys.member("__hold__"),)))
        calls.append(graphs.release(keys, [planned.job_id], now_ms).call)
    return calls
