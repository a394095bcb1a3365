"""Nodes that map: what is refused before anything is sent, and what their elements' jobs are given."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from orchestration_queue import flows
from orchestration_queue.errors import FlowError, InvalidOptionError, PayloadError, UsageError
from orchestration_queue.flows import DagBuilder, FlowOptions, Node
from orchestration_queue.flows.mapping import ElementMap, element, element_index
from orchestration_queue.options import JobOptions, Ordering, Retention

NOW = 1_700_000_000_000


def builder(**options: Any) -> DagBuilder:
    dag = DagBuilder("fan", queue="data", options=FlowOptions(**options))
    dag.node("list")
    return dag


def mapped(**options: Any) -> Callable[[], object]:
    return lambda: builder().map("double", "twice", **{"over": "list", **options})


def of(first: DagBuilder, *then: Callable[[DagBuilder], object]) -> Callable[[], object]:
    def build() -> object:
        for step in then:
            step(first)
        return first.build()

    return build


def add(name: str, over: str = "list", **options: Any) -> Callable[[DagBuilder], object]:
    return lambda dag: dag.map(name, "twice", over=over, **options)


@pytest.mark.parametrize(
    ("make", "error", "why"),
    [
        (mapped(over=None), UsageError, "over (given None): Input should be a valid string."),
        (mapped(as_="a", data={"a": 1}), InvalidOptionError, "uses 'a' both for the element"),
        (mapped(data={"a": object()}), PayloadError, "The data of the elements of node 'double'"),
        (
            mapped(max_concurrency=2, options=JobOptions(ordering=Ordering(key="k"))),
            InvalidOptionError,
            "a job belongs to one group only; use ordering.concurrency instead",
        ),
        (
            mapped(options=JobOptions(remove_on_complete=Retention(age=timedelta(hours=1)))),
            FlowError,
            "removes its elements' jobs when they end",
        ),
        (of(builder(), add("double", over="gone")), FlowError, "'gone'"),
        (
            of(builder(), add("double"), add("again", over="double")),
            FlowError,
            "Node 'again' maps over node 'double', which maps itself and returns no list",
        ),
        (
            of(builder(), add("double"), lambda dag: dag.node("double[3]")),
            FlowError,
            "is called like an element of node 'double'",
        ),
        (
            of(builder(), lambda dag: dag.add(Node("double", "oq.map", data={"over": "list"}))),
            FlowError,
            "maps over a node for which it does not wait",
        ),
        (of(builder(concurrency=2), add("double")), FlowError, "has a concurrency, which counts its nodes"),
    ],
)
def test_what_cannot_be_mapped_is_refused_at_once(make: Callable[[], object], error: type[Exception], why: str) -> None:
    with pytest.raises(error) as caught:
        make()
    assert why in str(caught.value)


@pytest.mark.parametrize("bad", [0, -1, 1.5])
def test_a_limit_is_a_positive_number(bad: Any) -> None:
    with pytest.raises(InvalidOptionError, match="max_concurrency"):
        mapped(max_concurrency=bad)()


@pytest.mark.parametrize(
    ("options", "value", "data"),
    [
        ({}, 5, 5),
        ({}, {"a": 1}, {"a": 1}),
        ({"parameter": "n"}, 5, {"n": 5}),
        ({"parameter": "n", "data": {"w": 1}}, 5, {"w": 1, "n": 5}),
        ({"data": {"w": 1, "a": 0}}, {"a": 1}, {"w": 1, "a": 1}),
    ],
)
def test_an_element_meets_the_data_of_all(options: dict[str, Any], value: object, data: object) -> None:
    assert ElementMap(over="list", task="twice", **options).data_of(value) == data


def test_elements_are_jobs_with_ids_of_their_own() -> None:
    elements = ElementMap(over="list", task="twice", options=JobOptions(attempts=3), max_concurrency=2)
    jobs = list(elements.jobs("f.double", ["a", "b"], NOW))
    assert [(job.custom_id, job.job_name, job.data, job.max_attempts) for job in jobs] == [
        ("f.double[0]", "twice", '"a"', 3),
        ("f.double[1]", "twice", '"b"', 3),
    ]
    assert {(job.ordering_key, job.group_concurrency) for job in jobs} == {("map.f.double", 2)}


@pytest.mark.parametrize("name", ["double[01]", "double[-1]", "double[1]x", "other[1]", "double", "double[]"])
def test_other_names_are_no_elements(name: str) -> None:
    assert element_index("double", name) is None
    assert element_index("double", element("double", 17)) == 17


def test_an_included_map_is_told_where_its_list_is() -> None:
    outer = DagBuilder("outer", queue="data")
    inner = builder()
    inner.map("double", "twice", over="list", queue="cpu")
    outer.include(inner.build(), as_="in")
    (node,) = [step for step in flows.compile(outer.build(), "f").nodes.values() if step.task == "oq.map"]
    assert node.keys.queue == "cpu"
    assert '"over":"in.list"' in node.data_text.replace(" ", "")
    assert '"over_queue":"data"' in node.data_text.replace(" ", "")
