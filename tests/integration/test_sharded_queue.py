"""One queue in several shards: what is added, found, counted, heard and run is that of all of them."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from orchestration_queue.client import AsyncQueue, AsyncShardedQueue, FlowProducer, NewJob, ShardedQueue
from orchestration_queue.errors import PayloadError, ServerError
from orchestration_queue.flows import Dag, Node
from orchestration_queue.options import JobOptions, WorkerOptions
from orchestration_queue.schedules import Every
from orchestration_queue.states import JobState
from orchestration_queue.worker import AsyncActiveJob, Handler, Worker, connections, shard_workers
from tests.processes import worker_process
from tests.waiting import wait_until, wait_until_sync
from tests.workers import QUICK


@asynccontextmanager
async def serving(
    name: str, handler: Handler, shards: int, url: str, options: WorkerOptions = QUICK
) -> AsyncIterator[list[Worker]]:
    workers = shard_workers(name, handler, shards, url=url, options=options)
    running = [asyncio.ensure_future(worker.run()) for worker in workers]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.stop()
        await asyncio.wait_for(asyncio.gather(*running), 60)


async def double(job: AsyncActiveJob) -> Any:
    return 2 * job.data["n"]


async def test_jobs_of_all_shards_are_run_in_shared_slots(server_url: str, queue_name: str, raw: Any) -> None:
    running, most, queues = 0, 0, Counter[str]()

    async def work(job: AsyncActiveJob) -> Any:
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        queues[job.queue] += 1
        await asyncio.sleep(0)
        running -= 1
        return 2 * job.data["n"]

    async with AsyncShardedQueue(queue_name, 4, url=server_url) as queue:
        bulk = await queue.add_bulk([NewJob("double", {"n": n}) for n in range(1_000)])
        assert [job.data["n"] for job in bulk] == list(range(1_000))
        assert [counts.waiting for counts in await queue.counts_by_shard()] == [250] * 4
        async with serving(queue_name, work, 4, server_url):
            assert await queue.add_and_wait("double", {"n": 21}, timeout=60) == 42
            assert [await job.wait(60) for job in bulk] == [2 * n for n in range(1_000)]
        counts = await queue.counts()
    assert (counts.completed, counts.waiting, counts.active) == (1_001, 0, 0)
    assert set(queues) == {f"{queue_name}.{shard}" for shard in range(4)}
    assert most <= QUICK.concurrency


async def test_one_added_by_one_goes_to_each_shard_in_turn(server_url: str, queue_name: str, raw: Any) -> None:
    async with AsyncShardedQueue(queue_name, 3, url=server_url) as queue:
        shards = [(await queue.add("a")).queue for _ in range(6)]
    assert shards[:3] == shards[3:]
    assert set(shards) == {f"{queue_name}.{shard}" for shard in range(3)}


@pytest.mark.parametrize("is_bulk", [False, True], ids=["one by one", "bulk"])
@pytest.mark.parametrize(
    "options",
    [
        {"ordering": {"key": "k7"}, "job_id": "mine"},
        {"deduplication": {"id": "k7"}, "job_id": "mine"},
        {"job_id": "k7"},
    ],
    ids=["ordering key", "deduplication id", "own id"],
)
async def test_what_has_a_key_sticks_to_its_shard(
    server_url: str, queue_name: str, raw: Any, options: dict[str, Any], *, is_bulk: bool
) -> None:
    async with AsyncShardedQueue(queue_name, 5, url=server_url) as queue:
        for _ in range(3):
            if is_bulk:
                *_, job = await queue.add_bulk([NewJob("other"), NewJob("mine", None, options)])
            else:
                job = await queue.add("mine", None, options)
            assert job.queue == queue.shard_for("k7").name
        assert not job.is_new
        assert "mine" in {found.name for found in await queue.find(job.id)}
        assert len(await queue.search("mine")) == 1


async def test_what_cannot_be_sent_is_refused_before_any_shard_has_a_job(
    server_url: str, queue_name: str, raw: Any
) -> None:
    async with AsyncShardedQueue(queue_name, 3, url=server_url) as queue:
        with pytest.raises(PayloadError):
            await queue.add_bulk([NewJob("a"), NewJob("b"), NewJob("c", object())])
        assert (await queue.counts()).waiting == 0


async def test_a_refused_shard_hides_no_job_of_the_others(server_url: str, queue_name: str, raw: Any) -> None:
    async with AsyncShardedQueue(queue_name, 2, url=server_url) as queue:
        raw.set(queue.shards[1].keys.stream, "in the way")
        with pytest.raises(ServerError, match="of 10, counted from 0, was refused, and 5 others were added"):
            await queue.add_bulk([NewJob("a", {"n": n}) for n in range(10)])
        raw.delete(queue.shards[1].keys.stream)
        assert (await queue.shards[0].counts()).waiting == 5


async def test_children_in_shards_are_waited_for(server_url: str, queue_name: str, raw: Any) -> None:
    async def work(job: AsyncActiveJob) -> Any:
        return job.data["n"]

    async with AsyncShardedQueue(queue_name, 3, url=server_url) as queue:
        dag = Dag(
            "sums",
            [
                *(Node(f"n{n}", data={"n": n}, queue=queue.shard_for(f"n{n}").name) for n in range(6)),
                Node("all", data={"n": -1}, deps=[f"n{n}" for n in range(6)]),
            ],
            queue=queue.shard_for("all").name,
        )
        async with serving(queue_name, work, 3, server_url):
            with FlowProducer(url=server_url) as flows:
                results = await asyncio.to_thread(lambda: flows.submit(dag).wait(60))
    assert results["all"] == -1
    assert [results[f"n{n}"] for n in range(6)] == list(range(6))


async def test_a_bulk_of_children_reaches_a_parent_in_another_shard(server_url: str, queue_name: str, raw: Any) -> None:
    async with AsyncShardedQueue(queue_name, 3, url=server_url) as queue:
        parent = await queue.shards[0].add("parent")
        children = await queue.add_bulk([NewJob("child", {"n": n}, parent=parent.ref) for n in range(9)])
        members = {f"glide:{{{child.queue}}}:{child.id}" for child in children}
        assert Counter(child.queue for child in children) == Counter({shard.name: 3 for shard in queue.shards})
        assert raw.smembers(f"glide:{{{parent.queue}}}:deps:{parent.id}") == members


async def test_a_scheduler_lives_in_one_shard(server_url: str, queue_name: str, raw: Any) -> None:
    seen: list[str] = []

    async def note(job: AsyncActiveJob) -> None:
        seen.append(job.queue)

    async with AsyncShardedQueue(queue_name, 3, url=server_url) as queue:
        home = queue.shard_for("often")
        await home.schedulers.upsert("often", Every(0.1))
        async with serving(queue_name, note, 3, server_url):
            await wait_until(lambda: len(seen) >= 3, "it to run")
        await home.schedulers.remove("often")
    assert set(seen) == {home.name}


async def test_events_of_all_shards_come_on_one_connection_and_resume(
    server_url: str, queue_name: str, raw: Any
) -> None:
    async with AsyncShardedQueue(queue_name, 3, url=server_url) as queue:
        await queue.add_bulk([NewJob("before")] * 3)
        async with queue.events() as events:
            await queue.add_bulk([NewJob("a")] * 6)
            heard = [await anext(events) for _ in range(6)]
            cursors = events.cursors
        assert Counter(shard for shard, _ in heard) == Counter({shard.name: 2 for shard in queue.shards})
        assert {event.type for _, event in heard} == {"added"}
        await queue.add_bulk([NewJob("b")] * 3)
        async with queue.events(cursors) as events:
            resumed = await events.read(30)
            while len(resumed) < 3:
                resumed += await events.read(30)
            assert {(shard, event.fields["name"]) for shard, event in resumed} == {
                (shard.name, "b") for shard in queue.shards
            }
            assert await events.read(0) == []


async def test_a_reader_that_comes_late_to_one_shard_sees_its_gap(server_url: str, queue_name: str, raw: Any) -> None:
    async with AsyncShardedQueue(queue_name, 2, url=server_url) as queue, queue.events() as events:
        stream = queue.shards[1].keys.events
        await queue.shards[1].add("first")
        await queue.shards[1].add_bulk([NewJob("a")] * 300)
        raw.xtrim(stream, maxlen=200, approximate=False)
        heard = await events.read(30)
    assert [(shard, event.type) for shard, event in heard[:2]] == [
        (queue.shards[1].name, "gap"),
        (queue.shards[1].name, "added"),
    ]


async def test_a_pause_holds_all_shards(server_url: str, queue_name: str, raw: Any) -> None:
    async with AsyncShardedQueue(queue_name, 3, url=server_url) as queue:
        await queue.pause()
        jobs = await queue.add_bulk([NewJob("double", {"n": 1})] * 9)
        async with serving(queue_name, double, 3, server_url) as workers:
            await wait_until(lambda: all(worker.is_paused for worker in workers), "the workers to obey it")
            assert (await queue.counts()).waiting == 9
            await queue.resume()
            assert [await job.wait(60) for job in jobs] == [2] * 9
        assert len(await queue.search("double", JobState.COMPLETED, limit=5)) == 5


@pytest.mark.parametrize(("before", "after"), [(2, 5), (5, 2)])
async def test_resharding_while_running_runs_each_job_once(
    server_url: str, queue_name: str, raw: Any, before: int, after: int
) -> None:
    ran = Counter[int]()

    async def note(job: AsyncActiveJob) -> None:
        ran[job.data["n"]] += 1

    # Whichever direction: workers serve the larger number while producers change over.
    async with (
        AsyncShardedQueue(queue_name, before, url=server_url) as old,
        AsyncShardedQueue(queue_name, after, url=server_url) as new,
        serving(queue_name, note, max(before, after), server_url),
    ):
        jobs = await old.add_bulk([NewJob("a", {"n": n}) for n in range(200)])
        jobs += await new.add_bulk([NewJob("a", {"n": n}) for n in range(200, 400)])
        jobs.append(await old.add("late", {"n": 400}))
        for job in jobs:
            await job.wait(60)
        larger = old if before > after else new
        assert (await larger.counts()).completed == 401
    assert len(ran) == 401
    assert set(ran.values()) == {1}


async def test_a_plain_worker_serves_one_shard(server_url: str, queue_name: str, raw: Any) -> None:
    async with AsyncShardedQueue(queue_name, 2, url=server_url) as queue:
        jobs = await queue.add_bulk([NewJob("double", {"n": n}) for n in range(10)])
        mine = [job for job in jobs if job.queue == f"{queue_name}.1"]
        worker = Worker(f"{queue_name}.1", double, url=server_url, options=QUICK)
        running = asyncio.ensure_future(worker.run())
        assert [await job.wait(60) for job in mine] == [2 * job.data["n"] for job in mine]
        worker.stop()
        await asyncio.wait_for(running, 60)
        async with AsyncQueue(f"{queue_name}.0", url=server_url) as other:
            assert (await other.counts()).waiting == 5


def blocked_reads(raw: Any) -> int:
    return sum(client["cmd"] == "xread" for client in raw.client_list() if "b" in client["flags"])


async def test_shards_share_all_connections_but_their_blocking_reads(
    server_url: str, queue_name: str, raw: Any
) -> None:
    others = len(raw.client_list())
    async with AsyncShardedQueue(queue_name, 16, url=server_url) as queue, serving(queue_name, double, 16, server_url):
        jobs = await queue.add_bulk([NewJob("double", {"n": n}) for n in range(1_000)])
        assert [await job.wait(60) for job in jobs] == [2 * n for n in range(1_000)]
        await wait_until(lambda: blocked_reads(raw) == 17, "one read for jobs of each shard, and one for all signals")
        mine = len(raw.client_list()) - others
    # One pool of at most 32 for calls, and few of the client. Each worker with its own would have at least 64.
    assert mine < 17 + 32 + 10


async def test_signals_reach_each_shard_while_workers_join_and_leave(
    server_url: str, queue_name: str, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_BLOCK_MS", 300_000)
    started, cancelled = Counter[str](), Counter[str]()

    async def hang(job: AsyncActiveJob) -> None:
        started[job.queue] += 1
        try:
            await asyncio.sleep(300)
        except asyncio.CancelledError:
            cancelled[job.queue] += 1
            raise

    async def run_and_cancel(shards: Sequence[AsyncQueue]) -> None:
        before = started.total()
        jobs = [await shard.add("hang") for shard in shards]
        await wait_until(lambda: started.total() == before + len(shards), "the jobs to run")
        for job in jobs:
            assert await job.cancel()
        await wait_until(lambda: cancelled == started, "the handlers to be cancelled")

    asleep = QUICK.model_copy(update={"promotion_interval": 300.0})  # and its lease is too long to be renewed meanwhile
    workers = shard_workers(queue_name, hang, 4, url=server_url, options=asleep.model_copy(update={"lease": 3600.0}))
    async with AsyncShardedQueue(queue_name, 4, url=server_url) as queue:
        running = [asyncio.ensure_future(worker.run()) for worker in workers[:2]]
        await run_and_cancel(queue.shards[:2])
        running += [asyncio.ensure_future(worker.run()) for worker in workers[2:]]
        await run_and_cancel(queue.shards)
        for worker in workers[:3]:
            worker.stop()
        await asyncio.wait_for(asyncio.gather(*running[:3]), 60)
        await run_and_cancel(queue.shards[3:])
        workers[3].stop()
        await asyncio.wait_for(running[3], 60)


async def test_workers_that_never_reached_their_server_stop_together(queue_name: str) -> None:
    workers = shard_workers(queue_name, double, 16, url="redis://127.0.0.1:1", options=QUICK)
    running = [asyncio.ensure_future(worker.run()) for worker in workers]
    await asyncio.sleep(0)  # an attempt takes five seconds: one after the other, more than a minute
    for worker in workers:
        worker.stop()
    await asyncio.wait_for(asyncio.gather(*running), 60)


async def test_a_damaged_key_of_one_shard_keeps_signals_from_no_other(
    server_url: str, queue_name: str, raw: Any
) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def hang(_: AsyncActiveJob) -> None:
        started.set()
        try:
            await asyncio.sleep(300)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    asleep = QUICK.model_copy(update={"promotion_interval": 300.0, "lease": 3600.0})
    async with AsyncShardedQueue(queue_name, 2, url=server_url) as queue:
        raw.set(queue.shards[0].keys.wake, "in the way", ex=300)
        async with serving(queue_name, hang, 2, server_url, asleep):
            job = await queue.shards[1].add("hang")
            await started.wait()
            assert await job.cancel()
            await asyncio.wait_for(cancelled.wait(), 60)


def test_jobs_of_a_killed_process_are_finished_by_another(
    server_url: str, queue_name: str, raw: Any, tmp_path: Any
) -> None:
    (tmp_path / "work.py").write_text(
        "import os, time\ndef handler(job):\n    time.sleep(0.01)\n    return os.getpid()\n"
    )
    arguments = ("--shards", "4", "--concurrency", "8", "--lease", "2", "--stalled-interval", "1")
    with ShardedQueue(queue_name, 4, url=server_url) as queue:
        jobs = queue.add_bulk([NewJob("work", {"n": n}, JobOptions(attempts=3)) for n in range(400)])
        with worker_process("work:handler", queue_name, server_url, *arguments, directory=tmp_path) as victim:
            wait_until_sync(lambda: queue.counts().completed > 20, "the victim to work")
            victim.send_signal(signal.SIGKILL)
        with worker_process("work:handler", queue_name, server_url, *arguments, directory=tmp_path) as survivor:
            results = [job.wait(90) for job in jobs]
            survivor.terminate()
            assert survivor.wait(60) == 0
        counts = queue.counts()
    assert (counts.completed, counts.failed, counts.waiting, counts.active) == (400, 0, 0, 0)
    assert len(set(results)) == 2
