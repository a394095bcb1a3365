"""The code of docs/how-to/watch-workers.md does what the page says."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestration_queue import AsyncQueue
from tests.waiting import wait_until

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "watch-workers.md"


async def test_the_worker_of_the_page_shows_its_metrics(server_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102  the page's own code
    running = asyncio.ensure_future(names["main"](server_url))
    said: list[str] = []
    await wait_until(lambda: bool(said.extend(capsys.readouterr().out.split()) or said), "the endpoint's address")
    try:
        async with AsyncQueue("greetings", url=server_url) as queue:
            assert await (await queue.add("greet", {"name": "Ada"})).wait(timedelta(seconds=30)) == "Hello, Ada"
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(said[0], timeout=10).read().decode())
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert 'jobs_finished_total{outcome="completed",queue="greetings",task="greet"} 1.0' in text
