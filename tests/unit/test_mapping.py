"""Nodes that map: what is refused before anything is sent, and what their elements' jobs are given."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from orchestration_queue import flows
from orchestration_queue.errors import (
    FlowError,
    InvalidNameError,
    InvalidOptionError,
    JobNotFoundError,
    PayloadError,
    StateError,
    UsageError,
)
from orchestration_queue.flows import DagBuilder, FlowOptions, Node
from orchestration_queue.flows.elements import PAGE, MappedResults, ends, find_results, page
from orchestration_queue.flows.mapping import ElementMap, element, element_index
from orchestration_queue.options import JobOptions, Ordering, Retention
from orchestration_queue.protocol.call import Call, Reply
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.placement import ParentRef
from tests.conversations import Stored, hold, talk

NOW = 1_700_000_000_000
KEYS = QueueKeys("q")
MAPPED = {"name": "oq.map", "state": "completed", "returnvalue": '{"count": 3}'}


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
            "has the name of an element of node 'double'",
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
    inner.node("plain", data={"a": 1})
    inner.map("double", "twice", over="list", queue="cpu")
    outer.include(inner.build(), as_="in")
    nodes = flows.compile(outer.build(), "f").nodes
    assert nodes["in.plain"].data_text == '{"a":1}'
    node = nodes["in.double"]
    assert node.keys.queue == "cpu"
    assert '"over":"in.list"' in node.data_text.replace(" ", "")
    assert '"over_queue":"data"' in node.data_text.replace(" ", "")


def test_the_id_of_a_map_leaves_room_for_the_group_of_its_elements() -> None:
    longest = "x" * (256 - len("f."))
    dag = builder()
    dag.node(longest)
    assert longest in flows.compile(dag.build(), "f").nodes
    dag = builder()
    dag.map(longest, "twice", over="list")
    with pytest.raises(InvalidNameError, match="is longer than 256 characters"):
        flows.compile(dag.build(), "f")


def answer_of(stored: Stored, waits_for: tuple[str, ...]) -> Callable[[Call], Reply]:
    """Return the answers of a server with these jobs of flow `f`; job `f.after` waits for some of them."""

    def answer(call: Call) -> Reply:
        name = call.keys[0].rpartition("f.")[2]
        if call.name == "SMEMBERS":
            return [KEYS.member(f"f.{name}").encode() for name in waits_for]
        fields = stored.get(name) or {}
        return [fields[field].encode() if field in fields else None for field in map(str, call.args)]

    return answer


def find(stored: Stored, job_id: str = "f.after", waits_for: tuple[str, ...] = ("list", "double")) -> MappedResults:
    """Find the results of node `double` for a job."""
    return talk(find_results(KEYS, job_id, "double"), answer_of(stored, waits_for))


def test_a_job_finds_the_results_of_the_map_that_it_waits_for() -> None:
    assert find({"double": MAPPED, "list": {"state": "completed"}}) == MappedResults(ParentRef(KEYS, "f.double"), 3)


@pytest.mark.parametrize(
    ("double", "error", "why"),
    [
        ({**MAPPED, "name": "twice"}, UsageError, "is not mapped"),
        ({**MAPPED, "state": "active"}, StateError, "Node 'double' is active"),
        (None, StateError, "Node 'double' is gone"),
    ],
)
def test_only_a_completed_map_has_results(double: dict[str, str] | None, error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        find({"double": double})


@pytest.mark.parametrize(("job_id", "waits_for"), [("f.after", ("list",)), ("f.after", ()), ("after", ("double",))])
def test_a_job_that_does_not_wait_for_a_node_cannot_read_its_results(job_id: str, waits_for: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="doesn't wait for node 'double'"):
        find({"double": MAPPED}, job_id, waits_for)


def test_a_page_of_results_is_in_the_order_of_the_list() -> None:
    results = MappedResults(ParentRef(KEYS, "f.double"), 3)
    stored: Stored = {
        "double[0]": {"state": "completed", "returnvalue": "5"},
        "double[1]": {"state": "failed"},
        "double[2]": {"state": "completed"},
    }
    assert hold(page(results, 0, "missing"), stored)[0] == [5, "missing", None]
    assert hold(page(results, 2), stored)[0] == [None]
    assert hold(page(results, 3), stored)[0] == []
    with pytest.raises(JobNotFoundError, match=r"f\.double\[1\]"):
        hold(page(results, 1), {**stored, "double[1]": None})


def test_a_page_has_up_to_five_hundred_elements() -> None:
    stored: Stored = {f"double[{index}]": {"state": "completed"} for index in range(2 * PAGE)}
    results = MappedResults(ParentRef(KEYS, "f.double"), 2 * PAGE - 1)
    assert [len(hold(page(results, start), stored)[0]) for start in (0, 1, PAGE)] == [PAGE, PAGE, PAGE - 1]
    found, _ = hold(ends(KEYS, "f.double", PAGE, 2 * PAGE - 1), stored)
    assert [job_id for job_id, _ in found] == [f"f.double[{index}]" for index in range(PAGE, 2 * PAGE - 1)]
    assert len(hold(ends(KEYS, "f.double", 0, 2 * PAGE), stored)[0]) == PAGE
