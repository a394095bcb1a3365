"""The app below a path of another application, as docs/how-to/serve-http.md mounts it."""

from __future__ import annotations

from typing import Any

import httpx
import redis

from orchestration_queue.http import create_app


async def test_mounted_below_a_path(server_url: str, raw: redis.Redis, queue_name: str) -> None:
    queues = create_app(server_url)

    async def application(scope: Any, receive: Any, send: Any) -> None:
        assert scope["path"].startswith("/queue/")
        await queues(scope | {"root_path": scope.get("root_path", "") + "/queue"}, receive, send)

    try:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url="http://test") as client:
            base = f"/queue/queues/{queue_name}"
            assert (await client.post(f"{base}/jobs", json={"name": "a"})).status_code == 201
            assert (await client.get(f"{base}/counts")).json()["waiting"] == 1
            assert len((await client.get(f"/queue/v1/queues/{queue_name}/search")).json()["jobs"]) == 1
            assert (await client.get("/queue/v1/nothing")).headers["content-type"] == "application/problem+json"
            assert (await client.get("/queue/nothing")).status_code == 404
    finally:
        await queues.aclose()
