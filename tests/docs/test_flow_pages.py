"""The code of the pages on flows does what the pages say, from top to bottom."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orchestration_queue import Worker
from tests.docs.page import Page

BUILD_FLOWS = Page("how-to/build-flows.md")
FAN_OUT = Page("how-to/fan-out.md")


async def run_with_its_worker(page: Page) -> dict[str, Any]:
    """Run a page's blocks, with the worker of its first one beside the others; return the names they defined."""
    first, *rest = page.blocks()
    names = await page.run_in_thread(first)
    worker: Worker = names["worker"]
    running = asyncio.ensure_future(worker.run())
    try:
        for block in rest:
            await asyncio.to_thread(page.run_in, names, block)
    finally:
        worker.stop()
        await running
    return names


async def test_the_page_on_flows_runs_and_prints_what_it_shows(
    server_url: str, raw: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OQ_URL", server_url)
    names = await run_with_its_worker(BUILD_FLOWS)
    printed = capsys.readouterr().out
    (shown,) = BUILD_FLOWS.blocks("text")
    assert shown in printed
    assert "glidemq_addFlow  data   rows waits for flights, planes" in printed
    assert 'n3["tidy (all_done)"]' in printed
    assert names["names"] == ["start", "load.raw", "load.clean", "rows"]
    assert [len(dag.levels) for dag in names["shapes"]] == [3, 2, 3]


async def test_the_page_on_fan_out_runs_and_prints_what_it_shows(
    server_url: str, raw: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OQ_URL", server_url)
    names = await run_with_its_worker(FAN_OUT)
    assert capsys.readouterr().out == "".join(FAN_OUT.blocks("text"))
    assert names["gently"]["rows"] == {"count": 3}
    assert names["again"] == ["quotients[2]", "quotients", "together"]
    assert set(names["leniently"]["quotients"]["failures"]) == {"quotients[2]"}
