"""`oq1_submitGraph`: a whole graph in one call is what the plan of a flow makes node by node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestration_queue import flows
from orchestration_queue.flows import Dag, FlowPlan, Node
from orchestration_queue.options import JobOptions
from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.functions.oq1 import NewJob
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.graphs import Edge, Graph, GraphNode, Submitted, submit_graph
from orchestration_queue.protocol.placement import JobEncoder
from tests.lua.oq1 import Own, completed, new_job
from tests.lua.oq1_reference import same_but_for_entries
from tests.lua.wire import NOW, Wire, Word

Pairs = Sequence[tuple[int, int]]


@pytest.fixture
def own(wire: Wire) -> Own:
    return Own(wire)


def in_parts(own: Own, graph: Graph, **options: Any) -> Submitted:
    """Submit a graph, or a part of one, by the operation."""
    operation = submit_graph(QueueKeys(own.wire.queue), graph, NOW, **options)
    return operation.read(own.send(operation.call))


def submit(own: Own, nodes: Sequence[NewJob], edges: Pairs) -> list[str]:
    """Submit nodes by their places from 1, dependents first; returns each node's id or that it was there."""
    pairs = [Edge(dependent - 1, dependency - 1) for dependent, dependency in edges]
    submitted = in_parts(own, Graph([GraphNode(node) for node in nodes], pairs))
    assert not submitted.pending
    return [node.custom_id if node.custom_id in submitted.new else "duplicate" for node in nodes]


def submit_plan(own: Own, plan: FlowPlan) -> list[str]:
    """Submit a flow as its plan orders it."""
    steps = [plan.nodes[node.name] for level in reversed(plan.dag.levels) for node in level]
    places = {step.node.name: place for place, step in enumerate(steps, 1)}
    nodes = [JobEncoder.of(step.options, NOW).job(step.task, step.data_text, step.job_id, NOW) for step in steps]
    # Dependents in the order in which the graph names them, as the plan lists them.
    edges = [(places[node.name], places[dep]) for node in plan.dag.nodes for dep in node.deps]
    return submit(own, nodes, edges)


def send_all(own: Own, calls: Sequence[Call]) -> None:
    for call in calls:
        own.send(call)


OPTIONS = (JobOptions(), JobOptions(attempts=3), JobOptions(priority=2))


@st.composite
def dags(draw: st.DrawFn) -> list[Node]:
    """Any acyclic graph of a few nodes, in the order in which they could run."""
    names = [f"n{number}" for number in range(draw(st.integers(1, 7)))]
    return [
        Node(
            name,
            deps=(deps := draw(st.lists(st.sampled_from(names[:place]), unique=True)) if place else []),
            options=draw(st.sampled_from(OPTIONS[:2] if deps else OPTIONS)),
        )
        for place, name in enumerate(names)
    ]


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(nodes=dags())
def test_any_graph_is_submitted_as_its_plan_would(own: Own, nodes: list[Node]) -> None:
    own.wire.client.flushall()
    ours, theirs = Own(own.wire.sibling("left")), Own(own.wire.sibling("right"))
    plan = flows.compile(Dag("graph", nodes, "left"), "f")
    replies = submit_plan(ours, plan)
    assert sorted(replies) == sorted(step.job_id for step in plan.nodes.values())
    send_all(theirs, flows.compile(Dag("graph", nodes, "right"), "f").calls(NOW))
    assert same_but_for_entries(ours.wire) == same_but_for_entries(theirs.wire)
    with ours.wire.unchanged():
        assert submit_plan(ours, plan) == ["duplicate"] * len(nodes)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(nodes=dags())
def test_every_node_runs_after_all_it_waits_for(own: Own, nodes: list[Node]) -> None:
    own.wire.client.flushall()
    submit_plan(own, flows.compile(Dag("graph", nodes, "q"), "f"))
    done: list[str] = []
    while True:
        own.wire.call("promote")
        held = own.exchange(want=2).started
        if not held:
            break
        for job in held:
            node = next(node for node in nodes if f"f.{node.name}" == job.job_id)
            assert set(node.deps) <= set(done)
        own.exchange(*(completed(job) for job in held))
        done += [job.job_id.removeprefix("f.") for job in held]
    assert sorted(done) == sorted(node.name for node in nodes)


