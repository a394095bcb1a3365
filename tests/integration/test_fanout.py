"""Fan-out: a node returns a list, a job for each element runs, and who waits for them reads the results in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from orchestration_queue.client import AsyncFlowProducer, AsyncQueue
from orchestration_queue.flows import Dag, DagBuilder
from orchestration_queue.worker import AsyncActiveJob
from tests.workers import working

SOON = timedelta(seconds=20)


class Work:
    """What the nodes of these tests do: `list` returns the elements, `double` may fail, `sum` reads the results."""

    def __init__(self, values: Any) -> None:
        self.values = values
        self.fails: set[Any] = set()
        self.ran: list[Any] = []
        self.hold = asyncio.Event()
        self.hold.set()

    async def __call__(self, job: AsyncActiveJob) -> Any:
        if job.name == "list":
            return self.values
        if job.name == "read":
            return [value async for value in job.map_results("double", default="failed")]
        if job.name == "note":
            return await job.upstream_results()
        self.ran.append(job.data)
        await self.hold.wait()
        if job.data in self.fails:
            raise ValueError(f"no {job.data}")
        return job.data * 2


def graph(queue: str, **options: Any) -> Dag:
    builder = DagBuilder("fan", queue=queue)
    listed = builder.node("list")
    doubled = builder.map("double", "twice", over=listed, **options)
    builder.node("read", deps=[doubled])
    builder.node("note", deps=[doubled])
    return builder.build()


@pytest.fixture
async def queue(server_url: str, queue_name: str, raw: Any) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        yield queue


@pytest.fixture
async def flows(server_url: str) -> AsyncIterator[AsyncFlowProducer]:
    async with AsyncFlowProducer(url=server_url) as flows:
        yield flows


@pytest.mark.parametrize("count", [0, 1, 3, 1001])
async def test_an_element_is_a_job_and_results_come_in_order(
    queue: AsyncQueue, flows: AsyncFlowProducer, server_url: str, count: int
) -> None:
    work = Work(list(range(count)))
    async with working(queue, work, server_url, concurrency=16):
        flow = await flows.submit(graph(queue.name), flow_id="f")
        results = await flow.wait(SOON)
    assert results == {
        "list": work.values,
        "double": {"count": count},
        "read": [2 * value for value in range(count)],
        "note": {"double": {"count": count}},
    }
    assert sorted(work.ran) == work.values
