"""`oq1_submitGraph`: a whole graph in one call is what the plan of a flow makes node by node."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestration_queue import flows
from orchestration_queue.flows import Dag, FlowPlan, Node
from orchestration_queue.options import JobOptions
from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.functions.oq1 import GraphEdge, NewJob
from orchestration_queue.protocol.placement import new_job as placed
from tests.lua.oq1 import Own, completed, load_own_library, new_job
from tests.lua.oq1_reference import same_but_for_entries
from tests.lua.wire import NOW, Wire, Word

KEYS = ("id", "stream", "scheduled", "events")


@pytest.fixture
def own(wire: Wire) -> Own:
    load_own_library(wire.client)
    return Own(wire)


def submit(own: Own, nodes: Sequence[NewJob], edges: Sequence[tuple[int, int]]) -> list[str]:
    """Submit nodes by their places, dependents first."""
    pairs = [GraphEdge(dependent=dependent, dependency=dependency) for dependent, dependency in edges]
    keys = {f"{name}_key": own.wire.key(name) for name in KEYS}
    reply: list[str] = own.send(oq1.submit_graph(**keys, nodes=nodes, edges=pairs))
    return reply


def submit_plan(own: Own, plan: FlowPlan) -> list[str]:
    """Submit a flow as its plan orders it."""
    steps = [plan.steps[node.name] for level in reversed(plan.dag.levels) for node in level]
    places = {step.node.name: place for place, step in enumerate(steps, 1)}
    nodes = [placed(step.node.job_name, step.data_text, step.options, NOW) for step in steps]
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
    assert sorted(replies) == sorted(step.job_id for step in plan.steps.values())
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


NODE: list[Word] = ["task", "{}", "{}", NOW, 0, 0, "", 0, "", 0, 0, 0, 0, 0, 0, 0, "a", 0, "", ""]


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ([], "'node_count' is not a whole number"),
        ([1, 0, *NODE[:-1]], "takes 4 keys and 22 arguments, not 4 and 21"),
        ([1, 1, *NODE, 1], "takes 4 keys and 24 arguments, not 4 and 23"),
        ([2, 0, *NODE, *NODE], "node 2 needs an id of its own and no parent"),
        ([1, 0, *NODE[:16], "", *NODE[17:]], "node 1 needs an id of its own and no parent"),
        ([1, 0, *NODE[:6], "p", *NODE[7:]], "node 1 needs an id of its own and no parent"),
        ([1, 1, *NODE, 1, 1], "an edge from 1 to 1 leads to no later node"),
        ([1, 1, *NODE, 0, 1], "an edge from 0 to 1 leads to no later node"),
        ([1, 1, *NODE, 1, 2], "an edge from 1 to 2 leads to no later node"),
    ],
)
def test_malformed_arguments_are_refused_by_a_code_word(own: Own, args: list[Word], why: str) -> None:
    own.refused("submitGraph", [own.wire.key(name) for name in KEYS], args, why)
