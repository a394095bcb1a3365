"""The code of docs/how-to/watch-workers.md does what the page says."""

from __future__ import annotations

import asyncio
import urllib.request
from datetime import timedelta

import pytest

from orchestration_queue import AsyncQueue
from tests.docs.page import Page
from tests.waiting import wait_until

PAGE = Page("how-to/watch-workers.md")


async def test_the_worker_of_the_page_shows_its_metrics(server_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    names = PAGE.run()
    running = asyncio.ensure_future(names["main"](server_url))
    said: list[str] = []

    def has_spoken() -> bool:
        said.extend(capsys.readouterr().out.split())
        return bool(said)

    await wait_until(has_spoken, "the endpoint's address")
    try:
        async with AsyncQueue("greetings", url=server_url) as queue:
            assert await (await queue.add("greet", {"name": "Ada"})).wait(timedelta(seconds=60)) == "Hello, Ada"
            # The worker counts a job when it hears that the server has: perhaps after us.
            counted = 'jobs_finished_total{outcome="completed",queue="greetings",task="greet"} 1.0'
            async with asyncio.timeout(60):
                while counted not in await asyncio.to_thread(_page, said[0]):  # noqa: ASYNC110  it reports to no one
                    await asyncio.sleep(0.01)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def _page(address: str) -> str:
    with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310  an address of our own
        return str(answer.read(), "utf-8")