def test_a_node_that_was_there_and_completed_counts(own: Own) -> None:
    own.add(new_job(custom_id="b"))
    own.exchange(completed(own.take()[0]))
    nodes = [new_job("after", custom_id="c"), new_job(custom_id="b"), new_job(custom_id="a")]
    assert submit(own, nodes, [(1, 2), (1, 3)]) == ["c", "duplicate", "a"]
    assert own.wire.state("c") == "waiting-children"
    (job,) = own.take()
    assert (job.job_id, own.exchange(completed(job), want=1).ids) == ("a", ["c"])


def test_a_graph_with_a_node_too_dear_is_refused_whole(own: Own) -> None:
    dear = new_job(custom_id="b", ordering_key="g", tb_capacity=100, cost=200)
    with own.wire.unchanged(), pytest.raises(redis.ResponseError, match=r"^OQ_TOO_EXPENSIVE .* node 2 costs more"):
        submit(own, [new_job(custom_id="a"), dear], [(1, 2)])


KEYS = ("id", "stream", "scheduled", "failed", "events", "metrics:failed", "ratelimited", "flow:f", "flows")
HEAD: list[Word] = [NOW, 0, "f", ""]
NODE: list[Word] = ["task", "{}", "{}", NOW, 0, 0, "", 0, "", 0, 0, 0, 0, 0, 0, 0, "a", 0, "", ""]


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ([], "'now_ms' is not a whole number"),
        ([*HEAD], "'node_count' is not a whole number"),
        ([NOW, 2, "f", ""], "'held' is neither 0 nor 1"),
        ([*HEAD, 1, 0, 0, 0, 0, *NODE[:-1]], "takes 9 keys and 29 arguments, not 9 and 28"),
        ([*HEAD, 1, 1, 0, 0, 0, *NODE, 1], "takes 9 keys and 32 arguments, not 9 and 30"),
        ([*HEAD, 2, 0, 0, 0, 0, *NODE, *NODE], "node 2 needs an id of its own and no parent"),
        ([*HEAD, 1, 0, 0, 0, 0, *NODE[:16], "", *NODE[17:]], "node 1 needs an id of its own and no parent"),
        ([*HEAD, 1, 0, 0, 0, 0, *NODE[:6], "p", *NODE[7:]], "node 1 needs an id of its own and no parent"),
        ([*HEAD, 1, 1, 0, 0, 0, *NODE, 1, 1, 0], "an edge from 1 to 1 leads to no later node"),
        ([*HEAD, 1, 1, 0, 0, 0, *NODE, 0, 1, 0], "an edge from 0 to 1 leads to no later node"),
        ([*HEAD, 1, 1, 0, 0, 0, *NODE, 1, 2, 0], "an edge from 1 to 2 leads to no later node"),
        ([*HEAD, 1, 0, 1, 0, 0, *NODE, 2, "glide:{q}:x", 0], "a foreign dependency names node 2 of 1"),
        ([*HEAD, 1, 0, 1, 0, 0, *NODE, 1, "x", 0], "'x' names no job"),
        ([*HEAD, 1, 0, 1, 0, 0, *NODE, 1, "other:{q}:x", 0], "'other:{q}:x' names no job"),
        ([*HEAD, 1, 0, 1, 0, 0, *NODE, 1, "glide:{q}:job:x", 0], "'glide:{q}:job:x' names no job"),
        ([*HEAD, 1, 0, 0, 1, 0, *NODE, 0, "q", "x"], "a foreign dependent names node 0 of 1"),
        ([*HEAD, 1, 0, 0, 1, 0, *NODE, 1, "", "x"], "'x' of '' names no job"),
        ([*HEAD, 1, 0, 0, 1, 0, *NODE, 1, "q", "a:b"], "'a:b' of 'q' names no job"),
        ([*HEAD, 1, 0, 0, 0, 1, *NODE, 2, "all_done"], "a rule names node 2 of 1"),
        ([*HEAD, 1, 0, 0, 0, 1, *NODE, 1, "any_done"], "'any_done' is no trigger rule"),
        ([*HEAD, 1, 0, 0, 0, 1, *NODE, 1, "children_ended"], "'children_ended' is no trigger rule"),
    ],
)
def test_malformed_arguments_are_refused_by_a_code_word(own: Own, args: list[Word], why: str) -> None:
    own.refused("submitGraph", [own.wire.key(name) for name in KEYS], args, why)
