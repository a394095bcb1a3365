"""A job that another language added comes through our worker, and leaves behind exactly what the wire says."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from orchestration_queue.client import AsyncQueue
from orchestration_queue.options import WorkerOptions
from orchestration_queue.worker import AsyncActiveJob, Worker
from tests.waiting import wait_until

ADDED_MS = 1_709_750_400_000


def add_as_the_wire_document_does(raw: Any, base: str) -> str:
    """The Python example of the public wire document: 4 keys, 17 arguments."""
    keys = [f"{base}:id", f"{base}:stream", f"{base}:scheduled", f"{base}:events"]
    data = json.dumps({"to": "user@example.com", "subject": "Hello"})
    numbers = ["0", "0", "", "0", "", "0", "0", "0", "0", "0", "0", "0", ""]
    job_id = raw.fcall("glidemq_addJob", 4, *keys, "send-email", data, "{}", str(ADDED_MS), *numbers)
    assert isinstance(job_id, str)
    return job_id


async def test_a_job_added_by_raw_fcall_is_taken_and_left_as_the_wire_says(
    server_url: str, queue_name: str, raw: Any
) -> None:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        await queue.counts()
        base = f"glide:{{{queue_name}}}"
        job_id = add_as_the_wire_document_does(raw, base)
        assert job_id == "1"
        seen: list[object] = []

        async def handler(job: AsyncActiveJob) -> dict[str, str]:
            seen.append((job.id, job.name, job.data, job.attempt))
            return {"sent": "yes"}

        worker = Worker(queue_name, handler, url=server_url, options=WorkerOptions())
        running = asyncio.ensure_future(worker.run())
        await wait_until(lambda: raw.zcard(f"{base}:completed"), "the job to complete")
        await wait_until(lambda: raw.exists(f"{base}:wake:one"), "the worker to wait for more jobs")
        worker.stop()
        await running

    assert seen == [("1", "send-email", {"to": "user@example.com", "subject": "Hello"}, 1)]
    stored = raw.hgetall(f"{base}:job:1")
    assert stored.pop("entry")
    started, finished = stored.pop("processedOn"), stored.pop("finishedOn")
    assert ADDED_MS < int(started) <= int(finished)
    assert stored.pop("lastActive") >= started
    assert stored == {
        "id": "1",
        "name": "send-email",
        "data": '{"to": "user@example.com", "subject": "Hello"}',
        "opts": "{}",
        "timestamp": str(ADDED_MS),
        "attemptsMade": "0",
        "delay": "0",
        "priority": "0",
        "maxAttempts": "0",
        "state": "completed",
        "returnvalue": '{"sent":"yes"}',
    }
    events = [fields for _, fields in raw.xrange(f"{base}:events")]
    assert events == [
        {"event": "added", "jobId": "1", "name": "send-email"},
        {"event": "completed", "jobId": "1", "returnvalue": '{"sent":"yes"}'},
    ]
    assert raw.zrange(f"{base}:completed", 0, -1, withscores=True) == [("1", float(finished))]
    assert raw.xlen(f"{base}:stream") == 0
    assert raw.xpending(f"{base}:stream", "workers")["pending"] == 0
    minute = int(finished) // 60_000 * 60_000
    assert raw.hget(f"{base}:metrics:completed", f"m:{minute}:c") == "1"
    left = {key.removeprefix(base) for key in raw.scan_iter("*")}
    # Of keys that the wire does not know, there are the day's statistics and the signals to one worker.
    assert len({key for key in left if key.startswith(":statistics:")}) == 1
    assert {key for key in left if not key.startswith(":statistics:")} == {
        ":id",
        ":stream",
        ":events",
        ":completed",
        ":job:1",
        ":metrics:completed",
        ":wake:one",
    }
