"""The app in other applications, as docs/how-to/serve-http.md mounts it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import django.conf
import django.http
import django.urls
import httpx
import pytest
import redis
from a2wsgi import WSGIMiddleware
from django.core.asgi import get_asgi_application
from fastapi import FastAPI
from flask import Flask
from starlette.applications import Starlette

from orchestration_queue.http import HttpApp, create_app


def in_starlette(queues: HttpApp) -> Any:
    app = Starlette(lifespan=closing(queues))
    app.mount("/queue", queues)
    return app


def in_fastapi(queues: HttpApp) -> Any:
    app = FastAPI(lifespan=closing(queues))
    app.mount("/queue", queues)
    app.get("/own")(lambda: "ours")
    return app


def in_django(queues: HttpApp) -> Any:
    if not django.conf.settings.configured:
        paths = [django.urls.path("own", lambda _: django.http.HttpResponse("ours"))]
        django.conf.settings.configure(ROOT_URLCONF=tuple(paths), ALLOWED_HOSTS=["test"], SECRET_KEY="x")
    own = get_asgi_application()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/queue/"):
            await queues({**scope, "root_path": scope.get("root_path", "") + "/queue"}, receive, send)
        else:
            await own(scope, receive, send)

    return application


def beside_flask(queues: HttpApp) -> Any:
    flask = Flask("site")
    flask.get("/own")(lambda: "ours")
    app = in_starlette(queues)
    app.mount("/", WSGIMiddleware(flask))  # type: ignore[arg-type]  # a2wsgi has its own names for ASGI's types
    return app


def closing(queues: HttpApp) -> Any:
    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        yield
        await queues.aclose()

    return lifespan


@pytest.mark.parametrize("mount", [in_starlette, in_fastapi, in_django, beside_flask])
async def test_mounted_below_a_path(server_url: str, raw: redis.Redis, queue_name: str, mount: Any) -> None:
    queues = create_app(server_url)
    application = mount(queues)
    try:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url="http://test") as client:
            base = f"/queue/queues/{queue_name}"
            assert (await client.post(f"{base}/jobs", json={"name": "a"})).status_code == 201
            assert (await client.get(f"{base}/counts")).json()["waiting"] == 1
            assert len((await client.get(f"/queue/v1/queues/{queue_name}/search")).json()["jobs"]) == 1
            assert (await client.get("/queue/v1/nothing")).headers["content-type"] == "application/problem+json"
            assert (await client.get("/queue/nothing")).status_code == 404
            if mount is not in_starlette:
                assert "ours" in (await client.get("/own")).text
    finally:
        await queues.aclose()


async def test_the_lifespan_of_the_outer_application_closes_it(server_url: str, raw: redis.Redis) -> None:
    queues = create_app(server_url)
    application = in_fastapi(queues)
    async with application.router.lifespan_context(application):
        assert not queues.service.closing.is_set()
    assert queues.service.closing.is_set()
