"""A fleet of workers of both kinds, each a process that may be killed at any time: no job is lost."""

from __future__ import annotations

import asyncio
import random
import sys
from asyncio.subprocess import Process
from typing import Any

import pytest
import redis

from orchestration_queue.wires.qless import QlessClient
from tests.waiting import wait_until

COUNT = 240
RETRIES = 50
OURS = """
import asyncio, sys
import redis.asyncio as redis
from orchestration_queue.wires.qless import QlessWorker, QlessWorkerOptions

server = redis.Redis(unix_socket_path=sys.argv[1].removeprefix("unix://"))

async def work(job):
    await server.hincrby("ran", job.jid, 1)
    await server.incr("ran by ours")

options = QlessWorkerOptions(concurrency=5, interval=0.05)
asyncio.run(QlessWorker("q", work, url=sys.argv[1], options=options).run())
"""
THEIRS = """
import os, sys, time
from reqless import Client
from reqless.exceptions import ReqlessError

client = Client(sys.argv[1], hostname=f"theirs-{os.getpid()}")
while True:
    job = client.queues["q"].pop()
    if job is None:
        time.sleep(0.05)
        continue
    client.redis.hincrby("ran", job.jid, 1)
    client.redis.incr("ran by theirs")
    try:
        job.complete()
    except ReqlessError:
        pass  # its lock was lost
"""


@pytest.mark.chaos
async def test_a_fleet_of_both_kinds_loses_no_job_to_kills(server: redis.Redis, server_url: str) -> None:
    chance = random.Random(COUNT)
    fleet: list[tuple[str, Process]] = []

    async def start(script: str) -> None:
        fleet.append((script, await asyncio.create_subprocess_exec(sys.executable, "-c", script, server_url)))

    async def kill_one() -> None:
        script, process = fleet.pop(chance.randrange(len(fleet)))
        process.kill()
        await process.wait()
        await start(script)

    def ran(by: str) -> int:
        found: Any = server.get(f"ran by {by}")
        return int(found or 0)

    with QlessClient(url=server_url) as client:
        client.set_config("heartbeat", 2)
        client.set_config("grace-period", 0)
        jids: list[str] = []

        def put(count: int) -> None:
            jids.extend(client.put("q", "K", n, delay=n % 4 / 4, retries=RETRIES) for n in range(count))

        def have_both_run() -> bool:
            put(1)
            return bool(ran("ours") and ran("theirs"))

        try:
            for script in (OURS, THEIRS, OURS, THEIRS):
                await start(script)
            await wait_until(have_both_run, "workers of both kinds to run jobs")
            put(COUNT)
            for part in range(1, 5):
                enough = len(jids) - COUNT + COUNT * part // 6
                await wait_until(lambda enough=enough: server.hlen("ran") >= enough, f"{enough} jobs to run")  # type: ignore[misc]
                await kill_one()
            await wait_until(lambda: server.zcard("ql:completed") == len(jids), "all jobs to be complete")
        finally:
            for _, process in fleet:
                process.kill()
                await process.wait()
        jobs = client.get_many(jids)
        stats = client.stats("q")
    runs: dict[str, str] = server.hgetall("ran")  # type: ignore[assignment]
    assert runs.keys() == set(jids)
    lost = {job.jid: sum(entry["what"] == "timed-out" for entry in job.history) for job in jobs}
    assert {job.state for job in jobs} == {"complete"}
    assert {job.remaining for job in jobs} == {RETRIES}, "a completed job has all its retries again"
    assert all(int(runs[jid]) <= 1 + times for jid, times in lost.items()), "only a lost job runs again"
    assert sum(lost.values()) == stats.retries
    assert not server.keys("ql:q:q-locks")
