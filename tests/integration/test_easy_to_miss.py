"""The behaviours of the wire that are easy to miss and need a client or a worker around the library, by their number.

Those that need only the library are in tests/lua/test_easy_to_miss.py, and test_easy_to_miss_index.py beside this
file says where each number is. Of 51, 60, 63 and 77 a part is to come: strategies of the worker's own, discarding,
batches, and the list of workers.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

from orchestration_queue.client import AsyncQueue
from orchestration_queue.errors import JobFailedError
from orchestration_queue.options import Backoff, JobOptions
from orchestration_queue.schedules import Every
from orchestration_queue.worker import AsyncActiveJob
from tests.waiting import wait_until
from tests.workers import working

SOON = timedelta(seconds=60)
CLOCKS_S = 0.005
"""How far a worker's clock, which counts milliseconds, and the server's may be apart."""
Heard = Callable[[], list[tuple[float, str]]]


@pytest.fixture
async def queue(server_url: str, queue_name: str, raw: Any) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        yield queue


@pytest.fixture
def heard(raw: Any) -> Iterator[Heard]:
    """All that the server was asked since the test began, functions' inner commands too: when, and what."""
    commands: list[tuple[float, str]] = []

    with raw.monitor() as monitor:

        def so_far() -> list[tuple[float, str]]:
            raw.echo("so far")
            while (command := monitor.next_command())["command"] != "ECHO so far":
                commands.append((command["time"], command["command"]))
            return commands

        yield so_far


# -- Payloads


async def test_30_compressed_and_plain_jobs_mix(queue: AsyncQueue, server_url: str, raw: Any) -> None:
    async def echo(job: AsyncActiveJob) -> Any:
        return job.data

    text = "Zoë " * 500
    async with (
        AsyncQueue(queue.name, url=server_url, codec="gzip") as compressing,
        working(queue, echo, server_url),
    ):
        jobs = [await client.add("echo", [number, text]) for number, client in enumerate([queue, compressing] * 2)]
        results = [await job.wait(SOON) for job in jobs]
    assert results == [[number, text] for number in range(4)]
    stored = [str(raw.hget(queue.keys.job(job.id), "data")) for job in jobs]
    assert [data.startswith("gz:") for data in stored] == [False, True, False, True]


async def test_56_a_handler_that_returns_nothing_stores_null(queue: AsyncQueue, server_url: str, raw: Any) -> None:
    async def work(_: AsyncActiveJob) -> None: ...

    async with working(queue, work, server_url):
        job = await queue.add("work")
        assert await job.wait(SOON) is None
    assert raw.hget(queue.keys.job(job.id), "returnvalue") == "null"


# -- Leases and retries


@pytest.mark.parametrize("ending", ["completed", "failed", "killed"])
async def test_39_a_lease_is_renewed_at_half_its_duration_and_not_after_the_end(
    queue: AsyncQueue, server_url: str, raw: Any, heard: Heard, ending: str
) -> None:
    lease_s = 1.0
    over = asyncio.Event()

    async def work(_: AsyncActiveJob) -> None:
        await over.wait()
        if ending == "failed":
            raise ValueError("as told")

    def renewals() -> list[float]:
        return [at for at, command in heard() if command.startswith("FCALL oq1_renew ")]

    # No worker looks for stalled jobs: a machine that is busy may be late with a renewal.
    lease: dict[str, Any] = {"lease": timedelta(seconds=lease_s), "stalled_interval": timedelta(hours=1)}
    async with working(queue, work, server_url, **lease) as worker:
        added = time.time()
        job = await queue.add("work")
        await wait_until(lambda: len(renewals()) >= 2, "two renewals")
        if ending == "killed":
            worker.kill()
        else:
            over.set()
            await wait_until(lambda: raw.exists(queue.keys.named(ending)), "the end")
        await wait_until(lambda: not worker.running, "the worker to have left it")
        first, second, *more = renewals()
        await asyncio.sleep(lease_s)
    assert renewals() == [first, second, *more]
    # Each is due half a lease after the one before was sent.
    assert first - added >= 0.5 * lease_s
    assert second - added >= lease_s
    *_, last_but_one, last = renewals()
    renewed = int(raw.hget(queue.keys.job(job.id), "lastActive")) / 1000
    assert last_but_one - CLOCKS_S < renewed < last + CLOCKS_S


@pytest.mark.parametrize(("kind", "waits_ms"), [("exponential", ["40", "80", "160"]), ("fixed", ["40", "40", "40"])])
async def test_51_backoff_counts_failures_from_one(
    queue: AsyncQueue, server_url: str, raw: Any, kind: str, waits_ms: list[str]
) -> None:
    async def fail(_: AsyncActiveJob) -> None:
        raise ValueError("as told")

    options = JobOptions(attempts=4, backoff=Backoff(type=kind, delay=timedelta(milliseconds=40)))
    async with working(queue, fail, server_url):
        job = await queue.add("fail", options=options)
        with pytest.raises(JobFailedError):
            await job.wait(SOON)
    events = [fields for _, fields in raw.xrange(queue.keys.events)]
    assert [event["delay"] for event in events if event["event"] == "retrying"] == waits_ms


