"""Server-sent events over sockets: framing, resuming, and clients that disconnect."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import redis

from orchestration_queue import AsyncActiveJob, AsyncQueue, Worker
from orchestration_queue.http import create_app
from tests.http.conftest import served
from tests.waiting import wait_until


async def messages(response: httpx.Response) -> AsyncIterator[dict[str, str]]:
    """The messages of a stream; its comments are left out."""
    found: dict[str, str] = {}
    async for line in response.aiter_lines():
        if not line and found:
            yield found
            found = {}
        elif line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            found[name] = value


@asynccontextmanager
async def listening(
    client: httpx.AsyncClient, path: str, **headers: str
) -> AsyncIterator[tuple[httpx.Response, AsyncIterator[dict[str, str]]]]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with asyncio.timeout(100), client.stream("GET", path, headers=sent) as response:
        assert response.headers["content-type"] == "text/event-stream", await response.aread()
        yield response, messages(response)


async def speak(job: AsyncActiveJob) -> str:
    await job.update_progress(50)
    for number in range(250):
        await job.stream({"n": number})
    return "done"


@asynccontextmanager
async def speaking(url: str, queue: str) -> AsyncIterator[None]:
    worker = Worker(queue, speak, url=url)
    task = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await asyncio.wait_for(task, 30)


async def test_a_queue_s_events_from_the_beginning_and_from_an_id(
    live: httpx.AsyncClient, server_url: str, queue_name: str
) -> None:
    path = f"/queues/{queue_name}/events"
    for name in ("a", "b"):
        await live.post(f"/queues/{queue_name}/jobs", json={"name": name, "opts": {"jobId": name}})
    async with listening(live, path, last_event_id="0") as (_, found):
        first = await anext(found)
    assert first.keys() == {"id", "event", "data"}
    assert (first["event"], json.loads(first["data"])) == ("added", {"jobId": "a", "name": "a"})
    async with listening(live, f"{path}?lastId={first['id']}") as (_, found):
        assert json.loads((await anext(found))["data"])["jobId"] == "b"


async def test_new_events_only_by_default_and_live(live: httpx.AsyncClient, queue_name: str) -> None:
    await live.post(f"/queues/{queue_name}/jobs", json={"name": "old"})
    async with listening(live, f"/queues/{queue_name}/events") as (response, found):
        lines = response.aiter_raw()
        assert await anext(lines) == b": connected\n\n"
        await live.post(f"/queues/{queue_name}/pause")
        assert b'event: paused\ndata: {"jobId":"0"}' in await anext(lines)
        del found


async def test_a_job_s_events_end_with_the_job(live: httpx.AsyncClient, server_url: str, queue_name: str) -> None:
    job = (await live.post(f"/queues/{queue_name}/jobs", json={"name": "a"})).json()["id"]
    await live.post(f"/queues/{queue_name}/jobs", json={"name": "other"})
    path = f"/queues/{queue_name}/jobs/{job}/events"
    async with listening(live, path, last_event_id="0") as (_, found), speaking(server_url, queue_name):
        heard = [message async for message in found]
    assert [message["event"] for message in heard if message["event"] != "active"] == ["added", "progress", "completed"]
    assert {json.loads(message["data"])["jobId"] for message in heard} == {job}
    assert json.loads(heard[-1]["data"])["returnvalue"] == "done"


async def test_a_job_s_output_is_whole_after_its_end(live: httpx.AsyncClient, server_url: str, queue_name: str) -> None:
    job = (await live.post(f"/queues/{queue_name}/jobs", json={"name": "a"})).json()["id"]
    path = f"/queues/{queue_name}/jobs/{job}/stream"
    async with speaking(server_url, queue_name), listening(live, path) as (_, found):
        heard = [json.loads(message["data"]) async for message in found]
    assert heard == [{"n": str(number)} for number in range(250)]
    async with listening(live, f"/queues/{queue_name}/jobs/nope/stream") as (response, _):
        assert await response.aread() == b""


async def test_two_clients_of_a_subscription_get_what_they_want(live: httpx.AsyncClient, queue_name: str) -> None:
    path = f"/broadcast/{queue_name}/events?subscription=s"
    async with listening(live, path) as (_, all_), listening(live, f"{path}&subjects=orders.*") as (_, some):
        for subject in ("users.new", "orders.new"):
            sent = await live.post(f"/broadcast/{queue_name}", json={"subject": subject, "data": {"a": 1}})
            assert sent.status_code == 201
        assert [json.loads((await anext(all_))["data"])["subject"] for _ in range(2)] == ["users.new", "orders.new"]
        message = await anext(some)
    assert message["event"] == "message"
    assert (
        json.loads(message["data"]).items() >= {"data": {"a": 1}, "subject": "orders.new", "id": message["id"]}.items()
    )


async def test_a_subscription_loses_nothing_between_two_readers(live: httpx.AsyncClient, queue_name: str) -> None:
    path = f"/broadcast/{queue_name}/events?subscription=s"
    async with listening(live, path):
        pass
    for number in range(6):
        await live.post(f"/broadcast/{queue_name}", json={"subject": "a", "data": number})
    async with listening(live, path) as (_, found):
        assert [json.loads((await anext(found))["data"])["data"] for _ in range(6)] == list(range(6))


async def test_clients_that_leave_leave_no_connection_behind(
    server_url: str, raw: redis.Redis, queue_name: str
) -> None:
    async with served(create_app(server_url)) as client:
        await client.post(f"/queues/{queue_name}/jobs", json={"name": "a"})

        async def come_and_go() -> None:
            async with listening(client, f"/queues/{queue_name}/events") as (response, _):
                await anext(response.aiter_raw())

        await come_and_go()
        for _ in range(3):
            await asyncio.gather(*(come_and_go() for _ in range(10)))
        await wait_until(lambda: blocked(raw) == 0, "the readers to end")
        connections = len(raw.client_list())
        assert connections < 25


def blocked(raw: redis.Redis) -> int:
    return int(raw.info("clients")["blocked_clients"])


async def test_closing_the_app_ends_all_streams(server_url: str, raw: redis.Redis, queue_name: str) -> None:
    app = create_app(server_url)
    async with served(app) as client, listening(client, f"/queues/{queue_name}/events") as (response, _):
        parts = response.aiter_raw()
        await anext(parts)
        await app.aclose()
        assert [part async for part in parts] == []
    async with AsyncQueue(queue_name, url=server_url) as queue:
        assert (await queue.counts()).waiting == 0
