"""Nodes of a flow whose jobs ChasquiMQ's workers run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from orchestration_queue.client import AsyncFlowProducer, AsyncQueue
from orchestration_queue.errors import FlowFailedError, OrchestrationQueueError, StateError, UnrecoverableError
from orchestration_queue.flows import Dag, Node
from orchestration_queue.tasks import Tasks
from orchestration_queue.wires.chasquimq import AsyncChasquiQueue, ChasquiJob, ChasquiRef, add_relay
from orchestration_queue.wires.chasquimq.packing import pack
from tests.chasquimq.working import working
from tests.workers import working as serving

WAIT_S = 60


@pytest.fixture
async def flows(server: Any, server_url: str) -> AsyncIterator[AsyncFlowProducer]:
    """A producer of flows."""
    async with AsyncFlowProducer(url=server_url) as producer:
        yield producer


@pytest.fixture
async def own(server: Any, server_url: str) -> AsyncIterator[AsyncQueue]:
    """The queue of ours that the flows' nodes are in."""
    async with AsyncQueue("flows", url=server_url) as client:
        yield client


def tasks(url: str) -> Tasks:
    """The tasks of our worker."""
    registry = Tasks(queue="flows")
    add_relay(registry, url=url)

    @registry.task
    def scan(pages: int) -> list[int]:
        return list(range(pages))

    return registry


def graph(remote: str, **ref: Any) -> Dag:
    """A flow whose second node runs on the queue `remote`."""
    scan = Node("scan", data={"pages": 3})
    ocr = Node("ocr", queue=ChasquiRef(remote, results_as="scanned", **ref), data={"lang": "pt"}, deps=[scan])
    return Dag("books", [scan, ocr], "flows")


async def test_a_node_runs_on_the_remote_queue_with_its_dependencies_results(
    flows: AsyncFlowProducer, own: AsyncQueue, queue: AsyncChasquiQueue, server_url: str
) -> None:
    async def ocr(job: ChasquiJob) -> Any:
        return {"name": job.name, "data": job.data}

    async with serving(own, tasks(server_url), server_url), working(queue.name, ocr, server_url, store_results=True):
        flow = await flows.submit(graph(queue.name))
        results = await flow.wait(WAIT_S)
    assert results["ocr"] == {"name": "ocr", "data": {"lang": "pt", "scanned": {"scan": [0, 1, 2]}}}


async def test_a_node_fails_with_the_reason_of_its_job_and_a_retry_runs_another(
    flows: AsyncFlowProducer, own: AsyncQueue, queue: AsyncChasquiQueue, server_url: str
) -> None:
    jobs: list[str] = []

    async def ocr(job: ChasquiJob) -> str:
        jobs.append(job.id)
        if len(jobs) == 1:
            raise UnrecoverableError("page 2 is blank")
        return "read"

    async with serving(own, tasks(server_url), server_url), working(queue.name, ocr, server_url, store_results=True):
        flow = await flows.submit(graph(queue.name))
        with pytest.raises(FlowFailedError, match="page 2 is blank"):
            await flow.wait(WAIT_S)
        assert [(group.kind, group.count) for group in await own.failures()] == [("unrecoverable", 1)]
        await flow.retry()
        assert (await flow.wait(WAIT_S))["ocr"] == "read"
    assert len(set(jobs)) == 2


async def test_a_node_whose_job_no_handler_may_run_fails(
    flows: AsyncFlowProducer, own: AsyncQueue, queue: AsyncChasquiQueue, server_url: str
) -> None:
    """The event of such a dead letter names no job."""

    async def ocr(job: ChasquiJob) -> str:
        return "read"

    limit = len(pack({"lang": "pt"}))
    async with (
        serving(own, tasks(server_url), server_url),
        working(queue.name, ocr, server_url, max_payload_bytes=limit),
    ):
        flow = await flows.submit(graph(queue.name))
        with pytest.raises(FlowFailedError, match="oversize_payload"):
            await flow.wait(WAIT_S)
    assert [(group.kind, group.count) for group in await own.failures()] == [("oversize_payload", 1)]


async def test_a_node_that_is_taken_over_waits_for_the_same_job(
    flows: AsyncFlowProducer, own: AsyncQueue, queue: AsyncChasquiQueue, server_url: str
) -> None:
    started, may_end = asyncio.Event(), asyncio.Event()
    jobs: list[str] = []

    async def ocr(job: ChasquiJob) -> str:
        jobs.append(job.id)
        started.set()
        await may_end.wait()
        return "read"

    async with working(queue.name, ocr, server_url, store_results=True):
        async with serving(
            own, tasks(server_url), server_url, drain=timedelta(milliseconds=1), lease=timedelta(seconds=1)
        ):
            flow = await flows.submit(graph(queue.name))
            await asyncio.wait_for(started.wait(), WAIT_S)
        async with serving(own, tasks(server_url), server_url):
            may_end.set()
            assert (await flow.wait(WAIT_S))["ocr"] == "read"
    assert len(jobs) == 1


async def test_a_wait_from_before_the_oldest_event_says_so(queue: AsyncChasquiQueue, server: Any) -> None:
    server.xadd(queue.keys.events, {"e": "completed", "id": "a"}, id="5-0")
    with pytest.raises(StateError, match="may have dropped events after 3-0: its oldest is 5-0"):
        await queue.wait("a", after="3-0")
    assert await queue.wait("a", after="0") is None


@pytest.mark.parametrize(
    ("ref", "node", "problem"),
    [
        ({"queue": ""}, {}, "name"),
        ({"queue": 5}, {}, "name"),
        ({"queue": "q", "attempts": -1}, {}, "attempts"),
        ({"queue": "q", "backoff": "x"}, {}, "backoff"),
        ({"queue": "q", "results_as": 5}, {}, "results_as"),
        ({"queue": "q", "results_as": "all"}, {"data": [1]}, "must be a dict"),
        ({"queue": "q"}, {"task": "x" * 300}, "at most 256 bytes"),
    ],
)
def test_mistakes_end_in_one_sentence(ref: dict[str, Any], node: dict[str, Any], problem: str) -> None:
    with pytest.raises(OrchestrationQueueError, match=problem):
        Node("ocr", queue=ChasquiRef(**ref), **node)
