"""Own routes of a queue's settings: defaults of its jobs, and limits over all its workers."""

from __future__ import annotations

import asyncio
from typing import Any

from orchestration_queue.client import AsyncQueue
from orchestration_queue.http.messages import Json, Request
from orchestration_queue.http.v1.reading import members, plain
from orchestration_queue.options import QueueSettings

__all__ = ["change_settings", "show_settings"]


async def _settings(queue: AsyncQueue) -> dict[str, Any]:
    settings, is_paused = await asyncio.gather(queue.settings(), queue.is_paused())
    return {**plain(settings), "is_paused": is_paused}


async def show_settings(request: Request) -> Json:
    """Return a queue's settings: defaults of its jobs, concurrency and rate limit over all workers."""
    return Json(await _settings(request.service.queue(request.params["name"])))


async def change_settings(request: Request) -> Json:
    """Change a queue's settings, and return all. Omitted ones are kept; null removes one."""
    changes, queue = members(request, *QueueSettings.model_fields), request.service.queue(request.params["name"])
    if isinstance(letters := changes.get("dead_letter_queue"), str):
        request.allow([queue.name, letters])
    await queue.configure(**changes)
    return Json(await _settings(queue))
