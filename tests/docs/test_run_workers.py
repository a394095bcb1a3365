"""The code of docs/how-to/run-workers.md does what the page says."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import Any

import pytest

from orchestration_queue import AsyncQueue, NewJob, Worker
from orchestration_queue.errors import JobFailedError
from tests.docs.page import Page
from tests.waiting import wait_until

PAGE = Page("how-to/run-workers.md")
SOON = timedelta(seconds=60)


async def test_the_workers_of_the_page_work(
    server_url: str, raw: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OQ_URL", server_url)
    names = await PAGE.run_in_thread()
    workers: list[Worker] = [names[name] for name in ("storing", "calling", "watched")]
    workers += names["several"]
    running = [asyncio.ensure_future(worker.run()) for worker in workers]
    async with AsyncQueue("greetings") as greetings, AsyncQueue("rows") as rows, AsyncQueue("calls") as calls:
        try:
            greeting = await greetings.add("greet", {"name": "Ada"})
            assert await greeting.wait(SOON) == "Hello, Ada"
            async with AsyncQueue("usual") as usual:
                assert await (await usual.add("greet", {"name": "Bob"})).wait(SOON) == "Hello, Bob"
            assert re.fullmatch(r"took \d+\.\d s", (await greeting.logs())[0])

            full, empty = await rows.add_bulk([NewJob("store", [1, 2]), NewJob("store", [])])
            assert await full.wait(SOON) == 2
            with pytest.raises(JobFailedError, match="an empty row"):
                await empty.wait(SOON)

            call = await calls.get("1")
            assert call is not None
            stored = calls.keys.job("1")
            await wait_until(lambda: int(raw.hget(stored, "attemptsMade") or 0) >= 2, "the second failure")
            assert (await call.refresh()).failed_reason == "ConnectionError: connection refused"
        finally:
            for worker in workers:
                worker.stop()
            await asyncio.gather(*running)
    assert "active greet" in capsys.readouterr().out
