"""Changes that make a job due wake an idle worker, which would otherwise sleep for minutes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncFlowProducer, AsyncJob, AsyncQueue, NewJob
from orchestration_queue.flows import CARRIERS, Carrier, Dag, Node
from orchestration_queue.options import JobOptions
from orchestration_queue.protocol.keys import GROUP
from orchestration_queue.server import AsyncConnection, parse_url
from orchestration_queue.worker import AsyncActiveJob, SharedSlots, Worker
from orchestration_queue.worker.machine import Exchange
from orchestration_queue.worker.queue_io import QueueIO
from tests.faces import Face
from tests.waiting import wait_until
from tests.workers import QUICK, working

ASLEEP: dict[str, Any] = {
    name: timedelta(minutes=10) for name in ("block", "promotion_interval", "stalled_interval", "flow_interval")
}


async def work(job: AsyncActiveJob) -> str:
    if job.data == "fail" and not job.record.fields.get("failedReason") and job.record.fields.get("fixed") != "1":
        raise ValueError("not yet")
    return "done"


def is_idle(raw: redis.Redis) -> bool:
    """Whether a worker waits for jobs and for signals."""
    waiting = [client for client in raw.client_list() if "b" in client["flags"]]
    return {client["cmd"] for client in waiting} >= {"xreadgroup", "xread"}


def is_listening(raw: redis.Redis) -> bool:
    """Whether a worker waits for signals."""
    return any(client["cmd"] == "xread" for client in raw.client_list() if "b" in client["flags"])


@pytest.mark.parametrize("change", ["change_delay", "promote", "promote, lifo", "retry_jobs"])
async def test_a_change_that_makes_a_job_due_wakes_an_idle_worker(
    face: Face, queue_name: str, server_url: str, raw: redis.Redis, change: str
) -> None:
    async with face.queue(queue_name) as queue, working(queue, work, server_url, **ASLEEP):
        fails = change == "retry_jobs"
        options = JobOptions(delay=timedelta(0) if fails else timedelta(hours=1), lifo=change.endswith("lifo"))
        job: AsyncJob = await queue.add("task", "fail" if fails else None, options=options)
        if fails:
            await wait_until(lambda: raw.zcard(queue.keys.failed), "the job failed")
            raw.hset(queue.keys.job(job.id), "fixed", 1)
        await wait_until(lambda: is_idle(raw), "the worker is idle")
        match change.partition(",")[0]:
            case "change_delay":
                await job.change_delay(0)
            case "promote":
                await job.promote()
            case _:
                assert await queue.retry_jobs() == 1
        assert await job.wait(timedelta(seconds=60)) == "done"


@pytest.mark.parametrize("options", [JobOptions(), JobOptions(lifo=True), JobOptions(priority=3)])
async def test_a_resumed_queue_wakes_an_idle_worker(
    face: Face, queue_name: str, server_url: str, raw: redis.Redis, options: JobOptions
) -> None:
    async with face.queue(queue_name) as queue:
        await queue.pause()
        async with working(queue, work, server_url, **ASLEEP):
            job = await queue.add("task", options=options)
            await wait_until(lambda: is_listening(raw), "the worker is idle")
            await queue.resume()
            assert await job.wait(timedelta(seconds=60)) == "done"


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("options", [{"delay": 0.1}, {"lifo": True}, {"priority": 3}], ids=str)
async def test_a_node_that_no_stream_entry_announces_wakes_an_idle_worker(
    queue_name: str, server_url: str, raw: redis.Redis, carrier: Carrier, options: dict[str, Any]
) -> None:
    dag = Dag("d", [Node("first", options=JobOptions(**options)), Node("last", deps=["first"])], queue_name)
    async with (
        AsyncQueue(queue_name, url=server_url) as queue,
        AsyncFlowProducer(url=server_url, carrier=carrier) as producer,
        working(queue, work, server_url, **ASLEEP),
    ):
        await wait_until(lambda: is_idle(raw), "the worker is idle")
        flow = await producer.submit(dag)
        assert (await flow.wait(60))["last"] == "done"


@pytest.mark.parametrize("options", [{"lifo": True}, {"priority": 3}], ids=str)
async def test_a_retried_flow_wakes_an_idle_worker(
    face: Face, queue_name: str, server_url: str, raw: redis.Redis, options: dict[str, Any]
) -> None:
    dag = Dag(
        "d", [Node("first", data="fail", options=JobOptions(**options)), Node("last", deps=["first"])], queue_name
    )
    async with (
        face.queue(queue_name) as queue,
        face.flows() as producer,
        working(queue, work, server_url, **ASLEEP),
    ):
        flow = await producer.submit(dag)
        await wait_until(lambda: raw.zcard(queue.keys.failed), "the first node has failed")
        raw.hset(queue.keys.job(flow.graph.jobs["first"].job_id), "fixed", 1)
        await wait_until(lambda: is_idle(raw), "the worker is idle")
        assert await flow.retry() == ["first", "last"]
        assert (await flow.wait(60))["last"] == "done"


def idle_workers(raw: redis.Redis) -> int:
    """How many workers wait for jobs."""
    return sum(client["cmd"] == "xreadgroup" for client in raw.client_list() if "b" in client["flags"])


def watchers(raw: redis.Redis) -> int:
    """How many wait for news of a stream that they leave there."""
    return sum(client["cmd"] == "xread" for client in raw.client_list() if "b" in client["flags"])


def calls_of_functions(raw: redis.Redis) -> int:
    return int(raw.info("commandstats")["cmdstat_fcall"]["calls"])


# A job: its adding, the signal, its start, its end, a look for more. Twenty that are woken ask twenty times.
# If it is delayed, two workers also tick and watch twice.
@pytest.mark.parametrize(
    ("options", "most"), [(JobOptions(lifo=True), 10), (JobOptions(priority=3), 10), (JobOptions(delay=0.05), 16)]
)
async def test_a_job_without_a_stream_entry_wakes_few_of_twenty_idle_workers(
    queue_name: str, server_url: str, raw: redis.Redis, options: JobOptions, most: int
) -> None:
    async with AsyncQueue(queue_name, url=server_url) as queue, AsyncExitStack() as fleet:
        for _ in range(20):
            await fleet.enter_async_context(working(queue, work, server_url, **ASLEEP))
        await wait_until(lambda: idle_workers(raw) == 20, "all are idle")
        before = calls_of_functions(raw)
        for _ in range(5):
            job = await queue.add("task", options=options)
            assert await job.wait(timedelta(seconds=60)) == "done"
            await wait_until(lambda: idle_workers(raw) == 20, "all are idle again")
        assert calls_of_functions(raw) - before <= 5 * most
        await wait_until(lambda: raw.xlen(queue.keys.wake_one) == 0, "no signal is left behind")


async def test_a_worker_that_leaves_has_another_watch_for_what_is_due(
    queue_name: str, server_url: str, raw: redis.Redis
) -> None:
    async with AsyncQueue(queue_name, url=server_url) as queue, AsyncExitStack() as fleet:
        async with working(queue, work, server_url, **ASLEEP), working(queue, work, server_url, **ASLEEP):
            await wait_until(lambda: idle_workers(raw) == 2, "both are idle")
            job = await queue.add("task", options=JobOptions(delay=3))
            await wait_until(lambda: raw.zcard(queue.keys.watch) == 2, "both watch")
            await fleet.enter_async_context(working(queue, work, server_url, **ASLEEP))
            await wait_until(lambda: idle_workers(raw) == 3, "another one came")
        assert await job.wait(timedelta(seconds=60)) == "done"


@pytest.mark.parametrize("how", ["promoted", "reclaimed", "released", "recovered"])
async def test_jobs_of_a_list_start_together_though_the_worker_that_finds_them_has_one_slot(
    queue_name: str, server_url: str, raw: redis.Redis, how: str
) -> None:
    together = asyncio.Barrier(3)

    async def meet(_: AsyncActiveJob) -> str:
        await together.wait()
        return "met"

    async with (
        AsyncQueue(queue_name, url=server_url) as queue,
        line(queue, "lost", server_url) as lost,
        AsyncExitStack() as fleet,
    ):
        await lost.join()
        await lost.set_clock()
        new = [NewJob("task", options=JobOptions(lifo=True, delay=0.1 if how == "promoted" else 0))] * 3
        jobs = await queue.add_bulk(new) if how != "promoted" else []
        assert len((await lost.exchange(Exchange(want=3))).started) == len(jobs)
        for _ in range(3):
            await fleet.enter_async_context(working(queue, meet, server_url, **ASLEEP | {"concurrency": 1}))
        await wait_until(lambda: idle_workers(raw) == 3, "all are idle")
        match how:
            case "promoted":
                jobs = await queue.add_bulk(new)
            case "reclaimed":
                for job in jobs:
                    raw.hset(queue.keys.job(job.id), "lastActive", 1)
                assert await lost.reclaim()
            case "released":
                for job in jobs:
                    await job.release()
            case _:
                await lost.recover(set())
        assert [await job.wait(timedelta(seconds=60)) for job in jobs] == ["met"] * 3


async def test_a_worker_without_a_free_slot_passes_the_signal_on(
    queue_name: str, server_url: str, raw: redis.Redis
) -> None:
    together = asyncio.Barrier(3)

    async def meet(_: AsyncActiveJob) -> str:
        await together.wait()
        return "met"

    async with AsyncQueue(queue_name, url=server_url) as queue, AsyncExitStack() as fleet:
        for _ in range(3):
            await fleet.enter_async_context(working(queue, meet, server_url, **ASLEEP, concurrency=1))
        await wait_until(lambda: idle_workers(raw) == 3, "all are idle")
        jobs = await queue.add_bulk([NewJob("task", options=JobOptions(lifo=True))] * 3)
        assert [await job.wait(timedelta(seconds=60)) for job in jobs] == ["met"] * 3


@pytest.mark.parametrize("options", [JobOptions(lifo=True), JobOptions(priority=3)])
async def test_a_job_of_a_list_wakes_an_idle_worker_that_shares_its_slots(
    queue_name: str, server_url: str, raw: redis.Redis, options: JobOptions
) -> None:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        asleep = QUICK.model_copy(update=ASLEEP)
        worker = Worker(queue_name, work, url=server_url, options=asleep, slots=SharedSlots(1))
        running = asyncio.ensure_future(worker.run())
        for _ in range(3):
            await wait_until(lambda: watchers(raw) == 2, "the worker waits for jobs, and for signals to all")
            job = await queue.add("task", options=options)
            assert await job.wait(timedelta(seconds=60)) == "done"
        worker.stop()
        await running


@asynccontextmanager
async def line(queue: AsyncQueue, consumer: str, url: str) -> AsyncIterator[QueueIO]:
    """A worker's line to the server, without the worker."""
    async with AsyncExitStack() as stack:
        calls = await AsyncConnection.open(parse_url(url))
        stack.push_async_callback(calls.aclose)
        waits = await calls.duplicate()
        stack.push_async_callback(waits.aclose)
        yield QueueIO(queue.keys, consumer, calls, waits, QUICK)


