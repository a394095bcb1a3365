"""Waiting for jobs: any number of waits share one connection, none misses an ending, none disturbs another."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestration_queue.client import AsyncQueue, NewJob, Queue, values
from orchestration_queue.errors import JobFailedError, JobNotFoundError, UsageError
from orchestration_queue.options import JobOptions, Retention
from orchestration_queue.server import AsyncConnection
from tests.by_hand import HandWorker
from tests.conftest import start_server
from tests.faces import Face
from tests.waiting import wait_until, wait_until_sync

SOON = timedelta(seconds=60)


def readers(raw: Any) -> int:
    """How many connections wait at the server for events."""
    return sum(client["cmd"] == "xread" and "b" in client["flags"] for client in raw.client_list())


async def waiting(queue: AsyncQueue, count: int) -> None:
    """Return when this number of watches of the queue are at rest or reading."""
    await wait_until(lambda: under_way(queue) == count, f"{count} waits to be under way")


def under_way(queue: AsyncQueue) -> int:
    """How many watches of the queue are at rest or reading."""
    return sum(len(feed.resting) + feed.is_read for feed in list(queue._listener._feeds.values()))


async def test_a_thousand_waits_use_one_connection(
    server_url: str, queue_name: str, raw: Any, hand: HandWorker
) -> None:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        jobs = await queue.add_bulk([NewJob("work", n) for n in range(1000)])
        before = len(raw.client_list())
        waits = asyncio.gather(*(job.wait(60) for job in jobs))
        await waiting(queue, 1000)

        def work_half() -> int:
            for _ in range(500):
                held = hand.take()
                hand.complete(held, held.record.data * 2)
            return readers(raw)

        await wait_until(lambda: readers(raw) == 1, "one reader")
        assert await asyncio.to_thread(work_half) <= 1
        await wait_until(lambda: readers(raw) == 1, "one reader")
        await asyncio.to_thread(work_half)
        assert await waits == [2 * number for number in range(1000)]
        # The sockets for reading the jobs' records are the client's own, and shared by all it does.
        assert len(raw.client_list()) <= before + 32
    await wait_until(lambda: readers(raw) == 0, "the server to see the connection closed")


def test_a_hundred_threads_wait_on_one_connection(server_url: str, queue_name: str, raw: Any, hand: HandWorker) -> None:
    with Queue(queue_name, url=server_url) as queue, ThreadPoolExecutor(100) as threads:
        jobs = queue.add_bulk([NewJob("work", n) for n in range(100)])
        waits = [threads.submit(job.wait, 60) for job in jobs]
        feeds = queue._listener._feeds
        wait_until_sync(lambda: feeds and len(feeds[queue.keys].resting) == 99, "all but one to rest")
        wait_until_sync(lambda: readers(raw) == 1, "the one to read")
        for _ in jobs:
            held = hand.take()
            hand.complete(held, held.record.data)
        assert [wait.result(30) for wait in waits] == list(range(100))


def test_a_forked_child_waits_by_itself(server_url: str, queue_name: str, raw: Any, hand: HandWorker) -> None:
    with Queue(queue_name, url=server_url) as queue, ThreadPoolExecutor(1) as threads:
        ours, theirs = queue.add("work"), queue.add("work")
        waiting = threads.submit(ours.wait, 60)
        wait_until_sync(lambda: readers(raw) == 1, "the parent to wait")
        if (child := os.fork()) == 0:
            result = None
            try:
                result = theirs.wait(60)
                queue.close()
            finally:
                os._exit(0 if result == "theirs" else 1)
        wait_until_sync(lambda: readers(raw) == 2, "the child to wait")
        first, second = hand.take(), hand.take()
        hand.complete(second, "theirs")
        assert os.waitpid(child, 0)[1] == 0
        hand.complete(first, "ours")
        assert waiting.result(60) == "ours"


async def test_queues_of_one_channel_are_read_one_by_one(server_url: str, queue_name: str, raw: Any) -> None:
    names = [f"{queue_name}-{number}" for number in range(3)]
    connection = AsyncConnection(server_url)
    queues = [AsyncQueue(name, connection=connection) for name in names]
    jobs = [await queue.add("work") for queue in queues for _ in range(2)]
    waits = [asyncio.ensure_future(job.wait(SOON)) for job in jobs]
    await wait_until(lambda: readers(raw) == 3, "a read for each queue")
    for name in names:
        with HandWorker(server_url, name) as worker:
            worker.complete(worker.take(), name)
            worker.complete(worker.take(), name)
    assert await asyncio.gather(*waits) == [name for name in names for _ in range(2)]
    await connection.aclose()


@pytest.mark.parametrize("retention", [None, Retention(count=0)])
async def test_a_watch_begun_before_the_adding_hears_of_jobs_that_are_not_kept(
    face: Face, queue_name: str, raw: Any, hand: HandWorker, retention: Retention | None
) -> None:
    async with face.queue(queue_name) as queue:
        inner = getattr(queue, "_inner", queue)

        async def add_and_finish(ending: str) -> Any:
            if isinstance(inner, Queue):
                return await asyncio.to_thread(in_thread, inner, ending)
            async with inner._listener.watch(inner.keys) as watch:
                job = await inner.add("work")
                finish(ending)
                return await job.wait(SOON, watch=watch)

        def in_thread(inner: Queue, ending: str) -> Any:
            with inner._listener.watch(inner.keys) as watch:
                job = inner.add("work")
                finish(ending)
                return job.wait(SOON, watch=watch)

        def finish(ending: str) -> None:
            held = hand.take()
            if ending == "well":
                hand.complete(held, [held.id], retention)
            else:
                hand.fail(held, ending)

        assert await add_and_finish("well") == ["1"]
        with pytest.raises(JobFailedError, match="too hot"):
            await add_and_finish("too hot")
        assert await add_and_finish("well") == ["3"]
        assert inner._listener._feeds == {}


async def test_a_watch_hears_of_its_job_only(face: Face, queue_name: str, raw: Any, hand: HandWorker) -> None:
    async with face.queue(queue_name) as queue:
        first, second = await queue.add("work", 1), await queue.add("work", 2)
        waits = [asyncio.ensure_future(job.wait(SOON)) for job in (first, second)]
        await waiting(getattr(queue, "_inner", queue), 2)
        hand.complete(hand.take(), "first")
        assert await waits[0] == "first"
        assert not waits[1].done()
        hand.fail(hand.take(), "second")
        with pytest.raises(JobFailedError, match="second"):
            await waits[1]


async def test_a_cancelled_reader_passes_the_reading_on(
    server_url: str, queue_name: str, raw: Any, hand: HandWorker
) -> None:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        job = await queue.add("work")
        reader = asyncio.ensure_future(job.wait(60))
        await waiting(queue, 1)
        others = [asyncio.ensure_future(job.wait(60)) for _ in range(3)]
        await waiting(queue, 4)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        others[0].cancel()  # perhaps the one to whom the reading was just passed
        hand.complete(hand.take(), "done")
        assert await asyncio.wait_for(asyncio.gather(*others[1:]), 30) == ["done", "done"]
        assert queue._listener._feeds == {}


async def test_a_wait_that_is_over_passes_the_reading_on(
    face: Face, queue_name: str, raw: Any, hand: HandWorker
) -> None:
    async with face.queue(queue_name) as queue:
        job = await queue.add("work")
        inner = getattr(queue, "_inner", queue)
        short = asyncio.ensure_future(job.wait(0.3))
        await wait_until(lambda: under_way(inner) == 1 or short.done(), "the short wait to read")
        long = asyncio.ensure_future(job.wait(60))
        await wait_until(lambda: under_way(inner) == 2 or short.done(), "the long wait to rest")
        with pytest.raises(TimeoutError, match=r"is still waiting after 0.3 s"):
            await short
        await waiting(inner, 1)
        await wait_until(lambda: readers(raw) == 1, "the other to read")
        hand.complete(hand.take(), "done")
        assert await asyncio.wait_for(long, 30) == "done"


async def test_closing_wakes_those_who_wait(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        job = await queue.add("work")
        waits = [asyncio.ensure_future(job.wait(None)) for _ in range(3)]
        await waiting(getattr(queue, "_inner", queue), 3)
        await queue.aclose()
        done, late = await asyncio.wait(waits, timeout=30)
    assert not late
    for wait in done:
        with pytest.raises(UsageError, match="connection was closed during a wait for a job"):
            wait.result()
    await wait_until(lambda: readers(raw) == 0, "the connection to be closed")


async def test_broken_connections_are_survived(face: Face, queue_name: str, raw: Any, hand: HandWorker) -> None:
    async with face.queue(queue_name) as queue:
        job = await queue.add("work")
        waits = [asyncio.ensure_future(job.wait(SOON)) for _ in range(3)]
        await waiting(getattr(queue, "_inner", queue), 3)
        held = hand.take()
        await wait_until(lambda: readers(raw) == 1, "the read")
        for client in raw.client_list():
            if client["cmd"] == "xread":
                raw.client_kill_filter(_id=client["id"])
        hand.complete(held, "done")
        assert await asyncio.gather(*waits) == ["done"] * 3


async def test_an_outage_longer_than_anyone_s_patience_is_survived(tmp_path: Path, queue_name: str) -> None:
    socket = tmp_path / "v.sock"
    durable = ("--appendonly", "yes", "--appendfsync", "always")
    server = start_server(socket, *durable)
    knocks = 0

    def turn_away(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal knocks
        knocks += 1
        writer.close()

    try:
        connection = await AsyncConnection.open(f"unix://{socket}", connect_timeout=timedelta(seconds=2))
        async with connection, AsyncQueue(queue_name, connection=connection) as queue:
            job = await queue.add("work")
            waits = [asyncio.ensure_future(job.wait(60)) for _ in range(3)]
            await waiting(queue, 3)
            server.kill()
            server.wait(10)
            socket.unlink()
            async with await asyncio.start_unix_server(turn_away, socket):
                await wait_until(lambda: knocks > 50, "many tries to reach the server")
            assert not any(wait.done() for wait in waits)
            socket.unlink(missing_ok=True)
            server = start_server(socket, *durable)
            with HandWorker(f"unix://{socket}", queue_name) as worker:
                worker.complete(worker.take(), "done")
            assert await asyncio.gather(*waits) == ["done"] * 3
    finally:
        server.kill()
        server.wait(10)


async def test_a_wait_on_a_closed_connection_ends(server_url: str, queue_name: str, raw: Any) -> None:
    connection = await AsyncConnection.open(server_url)
    queue = AsyncQueue(queue_name, connection=connection)
    job = await queue.add("work")
    wait = asyncio.ensure_future(job.wait(60))
    await waiting(queue, 1)
    await connection.aclose()
    with pytest.raises(UsageError, match="connection was closed during a wait for a job"):
        await wait
    await queue.aclose()


async def test_a_job_that_ends_without_an_event_is_found_by_looking(
    face: Face, queue_name: str, raw: Any, hand: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(values, "LOOK_AGAIN_S", 0.3)
    async with face.queue(queue_name) as queue:
        job = await queue.add("work")
        wait = asyncio.ensure_future(job.wait(SOON))
        await waiting(getattr(queue, "_inner", queue), 1)
        raw.hset(hand.keys.job(job.id), mapping={"state": "completed", "returnvalue": '"silent"'})
        assert await wait == "silent"


async def test_a_job_that_is_gone_without_an_event_is_not_waited_for(
    face: Face, queue_name: str, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(values, "LOOK_AGAIN_S", 0.3)
    async with face.queue(queue_name) as queue:
        job = await queue.add("work")
        wait = asyncio.ensure_future(job.wait(SOON))
        await waiting(getattr(queue, "_inner", queue), 1)
        raw.delete(queue.keys.job(job.id))
        with pytest.raises(JobNotFoundError):
            await wait


async def test_an_older_job_of_the_same_id_is_another_job(
    face: Face, queue_name: str, raw: Any, hand: HandWorker
) -> None:
    async with face.queue(queue_name) as queue:
        options = JobOptions(job_id="again")
        await queue.add("work", options=options)
        hand.complete(hand.take(), "old", Retention(count=0))
        job = await queue.add("work", options=options)
        wait = asyncio.ensure_future(job.wait(SOON))
        await waiting(getattr(queue, "_inner", queue), 1)
        hand.complete(hand.take(), "new", Retention(count=0))
        assert await wait == "new"
