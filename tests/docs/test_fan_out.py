"""The code of docs/how-to/fan-out.md does what the page says, from top to bottom."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orchestration_queue import Worker
from tests.docs.page import Page

PAGE = Page("how-to/fan-out.md")


async def test_the_page_runs_and_prints_what_it_shows(
    server_url: str, raw: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OQ_URL", server_url)
    first, *rest = PAGE.blocks()
    names = await PAGE.run_in_thread(first)
    worker: Worker = names["worker"]
    running = asyncio.ensure_future(worker.run())
    try:
        for block in rest:
            await asyncio.to_thread(PAGE.run_in, names, block)
    finally:
        worker.stop()
        await running
    assert capsys.readouterr().out == "".join(PAGE.blocks("text"))
    assert names["gently"]["rows"] == {"count": 3}
    assert names["again"] == ["quotients[2]", "quotients", "together"]
    assert set(names["leniently"]["quotients"]["failures"]) == {"quotients[2]"}
