"""The page on operating a queue shows what happens."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from orchestration_queue import AsyncActiveJob, AsyncQueue, JobOptions, NewJob, Worker, WorkerOptions
from tests.docs.page import Page
from tests.waiting import wait_until

PAGE = Page("how-to/look-after-a-queue.md")


async def send(job: AsyncActiveJob) -> None:
    if job.data["to"] in ("zoë", "bob"):
        raise ValueError("mailbox full")


async def the_queue_that_the_page_meets(url: str, raw: Any) -> None:
    """Four jobs done, two dead, three ready and one delayed."""
    options = WorkerOptions(dead_letter_queue="emails-dead", promotion_interval=timedelta(milliseconds=50))
    async with AsyncQueue("emails", url=url) as queue:
        people = ["ann", "ben", "cat", "dan", "zoë", "bob"]
        await queue.add_bulk([NewJob("send", {"to": name}) for name in people])
        worker = Worker("emails", send, url=url, options=options)
        running = asyncio.ensure_future(worker.run())
        await wait_until(lambda: raw.zcard(queue.keys.failed) == 2, "two jobs to fail")
        await wait_until(lambda: raw.zcard(queue.keys.completed) == 4, "four jobs to complete")
        worker.stop()
        await running
        await queue.add_bulk([NewJob("send", {"to": "eve"}) for _ in range(3)])
        await queue.add("send", {"to": "fay"}, JobOptions(delay=timedelta(days=1)))


def test_the_blocks_of_the_page_print_what_it_shows(
    server_url: str, raw: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(the_queue_that_the_page_meets(server_url, raw))
    monkeypatch.setenv("OQ_URL", server_url)
    pairs = PAGE.found(r"```python\n(.*?)```\n\n```text\n(.*?)```")
    assert len(pairs) == len(PAGE.blocks()) == 14
    names: dict[str, Any] = {}
    for block, shown in pairs:
        PAGE.run_in(names, block)
        assert capsys.readouterr().out == shown
    names["queue"].close()
    names["producer"].close()
