"""The code of the pages on workers does what the pages say: running them, their metrics, their traces."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from datetime import timedelta
from typing import Any

import pytest

from orchestration_queue import AsyncQueue, NewJob, Worker
from orchestration_queue.errors import JobFailedError
from tests.docs.page import Page
from tests.waiting import wait_until

RUN_WORKERS = Page("how-to/run-workers.md")
WATCH_WORKERS = Page("how-to/watch-workers.md")
TRACE_JOBS = Page("how-to/trace-jobs.md")
SOON = timedelta(seconds=60)


async def test_the_workers_of_the_page_work(
    server_url: str, raw: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OQ_URL", server_url)
    names = await RUN_WORKERS.run_in_thread()
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


async def test_the_traced_job_runs(server_url: str) -> None:
    names = TRACE_JOBS.run()
    job_id = await asyncio.to_thread(names["order"], server_url)
    worker = names["worker"](server_url)
    running = asyncio.ensure_future(worker.run())
    async with AsyncQueue("orders", url=server_url) as queue:
        assert await (await queue.get(job_id)).wait(timedelta(seconds=60)) == "shipped 7"
    worker.stop()
    await running


async def test_the_watched_worker_shows_its_metrics(server_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    names = WATCH_WORKERS.run()
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
                while counted not in await asyncio.to_thread(_text_at, said[0]):  # noqa: ASYNC110  it reports to no one
                    await asyncio.sleep(0.01)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def _text_at(address: str) -> str:
    with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310  an address of our own
        return str(answer.read(), "utf-8")
