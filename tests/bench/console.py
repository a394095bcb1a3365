"""What the console's pages cost over many jobs and queues: how long each takes, and the longest command it sends.

``python -m tests.bench.console`` prints JSON. Jobs are spread over 500 queues; one more has 50 runs of a flow, and
there are schedules, alert rules, and statistics of 30 days. Times are of the whole request, without a browser.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from contextlib import suppress
from typing import Any

import httpx
import redis

from orchestration_queue import AsyncQueue, Cron, Dag, NewJob, Node, Worker
from orchestration_queue.client import AsyncAlerts
from orchestration_queue.http import create_app
from orchestration_queue.protocol import statistics
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.statistics import Tally
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms
from tests import past_flows
from tests.bench.server import server

QUEUES = 500
RUNS = 50
LOADS = 10
FLOWS = "flows"
GOALS = {"page_ms": 300, "command_ms": 10}
_OF_A_QUEUE = "/ui/queues/queue-001"
PAGES = {
    "overview": "/ui",
    "queue": _OF_A_QUEUE,
    "search": f"{_OF_A_QUEUE}?state=waiting&q=absent",
    "statistics": f"{_OF_A_QUEUE}/statistics",
    "tail": f"{_OF_A_QUEUE}/tail",
    "job": f"{_OF_A_QUEUE}/jobs/1",
    "tags": f"{_OF_A_QUEUE}/tags",
    "settings": f"{_OF_A_QUEUE}/settings",
    "flows": "/ui/flows",
    "runs": f"/ui/queues/{FLOWS}/runs?flow=sales",
    "flow": f"/ui/queues/{FLOWS}/flows/run-1",
    "schedules": "/ui/schedules",
    "calendar": "/ui/schedules/calendar",
    "dead letters": "/ui/dead",
    "workers": "/ui/workers",
    "pools": "/ui/pools",
    "alerts": "/ui/alerts",
    "doctor": "/ui/doctor",
    "server": "/ui/server",
}
_NODES = {"extract": [], "clean": ["extract"], "a": ["clean"], "b": ["clean"], "load": ["a", "b"]}


async def fill(url: str, jobs: int) -> None:
    """Add jobs, runs, schedules, rules and statistics."""
    async with await AsyncConnection.open(url) as connection:
        for number in range(QUEUES):
            async with AsyncQueue(f"queue-{number:03}", connection=connection) as queue:
                await queue.add_bulk([NewJob("noop", {"at": 1})] * (jobs // QUEUES))
                if number % 10 == 0:
                    await queue.schedulers.upsert("hourly", Cron("0 * * * *"))
        for back in range(30):
            tally = Tally()
            for place in range(20):
                counts = tally.task(f"task-{place}")
                for step in range(1, 30):
                    counts.wait.add(step * 90)
                    counts.run.add(step * 700)
                counts.fail("ValueError")
            await connection.execute(statistics.count(QueueKeys("queue-001"), now_ms() - back * 86_400_000, tally))
    async with AsyncAlerts(url=url) as alerts:
        for number in range(20):
            await alerts.set(f"rule-{number}", {"kind": "backlog", "queue": f"queue-{number:03}", "to": ["ops"]})
    worker = Worker(FLOWS, past_flows.work, url=url, options={"concurrency": 10})
    working = asyncio.ensure_future(worker.run())
    for number in range(RUNS):
        nodes = [Node(name, deps=deps) for name, deps in _NODES.items()]
        await past_flows.run_flow(url, Dag("sales", nodes, queue=FLOWS), f"run-{number}")
    worker.stop()
    await working


async def measure(url: str) -> dict[str, Any]:
    """Load each page once cold, and then ten times."""
    client = redis.Redis.from_url(url)
    client.config_set("slowlog-log-slower-than", 500)
    client.config_set("slowlog-max-len", 10_000)
    app = create_app(url, console=True)
    found: dict[str, Any] = {}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://bench", timeout=120) as http:

        async def load(path: str) -> tuple[float, str]:
            began = time.perf_counter()
            reply = await http.get(path)
            assert reply.status_code == 200, (path, reply.status_code)
            return (time.perf_counter() - began) * 1000, reply.text

        while "queue-001" not in (await load("/ui"))[1]:  # noqa: ASYNC110  the names are found in the background
            await asyncio.sleep(0.1)
        for name, path in PAGES.items():
            client.slowlog_reset()
            cold_ms, _ = await load(path)
            times = sorted([(await load(path))[0] for _ in range(LOADS)])
            calls = [call for call in client.slowlog_get(10_000) if not call["command"].startswith(b"SLOWLOG")]
            slow = max(calls, key=lambda call: int(call["duration"]), default=None)
            found[name] = {"cold_ms": round(cold_ms), "p50_ms": round(times[LOADS // 2]), "most_ms": round(times[-1])}
            found[name] |= {"longest_command_ms": round(slow["duration"] / 1000, 1) if slow else 0.5}
            found[name] |= {"command": slow["command"][:60].decode(errors="replace") if slow else ""}
    await app.aclose()
    return found


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.console", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000, help="jobs of all queues together (default 1000000)")
    arguments = parser.parse_args()
    with server() as url, suppress(KeyboardInterrupt):
        asyncio.run(fill(url, arguments.jobs))
        pages = asyncio.run(measure(url))
        above = [name for name, page in pages.items() if page["p50_ms"] > GOALS["page_ms"]]
        held = [name for name, page in pages.items() if page["longest_command_ms"] > GOALS["command_ms"]]
        found = {"queues": QUEUES, "jobs": arguments.jobs, "goals": GOALS, "pages": pages, "above": above, "held": held}
        json.dump(found, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
