"""Graphs as data: what is refused, what a plan sends, and how it is drawn."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, cast

import pytest

from orchestration_queue import flows
from orchestration_queue.errors import (
    CycleError,
    DuplicateNodeError,
    FlowError,
    InvalidNameError,
    InvalidOptionError,
    PayloadError,
    ServerError,
    UnknownDependencyError,
)
from orchestration_queue.flows import (
    Dag,
    DagBuilder,
    FlowOptions,
    FlowPlan,
    FlowRecord,
    Node,
    TriggerRule,
    chain,
    chord,
    group,
    tree,
)
from orchestration_queue.flows.drawing import table
from orchestration_queue.flows.plan_calls import needs_our_library
from orchestration_queue.options import Budget, Deduplication, JobOptions, Ordering, Retention

NOW = 1_700_000_000_000


def plan_of(nodes: Iterable[Node], flow_id: str = "f") -> FlowPlan:
    return flows.compile(Dag("etl", list(nodes), "data"), flow_id)


def flow_of(options: FlowOptions) -> FlowPlan:
    return flows.compile(Dag("etl", [Node("a"), Node("b", deps=["a"])], "data", options), "f")


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
    "data that is no JSON": (lambda: plan_of([Node("a", data=object())]), PayloadError, "data of node 'a' cannot"),
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
    "no trigger rule": (
        lambda: Node("b", deps=["a"], trigger_rule=cast(Any, "some")),
        FlowError,
        "use one of TriggerRule",
    ),
    "a rule without dependencies": (
        lambda: Dag("etl", [Node("a", trigger_rule=TriggerRule.ALL_DONE)], "data"),
        FlowError,
        "has the trigger rule all_done but no deps",
    ),
    "text as optional deps": (lambda: Node("a", optional_deps="extract"), FlowError, "as optional_deps; pass a list"),
    "both kinds of dependency": (
        lambda: Node("c", deps=["a", "b"], optional_deps=["b"]),
        FlowError,
        "names 'b' in both deps and optional_deps",
    ),
    "unknown optional dependency": (
        lambda: plan_of([Node("a", optional_deps=["b"])]),
        UnknownDependencyError,
        "Node 'a' depends on 'b'",
    ),
    "circle by an optional dependency": (
        lambda: plan_of([Node("a", deps=["b"]), Node("b", optional_deps=["a"])]),
        CycleError,
        "a -> b -> a",
    ),
    "delay of a node with an optional dependency": (
        lambda: Node("b", optional_deps=["a"], options=JobOptions(delay=timedelta(seconds=1))),
        FlowError,
        "drop delay",
    ),
    "several dependents, one elsewhere, by glide-mq's library": (
        lambda: plan_of([Node("a"), Node("b", deps=["a"]), Node("c", queue="other", deps=["a"])]).calls(NOW),
        FlowError,
        "'a' of queue 'data' has several dependents, but with glide-mq's library, completing it can't release 'c' in "
        "queue 'other'",
    ),
    "a rule, by glide-mq's library": (
        lambda: plan_of([Node("a"), Node("b", deps=["a"], trigger_rule=TriggerRule.ALL_DONE)]).calls(NOW),
        FlowError,
        "'b' has the trigger rule all_done, which glide-mq's library does not know",
    ),
    "an optional dependency, by glide-mq's library": (
        lambda: plan_of([Node("a"), Node("b", optional_deps=["a"])]).calls(NOW),
        FlowError,
        "'b' has optional_deps, which glide-mq's library does not know",
    ),
    "a timeout, by glide-mq's library": (
        lambda: flow_of(FlowOptions(timeout=timedelta(hours=1))).calls(NOW),
        FlowError,
        "has the option timeout, which glide-mq's library does not know",
    ),
    "a callback with dependencies": (
        lambda: FlowOptions(on_success=Node("tell", deps=["a"])),
        InvalidOptionError,
        "'tell' is a flow's on_success, which waits for the flow itself; drop its deps",
    ),
    "a callback with a delay": (
        lambda: FlowOptions(on_failure=Node("tell", options=JobOptions(delay=timedelta(seconds=1)))),
        InvalidOptionError,
        "the wire ignores delay",
    ),
    "a callback of a node's name": (
        lambda: flow_of(FlowOptions(on_success=Node("a"))),
        DuplicateNodeError,
        "two nodes named 'a'",
    ),
    "no time at all": (lambda: FlowOptions(timeout=timedelta(0)), InvalidOptionError, "FlowOptions.timeout"),
    "no place at all": (lambda: FlowOptions(concurrency=0), InvalidOptionError, "FlowOptions.concurrency"),
    "an option of another name": (
        lambda: FlowOptions(**cast(Any, {"failfast": True})),
        InvalidOptionError,
        "no option 'failfast'",
    ),
    "concurrency over several queues": (
        lambda: Dag("etl", [Node("a"), Node("b", queue="other")], "data", FlowOptions(concurrency=1)),
        FlowError,
        "has a concurrency and nodes in queues data, other",
    ),
    "concurrency and ordering": (
        lambda: Dag(
            "etl",
            [Node("a", options=JobOptions(ordering=Ordering(key="k")))],
            "data",
            FlowOptions(concurrency=1),
        ),
        FlowError,
        "'a' has an ordering, but a job can't also count",
    ),
    "an included flow's own timeout": (
        lambda: DagBuilder("all", queue="q").include(
            Dag("part", [Node("a")], "q", FlowOptions(timeout=timedelta(hours=1))), as_="part"
        ),
        FlowError,
        "Flow 'part' has the option timeout, which applies to a whole flow",
    ),
    "a chain of nothing": (lambda: chain(), FlowError, "A chain needs at least one node"),
    "a group of nothing": (lambda: group(), FlowError, "A group needs at least one node"),
    "a chord of nothing": (lambda: chord([], Node("a")), FlowError, "A group needs at least one node"),
    "an urgent node in a chain": (
        lambda: chain(Node("a"), Node("b", options=JobOptions(priority=1))),
        FlowError,
        "drop priority",
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
    assert plan.carrier == "transaction"


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
    assert plan.carrier == "packed"
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
    assert flows.compile(diamond(), "f", prefix="acme").nodes["A"].member == "acme:{data}:f.A"


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


def test_explain_lists_the_calls_and_names_their_carrier() -> None:
    assert (
        flows.compile(Dag("pair", [Node("a"), Node("b", deps=["a"])], "data"), "f7").explain()
        == """\
