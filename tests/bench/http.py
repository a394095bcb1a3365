"""What HTTP costs: adds, bulk adds and add-and-wait through one process, and what the client does without it.

Processor time per job, of the process that adds and of the queue's server, is the least of several rounds; it says more
than rates do where the machine has other work.

``python -m tests.bench.http`` prints JSON. ``--sse SECONDS`` lets 200 clients listen to a queue that long, and reports
what they missed and how much memory the process held.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestration_queue.client import AsyncQueue, NewJob
from tests.bench.apart import worker_apart
from tests.bench.server import Meter, server

QUEUE = "bench"
CONNECTIONS = 32
BULK = 1000
LISTENERS = 200
ROUNDS = 5
GOALS = {"single_per_s": 3000, "bulk_jobs_per_s": 40_000, "wait_p99_ms": 10}


def noop(_: Any) -> None:
    """Do nothing."""


def _serve(url: str, port: int) -> None:
    import uvicorn

    from orchestration_queue.http import create_app

    uvicorn.run(create_app(url), port=port, log_level="critical", access_log=False)


@contextmanager
def app_apart(url: str) -> Iterator[tuple[int, int]]:
    """Serve the app in a process of its own; yields its port and its process."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(url, port))
    process.start()
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        assert process.pid
        yield port, process.pid
    finally:
        process.terminate()
        process.join(20)


class Link:
    """One connection that stays open; less work than any HTTP library, so that the server is measured."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Link:
        """Connect."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def post(self, path: str, body: bytes) -> int:
        """Send a request and read its whole answer; returns the status."""
        head = (
            f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().partition(b"content-length:")[2].split()[0])
        await self._reader.readexactly(length)
        return int(answer.split()[1])

    async def listen(self, path: str) -> None:
        """Ask for a stream of events, and read the head of the answer."""
        self._writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        await self._reader.readuntil(b"\r\n\r\n")

    async def next_job(self) -> str | None:
        """Return the job of the next `added` event; None when the stream has ended."""
        while line := await self._reader.readline():
            if line.startswith(b"data: ") and b'"jobId"' in line:
                found: str = json.loads(line[6:])["jobId"]
                return found
        return None

    def close(self) -> None:
        """Disconnect."""
        self._writer.close()


async def _rate(calls: int, works: list[Callable[[], Awaitable[object]]]) -> float:
    """Return calls a second, by as many at a time as there are works."""
    left = iter(range(calls))

    async def work(call: Callable[[], Awaitable[object]]) -> None:
        for _ in left:
            await call()

    began = time.perf_counter()
    await asyncio.gather(*map(work, works))
    return calls / (time.perf_counter() - began)


async def _p99(calls: int, call: Callable[[], Awaitable[object]]) -> dict[str, float]:
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        await call()
        times.append((time.perf_counter() - began) * 1000)
    found = statistics.quantiles(times, n=100)
    return {"p50_ms": round(found[49], 2), "p99_ms": round(found[98], 2)}


async def _bulk(url: str, links: list[Link], pid: int, queue: AsyncQueue, calls: int) -> dict[str, Any]:
    """Add in bulk over HTTP and by the client in turns, which share what else the machine does; the median of each."""
    many = json.dumps({"jobs": [{"name": "noop", "data": {"at": 1}}] * BULK}).encode()
    new, jobs, meter = [NewJob("noop", {"at": 1})] * BULK, calls * BULK, Meter(url)
    path = f"/queues/{QUEUE}/jobs/bulk"
    works: dict[str, list[Callable[[], Awaitable[object]]]] = {
        "http": [lambda link=link: link.post(path, many) for link in links],  # type: ignore[misc]
        "direct": [lambda: queue.add_bulk(new)] * len(links),
    }
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            app_us = _cpu_us(pid)
            meter.begin()
            rate = BULK * await _rate(calls, work)
            cost = meter.end()
            adder_us = cost.client_us if name == "direct" else _cpu_us(pid) - app_us
            found[name].append((rate, adder_us / jobs, cost.server_us / jobs))
    rates = {name: statistics.median(rate for rate, _, _ in rounds) for name, rounds in found.items()}
    return {
        **{name: round(rate) for name, rate in rates.items()},
        "ratio": round(rates["http"] / rates["direct"], 2),
        **{
            f"{name}_us_per_job": {
                "adder": round(min(adder for _, adder, _ in rounds), 1),
                "server": round(min(server for _, _, server in rounds), 1),
            }
            for name, rounds in found.items()
        },
    }