async def test_a_signal_that_a_worker_has_not_heeded_is_passed_on_when_it_leaves(
    queue_name: str, server_url: str
) -> None:
    async with (
        AsyncQueue(queue_name, url=server_url) as queue,
        line(queue, "leaving", server_url) as leaving,
        line(queue, "staying", server_url) as staying,
    ):
        await leaving.join()
        await leaving.listen(1, 1)
        await queue.add("task", options=JobOptions(lifo=True))
        assert (await leaving.listen(1, 1)).signals
        assert not (await staying.listen(1, 1)).signals
        await leaving.leave()
        assert (await staying.listen(1, 1)).signals


async def test_a_signal_in_a_lost_reply_is_found_again(queue_name: str, server_url: str) -> None:
    async with AsyncQueue(queue_name, url=server_url) as queue, line(queue, "worker", server_url) as worker:
        await worker.join()
        await worker.listen(1, 1)
        await queue.add("task", options=JobOptions(lifo=True))
        lost = await worker.listen(1, 1)
        found = await worker.recover(set())
        assert found.signals == lost.signals != []
        await worker.drop_signals(found.signals, pass_on=False)
        assert not (await worker.recover(set())).signals


async def test_signals_that_no_worker_waited_for_make_one_look(queue_name: str, server_url: str) -> None:
    async with AsyncQueue(queue_name, url=server_url) as queue, line(queue, "worker", server_url) as worker:
        await worker.join()
        await worker.listen(1, 1)
        for _ in range(5):
            await queue.add("task", options=JobOptions(lifo=True))
        assert len((await worker.listen(1, 1)).signals) == 1
        assert not (await worker.listen(1, 1)).signals