Flow 'pair' as f7: 2 nodes, 2 levels, 7 calls
Carrier: one transaction (MULTI/EXEC)

call  function         queue  for
   1  HSET             data   the flow
   2  ZADD             data   the flow
   3  ZADD             data   the flow
   4  glidemq_addFlow  data   b waits for a
   5  HSET             data   b
   6  glidemq_addJob   data   a
   7  HSET             data   a

level  node  queue  rule         waits for
    1  b     data   all_success  a
    0  a     data"""
    )


def test_explain_of_a_flow_over_queues_lists_calls_that_are_packed() -> None:
    plan = plan_of([Node("a"), Node("b", queue="spark", deps=["a"]), Node("c", deps=["a"], optional_deps=["b"])])
    head, calls, nodes = plan.explain().split("\n\n")
    assert head.splitlines()[1] == (
        "Carrier: packed into 2 oq1_submitGraph, held until all are stored, then 2 oq1_releaseGraph"
    )
    named = [line.split(maxsplit=3)[1:] for line in calls.splitlines()[1:]]
    assert ["glidemq_addFlow", "data", "c waits for a, b"] in named
    assert ["glidemq_registerParent", "spark", "b waits for a"] in named
    assert nodes.splitlines()[1].split(maxsplit=4) == ["2", "c", "data", "all_success", "a, b (optional)"]


@pytest.mark.parametrize(("nodes", "carrier"), [(1, "transaction"), (100, "transaction"), (101, "packed")])
def test_a_plan_too_large_for_one_transaction_is_packed(nodes: int, carrier: str) -> None:
    assert plan_of([Node(f"n{number}") for number in range(nodes)]).carrier == carrier


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


def edges(dag: Dag) -> dict[str, tuple[str, ...]]:
    return {node.name: tuple(node.waits_for) for node in dag.all_nodes}


def test_a_chain_runs_one_after_the_other() -> None:
    dag = chain(Node("a"), group(Node("b"), Node("c")), Node("d"), Node("e")).dag("line", queue="q")
    assert edges(dag) == {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c"), "e": ("d",)}


def test_a_chord_calls_back_after_all_by_the_callbacks_own_rule() -> None:
    last = Node("last", trigger_rule=TriggerRule.ALL_DONE)
    dag = chord([Node("a"), chain(Node("b"), Node("c"))], last).dag("chord", queue="q")
    assert edges(dag) == {"a": (), "b": (), "c": ("b",), "last": ("a", "c")}
    assert dag.levels[-1][0].trigger_rule is TriggerRule.ALL_DONE


def test_the_children_of_a_tree_run_first() -> None:
    dag = tree(Node("root"), [tree(Node("left"), [Node("x"), Node("y")]), tree(Node("right"))]).dag("tree", queue="q")
    assert edges(dag) == {"x": (), "y": (), "left": ("x", "y"), "right": (), "root": ("left", "right")}


def test_an_included_flow_is_waited_for_by_its_leaves() -> None:
    load = DagBuilder("load", queue="io")
    raw = load.node("raw", task="fetch")
    load.node("rows", deps=[raw])
    load.node("log", optional_deps=[raw])
    whole = DagBuilder("all", queue="data")
    start = whole.node("start")
    loaded = whole.include(load.build(), as_="load", deps=[start])
    whole.node("report", deps=[loaded])
    dag = whole.build()
    assert edges(dag) == {
        "start": (),
        "load.raw": ("start",),
        "load.rows": ("load.raw",),
        "load.log": ("load.raw",),
        "report": ("load.rows", "load.log"),
    }
    inner = {node.name: (node.job_name, dag.queue_of(node)) for node in dag.nodes}
    assert inner["load.raw"] == ("fetch", "io")
    assert inner["load.rows"] == ("rows", "io")
    assert inner["report"] == ("report", "data")


def test_a_flow_within_a_flow_within_a_flow() -> None:
    def around(dag: Dag, name: str) -> Dag:
        outer = DagBuilder(name, queue="q")
        outer.node("after", deps=[outer.include(dag, as_="in")])
        return outer.build()

    assert edges(around(around(Dag("d", [Node("a")], "q"), "one"), "two")) == {
        "in.in.a": (),
        "in.after": ("in.in.a",),
        "after": ("in.after",),
    }


@pytest.mark.parametrize(("nodes", "carrier"), [(100, "transaction"), (101, "packed")])
def test_a_transaction_carries_about_three_hundred_calls(nodes: int, carrier: str) -> None:
    assert plan_of([Node(f"n{number}") for number in range(nodes)]).carrier == carrier


@pytest.mark.parametrize(("dependents", "carrier"), [(59, "transaction"), (60, "packed")])
def test_each_dependent_of_a_node_takes_two_calls(dependents: int, carrier: str) -> None:
    plan = plan_of([Node("first"), *[Node(f"n{number}", deps=["first"]) for number in range(dependents)]])
    assert plan.carrier == carrier


def test_a_dependent_elsewhere_is_registered_only_where_slots_differ() -> None:
    plan = plan_of([Node("a"), Node("b", deps=["a"], queue="other")])
    packed, together = ([entry.call.name for entry in plan.transaction(NOW, way)] for way in ("packed", "transaction"))
    assert "glidemq_registerParent" in packed
    assert "glidemq_registerParent" not in together


def test_a_shape_becomes_a_graph_with_its_options() -> None:
    shape = chain(Node("a"), Node("b"))
    assert shape.dag("d", queue="q", options=FlowOptions(priority=3)).options == FlowOptions(priority=3)
    assert shape.dag("d", queue="q").options == FlowOptions()


def own_fields(*nodes: Node) -> dict[str, dict[str, object]]:
    """The rule and optional dependencies that a transaction stores in the nodes' jobs."""
    plan = plan_of(nodes)
    stored: dict[str, dict[str, object]] = {}
    for entry in plan.transaction(NOW):
        if entry.node and entry.call.name == "HSET":
            fields = dict(zip(entry.call.args[::2], entry.call.args[1::2], strict=True))
            stored[entry.node] = {str(name): fields[name] for name in ("triggerRule", "depsOptional") if name in fields}
    return stored