async def measure(url: str, port: int, pid: int, jobs: int) -> dict[str, Any]:
    """Add jobs one by one, in bulk, and with a wait; over HTTP, and by the client itself."""
    links = [await Link.open(port) for _ in range(CONNECTIONS)]
    one = json.dumps({"name": "noop", "data": {"at": 1}}).encode()
    path = f"/queues/{QUEUE}/jobs"
    found: dict[str, Any] = {}
    async with AsyncQueue(QUEUE, url=url) as queue:
        await queue.counts()

        def added() -> Awaitable[object]:
            return queue.add("noop", {"at": 1})

        http = await _rate(jobs, [lambda link=link: link.post(path, one) for link in links])  # type: ignore[misc]
        direct = await _rate(jobs, [added] * CONNECTIONS)
        found["single_per_s"] = {"http": round(http), "direct": round(direct), "ratio": round(http / direct, 2)}
        found["bulk_jobs_per_s"] = await _bulk(url, links[:4], pid, queue, max(4, jobs // 500))
        await queue.drain()
        with worker_apart(url, QUEUE, noop, 32):
            await queue.add_and_wait("noop", {}, timeout=60)
            link = await Link.open(port)  # the others have been idle for longer than the server lets them
            await link.post(f"{path}/wait", one)
            waits = max(100, jobs // 20)
            over_http = await _p99(waits, lambda: link.post(f"{path}/wait", one))
            by_client = await _p99(waits, lambda: queue.add_and_wait("noop", {}, timeout=60))
        found["wait"] = {"http": over_http, "direct": by_client}
    for each in (*links, link):
        each.close()
    found["met"] = {
        "single": found["single_per_s"]["http"] >= GOALS["single_per_s"],
        "bulk": found["bulk_jobs_per_s"]["http"] >= GOALS["bulk_jobs_per_s"],
        "wait": over_http["p99_ms"] <= GOALS["wait_p99_ms"],
    }
    return found


def _cpu_us(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) * 1e6 / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return round(int(status.partition("VmRSS:")[2].split()[0]) / 1024, 1)


async def listen(url: str, port: int, pid: int, seconds: float) -> dict[str, Any]:
    """Let clients listen to a queue's events while jobs are added; what each missed, and memory over time."""
    links = [await Link.open(port) for _ in range(LISTENERS)]
    await asyncio.gather(*(link.listen(f"/queues/{QUEUE}-sse/events") for link in links))
    await asyncio.sleep(1)
    heard: list[list[str]] = [[] for _ in links]

    async def hear(link: Link, into: list[str]) -> None:
        while job_id := await link.next_job():
            into.append(job_id)

    hearing = [asyncio.create_task(hear(link, into)) for link, into in zip(links, heard, strict=True)]
    memory, sent = [_memory(pid)], []
    async with AsyncQueue(f"{QUEUE}-sse", url=url) as queue:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            sent += [(await queue.add("noop")).id for _ in range(5)]
            await asyncio.sleep(0.5)
            memory.append(_memory(pid))
    deadline = time.monotonic() + 60
    while any(len(each) < len(sent) for each in heard) and time.monotonic() < deadline:  # noqa: ASYNC110  ends by itself
        await asyncio.sleep(0.1)
    for task, link in zip(hearing, links, strict=True):
        task.cancel()
        link.close()
    quarter = max(1, len(memory) // 4)
    return {
        "clients": LISTENERS,
        "seconds": seconds,
        "events": len(sent),
        "clients_that_missed_or_mixed_some": sum(each != sent for each in heard),
        "memory_mib": {"start": memory[0], "after_a_quarter": memory[quarter], "end": memory[-1], "most": max(memory)},
    }


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.http", description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs of each kind (default 20000)")
    parser.add_argument("--sse", type=float, metavar="SECONDS", help="let 200 clients listen, in place of adds")
    arguments = parser.parse_args()
    with server() as url, app_apart(url) as (port, pid):
        if arguments.sse:
            found = asyncio.run(listen(url, port, pid, arguments.sse))
        else:
            found = {"goals": GOALS, **asyncio.run(measure(url, port, pid, arguments.jobs))}
    json.dump(found, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
