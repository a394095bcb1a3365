"""Why a flow is where it is, for every state of a flow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestration_queue.cli.main import app
from orchestration_queue.client import Flow, FlowProducer, Queue
from orchestration_queue.errors import StateError
from orchestration_queue.flows import Dag, Node
from orchestration_queue.flows.stored import FlowState
from orchestration_queue.options import JobOptions
from orchestration_queue.testing import running_worker
from orchestration_queue.worker import ActiveJob
from tests.by_hand import HandWorker


@pytest.fixture
def queue(raw: Any, server_url: str, queue_name: str) -> Iterator[Queue]:
    """An empty queue."""
    with Queue(queue_name, url=server_url) as client:
        yield client


@pytest.fixture
def flow(queue: Queue, server_url: str) -> Iterator[Flow]:
    """A chain of three nodes that no worker serves."""
    dag = Dag("f", [Node("a"), Node("b", deps=["a"]), Node("c", deps=["b"])], queue.name)
    with FlowProducer(url=server_url) as flows:
        yield flows.submit(dag, flow_id="f")


def test_a_flow_whose_first_node_has_no_worker(flow: Flow, queue: Queue) -> None:
    found = flow.explain()
    assert found.state is FlowState.RUNNING
    assert found.sentence == "3 of 3 nodes have not ended. Node 'a' is waiting: No worker serves the queue."
    assert found.action == f"oq worker module:tasks --queue {queue.name}"
    assert list(found.nodes) == ["a"]
    assert str(found) == found.sentence


def test_a_flow_names_what_can_start_before_what_runs(queue: Queue, server_url: str) -> None:
    nodes = [Node("slow"), *(Node(f"n{number}") for number in range(6)), Node("late", options=JobOptions(delay=3600))]
    with FlowProducer(url=server_url) as flows, HandWorker(server_url, queue.name) as hand:
        flow = flows.submit(Dag("f", nodes, queue.name), flow_id="wide")
        assert hand.take().id == "wide.slow"
        found = flow.explain()
    assert found.sentence.endswith("7 more wait for no other node.")
    assert len(found.nodes) == 5
    assert "slow" not in found.nodes


def test_a_flow_that_runs(flow: Flow, server_url: str, queue: Queue) -> None:
    with HandWorker(server_url, queue.name) as hand:
        hand.complete(hand.take(), None)
        hand.take()
        found = flow.explain()
    assert found.sentence.startswith("2 of 3 nodes have not ended. Node 'b' is active: A worker has been running it")
    assert found.action is None


def test_a_paused_flow(flow: Flow, queue: Queue) -> None:
    flow.pause()
    found = flow.explain()
    assert found.sentence == "It is paused, and 3 of 3 nodes have not ended."
    assert found.action == f"oq flow resume {queue.name} f"


def test_a_flow_without_a_notification(flow: Flow, queue: Queue, raw: Any) -> None:
    raw.hset(queue.keys.job("f.a"), mapping={"state": "completed", "finishedOn": 1})
    found = flow.explain()
    assert (
        found.sentence == "2 of 3 nodes have not ended, and all wait for nodes that have ended without a notification."
    )
    assert found.action == f"oq flow keep {queue.name} --once"


def test_a_flow_that_is_not_all_there(flow: Flow, queue: Queue, raw: Any) -> None:
    raw.hset(queue.keys.flow("f"), "state", "submitting")
    found = flow.explain()
    assert found.state is FlowState.SUBMITTING
    assert found.sentence == "Its submission is not complete, so none of its nodes starts."


def test_a_flow_that_failed_says_what_failed_and_what_did_not_run(flow: Flow, queue: Queue) -> None:
    def handle(job: ActiveJob) -> None:
        if job.id == "f.b":
            raise ValueError("out of paper")

    with running_worker(queue, handle), pytest.raises(Exception, match="out of paper"):
        flow.wait(timeout=timedelta(seconds=60))
    found = flow.explain()
    assert found.state is FlowState.FAILED
    assert (
        found.sentence == "Node 'b': It failed for good after 1 attempt: ValueError: out of paper. 1 node did not run."
    )
    assert found.action == f"oq flow retry {queue.name} f"


def test_a_flow_that_was_cancelled_and_one_that_completed(flow: Flow, queue: Queue) -> None:
    flow.cancel("too late")
    found = flow.explain()
    assert found.state is FlowState.CANCELLED
    assert found.sentence.endswith("It was stopped: too late.")
    with running_worker(queue, lambda _: None):
        flow.retry()
        flow.wait(timeout=timedelta(seconds=60))
    assert flow.explain().sentence.startswith("All 3 nodes have ended.")


def test_a_flow_without_a_record_is_not_explained(flow: Flow, queue: Queue, raw: Any) -> None:
    raw.delete(queue.keys.flow("f"))
    with pytest.raises(StateError, match="has no record of flow 'f'"):
        flow.explain()


def test_the_terminal_says_it(flow: Flow, queue: Queue, server_url: str) -> None:
    env = {"OQ_URL": server_url, "COLUMNS": "200"}
    shown = CliRunner().invoke(app, ["flow", "why", queue.name, "f"], env=env)
    assert shown.stdout.splitlines() == [f"f is running. {flow.explain()}", f"What to do: {flow.explain().action}."]
    as_json = CliRunner().invoke(app, ["flow", "why", queue.name, "f", "--json"], env=env)
    assert list(json.loads(as_json.stdout)["nodes"]) == ["a"]