def test_a_rule_that_is_not_the_default_is_stored() -> None:
    assert own_fields(
        Node("a"),
        Node("b", deps=["a"]),
        Node("c", deps=["a"], trigger_rule=TriggerRule.ALL_DONE),
        Node("d", deps=["a"], optional_deps=["b"]),
    ) == {"a": {}, "b": {}, "c": {"triggerRule": "all_done"}, "d": {"depsOptional": 1}}


@pytest.mark.parametrize(
    ("rule", "kept", "is_released"),
    [
        (TriggerRule.ALL_SUCCESS, [], False),
        (TriggerRule.ALL_FAILED, ["__rule__"], False),
        (TriggerRule.ONE_FAILED, ["__rule__"], False),
        (TriggerRule.ALWAYS, ["__hold__"], True),
    ],
)
def test_a_rule_that_completed_dependencies_do_not_meet_keeps_a_job_waiting(
    rule: TriggerRule, kept: list[str], is_released: bool
) -> None:
    plan = plan_of([Node("a"), Node("b", deps=["a"], trigger_rule=rule)])
    calls = [entry.call for entry in plan.transaction(NOW)]
    members = [str(call.args[0]) for call in calls if call.name == "SADD"]
    assert [member.rpartition(":")[2] for member in members] == kept
    assert [call.name for call in calls].count("oq1_releaseGraph") == is_released


