"""Flows as their submitter sees them: all or nothing, waited for, cancelled, read."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from orchestration_queue.client import FlowNode
from orchestration_queue.errors import (
    CycleError,
    DuplicateNodeError,
    FlowError,
    FlowFailedError,
    InvalidNameError,
    OrchestrationQueueError,
    PayloadError,
    ServerError,
    StateError,
    UnknownDependencyError,
    UsageError,
)
from orchestration_queue.flows import Dag, Node, TriggerRule
from orchestration_queue.options import JobOptions, Retention
from orchestration_queue.protocol.operations.event_log import Event
from orchestration_queue.states import JobState
from orchestration_queue.worker import AsyncActiveJob
from tests.by_hand import HandWorker, Held
from tests.faces import Face
from tests.waiting import wait_until
from tests.workers import working

SOON = timedelta(seconds=60)


def diamond(queue: str) -> Dag:
    return Dag(
        "diamond",
        [
            Node("raw", data={"day": 1}),
            Node("left", deps=("raw",)),
            Node("right", deps=("raw",)),
            Node("report", task="write", deps=("left", "right")),
        ],
        queue,
    )


def node_of(held: Held) -> str:
    return held.id.partition(".")[2]


def states(nodes: list[FlowNode]) -> dict[str, JobState | None]:
    return {node.name: node.state for node in nodes}


async def test_a_flow_is_submitted_whole_and_runs_in_order(
    face: Face, queue_name: str, raw: Any, hand: HandWorker
) -> None:
    heard: list[Event] = []
    async with face.flows() as flows:
        flow = await flows.submit(diamond(queue_name), flow_id="f1")
        assert (flow.id, flow.is_new) == ("f1", True)
        assert states(await flow.tree()) == {
            "raw": "waiting",
            "left": "waiting-children",
            "right": "waiting-children",
            "report": "waiting-children",
        }
        waiting = asyncio.ensure_future(flow.wait(SOON, on_event=heard.append))
        order = []
        for _ in range(4):
            held = hand.take()
            order.append(node_of(held))
            hand.complete(held, f"{node_of(held)} done")
        assert await waiting == {name: f"{name} done" for name in ("raw", "left", "right", "report")}
        records = await flow.records()
    assert order[0] == "raw"
    assert sorted(order[1:3]) == ["left", "right"]
    assert order[3] == "report"
    assert {name: record.name for name, record in records.items()} == {
        "raw": "raw",
        "left": "left",
        "right": "right",
        "report": "write",
    }
    completed = [event.job_id for event in heard if event.type == "completed"]
    assert completed == [f"f1.{name}" for name in order]
    assert [event.job_id for event in heard if event.type == "added"][-1] == "f1.raw"


async def test_events_before_the_wait_are_told_too(face: Face, queue_name: str, raw: Any, hand: HandWorker) -> None:
    heard: list[str] = []
    async with face.flows() as flows, face.queue(queue_name) as queue:
        await queue.add("a stranger")
        flow = await flows.submit(Dag("one", [Node("only")], queue_name))
        hand.complete(hand.take())
        hand.complete(hand.take(), 1, Retention(count=0))
        assert await flow.wait(SOON, on_event=lambda event: heard.append(event.type)) == {"only": 1}
    assert heard == ["added", "completed"]


async def test_submitting_again_under_the_same_id_adds_nothing(
    face: Face, queue_name: str, raw: Any, hand: HandWorker
) -> None:
    async with face.flows() as flows:
        await flows.submit(diamond(queue_name), flow_id="f1")
        hand.complete(hand.take(), "once")
        again = await flows.submit(diamond(queue_name), flow_id="f1")
        assert not again.is_new
        for _ in range(3):
            hand.complete(hand.take(), "once")
        assert await again.wait(SOON) == dict.fromkeys(("raw", "left", "right", "report"), "once")
    assert raw.xlen(hand.keys.stream) == 0
    assert raw.zcard(hand.keys.completed) == 4


async def test_ids_are_new_and_carry_the_flows_name(face: Face, queue_name: str, raw: Any) -> None:
    dag = Dag("Nightly: über {all}", [Node("only")], queue_name)
    async with face.flows() as flows:
        first, second = await flows.submit(dag), await flows.submit(dag)
    assert first.id != second.id
    assert first.id.startswith("Nightly-ber-all-")


async def test_a_failed_node_is_named_with_those_that_wait_for_it_in_vain(
    face: Face, queue_name: str, raw: Any, hand: HandWorker
) -> None:
    dag = Dag(
        "fan",
        [Node("a"), Node("b"), Node("after-a", deps=("a",)), Node("last", deps=("after-a", "b"))],
        queue_name,
    )
    async with face.flows() as flows:
        flow = await flows.submit(dag, flow_id="f")
        waiting = asyncio.ensure_future(flow.wait(SOON))
        held = {node_of(each): each for each in (hand.take(), hand.take())}
        hand.fail(held["a"], "no such file")
        await wait_until(lambda: raw.zcard(hand.keys.failed), "the failure")
        assert not waiting.done()  # b can still finish
        hand.complete(held["b"])
        with pytest.raises(FlowFailedError) as caught:
            await waiting
        error = caught.value
        assert (error.node, error.dependents, error.reason) == ("a", ("after-a", "last"), "no such file")
        assert str(error) == (
            f"Node 'a' (job 'f.a' of queue '{queue_name}') failed, and after-a, last will not run: no such file"
        )
        assert states(await flow.tree()) == {
            "a": "failed",
            "b": "completed",
            "after-a": "waiting-children",
            "last": "waiting-children",
        }


async def test_a_retry_is_no_failure(face: Face, queue_name: str, raw: Any, hand: HandWorker) -> None:
    dag = Dag("one", [Node("only", options=JobOptions(attempts=2))], queue_name)
    async with face.flows() as flows:
        flow = await flows.submit(dag)
        waiting = asyncio.ensure_future(flow.wait(SOON))
        hand.fail(hand.take(), "first", max_attempts=2)
        hand.complete(hand.take(), "well")
        assert await waiting == {"only": "well"}
        (node,) = await flow.tree()
    assert (node.attempts, node.state) == (2, "completed")
    assert node.seconds is not None


async def test_a_wait_that_is_over_names_the_unfinished_nodes(face: Face, queue_name: str, raw: Any) -> None:
    async with face.flows() as flows:
        flow = await flows.submit(diamond(queue_name), flow_id="f")
        with pytest.raises(
            TimeoutError, match=r"^Flow 'f' has 4 unfinished nodes after 0\.05 s \(left, raw, report, right\)"
        ):
            await flow.wait(0.05)


async def test_a_cancelled_flow_starts_nothing_more(face: Face, queue_name: str, raw: Any, hand: HandWorker) -> None:
    dag = Dag("d", [Node("running"), Node("ready"), Node("last", deps=("running", "ready"))], queue_name)
    async with face.flows() as flows:
        flow = await flows.submit(dag, flow_id="f")
        held = hand.take()
        ready, running = ("ready", "running") if node_of(held) == "running" else ("running", "ready")
        assert sorted(await flow.cancel()) == sorted([ready, running, "last"])
        assert states(await flow.tree()) == {ready: "failed", running: "active", "last": "failed"}
        hand.complete(held, "ended by itself")
        assert states(await flow.tree()) == {ready: "failed", running: "completed", "last": "failed"}
        with pytest.raises(FlowFailedError, match="revoked"):
            await flow.wait(SOON)
        assert await flow.cancel() == []
    assert raw.xlen(hand.keys.stream) == 0


async def test_a_removed_node_ends_the_wait(face: Face, queue_name: str, raw: Any) -> None:
    async with face.flows() as flows, face.queue(queue_name) as queue:
        flow = await flows.submit(Dag("d", [Node("a"), Node("b", deps=("a",))], queue_name), flow_id="f")
        await queue.remove("f.a", force=True)
        with pytest.raises(FlowFailedError, match=r"Node 'a' .* failed, and b will not run: its job is gone"):
            await flow.wait(SOON)


async def test_a_flow_may_cross_queues(face: Face, queue_name: str, raw: Any) -> None:
    async def handle(job: AsyncActiveJob) -> list[Any]:
        return [job.name, await job.upstream_results()]

    second = queue_name + "-2"
    nodes = [Node("here"), Node("there", queue=second, deps=("here",)), Node("back", deps=("there",))]
    async with (
        face.queue(queue_name) as queue,
        face.queue(second) as other,
        face.flows() as flows,
        working(queue, handle, face.url),
        working(other, handle, face.url),
    ):
        flow = await flows.submit(Dag("d", nodes, queue_name), flow_id="f")
        assert await flow.wait(SOON) == {
            "here": ["here", {}],
            "there": ["there", {"here": ["here", {}]}],
            "back": ["back", {"there": ["there", {"here": ["here", {}]}]}],
        }
        assert [node.queue for node in await flow.tree()] == [queue_name, second, queue_name]


async def test_the_tree_of_anybodys_flow_is_found_on_the_server(
    face: Face, queue_name: str, raw: Any, hand: HandWorker
) -> None:
    async with face.flows() as flows:
        flow = await flows.submit(diamond(queue_name), flow_id="f")
        await flows.submit(diamond(queue_name), flow_id="ff")
        hand.complete(hand.take())
        own, found = await flow.tree(), await flows.tree(queue_name, "f")
        with pytest.raises(StateError, match="has no job of a flow 'nix'"):
            await flows.tree(queue_name, "nix")
    assert {node.name: node for node in found} == {
        node.name: FlowNode(**{**node.to_dict(), "deps": tuple(sorted(node.deps))}) for node in own
    }
    assert [node.depth for node in found] == [0, 1, 1, 2]


BAD: list[tuple[str, Any, type[OrchestrationQueueError], str]] = [
    ("cycle", lambda q: Dag("d", [Node("a", deps=("b",)), Node("b", deps=("a",))], q), CycleError, "->"),
    ("unknown", lambda q: Dag("d", [Node("a", deps=("nix",))], q), UnknownDependencyError, "'nix'"),
    ("twice", lambda q: Dag("d", [Node("a"), Node("a")], q), DuplicateNodeError, "'a'"),
    ("empty", lambda q: Dag("d", [], q), FlowError, "at least one node"),
    ("data", lambda q: Dag("d", [Node("a", data=object())], q), PayloadError, "'a' cannot be written as JSON"),
    (
        "large",
        lambda q: Dag("d", [Node("a"), Node("b", data="x" * 1_048_577)], q),
        PayloadError,
        "exceeds maximum size",
    ),
    ("name", lambda q: Dag("d", [Node("a:b")], q), InvalidNameError, "':'"),
    ("long", lambda q: Dag("d", [Node("a" * 250)], q), InvalidNameError, "longer than 256"),
    ("queue", lambda q: Dag("d", [Node("a", queue="{")], q), InvalidNameError, "Queue name"),
]


@pytest.mark.parametrize(("dag", "error", "says"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
async def test_bad_flows_are_refused_in_one_sentence_and_nothing_is_written(
    face: Face, queue_name: str, raw: Any, dag: Any, error: type[Exception], says: str
) -> None:
    async def attempt() -> None:
        async with face.flows() as flows:
            await flows.submit(dag(queue_name), flow_id="long-enough")

    with pytest.raises(error, match=says) as caught:
        await attempt()
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")
    assert raw.dbsize() == 0


@pytest.mark.parametrize("flow_id", ["", "a.b", "a:b", "repeat"])
async def test_bad_flow_ids_are_refused_and_nothing_is_written(
    face: Face, queue_name: str, raw: Any, flow_id: str
) -> None:
    async with face.flows() as flows:
        with pytest.raises(InvalidNameError, match="Flow id"):
            await flows.submit(diamond(queue_name), flow_id=flow_id)
    assert raw.dbsize() == 0


async def test_what_the_server_refuses_is_told(face: Face, queue_name: str, raw: Any) -> None:
    raw.set(f"glide:{{{queue_name}}}:stream", "no stream")
    async with face.flows() as flows:
        with pytest.raises(ServerError, match=r"refused glidemq_addJob: .*WRONGTYPE"):
            await flows.submit(Dag("d", [Node("a"), Node("b", deps=["a"])], queue_name), flow_id="f")
        assert not raw.keys("*:job:*")
        assert not raw.exists(f"glide:{{{queue_name}}}:flow:f")
        with pytest.raises(ServerError, match=r"refused oq1_submitGraph: .*WRONGTYPE"):
            await flows.submit(Dag("d", [Node("a")], queue_name), carrier="packed")


async def test_hundreds_of_nodes_are_one_submission(face: Face, queue_name: str, raw: Any, hand: HandWorker) -> None:
    layers = [[f"n{layer}-{place}" for place in range(50)] for layer in range(4)]
    nodes = [Node(name) for name in layers[0]]
    for above, layer in pairwise(layers):
        nodes += [Node(name, deps=above[:5]) for name in layer]
    async with face.flows() as flows:
        flow = await flows.submit(Dag("wide", nodes, queue_name))
        waiting = asyncio.ensure_future(flow.wait(timedelta(seconds=60)))
        for _ in range(200):
            held = hand.take()
            hand.complete(held, node_of(held))
        assert await waiting == {name: name for layer in layers for name in layer}


async def test_a_running_node_is_stopped_by_its_worker_when_the_flow_is_cancelled(
    face: Face, queue_name: str, raw: Any
) -> None:
    async def hang(job: AsyncActiveJob) -> None:
        await asyncio.Event().wait()

    dag = Dag("d", [Node("a"), Node("b", deps=("a",))], queue_name)
    async with face.queue(queue_name) as queue, face.flows() as flows, working(queue, hang, face.url):
        await flows.submit(dag, flow_id="f")
        flow = await queue.flows.get("f")
        await wait_until(lambda: raw.hget(queue.keys.job("f.a"), "state") == "active", "the start")
        assert await flow.cancel("late") == ["a", "b"]
        with pytest.raises(FlowFailedError, match=r"Node 'a' .* failed, and b will not run: revoked"):
            await flow.wait(SOON)
        status = await flow.status()
        assert (status.state, status.stopped) == ("cancelled", "late")
        assert await flow.cancel() == []


async def test_a_flow_that_somebody_else_submitted_is_found_and_waited_for(
    face: Face, queue_name: str, raw: Any
) -> None:
    async def fail_once(job: AsyncActiveJob) -> str:
        if job.name == "left" and raw.set("tried", 1, nx=True, ex=60):
            raise ValueError("not yet")
        return job.name

    async with face.queue(queue_name) as queue, face.flows() as flows, working(queue, fail_once, face.url):
        await flows.submit(diamond(queue_name), flow_id="f")
        flow = await queue.flows.get("f")
        assert flow.id == "f"
        with pytest.raises(FlowFailedError, match=r"Node 'left' .* failed, and report will not run"):
            await flow.wait(SOON)
        assert await flow.results() == {"raw": "raw", "right": "right"}
        assert await flow.retry() == ["left", "report"]
        assert await flow.wait(SOON) == {"raw": "raw", "left": "left", "right": "right", "report": "write"}
        assert (await flow.status()).state == "completed"
        assert [node.name for node in await flow.critical_path()] == ["raw", "left", "report"]
        assert await flow.retry() == []
        await wait_until(lambda: raw.hget(queue.keys.flow("f"), "state") == "completed", "the end")
        with pytest.raises(StateError, match="has ended, so there is nothing to pause"):
            await flow.pause()
        await flow.remove()
        with pytest.raises(StateError, match="has no record of a flow 'f'"):
            await queue.flows.get("f")
        assert await queue.flows.list() == []


async def test_a_node_that_fails_is_named_although_others_run_because_of_it(
    face: Face, queue_name: str, raw: Any
) -> None:
    async def fail(job: AsyncActiveJob) -> str:
        if job.name == "a":
            raise ValueError("no such file")
        return job.name

    nodes = [
        Node("a"),
        Node("tidy", deps=("a",), trigger_rule=TriggerRule.ALL_DONE),
        Node("other", deps=("tidy",), trigger_rule=TriggerRule.ALL_FAILED),
    ]
    async with face.queue(queue_name) as queue, face.flows() as flows, working(queue, fail, face.url):
        flow = await flows.submit(Dag("d", nodes, queue_name))
        with pytest.raises(FlowFailedError, match="no such file"):
            await flow.wait(SOON)
        outcomes = {node.name: node.outcome for node in await flow.tree()}
    assert outcomes == {"a": "failed", "tidy": "completed", "other": "skipped"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"state": "lost"}, "`state` must be one of submitting"),
        ({"offset": -1}, "`offset` must be a whole number"),
        ({"limit": -2}, "`limit` must be a whole number"),
    ],
)
async def test_flows_of_no_state_or_range_are_not_listed(
    face: Face, queue_name: str, raw: Any, arguments: dict[str, Any], says: str
) -> None:
    async with face.queue(queue_name) as queue:
        with pytest.raises(UsageError, match=says):
            await queue.flows.list(**arguments)
