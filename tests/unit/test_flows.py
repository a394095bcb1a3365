"""Graphs as data: what is refused, what a plan sends, and how it is drawn."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import pytest

from orchestration_queue import flows
from orchestration_queue.errors import (
    CycleError,
    DuplicateNodeError,
    FlowError,
    InvalidNameError,
    PayloadError,
    UnknownDependencyError,
)
from orchestration_queue.flows import Dag, DagBuilder, FlowPlan, Node
from orchestration_queue.options import Deduplication, JobOptions, Ordering, Retention

NOW = 1_700_000_000_000


def plan_of(nodes: Iterable[Node], flow_id: str = "f") -> FlowPlan:
    return flows.compile(Dag("etl", list(nodes), "data"), flow_id)


def diamond() -> Dag:
    dag = DagBuilder("diamond", queue="data")
    a = dag.node("A", data={"day": 1})
    b, c = dag.node("B", deps=[a]), dag.node("C", deps=[a])
    dag.node("D", deps=[b, c])
    return dag.build()


BAD_GRAPHS: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "no node": (lambda: Dag("etl", [], "data"), FlowError, "requires at least one node"),
    "two of one name": (lambda: plan_of([Node("a"), Node("a")]), DuplicateNodeError, "two nodes named 'a'"),
    "unknown dependency": (
        lambda: plan_of([Node("a", deps=["b"])]),
        UnknownDependencyError,
        "Node 'a' depends on 'b', which is not in the flow",
    ),
    "waits for itself": (lambda: plan_of([Node("a", deps=["a"])]), CycleError, "a -> a"),
    "circle of three": (
        lambda: plan_of([Node("x"), Node("a", deps=["c"]), Node("b", deps=["a", "x"]), Node("c", deps=["b"])]),
        CycleError,
        "a -> b -> c -> a",
    ),
    "text as deps": (lambda: Node("a", deps="extract"), FlowError, "pass a list of names"),
    "text as deps of the builder": (
        lambda: DagBuilder("etl", queue="q").node("a", deps="extract"),
        FlowError,
        "pass a list of names",
    ),
    "colon in a name": (lambda: Node("a:b"), InvalidNameError, "contains ':'"),
    "brace in a name": (lambda: Node("{a}"), InvalidNameError, "contains '{'"),
    "line break in a name": (lambda: Node("a\n"), InvalidNameError, r"contains '\\n'"),
    "no name": (lambda: Node(""), InvalidNameError, "is empty"),
    "id too long": (lambda: plan_of([Node("n" * 250)], "flow-id"), InvalidNameError, "longer than 256"),
    "colon in the flow's id": (lambda: plan_of([Node("a")], "f:1"), InvalidNameError, "contains ':'"),
    "dot in the flow's id": (lambda: plan_of([Node("a")], "f.1"), InvalidNameError, "contains '.'"),
    "flow's id of scheduled jobs": (lambda: plan_of([Node("a")], "repeat"), InvalidNameError, "scheduled jobs"),
    "brace in the queue": (lambda: Dag("etl", [Node("a", queue="{q}")], "data"), InvalidNameError, "Queue name"),
    "brace in the default queue": (lambda: Dag("etl", [Node("a")], "{q}"), InvalidNameError, "Queue name"),
    "data that is no JSON": (lambda: plan_of([Node("a", data={1, 2})]), PayloadError, "data of node 'a' cannot"),
    "data too large": (lambda: plan_of([Node("a", data="x" * 1_048_575)]), PayloadError, "exceeds maximum size"),
    "own job id": (lambda: Node("a", options=JobOptions(job_id="mine")), FlowError, "drop job_id"),
    "deduplication": (
        lambda: Node("a", options=JobOptions(deduplication=Deduplication(id="x"))),
        FlowError,
        "has deduplication",
    ),
    "ordering key of the wire's own": (
        lambda: Node("a", options=JobOptions(ordering=Ordering(key="tenant:1"))),
        FlowError,
        "has an ordering key that contains ':', which no client accepts in flows",
    ),
    "delay of a waiting node": (
        lambda: Node("b", deps=["a"], options=JobOptions(delay=timedelta(seconds=1))),
        FlowError,
        "drop delay",
    ),
    "priority of a waiting node": (
        lambda: Node("b", deps=["a"], options=JobOptions(priority=1)),
        FlowError,
        "drop priority",
    ),
    "lifo of a waiting node": (lambda: Node("b", deps=["a"], options=JobOptions(lifo=True)), FlowError, "drop lifo"),
    "ordering of a waiting node": (
        lambda: Node("b", deps=["a"], options=JobOptions(ordering=Ordering(key="k"))),
        FlowError,
        "drop ordering",
    ),
    "several dependents, one elsewhere": (
        lambda: plan_of([Node("a"), Node("b", deps=["a"]), Node("c", queue="other", deps=["a"])]),
        FlowError,
        "'a' of queue 'data' has several dependents, and completing it cannot release 'c' in queue 'other'",
    ),
}


@pytest.mark.parametrize("case", BAD_GRAPHS)
def test_bad_input_is_refused_in_one_sentence(case: str) -> None:
    build, error, message = BAD_GRAPHS[case]
    with pytest.raises(error, match=message) as caught:
        build()
    text = str(caught.value)
    assert text.endswith(".")
    assert "\n" not in text


def test_levels_are_one_more_than_the_highest_dependency() -> None:
    dag = Dag("etl", [Node("d", deps=["a", "c"]), Node("c", deps=["b"]), Node("b"), Node("a")], "data")
    assert [[node.name for node in level] for level in dag.levels] == [["b", "a"], ["c"], ["d"]]


def test_a_dependency_named_twice_is_one() -> None:
    assert Node("b", deps=["a", "a"]).deps == ("a",)


def test_options_that_a_flow_keeps() -> None:
    first = JobOptions(delay=timedelta(seconds=2), priority=3, ordering=Ordering(key="k"))
    second = JobOptions(attempts=4, ttl=timedelta(seconds=9), remove_on_complete=Retention(count=5))
    leaf, waiting = plan_of([Node("a", options=first), Node("b", deps=["a"], options=second)]).calls(NOW)[::-1]
    assert leaf.args[4:6] == (2000, 3)
    assert json.loads(str(waiting.args[2])) == {"jobId": "f.b", "attempts": 4, "ttl": 9000, "removeOnComplete": 5}
    assert waiting.args[4:7] == (0, 0, 4)


def shape(plan: FlowPlan) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(p.call.name.removeprefix("glidemq_"), p.node, p.waits_for) for p in plan.planned(NOW)]


def test_diamond_creates_dependents_first() -> None:
    plan = flows.compile(diamond(), "f")
    assert shape(plan) == [
        ("addFlow", "D", ("B", "C")),
        ("addFlow", "B", ("A",)),
        ("registerParent", "D", ("B",)),
        ("HSET", "B", ()),
        ("addFlow", "C", ("A",)),
        ("registerParent", "D", ("C",)),
        ("HSET", "C", ()),
        ("addJob", "A", ()),
        ("registerParent", "B", ("A",)),
        ("registerParent", "C", ("A",)),
        ("HSET", "A", ()),
    ]
    assert plan.is_single_slot


def test_diamond_word_by_word() -> None:
    calls = flows.compile(diamond(), "f").calls(NOW)
    base = "glide:{data}"
    assert calls[0].words == (
        *("FCALL", "glidemq_addFlow", 4, f"{base}:id", f"{base}:stream", f"{base}:scheduled", f"{base}:events"),
        *("D", "null", '{"jobId":"f.D"}', NOW, 0, 0, 0, 0, "f.D", 2, f"{base}:f.B", f"{base}:f.C"),
    )
    assert calls[2].words == (
        *("FCALL", "glidemq_registerParent", 6),
        *(f"{base}:job:f.B", f"{base}:parents:f.B", f"{base}:deps:f.D"),
        *(f"{base}:job:f.D", f"{base}:stream", f"{base}:events"),
        *("f.B", "f.D", base, f"{base}:f.B"),
    )
    assert calls[7].args[:4] == ("A", '{"day":1}', '{"jobId":"f.A"}', NOW)
    assert calls[7].args[6] == ""
    assert calls[7].args[16] == "f.A"
    assert calls[10].words == (
        *("HSET", f"{base}:job:f.A"),
        *("parentIds", '["f.B","f.C"]', "parentQueues", '["data","data"]'),
    )


def test_leaf_with_one_dependent_carries_its_parent() -> None:
    plan = plan_of([Node("a"), Node("b", deps=["a"])])
    assert shape(plan) == [("addFlow", "b", ("a",)), ("addJob", "a", ())]
    leaf = plan.calls(NOW)[1]
    assert leaf.keys[4:] == ("glide:{data}:deps:f.b",)
    assert (leaf.args[6], leaf.args[18]) == ("f.b", "data")


def test_node_alone_is_a_plain_job() -> None:
    (call,) = plan_of([Node("a", task="load", data=[1])]).calls(NOW)
    assert (call.name, call.args[0], call.args[1], call.args[6], len(call.keys)) == (
        "glidemq_addJob",
        "load",
        "[1]",
        "",
        4,
    )


def test_single_dependent_in_another_queue_is_found_by_its_parent_fields() -> None:
    plan = plan_of([Node("a"), Node("b", deps=["a"], queue="mid"), Node("c", deps=["b"], queue="end")])
    assert not plan.is_single_slot
    last, middle, fields, leaf = plan.calls(NOW)
    assert last.args[-2:] == (1, "glide:{mid}:f.b")
    assert middle.args[-2:] == (1, "glide:{data}:f.a")
    assert fields.words == ("HSET", "glide:{mid}:job:f.b", "parentId", "f.c", "parentQueue", "end")
    assert (leaf.args[6], leaf.args[18], len(leaf.keys)) == ("f.b", "mid", 4)
    for call in (last, middle, leaf):
        assert len({key.partition("}")[0] for key in call.keys}) == 1, "each call stays on one slot"


def test_a_wide_fan_in_is_told_in_parts() -> None:
    names = [f"part-{number}" for number in range(2500)]
    planned = list(plan_of([*(Node(name) for name in names), Node("all", deps=names)]).planned(NOW))
    told = [entry for entry in planned if entry.node == "all"]
    assert [(entry.call.name, len(entry.waits_for)) for entry in told] == [
        ("glidemq_addFlow", 1000),
        ("SADD", 1000),
        ("SADD", 500),
    ]
    assert planned[:3] == told, "nothing to wait for exists before all of it is known"
    assert [name for entry in told for name in entry.waits_for] == names
    assert told[1].call.words[:3] == ("SADD", "glide:{data}:deps:f.all", "glide:{data}:f.part-1000")


def test_prefix_reaches_every_key() -> None:
    for call in flows.compile(diamond(), "f", prefix="acme").calls(NOW):
        assert all(key.startswith("acme:{data}:") for key in call.keys)
    assert flows.compile(diamond(), "f", prefix="acme").steps["A"].member == "acme:{data}:f.A"


def test_builder_and_values_say_the_same() -> None:
    by_hand = Dag(
        "diamond",
        [Node("A", data={"day": 1}), Node("B", deps=["A"]), Node("C", deps=["A"]), Node("D", deps=["B", "C"])],
        "data",
    )
    assert diamond() == by_hand


@pytest.mark.parametrize(
    ("job_id", "parts"),
    [
        ("f.a", ("f", "a")),
        ("f.a.b", ("f", "a.b")),
        ("17", None),
        ("f.", None),
        (".a", None),
        ("repeat.nightly.1700000000000", None),
    ],
)
def test_job_ids_split_one_way(job_id: str, parts: tuple[str, str] | None) -> None:
    assert flows.split_job_id(job_id) == parts
    if parts:
        assert flows.job_id_of(*parts) == job_id


def test_explain() -> None:
    lines = flows.compile(diamond(), "f7").explain().splitlines()
    assert lines[0] == "Flow 'diamond' as f7: 4 nodes, 3 levels, 11 calls in one transaction"
    assert [line.split() for line in lines[2:4]] == [
        ["step", "function", "node", "waits", "for"],
        ["1", "glidemq_addFlow", "D", "B,", "C"],
    ]
    assert len(lines) == 2 + 1 + 11


def test_drawings_escape_what_would_be_markup() -> None:
    plan = plan_of([Node('say "hi"'), Node("b\\", deps=['say "hi"'])])
    assert plan.to_mermaid() == (
        'flowchart LR\n    n0["say #34;hi#34;"]\n    n1["b#92;"]\n    n0 --> n1\n'
    )  # fmt: skip
    assert '    "say \\"hi\\"" -> "b\\\\";\n' in plan.to_dot()
    assert plan.to_dot().startswith('digraph "etl" {\n')


@pytest.mark.parametrize("data", [None, 0, False, "", [], {}, {"a": [1, 2.5, "ü"]}])
def test_any_json_value_is_data(data: Any) -> None:
    (call,) = plan_of([Node("a", data=data)]).calls(NOW)
    assert json.loads(str(call.args[1])) == data