@pytest.mark.parametrize(
    ("nodes", "options", "needs"),
    [
        ([Node("b", deps=["a"])], FlowOptions(), False),
        ([Node("b", deps=["a"])], FlowOptions(priority=3), False),
        ([Node("b", deps=["a"], trigger_rule=TriggerRule.ALL_DONE)], FlowOptions(), True),
        ([Node("b", optional_deps=["a"])], FlowOptions(), True),
        ([Node("b", deps=["a"])], FlowOptions(timeout=5), True),
        ([Node("b", deps=["a"])], FlowOptions(on_failure=Node("ill")), True),
    ],
    ids=["plain", "priority", "rule", "optional", "option", "callback"],
)
def test_what_other_libraries_do_not_know_needs_ours(nodes: list[Node], options: FlowOptions, needs: bool) -> None:
    assert needs_our_library(Dag("d", [Node("a"), *nodes], "q", options)) is needs


def test_callbacks_are_nodes_with_the_right_rules() -> None:
    options = FlowOptions(on_success=Node("well", task="tell", data=1), on_failure=Node("ill"))
    dag = Dag("d", [Node("a"), Node("b", deps=["a"]), Node("c", deps=["a"])], "q", options)
    assert edges(dag) == {"a": (), "b": ("a",), "c": ("a",), "well": ("b", "c"), "ill": ("a", "b", "c")}
    assert [(node.name, node.trigger_rule) for node in dag.callbacks] == [
        ("well", "all_success"),
        ("ill", "one_failed"),
    ]
    assert [node.name for node in dag.nodes] == ["a", "b", "c"]
    assert dag == Dag("d", dag.nodes, "q", options), "nodes and options make the same graph again"


def test_callbacks_of_an_included_flow_hear_of_its_own_nodes() -> None:
    inner = Dag("d", [Node("a")], "q", FlowOptions(on_failure=Node("ill")))
    outer = DagBuilder("o", queue="q")
    outer.node("after", deps=[outer.include(inner, as_="in")])
    assert edges(outer.build()) == {"in.a": (), "in.ill": ("in.a",), "after": ("in.a",)}


def test_the_flows_priority_is_that_of_nodes_that_wait_for_nothing() -> None:
    own = Node("own", options=JobOptions(priority=9))
    dag = Dag("d", [Node("a"), own, Node("b", deps=["a"])], "q", FlowOptions(priority=3))
    steps = flows.compile(dag, "f").nodes
    assert {name: step.options.priority for name, step in steps.items()} == {"a": 3, "own": 9, "b": 0}


def test_a_long_cell_of_a_table_is_cut() -> None:
    lines = table(("level", "node"), [("1", "x" * 60), ("10", "x" * 61)]).splitlines()
    assert lines == ["level  node", f"    1  {'x' * 60}", f"   10  {'x' * 57}..."]


def test_rules_and_optional_edges_are_drawn() -> None:
    plan = plan_of(
        [Node("a"), Node("b"), Node("c", deps=["a"], optional_deps=["b"], trigger_rule=TriggerRule.ALL_DONE)]
    )
    assert plan.to_mermaid() == (
        'flowchart LR\n    n0["a"]\n    n1["b"]\n    n2["c (all_done)"]\n    n0 --> n2\n    n1 -.-> n2\n'
    )
    assert '    "c" [label="c (all_done)"];\n' in plan.to_dot()
    assert '    "a" -> "c";\n    "b" -> "c" [style=dashed];\n' in plan.to_dot()


def test_a_record_is_read_as_it_was_written() -> None:
    options = FlowOptions(
        fail_fast=True,
        timeout=timedelta(minutes=5),
        retention=Retention(count=3, age=timedelta(days=1)),
        concurrency=2,
        on_success=Node("well"),
        on_failure=Node("ill", queue="ops"),
        budget=Budget(max_tokens=5),
    )
    nodes = [
        Node("b", task="t", deps=["a"], trigger_rule=TriggerRule.ALL_DONE),
        Node("a"),
        Node("c", optional_deps=["a"]),
    ]
    record = FlowRecord.of(Dag("d", nodes, "q", options))
    assert FlowRecord.read(record.text()) == record
    assert json.loads(record.text()) == {
        "name": "d",
        "nodes": [
            ["a", "q", [], "a", "all_success"],
            ["b", "q", ["a"], "t", "all_done"],
            ["c", "q", [], "c", "all_success", ["a"]],
            ["well", "q", ["b", "c"], "well", "all_success"],
            ["ill", "ops", ["b", "a", "c"], "ill", "one_failed"],
        ],
        "options": {
            "failFast": True,
            "timeout": 300_000,
            "retention": {"age": 86_400, "count": 3},
            "concurrency": 2,
            "onSuccess": "well",
            "onFailure": "ill",
        },
    }
    assert record.queues == ["q", "ops"]
    assert record.options.callbacks == {"well", "ill"}
    assert [job_id for _, job_id in record.jobs("f")] == ["f.a", "f.b", "f.c", "f.well", "f.ill"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"name":"d","nodes":[["a"]],"options":{}}', '{"name":1'])
def test_a_record_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ServerError, match="record of a flow cannot be read"):
        FlowRecord.read(text)
