"""Clients of event streams that stop reading: disconnected, resumed where they were, and informed of dropped messages.

Their sockets are real: what an app writes fills the buffers of both ends, as with a browser whose tab is suspended.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import socket
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
import redis

from orchestration_queue.http import HttpApp, create_app, subscriptions
from orchestration_queue.http import app as http_app
from orchestration_queue.protocol.keys import QueueKeys
from tests.http.test_streams import listening
from tests.http.test_weaknesses import SlowClient, publish
from tests.waiting import wait_until

LARGE = "x" * 200_000
MESSAGES = 100
"""20 MB in all: more than the buffers of a socket take."""

Stall = Callable[..., socket.socket]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(http_app, "_STALLED_S", 3.0)
    caplog.set_level(logging.INFO, "orchestration_queue.http")


@pytest.fixture
async def app(server_url: str, raw: redis.Redis) -> AsyncIterator[HttpApp]:
    app = create_app(server_url)
    yield app
    await app.aclose()


@pytest.fixture
def stall(live: httpx.AsyncClient) -> Iterator[Stall]:
    """Ask for a stream, and read nothing of it."""
    with ExitStack() as clients:

        def ask(path: str, after: str = "") -> socket.socket:
            client = clients.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            client.connect(("127.0.0.1", live.base_url.port))
            client.sendall(f"GET {path} HTTP/1.1\r\nhost: x\r\nlast-event-id: {after}\r\n\r\n".encode())
            return client

        yield ask


async def drain(client: socket.socket) -> list[dict[str, str]]:
    """Read what was on its way, to the end of the stream; returns the events that are whole."""

    def read() -> bytes:
        client.settimeout(30)
        found = b""
        with client:
            while part := client.recv(1 << 20):
                found += part
        return found

    raw = (await asyncio.to_thread(read)).partition(b"\r\n\r\n")[2]
    text = b""
    while raw:  # chunks
        size, _, rest = raw.partition(b"\r\n")
        text, raw = text + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    blocks = text.decode().split("\n\n")[:-1]
    return [dict(line.split(": ", 1) for line in block.splitlines()) for block in blocks if block[0] != ":"]


async def dropped(caplog: pytest.LogCaptureFixture) -> None:
    await wait_until(lambda: "its client read nothing" in caplog.text, "the client to be dropped", 60)


def add_events(raw: redis.Redis, queue: str, count: int, *, data: str = LARGE, keep: int = 1000) -> list[str]:
    entry: Any = {"event": "progress", "jobId": "1", "data": json.dumps(data)}
    key = QueueKeys(queue).events
    return [str(raw.xadd(key, entry, maxlen=keep, approximate=False)) for _ in range(count)]


async def read(events: AsyncIterator[dict[str, str]], count: int) -> list[dict[str, str]]:
    return [await anext(events) for _ in range(count)]


@pytest.mark.parametrize("route", ["events", "jobs/1/events"])
async def test_a_stalled_client_of_events_is_dropped_and_resumes_without_a_gap(
    live: httpx.AsyncClient,
    raw: redis.Redis,
    queue_name: str,
    caplog: pytest.LogCaptureFixture,
    stall: Stall,
    route: str,
) -> None:
    await live.post(f"/queues/{queue_name}/jobs", json={"name": "a"})
    path = f"/queues/{queue_name}/{route}"
    client = stall(path, after="0")
    ids = add_events(raw, queue_name, MESSAGES)
    await dropped(caplog)
    first = [each["id"] for each in await drain(client)][1:]  # behind that of the add
    assert 0 < len(first) < MESSAGES
    async with listening(live, path, last_event_id=first[-1]) as (_, events):
        rest = [each["id"] for each in await read(events, MESSAGES - len(first))]
    assert first + rest == ids


@pytest.mark.parametrize("route", ["events", "jobs/1/events"])
async def test_a_client_that_resumes_too_late_is_told_of_the_gap(
    live: httpx.AsyncClient, raw: redis.Redis, queue_name: str, route: str
) -> None:
    await live.post(f"/queues/{queue_name}/jobs", json={"name": "a"})
    ids = add_events(raw, queue_name, 500, data="", keep=200)
    path = f"/queues/{queue_name}/{route}"
    async with listening(live, path, last_event_id=ids[0]) as (_, events):
        gap, *rest = await read(events, 201)
    assert gap == {"id": ids[0], "event": "gap", "data": json.dumps({"oldest": ids[300]}, separators=(",", ":"))}
    assert [each["id"] for each in rest] == ids[300:]
    for whole in (ids[300], "0"):  # nothing was missed, or nothing is expected
        async with listening(live, path, last_event_id=whole) as (_, events):
            assert (await anext(events))["event"] == "progress"


async def test_a_slow_client_that_falls_behind_what_is_kept_is_told_of_the_gap(
    app: HttpApp, raw: redis.Redis, queue_name: str
) -> None:
    ids = add_events(raw, queue_name, 150, data="")
    slow = SlowClient(app, f"/queues/{queue_name}/events", after="0")
    slow.take(1)
    await wait_until(lambda: slow.got, "it to take the first")
    ids += add_events(raw, queue_name, 300, data="", keep=200)
    slow.take(300)
    await wait_until(lambda: len(slow.got) == 301, "it to take the rest")
    assert [at for at, each in enumerate(slow.got) if "oldest" in each] == [100]
    assert slow.got[100] == {"oldest": ids[250]}
    await slow.leave()


async def test_a_stalled_client_of_a_broadcast_is_dropped_and_gets_the_rest_when_it_resumes(
    live: httpx.AsyncClient,
    queue_name: str,
    caplog: pytest.LogCaptureFixture,
    stall: Stall,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subscriptions, "_MOST_KEPT", 2 * MESSAGES * len(LARGE))
    path = f"/broadcast/{queue_name}/events?subscription=s"
    async with listening(live, path) as (_, events):
        client = stall(path)
        for number in range(MESSAGES):
            await publish(live, queue_name, f"{number} {LARGE}")
            await anext(events)  # the other one gets all
        await dropped(caplog)
        first = await drain(client)
        assert 0 < len(first) < MESSAGES
        async with listening(live, path, last_event_id=first[-1]["id"]) as (_, again):
            rest = await read(again, MESSAGES - len(first))
    heard = [int(json.loads(each["data"])["data"].split()[0]) for each in (*first, *rest)]
    assert heard == list(range(MESSAGES))


async def test_messages_of_any_size_are_kept_for_a_slow_client_up_to_a_limit_in_bytes(
    live: httpx.AsyncClient, queue_name: str, caplog: pytest.LogCaptureFixture, stall: Stall
) -> None:
    path = f"/broadcast/{queue_name}/events?subscription=s"
    gc.freeze()  # a collection of all that other tests left would hold up the other client for longer than its patience
    tracemalloc.start()
    try:
        async with listening(live, path) as (_, events):
            client = stall(path)
            held = []
            for number in range(MESSAGES):
                await publish(live, queue_name, f"{number} {LARGE}")
                await anext(events)
                gc.collect()
                held.append(tracemalloc.get_traced_memory()[0])
            assert max(held) - held[0] < subscriptions._MOST_KEPT + 2**20
            await dropped(caplog)
            first = await drain(client)
            async with listening(live, path, last_event_id=first[-1]["id"]) as (_, again):
                await publish(live, queue_name, "last")
                gap, last = await read(again, 2)
    finally:
        tracemalloc.stop()
        gc.unfreeze()
    assert (gap, json.loads(last["data"])["data"]) == ({"event": "gap", "data": "{}"}, "last")


async def test_the_only_client_of_a_broadcast_resumes_where_it_was(live: httpx.AsyncClient, queue_name: str) -> None:
    path = f"/broadcast/{queue_name}/events?subscription=s"
    last: dict[str, str] = {}
    for number in range(3):
        async with listening(live, path, last_event_id=last.get("id", "")) as (_, events):
            await publish(live, queue_name, number)
            last = await anext(events)
            assert json.loads(last["data"])["data"] == number


async def test_closing_the_app_waits_for_no_stalled_client(app: HttpApp, raw: redis.Redis, queue_name: str) -> None:
    add_events(raw, queue_name, 1)
    begun = asyncio.Event()

    async def send(part: Any) -> None:
        if part["type"] == "http.response.body":
            begun.set()
            await asyncio.Event().wait()

    scope = {
        "type": "http", "method": "GET", "path": f"/queues/{queue_name}/events", "query_string": b"",
        "headers": [(b"last-event-id", b"0")],
    }  # fmt: skip
    answer = asyncio.create_task(app(scope, asyncio.Event().wait, send))  # type: ignore[arg-type]
    await asyncio.wait_for(begun.wait(), 30)
    await app.aclose()
    await asyncio.wait_for(answer, 30)
