"""The code of docs/how-to/build-flows.md does what the page says, from top to bottom."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orchestration_queue import Worker
from tests.docs.page import Page

PAGE = Page("how-to/build-flows.md")


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
    printed = capsys.readouterr().out
    (shown,) = PAGE.blocks("text")
    assert shown in printed
    assert "glidemq_addFlow  data   rows waits for flights, planes" in printed
    assert 'n3["tidy (all_done)"]' in printed
    assert names["names"] == ["start", "load.raw", "load.clean", "rows"]
    assert [len(dag.levels) for dag in names["shapes"]] == [3, 2, 3]
