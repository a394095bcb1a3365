"""An address that leads to another server from now on, as a managed service's does, while old connections stay open."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from orchestration_queue.client import AsyncQueue
from orchestration_queue.errors import ServerError
from orchestration_queue.http import create_app
from orchestration_queue.protocol.call import Call
from orchestration_queue.schedules import Every
from orchestration_queue.server import Connection
from orchestration_queue.worker import AsyncActiveJob
from tests.endpoints import Endpoint, moving_endpoint
from tests.faces import Face
from tests.waiting import wait_until
from tests.workers import working

SOON = timedelta(seconds=60)
INCR, READ = Call("INCR", ("counter",)), Call("GET", ("counter",))


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    with moving_endpoint(tmp_path) as made:
        yield made


def moves(endpoint: Endpoint) -> None:
    endpoint.move()


def moves_and_cuts(endpoint: Endpoint) -> None:
    moves(endpoint)
    endpoint.proxy.cut()


def refuses_and_moves(endpoint: Endpoint) -> None:
    endpoint.proxy.refuse()
    moves(endpoint)
    endpoint.proxy.admit()


WAYS = [moves, moves_and_cuts, refuses_and_moves]
Way = Callable[[Endpoint], None]
ways = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


@ways
@pytest.mark.parametrize("name", ["sync", "async"])
async def test_a_client_goes_on_after_its_address_moved(
    endpoint: Endpoint, name: str, way: Way, queue_name: str
) -> None:
    async with Face(name, endpoint.url).queue(queue_name) as queue:
        await asyncio.gather(*(queue.add("work") for _ in range(5)))  # several sockets
        way(endpoint)
        jobs = await asyncio.gather(*(queue.add("work") for _ in range(20)))
        assert {job.id for job in jobs} == {str(number) for number in range(6, 26)}, "a refused add counted"
        assert endpoint.replica.raw.xlen(queue.keys.stream) == 25


@pytest.mark.parametrize("name", ["sync", "async"])
async def test_a_call_waits_while_the_address_still_leads_to_the_old_primary(
    endpoint: Endpoint, name: str, queue_name: str
) -> None:
    async with Face(name, endpoint.url).queue(queue_name) as queue:
        await queue.add("work")
        endpoint.fail_over()
        refused = endpoint.primary.raw.info("errorstats").get("errorstat_READONLY", {"count": 0})["count"]
        adding = asyncio.ensure_future(queue.add("work"))
        await wait_until(
            lambda: (
                endpoint.primary.raw.info("errorstats").get("errorstat_READONLY", {"count": 0})["count"] > refused + 2
            ),
            "the call to be refused several times",
        )
        endpoint.follow()
        assert (await adding).id == "2"


def test_a_call_to_a_server_that_stays_a_replica_is_refused_in_the_end(endpoint: Endpoint) -> None:
    with Connection.open(endpoint.url, libraries=(), connect_timeout=timedelta(milliseconds=300)) as connection:
        endpoint.fail_over()
        with pytest.raises(ServerError, match="connect to the primary") as caught:
            connection.execute(INCR)
        assert caught.value.code == "READONLY"
        assert connection.execute(READ) is None, "reads continue"


@pytest.mark.parametrize("atomic", [False, True], ids=["pipeline", "transaction"])
def test_only_the_refused_part_of_a_pipeline_is_sent_again(endpoint: Endpoint, atomic: bool) -> None:
    with Connection.open(endpoint.url) as connection:
        assert connection.pipeline([INCR, READ, INCR], atomic=atomic) == [1, b"1", 2]
        moves(endpoint)
        first, _, last = connection.pipeline([INCR, READ, INCR], atomic=atomic)
        assert (first, last) == (3, 4)
        assert endpoint.replica.ask("GET", "counter") == "4"


def test_batches_are_applied_once_when_the_address_moves_among_them(endpoint: Endpoint) -> None:
    def batches() -> Iterator[list[Call]]:
        for number in range(30):
            if number == 10:
                moves(endpoint)
            yield [INCR, INCR]

    with Connection.open(endpoint.url) as connection:
        replies = [reply for each in connection.pipelines(batches()) for reply in each]
    assert sorted(replies) == list(range(1, 61))
    assert endpoint.replica.ask("GET", "counter") == "60"


@ways
async def test_a_worker_and_its_schedules_go_on_after_its_address_moved(
    endpoint: Endpoint, way: Way, queue_name: str
) -> None:
    runs: Counter[str] = Counter()
    hold = asyncio.Event()

    async def work(job: AsyncActiveJob) -> None:
        runs[job.id if job.name == "work" else job.name] += 1
        if job.data == "long":
            await hold.wait()

    lease = timedelta(seconds=2)
    async with (
        AsyncQueue(queue_name, url=endpoint.url) as queue,
        queue.events() as events,
        working(queue, work, endpoint.url, lease=lease, concurrency=3),
    ):
        await queue.schedulers.upsert("tick", Every(0.2))
        long = await queue.add("work", "long")
        jobs = [await queue.add("work") for _ in range(10)]
        for job in jobs:
            await job.wait(SOON)
        await wait_until(lambda: runs["tick"] and runs[long.id], "a scheduled run and the long job")
        way(endpoint)
        ticks = runs["tick"]
        jobs += [await queue.add("work") for _ in range(10)]
        for job in jobs:
            await job.wait(SOON)
        await wait_until(lambda: runs["tick"] > ticks + 2, "the schedule to continue")
        locks = [endpoint.replica.ask("HGET", queue.keys.job(long.id), "lastActive")]
        await wait_until(
            lambda: endpoint.replica.ask("HGET", queue.keys.job(long.id), "lastActive") != locks[0],
            "the long job's lease to be renewed",
        )
        hold.set()
        await long.wait(SOON)
        ended = Counter[str]()
        async for event in events:
            ended[event.job_id] += event.type == "completed"
            if all(ended[job.id] for job in (*jobs, long)):
                break
    ours = [job.id for job in (*jobs, long)]
    assert {job_id: (runs[job_id], ended[job_id]) for job_id in ours} == dict.fromkeys(ours, (1, 1))


async def test_the_http_server_goes_on_after_its_address_moved(endpoint: Endpoint, queue_name: str) -> None:
    app = create_app(endpoint.url)
    try:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            assert (await client.post(f"/queues/{queue_name}/jobs", json={"name": "work"})).status_code == 201
            moves(endpoint)
            added = await client.post(f"/queues/{queue_name}/jobs", json={"name": "work"})
            assert (added.status_code, added.json()["id"]) == (201, "2")
    finally:
        await app.aclose()
