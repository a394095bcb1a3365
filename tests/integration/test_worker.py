"""A worker on a real server: every kind of ending, concurrency, leases, retries, takeover, drain."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import redis

from orchestration_queue.client import AsyncQueue, NewJob
from orchestration_queue.errors import JobFailedError, UnrecoverableError
from orchestration_queue.options import Backoff, JobOptions, Retention
from orchestration_queue.states import JobState
from orchestration_queue.worker import ActiveJob, AsyncActiveJob, Worker
from tests.by_hand import HandWorker
from tests.waiting import wait_until, wait_until_sync
from tests.workers import QUICK, working

SOON = timedelta(seconds=60)


@pytest.fixture
async def queue(server_url: str, queue_name: str, raw: redis.Redis) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        yield queue


async def test_a_coroutine_handler_returns_its_result(queue: AsyncQueue, server_url: str) -> None:
    async def double(job: AsyncActiveJob) -> int:
        return int(job.data["n"]) * 2

    async with working(queue, double, server_url):
        job = await queue.add("double", {"n": 21})
        assert await job.wait(SOON) == 42


async def test_a_plain_handler_runs_in_a_thread_and_may_log_and_report(queue: AsyncQueue, server_url: str) -> None:
    def work(job: ActiveJob) -> str:
        job.log("half way")
        job.update_progress({"done": 0.5})
        return threading.current_thread().name

    async with working(queue, work, server_url):
        job = await queue.add("work")
        assert (await job.wait(SOON)).startswith("oq-job")
    assert await job.logs() == ["half way"]
    assert (await job.refresh()).progress == {"done": 0.5}


async def test_jobs_run_side_by_side_up_to_the_concurrency(queue: AsyncQueue, server_url: str) -> None:
    at_once = 0
    most = 0
    all_places = asyncio.Event()

    async def work(_: AsyncActiveJob) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        if at_once == 3:
            all_places.set()
        await all_places.wait()
        await asyncio.sleep(0.05)
        at_once -= 1

    async with working(queue, work, server_url, concurrency=3):
        jobs = [await queue.add("work") for _ in range(9)]
        for job in jobs:
            await job.wait(SOON)
    assert most == 3


async def test_a_failing_attempt_is_retried_after_its_backoff(queue: AsyncQueue, server_url: str) -> None:
    starts: list[float] = []

    async def flaky(job: AsyncActiveJob) -> int:
        starts.append(time.monotonic())
        if job.attempt < 3:
            raise ValueError("not yet")
        return job.attempt

    async with working(queue, flaky, server_url):
        options = JobOptions(attempts=3, backoff=Backoff(type="fixed", delay=timedelta(milliseconds=150)))
        job = await queue.add("flaky", options=options)
        assert await job.wait(SOON) == 3
    # Both clocks cut off what is less than a millisecond.
    assert all(later - earlier >= 0.145 for earlier, later in itertools.pairwise(starts))


@pytest.mark.parametrize(
    ("error", "reason", "attempts"),
    [
        (ValueError("bad row 7"), "ValueError: bad row 7", 2),
        (UnrecoverableError("never again"), "never again", 1),
        (SystemExit(3), "RuntimeError: the handler called exit (SystemExit(3))", 2),
    ],
)
async def test_a_job_out_of_attempts_fails_with_the_reason(
    queue: AsyncQueue, server_url: str, error: BaseException, reason: str, attempts: int
) -> None:
    async def fail(_: AsyncActiveJob) -> None:
        raise error

    async with working(queue, fail, server_url):
        job = await queue.add("fail", options=JobOptions(attempts=2))
        with pytest.raises(JobFailedError) as failure:
            await job.wait(SOON)
    assert failure.value.reason == reason
    assert (await job.refresh()).attempts_made == attempts


async def test_a_result_that_is_no_json_fails_the_job(queue: AsyncQueue, server_url: str) -> None:
    async def odd(_: AsyncActiveJob) -> object:
        return object()

    async with working(queue, odd, server_url):
        job = await queue.add("odd", options=JobOptions(attempts=5))
        with pytest.raises(JobFailedError, match="cannot be written as JSON"):
            await job.wait(SOON)
    assert (await job.refresh()).attempts_made == 1


async def test_a_coroutine_over_its_time_is_cancelled(queue: AsyncQueue, server_url: str) -> None:
    cancelled = asyncio.Event()

    async def slow(_: AsyncActiveJob) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with working(queue, slow, server_url):
        job = await queue.add("slow", options=JobOptions(timeout=timedelta(milliseconds=100)))
        with pytest.raises(JobFailedError, match="Job timeout exceeded"):
            await job.wait(SOON)
        assert cancelled.is_set()


async def test_a_thread_over_its_time_is_told_to_stop_and_keeps_its_place_until_it_does(
    queue: AsyncQueue, server_url: str
) -> None:
    ended = threading.Event()
    go_on = threading.Event()

    def slow(job: ActiveJob) -> None:
        if job.name == "quick":
            return
        while not (job.should_stop and go_on.is_set()):
            time.sleep(0.005)
        ended.set()

    async with working(queue, slow, server_url, concurrency=1):
        job = await queue.add("slow", options=JobOptions(timeout=timedelta(milliseconds=50)))
        with pytest.raises(JobFailedError, match="Job timeout exceeded"):
            await job.wait(SOON)
        quick = await queue.add("quick")
        await asyncio.sleep(0.2)
        assert (await quick.refresh()).state is JobState.WAITING
        go_on.set()
        await quick.wait(SOON)
    assert ended.is_set()


@pytest.mark.parametrize(
    ("options", "least"),
    [
        (JobOptions(delay=timedelta(milliseconds=300)), 0.295),  # two clocks, which cut off parts of a millisecond
        (JobOptions(priority=5), 0.0),
        (JobOptions(lifo=True), 0.0),
    ],
    ids=["delayed", "prioritized", "lifo"],
)
async def test_every_kind_of_placement_reaches_an_idle_worker(
    queue: AsyncQueue, server_url: str, options: JobOptions, least: float
) -> None:
    async def now(_: AsyncActiveJob) -> float:
        return time.time()

    async with working(queue, now, server_url, block=timedelta(milliseconds=300)) as worker:
        await wait_until(lambda: worker.is_listening, "the worker to be idle")
        added = time.time()
        job = await queue.add("now", options=options)
        started = await job.wait(SOON)
    assert started - added >= least


async def test_a_job_longer_than_its_lease_runs_once_even_when_it_blocks_the_loop(
    queue: AsyncQueue, server_url: str, raw: redis.Redis
) -> None:
    renewed: list[int] = []

    async def block(job: AsyncActiveJob) -> None:
        before = worker.leases_renewed
        # The point of the test: a handler that blocks the event loop, here for four halves of a lease.
        wait_until_sync(lambda: worker.leases_renewed >= before + 4, "the lease to be renewed meanwhile", 60)
        renewed.append(int(str(raw.hget(queue.keys.job(job.id), "lastActive"))))

    async with working(queue, block, server_url, concurrency=1, lease=timedelta(seconds=1)) as worker:
        job = await queue.add("block")
        await job.wait(SOON)
    started_ms = int((await job.refresh()).fields["processedOn"])
    assert [at_ms - started_ms > 1000 for at_ms in renewed] == [True], "it ran once, and for longer than its lease"
    assert job.record.stalled_count == 0


async def test_a_stop_lets_running_jobs_finish_and_takes_no_new_ones(queue: AsyncQueue, server_url: str) -> None:
    started, is_stopped = asyncio.Event(), asyncio.Event()

    async def work(_: AsyncActiveJob) -> str:
        started.set()
        await is_stopped.wait()
        return "done"

    patient = QUICK.model_copy(update={"concurrency": 1, "drain": timedelta(seconds=60)})
    worker = Worker(queue.name, work, url=server_url, options=patient)
    running = asyncio.ensure_future(worker.run())
    first, second = await queue.add("work"), await queue.add("work")
    await started.wait()
    worker.stop()
    is_stopped.set()
    await asyncio.wait_for(running, 60)
    assert (await first.refresh()).state is JobState.COMPLETED
    assert (await second.refresh()).state is JobState.WAITING
    assert (await queue.counts()).waiting == 1


async def test_a_stopped_worker_leaves_nothing_of_itself_behind(
    queue: AsyncQueue, server_url: str, raw: redis.Redis
) -> None:
    async def work(_: AsyncActiveJob) -> None: ...

    async with working(queue, work, server_url):
        await (await queue.add("work")).wait(SOON)
        base = queue.keys.base
        await wait_until(lambda: list(raw.scan_iter(f"{base}:w:*")), "the worker to register")
    assert raw.xinfo_consumers(f"{base}:stream", "workers") == []
    assert not list(raw.scan_iter(f"{base}:w:*"))


async def test_a_paused_queue_is_left_alone_until_it_is_resumed(queue: AsyncQueue, server_url: str) -> None:
    async def work(_: AsyncActiveJob) -> None: ...

    await queue.pause()
    async with working(queue, work, server_url) as worker:
        await wait_until(lambda: worker.is_paused, "the worker to notice")
        job = await queue.add("work")
        await asyncio.sleep(0.2)
        assert (await job.refresh()).state is JobState.WAITING
        await queue.resume()
        await job.wait(SOON)


async def test_finished_jobs_are_kept_as_their_options_say(
    queue: AsyncQueue, server_url: str, raw: redis.Redis
) -> None:
    async def work(_: AsyncActiveJob) -> None: ...

    async with working(queue, work, server_url, concurrency=1):
        for _ in range(4):
            await queue.add("work", options=JobOptions(remove_on_complete=Retention(count=2)))
        await wait_until(
            lambda: raw.zcard(queue.keys.completed) == 2 and not raw.xlen(queue.keys.stream), "all four to be done"
        )
    assert len(list(raw.scan_iter(f"{queue.keys.base}:job:*"))) == 2


async def test_a_revoked_job_never_reaches_the_handler(queue: AsyncQueue, server_url: str, raw: redis.Redis) -> None:
    ran: list[str] = []

    async def work(job: AsyncActiveJob) -> None:
        ran.append(job.id)

    job = await queue.add("work")
    raw.hset(queue.keys.job(job.id), "revoked", "1")
    async with working(queue, work, server_url):
        with pytest.raises(JobFailedError, match="revoked"):
            await job.wait(SOON)
    assert ran == []


async def test_a_removed_job_leaves_no_ghost(queue: AsyncQueue, server_url: str, raw: redis.Redis) -> None:
    async def work(_: AsyncActiveJob) -> None: ...

    gone = await queue.add("work")
    raw.delete(queue.keys.job(gone.id))
    async with working(queue, work, server_url):
        await (await queue.add("work")).wait(SOON)
        await wait_until(lambda: raw.xlen(queue.keys.stream) == 0, "the leftover entry to go")
    assert not raw.exists(queue.keys.job(gone.id))


async def test_a_worker_that_lost_its_lease_cannot_settle_the_job(
    queue: AsyncQueue, server_url: str, raw: redis.Redis
) -> None:
    runs: list[asyncio.Event] = []

    async def work(_: AsyncActiveJob) -> int:
        runs.append(asyncio.Event())
        number = len(runs)
        await runs[-1].wait()
        return number

    slow = QUICK.model_copy(update={"lease": timedelta(seconds=60), "stalled_interval": timedelta(seconds=60)})
    async with working(queue, work, server_url, **slow.model_dump()):
        job = await queue.add("work")
        await wait_until(lambda: len(runs) == 1, "the job to start")
        later = str(int(time.time() * 1000) + 120_000)
        keys = queue.keys
        arguments = ("workers", "thief", "0", "9", later, keys.failed, "0", "0")
        raw.fcall("glidemq_reclaimStalled", 2, keys.stream, keys.events, *arguments)
        await wait_until(lambda: len(runs) == 2, "the job to start again")
        runs[0].set()
        await asyncio.sleep(0.1)
        assert (await job.refresh()).state is JobState.ACTIVE
        runs[1].set()
        assert await job.wait(SOON) == 2
    assert raw.zcard(keys.completed) == 1


@pytest.mark.parametrize("options", [JobOptions(), JobOptions(lifo=True)], ids=["stream", "list"])
async def test_a_job_that_silences_its_workers_leaves_a_dead_letter(
    queue: AsyncQueue, server_url: str, raw: redis.Redis, options: JobOptions
) -> None:
    runs: list[str] = []
    job = await queue.add("poison", {"n": 1}, options)
    with HandWorker(server_url, queue.name) as hand:
        hand.take()
    raw.hset(queue.keys.job(job.id), "lastActive", "1")
    async with working(queue, lambda job: runs.append(job.id), server_url, max_stalled=0, dead_letter_queue="dead"):
        await wait_until(lambda: raw.exists("glide:{dead}:stream"), "a dead letter")
        (letter,) = await queue.dead_letters.list()
    assert (letter.original_job_id, letter.data, letter.attempts_made) == (job.id, {"n": 1}, 0)
    assert letter.failed_reason.startswith("crashed: ")
    assert ((await job.refresh()).state, runs) == (JobState.FAILED, [])


async def test_a_running_job_that_is_revoked_is_stopped(queue: AsyncQueue, server_url: str) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    async def work(_: AsyncActiveJob) -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    async with working(queue, work, server_url, lease=timedelta(seconds=1)):
        job = await queue.add("work", options=JobOptions(attempts=3))
        await started.wait()
        await job.cancel()
        with pytest.raises(JobFailedError, match="revoked"):
            await job.wait(SOON)
    assert stopped.is_set()


async def test_global_concurrency_holds_over_all_workers(queue: AsyncQueue, server_url: str, raw: redis.Redis) -> None:
    at_once = most = 0
    both_places = asyncio.Event()

    async def work(_: AsyncActiveJob) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        if at_once == 2:
            both_places.set()
        await both_places.wait()
        await asyncio.sleep(0.01)
        at_once -= 1

    raw.hset(queue.keys.meta, "globalConcurrency", "2")
    async with working(queue, work, server_url), working(queue, work, server_url):
        jobs = await queue.add_bulk([NewJob("work") for _ in range(12)])
        for job in jobs:
            await job.wait(SOON)
    assert most == 2


async def test_a_prioritized_job_overtakes_what_waits(queue: AsyncQueue, server_url: str) -> None:
    order: list[int] = []

    async def work(job: AsyncActiveJob) -> None:
        order.append(job.data)

    for priority in (0, 0, 9, 3):
        await queue.add("work", priority, JobOptions(priority=priority))
    rare = timedelta(seconds=60)
    async with working(queue, work, server_url, concurrency=1, promotion_interval=rare):
        await wait_until(lambda: len(order) == 4, "all to run")
    assert order == [3, 9, 0, 0]


async def test_a_worker_that_has_just_begun_to_wait_stops_at_once(queue: AsyncQueue, server_url: str) -> None:
    async def work(_: AsyncActiveJob) -> None: ...

    for _ in range(5):
        worker = Worker(
            queue.name, work, url=server_url, options=QUICK.model_copy(update={"block": timedelta(minutes=1)})
        )
        running = asyncio.ensure_future(worker.run())
        await wait_until(lambda: worker.is_listening, "the worker to listen")  # noqa: B023  called within this round
        worker.stop()
        await asyncio.wait_for(running, 30)


@pytest.mark.parametrize(
    "options",
    [
        {"lockDuration": "30000"},
        {"lockDuration": -1},
        {"attempts": 3, "backoff": {"type": 7, "delay": "soon", "jitter": "some"}},
        {"attempts": 3, "backoff": {"type": "fixed", "delay": -5, "jitter": 9}},
        {"attempts": 3, "backoff": {"type": "fixed", "delay": [1]}},
        {"attempts": "many", "timeout": "long"},
        {"removeOnComplete": {"age": "old", "count": "few"}, "removeOnFail": {"age": [], "count": -3}},
        {"removeOnComplete": "yes", "removeOnFail": -1},
    ],
    ids=str,
)
async def test_options_that_make_no_sense_neither_lose_a_job_nor_cost_the_worker_a_place(
    queue: AsyncQueue, server_url: str, raw: redis.Redis, options: dict[str, object]
) -> None:
    async def work(job: AsyncActiveJob) -> int:
        if job.attempt == 1 and job.data == "fail":
            raise ValueError("the first time")
        return job.attempt

    jobs = [await queue.add("work", data) for data in ("fail", "work")]
    for job in jobs:
        raw.hset(queue.keys.job(job.id), "opts", json.dumps(options))
    async with working(queue, work, server_url, concurrency=1):
        await wait_until(
            lambda: raw.zcard(queue.keys.completed) + raw.zcard(queue.keys.failed) == 2, "both to be told", seconds=60
        )
        assert await (await queue.add("work", "last")).wait(SOON) == 1
    assert [raw.hget(queue.keys.job(job.id), "stalledCount") for job in jobs] == [None, None]


async def test_what_keeps_a_worker_from_going_on_after_an_outage_is_told(
    queue: AsyncQueue, server_url: str, raw: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    stream = queue.keys.stream

    def waiting() -> list[str]:
        return [client["id"] for client in raw.client_list() if client["cmd"] == "xreadgroup"]

    async with working(queue, lambda job: job.data, server_url):
        await wait_until(waiting, "the worker to wait")
        raw.set(stream, "nonsense")
        for client_id in waiting():
            raw.client_kill_filter(_id=client_id)
        await wait_until(lambda: "could not be taken up again" in caplog.text, "the refusal to be told")
        assert "WRONGTYPE" in caplog.text
        raw.delete(stream)
        assert await (await queue.add("echo", 7)).wait(60) == 7
