"""The code of docs/how-to/limit-work.md does what the page says, from top to bottom."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from orchestration_queue import AsyncQueue, RateLimit, Worker
from orchestration_queue.client import BudgetState
from tests.docs.page import Page
from tests.waiting import wait_until

PAGE = Page("how-to/limit-work.md")


async def test_the_page_runs_and_its_worker_works(
    server_url: str, raw: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OQ_URL", server_url)
    assert len(PAGE.blocks()) == 8
    names = await PAGE.run_in_thread()
    assert capsys.readouterr().out == "0 8 0 ()\n[('acme', 3, 52), ('corner-shop', 1, 1)]\n0 0 0 None\n"
    assert isinstance(names["left"], BudgetState)
    assert names["left"].budget.max_cost == 1.5

    worker: Worker = names["worker"]
    async with AsyncQueue("answers") as queue:
        assert await queue.global_rate_limit() == RateLimit(max=30, duration=timedelta(minutes=1))
        running = asyncio.ensure_future(worker.run())
        try:
            for job in (await queue.get("1"), await queue.get(names["report"])):
                assert await job.wait(60) == "42"
        finally:
            worker.stop()
            await running
        spent = (await queue.usage.summary()).total
        assert spent.tokens == 150 * spent.jobs
        assert (await queue.usage.of_flow(names["report"])).jobs == 3

        polite = Worker("polite", names["ask_politely"])
        polite_run = asyncio.ensure_future(polite.run())
        async with AsyncQueue("polite") as other:
            try:
                hurried = await other.add("ask", "too fast")
                stored = other.keys.job(hurried.id)
                await wait_until(lambda: raw.hget(stored, "state") == "delayed", "the job to be postponed")
                assert polite.is_paused
            finally:
                polite.stop()
                await polite_run
