"""A reader of a queue's events, to be killed: stores what it got together with its position, and resumes there.

Usage: python -m tests.chaos.event_reader KIND QUEUE FILE, with the server in OQ_URL. Each line of the file is one read.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["KINDS", "read_lines"]

Store = Callable[[str, Sequence[tuple[str, str, str]]], None]
"""Stores a position and the events up to it: id, type and job."""


def read_lines(file: Path) -> list[dict[str, Any]]:
    """What a reader has stored; a line that it was killed in is left out."""
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return [json.loads(line) for line in lines]


def iterate(queue: str, after: str, store: Store) -> None:
    """Read with the sync iterator."""
    from orchestration_queue import QueueEvents

    with QueueEvents(queue, after=after or "0") as events:
        while True:
            if page := events.read(5):
                store(page[-1].id, [(event.id, event.type, event.job_id) for event in page])


def iterate_async(queue: str, after: str, store: Store) -> None:
    """Read with the async iterator."""
    from orchestration_queue import AsyncQueueEvents

    async def read() -> None:
        async with AsyncQueueEvents(queue, after=after or "0") as events:
            async for event in events:
                store(event.id, [(event.id, event.type, event.job_id)])

    asyncio.run(read())


def tick(queue: str, after: str, store: Store) -> None:
    """Evaluate a sensor with the pauses that Dagster's daemon makes."""
    from orchestration_queue.dagster import QueueEvent, QueueResource, queue_event_sensor
    from orchestration_queue.dagster.testing import evaluate_sensor, queue_resource

    got: list[tuple[str, str, str]] = []

    def react(event: QueueEvent, _: QueueResource) -> None:
        got.append((event.id, event.type, event.job_id))

    sensor = queue_event_sensor(react, queue=queue, events=["added", "completed"], start="oldest", wait=1)
    with queue_resource(os.environ["OQ_URL"]) as resource:
        while True:
            got.clear()
            tick = evaluate_sensor(sensor, {"queue": resource}, cursor=after or None)
            after = tick.cursor or ""
            store(after, [*got, *(("", "gap", "") for line in tick.log if "dropped" in line)])
            time.sleep(0.5)


def listen(queue: str, after: str, store: Store) -> None:
    """Read server-sent events over HTTP, from a server in this process, with Last-Event-ID."""
    import httpx
    import uvicorn

    from orchestration_queue.http import create_app

    async def read() -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(create_app(os.environ["OQ_URL"]), log_level="critical"))
        serving = asyncio.create_task(server.serve([listener]))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/queues/{queue}/events"
        headers = {"last-event-id": after or "0"}
        async with httpx.AsyncClient(timeout=60) as client, client.stream("GET", url, headers=headers) as response:
            fields: dict[str, str] = {}
            async for line in response.aiter_lines():
                name, _, fields[name] = line.partition(": ")
                if not line and "data" in fields:
                    job_id = str(json.loads(fields["data"]).get("jobId", ""))
                    store(fields["id"], [(fields["id"], fields["event"], job_id)])
                    fields = {}
        await serving

    asyncio.run(read())


KINDS = {"iterator": iterate, "async-iterator": iterate_async, "sensor": tick, "sse": listen}


def main() -> None:
    """Read until killed."""
    kind, queue, name = sys.argv[1:]
    file = Path(name)
    stored = read_lines(file)
    if stored:  # the line that was not finished is read again
        file.write_text("".join(json.dumps(line) + "\n" for line in stored))
    with file.open("a") as lines:

        def store(after: str, events: Sequence[tuple[str, str, str]]) -> None:
            lines.write(json.dumps({"after": after, "events": events}) + "\n")
            lines.flush()

        while True:
            from orchestration_queue.errors import TransportError

            stored = read_lines(file)
            try:
                KINDS[kind](queue, stored[-1]["after"] if stored else "", store)
            except TransportError:  # the server is being restarted
                time.sleep(0.1)


if __name__ == "__main__":
    main()
