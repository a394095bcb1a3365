"""The server dies, stalls, disconnects or is unreachable: work continues soon after, and no job runs twice."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import redis

from orchestration_queue.client import AsyncQueue, NewJob
from orchestration_queue.options import JobOptions
from orchestration_queue.worker import AsyncActiveJob
from tests.by_hand import HandWorker
from tests.chaos.books import counted, mistakes
from tests.chaos.saboteur import Saboteur
from tests.chaos.workers import BUSY_S
from tests.conftest import start_server
from tests.waiting import wait_until
from tests.workers import working

pytestmark = pytest.mark.chaos

LEASE = timedelta(seconds=4)
OUTAGE_S = 1.25 * LEASE.total_seconds()
SHORT_JOBS, LONG_JOBS = 300, 4
MOST_S = 1.5 + BUSY_S
"""From the end of an outage until a job added then is done."""


class Server:
    """A server of one test, with an append-only file, behind a saboteur."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "valkey.sock"
        self._settings = ("--appendonly", "yes", "--dir", str(folder))
        self.saboteur = Saboteur(self.socket, folder / "saboteur.sock")
        self.start()

    def start(self) -> None:
        self.process: subprocess.Popen[bytes] = start_server(self.socket, *self._settings)
        self.raw = redis.Redis(unix_socket_path=str(self.socket), decode_responses=True, protocol=2)

    def end(self) -> None:
        self.raw.close()
        self.process.kill()
        self.process.wait(60)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    with server.saboteur:
        yield server
    server.end()


async def is_killed(server: Server) -> None:
    server.end()
    await asyncio.sleep(OUTAGE_S)
    server.start()


async def stands_still(server: Server) -> None:
    server.process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(OUTAGE_S)
    server.process.send_signal(signal.SIGCONT)


async def pauses(server: Server) -> None:
    server.raw.client_pause(round(OUTAGE_S * 1000))
    await asyncio.sleep(OUTAGE_S)


async def cannot_be_reached(server: Server) -> None:
    server.saboteur.refuse()
    await asyncio.sleep(OUTAGE_S)
    server.saboteur.admit()


async def hangs_up_again_and_again(server: Server) -> None:
    for _ in range(20):
        server.raw.client_kill_filter(_type="normal", skipme=True)
        await asyncio.sleep(OUTAGE_S / 20)


FAULTS = [is_killed, stands_still, pauses, cannot_be_reached, hangs_up_again_and_again]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
async def test_work_goes_on_soon_after_an_outage_and_no_job_runs_twice(
    server: Server,
    queue_name: str,
    recovered: Callable[[float, float], None],
    fault: Callable[[Server], Awaitable[None]],
) -> None:
    runs: Counter[int] = Counter()

    async def work(job: AsyncActiveJob) -> int:
        runs[job.data] += 1
        await asyncio.sleep(OUTAGE_S + 2 if job.data < LONG_JOBS else 0.01)
        return int(job.data)

    jobs = SHORT_JOBS + LONG_JOBS + 1
    async with AsyncQueue(queue_name, url=f"unix://{server.socket}") as queue:
        await queue.add_bulk([NewJob("work", number) for number in range(jobs - 1)])
        url = server.saboteur.url
        soon = timedelta(milliseconds=300)  # within which an idle worker sees a LIFO job
        async with (
            working(queue, work, url, block=soon, lease=LEASE),
            working(queue, work, url, block=soon, lease=LEASE, concurrency=2),
        ):
            await wait_until(lambda: len(runs) >= SHORT_JOBS / 3, "some jobs to be done")
            await fault(server)
            over = time.monotonic()
            late = await queue.add("work", jobs - 1, JobOptions(lifo=True))
            assert await late.wait(MOST_S) == jobs - 1
            recovered(time.monotonic() - over, MOST_S)
            await wait_until(lambda: counted(server.raw, queue.keys.metrics_completed) >= jobs, "all jobs to be done")
        assert runs == Counter(range(jobs))
        assert mistakes(server.raw, queue.keys, completed=jobs) == {}
        stalls = [server.raw.hget(key, "stalledCount") for key in server.raw.scan_iter(queue.keys.job("*"))]
        assert stalls == [None] * jobs


async def test_a_worker_whose_calls_time_out_while_its_server_hangs_continues_and_loses_nothing(
    server: Server, queue_name: str
) -> None:
    runs: Counter[int] = Counter()

    async def work(job: AsyncActiveJob) -> int:
        runs[job.data] += 1
        await asyncio.sleep(OUTAGE_S if job.data < LONG_JOBS else 0.01)
        return int(job.data)

    jobs = SHORT_JOBS + LONG_JOBS
    limits = "timeout=1.5&connect_timeout=1.5"
    async with AsyncQueue(queue_name, url=f"unix://{server.socket}") as queue:
        await queue.add_bulk([NewJob("work", number) for number in range(jobs)])
        block = timedelta(milliseconds=300)
        async with working(queue, work, f"unix://{server.socket}?{limits}", block=block, lease=LEASE):
            await wait_until(lambda: len(runs) >= SHORT_JOBS / 3, "some jobs to be done")
            await stands_still(server)
            await wait_until(lambda: counted(server.raw, queue.keys.metrics_completed) >= jobs, "all jobs to be done")
        assert runs == Counter(range(jobs))
        assert mistakes(server.raw, queue.keys, completed=jobs) == {}


async def test_a_worker_that_starts_during_an_outage_leaves_others_the_time_to_renew_their_leases(
    server: Server, queue_name: str
) -> None:
    lease = timedelta(minutes=5)
    ran: list[str] = []

    async def work(job: AsyncActiveJob) -> None:
        ran.append(job.id)

    async with AsyncQueue(queue_name, url=f"unix://{server.socket}") as queue:
        with HandWorker(f"unix://{server.socket}", queue_name) as healthy:
            await queue.add("work", options=JobOptions(job_id="held"))
            held = healthy.take()
            server.raw.hset(queue.keys.job(held.id), "lastActive", 1)  # it could not renew its lease for long
            server.saboteur.refuse()
            quick = timedelta(milliseconds=100)
            async with working(queue, work, server.saboteur.url, lease=lease, stalled_interval=quick):
                await asyncio.sleep(1)  # so much it sees of the outage
                server.saboteur.admit()
                for number in range(4):  # meanwhile it would take over stalled jobs
                    late = await queue.add("work", options=JobOptions(job_id=f"late-{number}", delay=0.1))
                    await late.wait(60)
            healthy.complete(held)
        assert ran == [f"late-{number}" for number in range(4)]
