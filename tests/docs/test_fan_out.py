"""The code of docs/how-to/fan-out.md does what the page says, from top to bottom."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from orchestration_queue import Worker

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "fan-out.md"


async def test_the_page_runs_and_prints_what_it_shows(
    server_url: str, raw: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OQ_URL", server_url)
    text = PAGE.read_text()
    first, *rest = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    await asyncio.to_thread(exec, compile(first, str(PAGE), "exec"), names)
    worker: Worker = names["worker"]
    running = asyncio.ensure_future(worker.run())
    try:
        for block in rest:
            await asyncio.to_thread(exec, compile(block, str(PAGE), "exec"), names)
    finally:
        worker.stop()
        await running
    assert capsys.readouterr().out == "".join(re.findall(r"```text\n(.*?)```", text, re.DOTALL))
    assert names["gently"]["rows"] == {"count": 3}
    assert names["again"] == ["quotients[2]", "quotients", "together"]
    assert set(names["leniently"]["quotients"]["failures"]) == {"quotients[2]"}
