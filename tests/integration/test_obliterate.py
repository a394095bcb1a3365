"""Removing a whole queue: all of it, nothing of others, and in whatever moment it stops; both faces, a real server."""

from __future__ import annotations

import asyncio
import inspect
import logging
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import count
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncQueue, NewJob
from orchestration_queue.errors import ServerError, StateError
from orchestration_queue.options import Deduplication, JobOptions, Ordering, WorkerOptions
from orchestration_queue.protocol.keys import PERMANENT_KEYS, QueueKeys
from orchestration_queue.protocol.operations.keyspace import remove_queue
from orchestration_queue.schedules import Every
from orchestration_queue.server import AsyncConnection
from orchestration_queue.worker import AsyncActiveJob, SharedSlots, Worker
from tests.by_hand import HandWorker
from tests.faces import Face
from tests.waiting import wait_until


def every_key(keys: QueueKeys) -> set[str]:
    """A key of every kind that QueueKeys names or PERMANENT_KEYS lists, all of this queue."""
    named = {
        getattr(keys, name) if isinstance(member, cached_property) else member(keys, 7 if name in COUNTED else "7")
        for name, member in vars(QueueKeys).items()
        if not name.startswith("_") and name not in NO_KEYS
        if isinstance(member, cached_property) or inspect.isfunction(member)
    }
    listed = {keys.named(name.replace("*", "7")) for name in PERMANENT_KEYS}
    return listed | {key for key in named if key.startswith(keys.base)}


NO_KEYS = {"base", "named", "member"}
COUNTED = {"usage", "tokens"}
"""Keys by a number."""
EXPIRING = {  # of which the fixture of every test with a server makes sure
    *("events:readers", "wake", "w:*", "replies:*", "tpm:*", "usage:*", "statistics:*", "flows:lock:__keep__"),
    *("watch", "watch:schedulers"),
    *("schedulers:lock:__tick__", "schedulers:looked", "schedulers:history:*", "flow-ends:*"),
}


def test_each_key_is_permanent_and_listed_or_expires() -> None:
    keys = QueueKeys("q")
    names = {key.removeprefix(f"{keys.base}:") for key in every_key(keys)}
    permanent = {name for name in names if any(fnmatchcase(name, pattern) for pattern in PERMANENT_KEYS)}
    assert names - permanent == {name.replace("*", "7") for name in EXPIRING}


async def fill(queue: AsyncQueue, raw: Any) -> None:
    """Leave a key of every kind there is."""
    await queue.add("work", options=JobOptions(ordering=Ordering(key="k:{}*")))
    await queue.add("work", options=JobOptions(deduplication=Deduplication(id="once")))
    await queue.schedulers.upsert("often", Every(timedelta(days=1)))
    await queue.pause()
    others = {
        "job:7:usage-lock",
        "job:7:sub:s",
        "orderdone:pending:k",
        "suspended:lock:__sweep__",
        "of-another-version",
    }
    for key in every_key(queue.keys) | {queue.keys.named(name) for name in others}:
        if not raw.exists(key):
            raw.set(key, 0, px=60_000)


async def test_every_key_of_the_queue_goes_and_no_other(face: Face, queue_name: str, raw: Any) -> None:
    names = [f"{queue_name}[1]", f"{queue_name}1", f"{queue_name}*", f"{queue_name}?", f"{queue_name}-x"]
    async with face.queue(names[0]) as queue:
        for name in names[1:]:
            async with face.queue(name) as other:
                await other.add("work")
        raw.sadd("glide:usage:queues", *names)
        raw.expire("glide:usage:queues", 60)
        before = set(raw.scan_iter())
        await fill(queue, raw)
        mine = set(raw.scan_iter()) - before
        assert await queue.obliterate() == len(mine)
        assert set(raw.scan_iter()) == before
        assert raw.smembers("glide:usage:queues") == set(names[1:])
        assert await queue.obliterate() == 0
        assert (await queue.add("work")).id == "1"