async def test_a_worker_that_joins_on_a_full_server_hears_signals_if_others_did(
    queue_name: str, server_url: str, raw: redis.Redis
) -> None:
    async with AsyncQueue(queue_name, url=server_url) as queue, line(queue, "worker", server_url) as worker:
        for key in (queue.keys.stream, queue.keys.wake_one):
            raw.xgroup_create(key, GROUP, "0", mkstream=True)
        raw.config_set("maxmemory", 1)
        try:
            await worker.join()
            await worker.listen(1, 1)
        finally:
            raw.config_set("maxmemory", 0)
        await queue.add("task", options=JobOptions(lifo=True))
        assert (await worker.listen(1, 1)).signals


@pytest.mark.parametrize("how", ["deleted", "without its group"])
async def test_workers_hear_again_after_the_signals_were_removed(
    queue_name: str, server_url: str, raw: redis.Redis, how: str
) -> None:
    async with AsyncQueue(queue_name, url=server_url) as queue, AsyncExitStack() as fleet:
        for _ in range(2):
            await fleet.enter_async_context(working(queue, work, server_url, **ASLEEP))
        await wait_until(lambda: idle_workers(raw) == 2, "both are idle")
        if how == "deleted":
            raw.unlink(queue.keys.wake_one)
        else:
            raw.xgroup_destroy(queue.keys.wake_one, GROUP)
        for _ in range(3):
            job = await queue.add("task", options=JobOptions(lifo=True))
            assert await job.wait(timedelta(seconds=60)) == "done"
            await wait_until(lambda: idle_workers(raw) == 2, "both are idle again")
        assert [group["name"] for group in raw.xinfo_groups(queue.keys.wake_one)] == [GROUP]


async def test_workers_that_read_no_signals_to_one_are_all_signaled(
    queue_name: str, server_url: str, raw: redis.Redis
) -> None:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        await queue.add("task", options=JobOptions(lifo=True))
        assert [fields for _, fields in raw.xrange(queue.keys.wake) or ()] == [{"due": "1"}]
        assert not raw.exists(queue.keys.wake_one)