async def test_52_timeout_text_is_exact(queue: AsyncQueue, server_url: str, raw: Any) -> None:
    async def slow(_: AsyncActiveJob) -> None:
        await asyncio.sleep(60)

    async with working(queue, slow, server_url):
        job = await queue.add("slow", options=JobOptions(timeout=timedelta(milliseconds=20)))
        with pytest.raises(JobFailedError):
            await job.wait(SOON)
    assert raw.hget(queue.keys.job(job.id), "failedReason") == "Job timeout exceeded"


@pytest.mark.parametrize("timeout_ms", [0, -1])
async def test_52_a_timeout_that_is_not_positive_means_none(
    queue: AsyncQueue, server_url: str, raw: Any, timeout_ms: int
) -> None:
    async def work(_: AsyncActiveJob) -> str:
        await asyncio.sleep(0.05)
        return "in time"

    job = await queue.add("work")
    raw.hset(queue.keys.job(job.id), "opts", json.dumps({"timeout": timeout_ms}))
    async with working(queue, work, server_url):
        assert await job.wait(SOON) == "in time"


# -- Taking and leaving


async def test_62_a_killed_worker_acknowledges_nothing(queue: AsyncQueue, server_url: str, raw: Any) -> None:
    started = asyncio.Event()

    async def work(_: AsyncActiveJob) -> None:
        started.set()
        await asyncio.sleep(60)

    async with working(queue, work, server_url) as worker:
        job = await queue.add("work")
        await started.wait()
        worker.kill()
    (pending,) = raw.xpending_range(queue.keys.stream, "workers", "-", "+", 10)
    assert (pending["consumer"], pending["times_delivered"]) == (worker.id, 1)
    assert raw.hget(queue.keys.job(job.id), "state") == "active"
    assert not raw.exists(queue.keys.completed, queue.keys.failed)


async def test_63_a_worker_asks_for_as_many_jobs_as_it_has_free_places(
    queue: AsyncQueue, server_url: str, raw: Any, heard: Heard
) -> None:
    over = asyncio.Event()

    async def work(_: AsyncActiveJob) -> None:
        await over.wait()

    def asked() -> list[int]:
        reads = [command for _, command in heard() if command.startswith("XREADGROUP ") and "BLOCK" in command]
        return [int(re.findall(r"COUNT (\d+)", read)[0]) for read in reads]

    async with working(queue, work, server_url, concurrency=3, block=timedelta(seconds=60)):
        for running in range(3):
            await wait_until(lambda: asked()[running:], "the worker to listen")  # noqa: B023  called within this round
            await queue.add("work")
        over.set()
        await wait_until(lambda: raw.zcard(queue.keys.completed) == 3, "all to be done")
    assert asked()[:3] == [3, 2, 1]


async def test_63_a_worker_leaves_what_it_has_no_place_for(queue: AsyncQueue, server_url: str, raw: Any) -> None:
    started, over = 0, asyncio.Event()

    async def work(_: AsyncActiveJob) -> None:
        nonlocal started
        started += 1
        await over.wait()

    for _ in range(5):
        await queue.add("work")
    async with working(queue, work, server_url, concurrency=3):
        await wait_until(lambda: started == 3, "three jobs to run")
        assert raw.xpending(queue.keys.stream, "workers")["pending"] == 3
        over.set()


async def test_77_a_registration_outlives_its_time_to_live_by_renewal_and_goes_with_the_worker(
    queue: AsyncQueue, server_url: str, raw: Any
) -> None:
    async def work(_: AsyncActiveJob) -> None: ...

    ttl_ms = 3000
    async with working(queue, work, server_url, stalled_interval=timedelta(milliseconds=ttl_ms)) as worker:
        key = queue.keys.worker(worker.id)
        await wait_until(lambda: 0 < raw.pttl(key) <= ttl_ms, "the worker to register")
        registered = json.loads(str(raw.get(key)))
        assert {name: type(registered[name]) for name in ("addr", "pid", "startedAt")} == {
            "addr": str,
            "pid": int,
            "startedAt": int,
        }
        await wait_until(lambda: raw.pttl(key) < ttl_ms - 1000, "its time to run down")
        await wait_until(lambda: raw.pttl(key) > ttl_ms - 500, "its renewal")
    assert not raw.exists(key)


# -- Schedules


async def test_66_two_workers_never_exceed_a_limit_of_one(queue: AsyncQueue, server_url: str, raw: Any) -> None:
    runs: Counter[str] = Counter()

    async def work(job: AsyncActiveJob) -> None:
        runs[job.name] += 1

    names = [f"once-{number}" for number in range(20)]
    for number, name in enumerate(names):
        await queue.schedulers.upsert(name, Every(timedelta(milliseconds=20 + 20 * number), limit=1))
    async with AsyncExitStack() as stack:
        for _ in range(2):
            # A lease that lasts: a busy machine is no reason to run a job twice.
            await stack.enter_async_context(working(queue, work, server_url, lease=SOON))
        await wait_until(lambda: not raw.exists(queue.keys.schedulers), "all schedules to be used up")
        await wait_until(lambda: not raw.xlen(queue.keys.stream), "their jobs to be done")
    assert runs == dict.fromkeys(names, 1)
