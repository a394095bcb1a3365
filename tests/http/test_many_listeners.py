"""Two hundred clients that listen to one queue: none misses an event, and the app holds no more with each round."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc

import httpx
import pytest
import redis

from orchestration_queue import AsyncQueue, NewJob
from orchestration_queue.http import create_app
from tests.bench.http import Link
from tests.http.conftest import served
from tests.waiting import wait_until

LISTENERS = 200
EVENTS = 6
ROUNDS = 3
MOST_GROWTH = 4 * 2**20
"""Bytes: fifth of what one kept message of each listener and event would take."""


async def hear(link: Link, count: int) -> list[str | None]:
    return [await link.next_job() for _ in range(count)]


@pytest.mark.timeout(600)
async def test_two_hundred_clients_miss_nothing_and_memory_stays(
    server_url: str, raw: redis.Redis, queue_name: str
) -> None:
    async with served(create_app(server_url)) as client, AsyncQueue(queue_name, url=server_url) as queue:
        port = httpx.URL(str(client.base_url)).port or 0
        links = [await Link.open(port) for _ in range(LISTENERS)]
        async with asyncio.timeout(500):
            # Who has the head of the answer misses nothing from then on.
            await asyncio.gather(*(link.listen(f"/queues/{queue_name}/events") for link in links))
            tracemalloc.start()
            held = []
            for _ in range(ROUNDS):
                sent = [job.id for job in await queue.add_bulk([NewJob("a", n) for n in range(EVENTS)])]
                heard = await asyncio.gather(*(hear(link, EVENTS) for link in links))
                assert all(each == sent for each in heard)
                del heard
                gc.collect()
                held.append(tracemalloc.get_traced_memory()[0])
            tracemalloc.stop()
        assert held[-1] - held[0] < MOST_GROWTH, held
        for link in links:
            link.close()
        await wait_until(lambda: int(raw.info("clients")["blocked_clients"]) == 0, "the readers to end", 120)
