"""Both carriers of a plan, a transaction of its calls and `oq1_submitGraph`, leave key-identical servers."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestration_queue import flows
from orchestration_queue.flows import Dag, FlowOptions, FlowPlan, Node, TriggerRule
from orchestration_queue.options import Budget, JobOptions
from tests.lua.oq1 import Own
from tests.lua.wire import NOW, Wire

NODE_OPTIONS = (JobOptions(), JobOptions(attempts=3, timeout=timedelta(seconds=5)))
ROOT_OPTIONS = (*NODE_OPTIONS, JobOptions(priority=2), JobOptions(delay=timedelta(seconds=9)), JobOptions(lifo=True))
FLOW_OPTIONS = (
    FlowOptions(),
    FlowOptions(fail_fast=True, timeout=timedelta(hours=1), priority=3),
    FlowOptions(on_success=Node("won"), on_failure=Node("lost")),
    FlowOptions(budget=Budget(max_tokens=5)),
    FlowOptions(concurrency=2),
)


@pytest.fixture
def own(wire: Wire) -> Own:
    return Own(wire)


@st.composite
def dags(draw: st.DrawFn, queues: tuple[str, ...] = ("q",)) -> Dag:
    """Any acyclic graph of a few nodes with rules, optional edges and options."""
    names = [f"n{number}" for number in range(draw(st.integers(1, 8)))]
    nodes = []
    for place, name in enumerate(names):
        earlier = names[:place]
        deps = draw(st.lists(st.sampled_from(earlier), unique=True, max_size=4)) if earlier else []
        others = [other for other in earlier if other not in deps]
        optional = draw(st.lists(st.sampled_from(others), unique=True, max_size=2)) if others else []
        rule = draw(st.sampled_from(list(TriggerRule))) if deps else TriggerRule.ALL_SUCCESS
        options = draw(st.sampled_from(NODE_OPTIONS if deps or optional else ROOT_OPTIONS))
        queue = draw(st.sampled_from(queues))
        nodes.append(Node(name, "task", queue, {"n": place}, options, deps, rule, optional))
    options = draw(st.sampled_from(FLOW_OPTIONS if len(queues) == 1 else FLOW_OPTIONS[:3]))
    return Dag("graph", draw(st.permutations(nodes)), "q", options)


def pack(own: Own, plan: FlowPlan) -> None:
    """Submit by `oq1_submitGraph`, as :func:`launch` does."""
    whole = plan.submission()
    for write in whole.writes(NOW):
        own.send(write.call)
    if whole.is_held:
        for call in (*whole.limits, whole.commit()):
            own.send(call)
        for _, release in whole.releases(NOW):
            own.send(release.call)
        own.send(whole.done())


def left_by(own: Own, *, in_order: bool) -> dict[str, Any]:
    """Everything on the server, free of the ids of stream entries."""
    found = own.wire.dump()
    for key, value in found.items():
        if isinstance(value, tuple):
            entries, groups = value
            said = [fields for _, fields in entries]
            found[key] = said if in_order else sorted(said, key=str), groups
        elif isinstance(value, dict) and "parentIds" in value and not in_order:
            # Which dependents a job names first, those of its own queue or others, has no effect.
            ids, queues = json.loads(value.pop("parentIds")), json.loads(value.pop("parentQueues"))
            value["parents"] = sorted(zip(queues, ids, strict=True))
    return found


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(dag=dags())
def test_both_carriers_leave_the_same_keys(own: Own, dag: Dag) -> None:
    plan = flows.compile(dag, "f")
    own.wire.client.flushall()
    for each in plan.transaction(NOW):
        own.send(each.call)
    # What a budget or a concurrency binds is released when all is there, and events say so in this order.
    in_order = not plan.submission().is_held
    by_transaction = left_by(own, in_order=in_order)
    own.wire.client.flushall()
    pack(own, plan)
    assert by_transaction == left_by(own, in_order=in_order)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(dag=dags(("q", "r")))
def test_graphs_of_two_queues_leave_the_same_keys(own: Own, dag: Dag) -> None:
    plan = flows.compile(dag, "f")
    own.wire.client.flushall()
    for each in plan.transaction(NOW, "packed"):
        own.send(each.call)
    by_transaction = left_by(own, in_order=False)
    own.wire.client.flushall()
    pack(own, plan)
    assert by_transaction == left_by(own, in_order=False)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(dag=dags())
def test_the_list_names_dependents_before_what_they_wait_for(own: Own, dag: Dag) -> None:
    created: list[str] = []
    for each in flows.compile(dag, "f").transaction(NOW):
        if each.call.name in ("glidemq_addJob", "glidemq_addFlow"):
            assert not set(each.waits_for) & set(created)
            created.append(each.node)
    assert sorted(created) == sorted(node.name for node in dag.all_nodes)
