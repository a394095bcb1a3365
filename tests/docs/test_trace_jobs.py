"""The code of docs/how-to/trace-jobs.md does what the page says."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from orchestration_queue import AsyncQueue
from tests.docs.page import Page

PAGE = Page("how-to/trace-jobs.md")


async def test_the_worker_of_the_page_runs_the_traced_job(server_url: str) -> None:
    names = PAGE.run()
    job_id = await asyncio.to_thread(names["order"], server_url)
    worker = names["worker"](server_url)
    running = asyncio.ensure_future(worker.run())
    async with AsyncQueue("orders", url=server_url) as queue:
        assert await (await queue.get(job_id)).wait(timedelta(seconds=60)) == "shipped 7"
    worker.stop()
    await running
