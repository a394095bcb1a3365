"""Events as a listener reads them, and waiting for a job by them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orchestration_queue.errors import JobFailedError, UsageError
from orchestration_queue.wires.chasquimq import AsyncChasquiEvents, AsyncChasquiQueue, ChasquiEvents, ChasquiJob
from tests.chasquimq.working import is_settled, working
from tests.waiting import wait_until


async def handler(job: ChasquiJob) -> Any:
    if job.name == "bad":
        raise RuntimeError("boom")
    return job.data


async def test_a_listener_reads_each_event_once(queue: AsyncChasquiQueue, server: Any, server_url: str) -> None:
    async with AsyncChasquiEvents(queue.name, url=server_url) as listener:
        assert await listener.read() == []
        job = await queue.add("good", 1)
        async with working(queue.name, handler, server_url):
            async with asyncio.timeout(60):
                names = [(await anext(listener)).type for _ in range(2)]
            await wait_until(lambda: is_settled(server, queue.keys), "the job to end")
        assert names == ["active", "completed"]
    with ChasquiEvents(queue.name, url=server_url, after="0") as again:
        first, second, *_ = again.read()
        assert (first.type, first.job_id, first.job_name, first.fields["attempt"]) == ("active", job.id, "good", "1")
        assert second.at >= first.at
        assert set(second.fields) == {"attempt", "duration_us"}
        (same, *_) = ChasquiEvents(queue.name, url=server_url, after=first.id).read(limit=1)
        assert same == second


async def test_a_job_is_waited_for(queue: AsyncChasquiQueue, server_url: str) -> None:
    async with working(queue.name, handler, server_url, store_results=True, attempts=1):
        assert await queue.add_and_wait("good", {"a": 1}, timeout=60) == {"a": 1}
        with pytest.raises(JobFailedError, match="boom"):
            await queue.add_and_wait("bad", timeout=60)
    with pytest.raises(TimeoutError):
        await queue.add_and_wait("good", timeout=0.05)


@pytest.mark.parametrize("after", ["", "x", "1-x", 5, None])
def test_a_cursor_that_is_no_event_id_is_refused(after: Any) -> None:
    with pytest.raises(UsageError, match="`after`"):
        AsyncChasquiEvents("q", after=after)
