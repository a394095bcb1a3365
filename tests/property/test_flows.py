"""Any graph: the order is topological, each edge is wired exactly once, and a cycle shown is a cycle."""

from __future__ import annotations

import random
import time
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestration_queue import flows
from orchestration_queue.errors import CycleError
from orchestration_queue.flows import Dag, FlowPlan, Node, kahn
from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.operations import graphs

NOW = 1_700_000_000_000

Edges = dict[str, list[str]]


def random_edges(nodes: int, edges: int, seed: int) -> Edges:
    """An acyclic graph whose names say nothing about the order, in an order that says nothing either."""
    source = random.Random(seed)
    names = [f"n{number}" for number in source.sample(range(nodes), nodes)]
    chosen: dict[str, set[str]] = {name: set() for name in names}
    for _ in range(edges if nodes > 1 else 0):
        low, high = sorted(source.sample(range(nodes), 2))
        chosen[names[high]].add(names[low])
    shuffled = source.sample(names, nodes)
    return {name: source.sample(sorted(chosen[name]), len(chosen[name])) for name in shuffled}


@st.composite
def acyclic(draw: st.DrawFn) -> Edges:
    nodes = draw(st.integers(1, 200))
    return random_edges(nodes, draw(st.integers(0, 4 * nodes)), draw(st.integers(0, 2**32)))


def compiled(edges: Edges) -> FlowPlan:
    return flows.compile(Dag("any", [Node(name, deps=deps) for name, deps in edges.items()], "q"), "f")


def check_plan(plan: FlowPlan, edges: Edges) -> None:
    order = {name: position for position, name in enumerate(plan.nodes)}
    assert order.keys() == edges.keys()
    for name, deps in edges.items():
        assert all(order[dep] < order[name] for dep in deps)
        assert plan.nodes[name].level == 1 + max((plan.nodes[dep].level for dep in deps), default=-1)

    created: dict[str, int] = {}
    told: Counter[tuple[str, str]] = Counter()
    wired: Counter[tuple[str, str]] = Counter()
    for position, entry in enumerate(plan.planned(NOW)):
        if entry.call.name in {"glidemq_addFlow", "glidemq_addJob"}:
            assert entry.node not in created
            created[entry.node] = position
        if entry.call.name in {"glidemq_addFlow", "SADD"}:
            told.update((dep, entry.node) for dep in entry.waits_for)
        wired.update(notification(entry.call))
    every_edge = Counter((dep, name) for name, deps in edges.items() for dep in deps)
    assert told == every_edge, "each dependent knows all its dependencies at birth"
    assert wired == every_edge, "each dependency notifies each dependent by exactly one way"
    assert all(created[name] < created[dep] for dep, name in every_edge), "dependents come first"


def notification(call: Call) -> list[tuple[str, str]]:
    """The edges along which a completion will travel because of this call."""
    if call.name == "glidemq_registerParent":
        return [(str(call.args[0])[2:], str(call.args[1])[2:])]
    if call.name == "glidemq_addJob" and any(call.args[6:7]):
        return [(str(call.args[16])[2:], str(call.args[6])[2:])]
    return []


def check_submission(plan: FlowPlan, edges: Edges, queues: int) -> None:
    """Every job is in exactly one part, and every edge at each of its ends exactly once, wherever these ends are."""
    whole = plan.submission()
    created: Counter[str] = Counter()
    told: Counter[tuple[str, str, bool]] = Counter()
    wired: Counter[tuple[str, str]] = Counter()
    for part in whole.parts:
        graph = whole.graph(part, NOW)
        assert len(graph.nodes) <= graphs.MOST_NODES
        ids = [node.job.custom_id for node in graph.nodes]
        created.update(ids)
        told.update((ids[edge.dependency], ids[edge.dependent], edge.is_weak) for edge in graph.edges)
        wired.update((ids[edge.dependency], ids[edge.dependent]) for edge in graph.edges)
        assert all(edge.dependent < edge.dependency for edge in graph.edges), "dependents come first"
        told.update((edge.dependency.job_id, ids[edge.dependent], edge.is_weak) for edge in graph.waits_for)
        wired.update((ids[edge.dependency], edge.dependent.job_id) for edge in graph.awaited_by)
        named = [edge.dependency for edge in graph.waits_for] + [edge.dependent for edge in graph.awaited_by]
        assert all(ref.keys == plan.nodes[ref.job_id[2:]].keys for ref in named)
        assert all(plan.nodes[job_id[2:]].keys == part.keys for job_id in ids)
    assert created == Counter(step.job_id for step in plan.nodes.values())
    every_edge = [(dep, name) for name, deps in edges.items() for dep in deps]
    assert wired == Counter((f"f.{dep}", f"f.{name}") for dep, name in every_edge)
    assert told == Counter(
        (f"f.{dep}", f"f.{name}", dep in plan.nodes[name].node.optional_deps) for dep, name in every_edge
    )
    assert whole.is_held == (len(whole.parts) > 1)
    assert len({part.keys for part in whole.parts}) <= queues + 1


@settings(max_examples=60, deadline=None)
@given(acyclic())
def test_any_plan(edges: Edges) -> None:
    check_plan(compiled(edges), edges)


@settings(max_examples=60, deadline=None)
@given(acyclic(), st.integers(1, 4), st.integers(0, 2**32))
def test_any_submission_over_any_queues(edges: Edges, queues: int, seed: int) -> None:
    source = random.Random(seed)
    nodes = []
    for name, deps in edges.items():
        strict = [dep for dep in deps if source.random() < 0.7]
        optional = [dep for dep in deps if dep not in strict]
        nodes.append(Node(name, queue=f"q{source.randrange(queues)}", deps=strict, optional_deps=optional))
    check_submission(flows.compile(Dag("any", nodes, "q0"), "f"), edges, queues)


def test_a_large_plan() -> None:
    edges = random_edges(5_000, 20_000, seed=7)
    started = time.process_time()
    plan = compiled(edges)
    assert time.process_time() - started < 5, "compiling takes time in proportion to the graph (some 0.05 s)"
    check_plan(plan, edges)
    check_submission(plan, edges, 1)
    fewest = (5_000 * 8 + 2 * 20_000) // (8 * graphs.MOST_NODES)  # a node costs as much as eight ends of edges
    assert fewest < len(plan.submission().parts) <= fewest + 3


def test_a_long_chain_needs_no_recursion() -> None:
    edges = {f"n{number}": [f"n{number - 1}"] if number else [] for number in range(5_000)}
    assert kahn.levels(edges.items()) == tuple((name,) for name in edges)
    edges["n0"] = ["n4999"]
    with pytest.raises(CycleError) as caught:
        kahn.levels(edges.items())
    assert len(caught.value.path) == 5_001


@settings(max_examples=100, deadline=None)
@given(acyclic(), st.data())
def test_a_cycle_shown_is_a_cycle(edges: Edges, data: st.DataObject) -> None:
    # Close a circle on purpose: some node now waits for one that waits, over any number of steps, for it.
    start = data.draw(st.sampled_from(sorted(edges)))
    end = start
    for _ in range(data.draw(st.integers(0, 20))):
        if edges[end]:
            end = data.draw(st.sampled_from(edges[end]))
    edges[end] = [*(dep for dep in edges[end] if dep != start), start]
    with pytest.raises(CycleError) as caught:
        kahn.levels(edges.items())
    path = caught.value.path
    assert path[0] == path[-1]
    assert len(set(path)) == len(path) - 1
    assert all(earlier in edges[later] for earlier, later in pairwise(path))
