"""Durable steps beside a process of Node, which knows none: it gets plain jobs, and signals those that wait."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncJob, AsyncQueue
from orchestration_queue.flows import Node
from orchestration_queue.protocol.operations.steps import StepKind
from orchestration_queue.states import JobState
from orchestration_queue.worker import AsyncActiveJob
from tests.integration.test_steps import SOON, TWICE, settled_state, until
from tests.workers import working

NODE = shutil.which("node")
PROGRAM = Path(__file__).with_name("node_program.mjs")
pytestmark = pytest.mark.skipif(NODE is None, reason="Node is not installed")


@pytest.fixture
async def queue(server_url: str, queue_name: str, raw: redis.Redis) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        await queue.counts()  # connecting loads the functions
        yield queue


async def node(server_url: str, base: str, verb: str, *arguments: str) -> list[Any]:
    """Run the program for a queue, and return what it printed."""
    words = (str(NODE), str(PROGRAM), server_url.removeprefix("unix://"), base, verb, *arguments)
    ended = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


async def test_it_takes_a_job_with_stored_steps_as_a_plain_job(
    queue: AsyncQueue, server_url: str, raw: redis.Redis
) -> None:
    async def work(job: AsyncActiveJob) -> None:
        worker.stop()  # Node runs the next attempt
        await job.step("a", lambda: {"is": "é"})
        await job.step("b", int)
        raise ValueError("died")

    async with working(queue, work, server_url) as worker:
        job = await queue.add("work", {"pages": 3}, TWICE)
        await settled_state(queue, job.id, JobState.DELAYED)
    seen, ended = await node(server_url, queue.keys.base, "work", '{"by":"node"}')
    options = {"attempts": 2, "backoff": {"type": "fixed", "delay": 20}}
    assert seen == {
        "id": job.id, "name": "work", "data": {"pages": 3}, "opts": options, "attemptsMade": 1, "signals": [],
    }  # fmt: skip
    assert ended == "NEXT_NONE"
    assert await job.wait(SOON) == {"by": "node"}
    assert [(step.name, step.attempt) for step in await job.steps()] == [("a", 1), ("b", 1)]
    await job.remove()
    assert not raw.exists(queue.keys.steps(job.id))


async def test_its_signal_continues_a_waiting_job(queue: AsyncQueue, server_url: str) -> None:
    async def work(job: AsyncActiveJob) -> Any:
        return [await job.wait_for("approval"), await job.wait_for("more")]

    async with working(queue, work, server_url):
        job = await queue.add("work")
        assert await node(server_url, queue.keys.base, "signal", "no-job", "approval", "") == [False]
        for name, data in (("approval", '{"by":"Zo\u00eb"}'), ("more", "")):
            await suspended_at(job, name)
            assert await node(server_url, queue.keys.base, "signal", job.id, name, data) == [True]
        assert await job.wait(SOON) == [{"by": "Zoë"}, None]
    assert [step.kind for step in await job.steps()] == [StepKind.SIGNALED] * 2


async def suspended_at(job: AsyncJob, name: str) -> None:
    async def has_it() -> bool:
        info = await job.suspend_info()
        return info is not None and (info.reason or "").startswith(f"Step {name!r}")

    await until(has_it)


async def test_its_reader_of_events_passes_those_of_steps_on(queue: AsyncQueue, server_url: str) -> None:
    async def work(job: AsyncActiveJob) -> None:
        for number in range(120):  # more than a page of its reader
            await job.step(f"n-{number}", int)

    async with working(queue, work, server_url, emit_step_events=True):
        job = await queue.add("work")
        told = await node(server_url, queue.keys.base, "events", job.id)
    kinds = [event.pop("event") for event in told]
    assert kinds == ["added", *["step"] * 120, "completed"]
    assert told[-2] == {
        "jobId": job.id, "step": "n-119", "kind": "returned", "attempt": "1", "duration": told[-2]["duration"],
    }  # fmt: skip


async def test_it_runs_a_job_that_a_step_calls(queue: AsyncQueue, server_url: str) -> None:
    async def work(job: AsyncActiveJob) -> Any:
        worker.stop()  # Node runs what it calls
        return await job.call(Node("it", "theirs", data={"number": 4}))

    async with working(queue, work, server_url, concurrency=1) as worker:
        job = await queue.add("work")
        await settled_state(queue, job.id, JobState.WAITING_CHILDREN)
    seen, _ = await node(server_url, queue.keys.base, "work", '{"is":8}')
    assert (seen["name"], seen["data"]) == ("theirs", {"number": 4})
    async with working(queue, work, server_url, concurrency=1) as worker:
        assert await job.wait(SOON) == {"is": 8}
    assert [step.kind for step in await job.steps()] == [StepKind.COMPLETED]