async def test_a_large_queue_goes_in_pieces(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        await queue.add_bulk([NewJob("work") for _ in range(4000)])
        raw.config_resetstat()
        assert await queue.obliterate() >= 4000
        assert raw.info("commandstats")["cmdstat_unlink"]["calls"] >= 4
    assert raw.dbsize() == 0


@pytest.mark.parametrize("source", ["stream", "list"])
async def test_active_jobs_are_not_removed_unless_forced(
    face: Face, queue_name: str, raw: Any, hand: HandWorker, source: str
) -> None:
    async with face.queue(queue_name) as queue:
        await queue.add("work", options=JobOptions(lifo=source == "list"))
        hand.take()
        before = {key: raw.dump(key) for key in raw.scan_iter()}
        with pytest.raises(StateError, match=r"^Can't obliterate queue '.*': 1 of its jobs are active; .*\.$"):
            await queue.obliterate()
        assert {key: raw.dump(key) for key in raw.scan_iter()} == before
        assert await queue.obliterate(force=True) == len(before)
    assert raw.dbsize() == 0


async def test_deliveries_of_a_broadcast_are_active_jobs_too(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        await queue.add("news")
        raw.xgroup_create(queue.keys.stream, "subscription", "0")
        raw.xreadgroup("subscription", "reader", {queue.keys.stream: ">"})
        with pytest.raises(StateError, match="Can't obliterate"):
            await queue.obliterate()
        await queue.obliterate(force=True)


async def test_interrupted_anywhere_it_starts_no_job_reuses_no_id_and_can_be_called_again(
    server_url: str, queue_name: str, raw: Any
) -> None:
    keys = QueueKeys(queue_name)
    async with (
        AsyncQueue(queue_name, url=server_url) as queue,
        await AsyncConnection.open(server_url) as connection,
    ):
        trips = None
        stop_after = 0
        while trips is None:
            stop_after += 1
            await queue.add_bulk([NewJob("work") for _ in range(1500)])
            steps = remove_queue(keys)
            calls = next(steps)
            try:
                for _ in range(stop_after):
                    calls = steps.send(await connection.pipeline(calls))
            except StopIteration:
                trips = stop_after
            assert await queue.count() == 0
            left = set(raw.scan_iter(match=f"{keys.job('')}*"))
            added = await queue.add("work")
            assert keys.job(added.id) not in left
            await queue.obliterate()
            assert raw.dbsize() == 0
    assert trips > 4


async def test_a_living_worker_goes_on_and_the_outcome_of_its_job_is_discarded(
    face: Face, queue_name: str, raw: Any
) -> None:
    started, over = asyncio.Event(), asyncio.Event()

    async def work(job: AsyncActiveJob) -> Any:
        if job.data == "long":
            started.set()
            await over.wait()
        return job.data

    quick = WorkerOptions(promotion_interval=timedelta(milliseconds=50))
    async with face.queue(queue_name) as queue:
        worker = Worker(queue_name, work, url=face.url, options=quick)
        running = asyncio.ensure_future(worker.run())
        await queue.add("work", "long")
        await started.wait()
        await queue.obliterate(force=True)
        over.set()
        assert await queue.add_and_wait("work", "new", timeout=30) == "new"
        counts = await queue.counts()
        assert (counts.completed, counts.failed, counts.active) == (1, 0, 0)
        assert len(raw.keys(queue.keys.job("*"))) == 1
        worker.stop()
        await asyncio.wait_for(running, 60)


def reported(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("slots", [None, SharedSlots(2)], ids=["own slots", "shared slots"])
async def test_an_idle_worker_continues_after_a_flush_and_reports_it_once(
    queue_name: str, server_url: str, raw: redis.Redis, caplog: pytest.LogCaptureFixture, slots: SharedSlots | None
) -> None:
    async def work(job: AsyncActiveJob) -> Any:
        if job.data == "retry" and job.attempt == 1:
            raise ValueError("again")
        return job.data

    def waits() -> bool:
        blocked = {client["cmd"] for client in raw.client_list() if "b" in client["flags"]}
        return blocked >= ({"xreadgroup", "xread"} if slots is None else {"xread"})

    asleep = WorkerOptions(block=600, promotion_interval=600, stalled_interval=600, flow_interval=600, concurrency=2)
    worker = Worker(queue_name, work, url=server_url, options=asleep, slots=slots)
    async with AsyncQueue(queue_name, url=server_url) as queue:
        running = asyncio.ensure_future(worker.run())
        await queue.add_and_wait("work", timeout=30)
        for _ in range(2):
            await wait_until(waits, "the worker waits")
            caplog.clear()
            raw.flushdb()
            options = [
                *(JobOptions(), JobOptions(lifo=True), JobOptions(priority=2), JobOptions(delay=0.05)),
                JobOptions(attempts=2, backoff={"type": "fixed", "delay": 0.05}),
            ]
            jobs = [await queue.add("work", "retry" if one.attempts else "new", one) for one in options]
            assert [await job.wait(30) for job in jobs] == ["new"] * 4 + ["retry"]
            await queue.schedulers.upsert("often", Every(timedelta(seconds=1)))
            await wait_until(lambda: raw.zcard(queue.keys.completed) > 5, "a schedule to run")
            await queue.schedulers.remove("often")
            removals = [message for message in reported(caplog) if "was removed" in message]
            assert removals == [message for message in reported(caplog) if "Attempt 1 of job" not in message]
            # With shared slots nothing fails: the next exchange creates the group.
            assert len(removals) == (1 if slots is None else 0)
        worker.stop()
        await asyncio.wait_for(running, 60)


@pytest.mark.parametrize("how", ["flush", "obliterate"])
async def test_busy_workers_lose_no_job_that_is_added_after_a_removal(
    queue_name: str, server_url: str, raw: redis.Redis, how: str
) -> None:
    ran: set[object] = set()

    async def work(job: AsyncActiveJob) -> Any:
        await asyncio.sleep(0.002)
        ran.add(job.data)

    async def produce(queue: AsyncQueue, name: str) -> None:
        for number in count():
            was_removed = is_removed
            options = JobOptions(lifo=number % 3 == 1, priority=number % 2, delay=0.01 * (number % 4))
            try:
                await queue.add("work", f"{name}-{number}", options)
            except ServerError:  # in the middle of `obliterate`, the queue is closed
                continue
            if was_removed:
                added.add(f"{name}-{number}")
                if len(added) > 300:
                    return

    added: set[object] = set()
    is_removed = False
    options = WorkerOptions(concurrency=3, stalled_interval=0.5)
    workers = [Worker(queue_name, work, url=server_url, options=options) for _ in range(3)]
    async with AsyncQueue(queue_name, url=server_url) as queue:
        running = [asyncio.ensure_future(worker.run()) for worker in workers]
        producers = [asyncio.ensure_future(produce(queue, name)) for name in "ab"]
        await wait_until(lambda: len(ran) > 50, "the workers are busy")
        if how == "flush":
            raw.flushdb()
        else:
            await queue.obliterate(force=True)
        is_removed = True
        await asyncio.gather(*producers)
        await wait_until(lambda: added <= ran, "all that was added since to run")
        for worker in workers:
            worker.stop()
        await asyncio.gather(*running)


async def test_an_idle_worker_that_listens_goes_on(face: Face, queue_name: str, raw: Any) -> None:
    async def work(job: AsyncActiveJob) -> Any:
        return job.data

    def listens() -> bool:
        return any(client["cmd"] == "xreadgroup" for client in raw.client_list())

    async with face.queue(queue_name) as queue:
        patient = WorkerOptions(block=timedelta(seconds=60), promotion_interval=timedelta(seconds=60))
        worker = Worker(queue_name, work, url=face.url, options=patient)
        running = asyncio.ensure_future(worker.run())
        await wait_until(listens, "the worker to listen")
        await queue.obliterate()
        assert await queue.add_and_wait("work", "new", timeout=30) == "new"
        worker.stop()
        await asyncio.wait_for(running, 60)
