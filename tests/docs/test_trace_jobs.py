"""The code of docs/how-to/trace-jobs.md does what the page says."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

from orchestration_queue import AsyncQueue

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "trace-jobs.md"


async def test_the_worker_of_the_page_runs_the_traced_job(server_url: str) -> None:
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102  the page's own code
    job_id = await asyncio.to_thread(names["order"], server_url)
    worker = names["worker"](server_url)
    running = asyncio.ensure_future(worker.run())
    async with AsyncQueue("orders", url=server_url) as queue:
        assert await (await queue.get_job(job_id)).wait(timedelta(seconds=30)) == "shipped 7"
    worker.stop()
    await running
