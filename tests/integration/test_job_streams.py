"""A job's own stream: its handler gives out entries, others follow them until it has finished."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncQueue, Queue
from orchestration_queue.client._async import job_reading
from orchestration_queue.errors import JobFailedError, PayloadError, UsageError
from orchestration_queue.options import JobOptions, Retention
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import job_output
from orchestration_queue.protocol.operations.job_output import StreamEntry
from orchestration_queue.worker import ActiveJob, AsyncActiveJob
from tests.by_hand import HandWorker
from tests.faces import Face
from tests.waiting import wait_until
from tests.workers import working

SOON = timedelta(seconds=60)


@pytest.fixture
async def queue(server_url: str, queue_name: str, raw: redis.Redis) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        yield queue


async def test_what_a_handler_gives_out_is_followed_to_its_end(queue: AsyncQueue, server_url: str) -> None:
    ids: list[str] = []
    go_on = asyncio.Event()

    async def work(job: AsyncActiveJob) -> str:
        ids.append(await job.stream({"row": 1, "share": 0.5}))
        ids.append(await job.stream_chunk("token", "Hel"))
        await go_on.wait()
        ids.append(await job.stream_chunk("end"))
        return "done"

    seen: list[StreamEntry] = []
    async with working(queue, work, server_url):
        job = await queue.add("work")
        async for entry in job.stream():
            seen.append(entry)
            if len(seen) == 2:
                go_on.set()
        assert await job.read_state() == "completed"
    assert [entry.id for entry in seen] == ids
    assert [dict(entry.fields) for entry in seen] == [
        {"row": "1", "share": "0.5"},
        {"type": "token", "content": "Hel"},
        {"type": "end"},
    ]
    assert [(entry.type, entry.content) for entry in seen] == [(None, None), ("token", "Hel"), ("end", None)]
    assert await job.read_stream() == seen
    assert await job.read_stream(after=ids[0], count=1) == [seen[1]]
    assert [entry async for entry in job.stream(after=ids[1])] == [seen[2]]


async def test_a_plain_function_gives_out_entries_too(queue: AsyncQueue, server_url: str) -> None:
    def work(job: ActiveJob) -> None:
        for number in range(250):
            job.stream({"n": number})

    async with working(queue, work, server_url):
        job = await queue.add("work")
        assert [entry.fields["n"] async for entry in job.stream()] == [str(number) for number in range(250)]


async def test_a_stream_ends_when_its_job_fails(queue: AsyncQueue, server_url: str) -> None:
    async def work(job: AsyncActiveJob) -> None:
        await job.stream_chunk("token", "a")
        raise RuntimeError("broken")

    async with working(queue, work, server_url):
        job = await queue.add("work", options=JobOptions(attempts=2))
        assert [entry.content async for entry in job.stream()] == ["a", "a"], "an attempt each"
        with pytest.raises(JobFailedError, match="broken"):
            await job.wait(SOON)


async def test_a_stream_of_a_job_that_is_not_kept_ends(queue: AsyncQueue, server_url: str) -> None:
    async with working(queue, lambda job: None, server_url):
        job = await queue.add("work", options=JobOptions(remove_on_complete=Retention(count=0)))
        assert [entry async for entry in job.stream()] == []


def test_a_stream_is_iterated_in_a_plain_for_loop(
    server_url: str, queue_name: str, raw: redis.Redis, hand: HandWorker
) -> None:
    with Queue(queue_name, url=server_url) as queue:
        job = queue.add("work")
        held = hand.take()
        raw.xadd(hand.keys.stream_of(job.id), {"type": "token", "content": "from another language"})
        stream = job.stream()
        assert next(stream).content == "from another language"
        hand.complete(held)
        assert list(stream) == []


async def test_a_stream_wakes_up_for_a_late_entry_and_for_the_end(
    queue: AsyncQueue, raw: redis.Redis, hand: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_reading, "LOOK_AGAIN_S", 3600.0)
    job = await queue.add("work")
    held = hand.take()
    stream = job.stream()
    late = asyncio.ensure_future(anext(stream))
    await wait_until(lambda: any(client["cmd"] == "xread" for client in raw.client_list()), "the wait")
    raw.xadd(hand.keys.stream_of(job.id), {"n": 1})
    assert (await asyncio.wait_for(late, 60)).fields == {"n": "1"}
    end = asyncio.ensure_future(anext(stream))
    await queue.add("other")  # an event that is none of ours
    assert not end.done()
    hand.complete(held)
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(end, 60)


async def test_a_stream_that_is_left_hangs_up(queue: AsyncQueue, raw: redis.Redis) -> None:
    job = await queue.add("work")

    def connections() -> set[str]:
        return {client["id"] for client in raw.client_list()}

    before = connections()  # some of which may be an earlier test's, just being closed
    raw.xadd(queue.keys.stream_of(job.id), {"n": 1})
    stream = job.stream()
    await anext(stream)
    (its_own,) = connections() - before
    await stream.aclose()  # type: ignore[attr-defined]  # it is a generator
    await wait_until(lambda: its_own not in connections(), "the connection to be closed")


BAD_ENTRIES: list[tuple[Any, str]] = [
    ({}, "with at least one field"),
    (None, "with at least one field"),
    ([("a", "b")], "with at least one field"),
    ({"a": None}, "numbers, got None"),
    ({"a": True}, "numbers, got True"),
    ({"a": {"b": 1}}, "must be strings or numbers, got .*; encode it as JSON"),
    ({1: "a", b"x": "b"}, "strings or numbers"),
    ({"a": "\ud800"}, "cannot be written as UTF-8"),
    ({"a": "x" * 2**20}, "exceeds maximum size"),
]


@pytest.mark.parametrize(("fields", "says"), BAD_ENTRIES)
def test_entries_that_no_stream_carries_are_refused(fields: Any, says: str) -> None:
    with pytest.raises((UsageError, PayloadError), match=says):
        job_output.append(QueueKeys("q"), "1", fields)


@pytest.mark.parametrize(("type", "content"), [("", None), (None, None), (5, "x"), ("t", 5j), ("t", b"x")])
def test_chunks_that_no_stream_carries_are_refused(type: Any, content: Any) -> None:  # noqa: A002  the wire's word
    with pytest.raises(UsageError):
        job_output.append(QueueKeys("q"), "1", job_output.chunk(type, content))


@pytest.mark.parametrize("after", ["", "soon", "1-", "-1", "1-x", "$", "\u0661", None])
async def test_what_is_no_position_is_refused(face: Face, queue_name: str, raw: redis.Redis, after: Any) -> None:
    async with face.queue(queue_name) as queue:
        job = await queue.add("work")
        with pytest.raises(UsageError, match="`after` must be"):
            await job.read_stream(after)
        with pytest.raises(UsageError, match="`after` must be"):
            job.stream(after)


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "5", None])
async def test_what_is_no_count_is_refused(face: Face, queue_name: str, raw: redis.Redis, count: Any) -> None:
    async with face.queue(queue_name) as queue:
        job = await queue.add("work")
        with pytest.raises(UsageError, match="`count` must be"):
            await job.read_stream(count=count)
