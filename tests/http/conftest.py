"""The app over a real server, by HTTP without sockets, and by uvicorn where bytes must flow while it runs."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import httpx
import pytest
import redis
import uvicorn

from orchestration_queue.http import HttpApp, create_app
from orchestration_queue.http.console import cache, overview, pages
from tests.waiting import wait_until

Serve = Callable[[HttpApp], AbstractAsyncContextManager[httpx.AsyncClient]]


@asynccontextmanager
async def called(app: HttpApp) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an app, without sockets."""
    try:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            yield client
    finally:
        await app.aclose()


@asynccontextmanager
async def served(app: HttpApp) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an app that uvicorn serves on a port of this machine."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=5, lifespan="on"))
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]  # the tests' own stay
    task = asyncio.create_task(server._serve([listener]))
    try:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with httpx.AsyncClient(base_url=url, timeout=30, limits=httpx.Limits(max_connections=None)) as client:
            await wait_until(lambda: server.started, "uvicorn to start")
            yield client
    finally:
        await app.aclose()
        server.should_exit = True
        await asyncio.wait_for(task, 30)
        listener.close()


@pytest.fixture(autouse=True)
def patient_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages wait for a scan of all keys, however busy the machine is."""
    for module in (overview, pages, cache):
        monkeypatch.setattr(module, "PATIENCE_S", 60)


@pytest.fixture
async def api(server_url: str, raw: redis.Redis) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the app over an empty server."""
    async with called(create_app(server_url)) as client:
        yield client


@pytest.fixture
async def live(server_url: str, raw: redis.Redis) -> AsyncIterator[httpx.AsyncClient]:
    """The same, over sockets."""
    async with served(create_app(server_url)) as client:
        yield client
