"""Fair shares with real workers: tenants start by their weights, none starves, none is lost or doubled."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import redis
from typer.testing import CliRunner

from orchestration_queue.cli.main import app
from orchestration_queue.client import AsyncFlowProducer, AsyncQueue, NewJob, Queue
from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.flows import Dag, Node
from orchestration_queue.options import Backoff, JobOptions
from orchestration_queue.schedules import Every, JobTemplate
from orchestration_queue.states import JobState
from orchestration_queue.worker import AsyncActiveJob
from tests.chaos.workers import cli_worker, kill
from tests.waiting import wait_until, wait_until_sync
from tests.workers import working


@pytest.fixture
async def queue(server_url: str, queue_name: str) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        yield queue


async def add(queue: AsyncQueue, share: str, count: int, **options: Any) -> None:
    await queue.add_bulk([NewJob(share, None, JobOptions(share=share, **options)) for _ in range(count)])


class Order:
    """A handler that notes the names of the jobs it ran."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.ids: Counter[str] = Counter()

    async def __call__(self, job: AsyncActiveJob) -> None:
        self.names.append(job.name)
        self.ids[job.id] += 1

    def has(self, count: int) -> bool:
        return len(self.names) >= count


@pytest.mark.parametrize("concurrency", [1, 4, 100])
async def test_a_tenant_with_a_thousandth_of_the_backlog_gets_its_part(queue: AsyncQueue, concurrency: int) -> None:
    await add(queue, "big", 2000)
    await add(queue, "small", 2)
    order = Order()
    async with working(queue, order, str(queue.url), concurrency=concurrency):
        await wait_until(lambda: order.has(2002), "all jobs", 60)
    last = max(place for place, name in enumerate(order.names) if name == "small")
    assert last <= 8 + 2 * 2 + 2 * concurrency


@pytest.mark.parametrize("concurrency", [1, 100])
async def test_a_tenant_does_not_wait_for_a_backlog_without_shares(queue: AsyncQueue, concurrency: int) -> None:
    await queue.add_bulk([NewJob("plain") for _ in range(1000)])
    await add(queue, "small", 20)
    order = Order()
    async with working(queue, order, str(queue.url), concurrency=concurrency):
        await wait_until(lambda: order.has(1020), "all jobs", 60)
    last = max(place for place, name in enumerate(order.names) if name == "small")
    assert last <= 2 * 20 + 3 * concurrency
    assert Counter(order.names) == {"plain": 1000, "small": 20}


async def test_tenants_are_served_by_weight_by_several_workers(queue: AsyncQueue) -> None:
    await queue.shares.set("a", 3)
    for share, count in (("b", 300), ("a", 600), ("c", 300)):
        await add(queue, share, count)
    order = Order()
    async with (
        working(queue, order, str(queue.url)),
        working(queue, order, str(queue.url)),
        working(queue, order, str(queue.url), concurrency=1),
    ):
        await wait_until(lambda: order.has(1200), "all jobs", 60)
    served = Counter(order.names[20:520])
    assert served["a"] == pytest.approx(300, rel=0.1)
    assert served["b"] == pytest.approx(100, rel=0.1)
    assert max(order.ids.values()) == 1


async def test_an_idle_worker_starts_all_jobs_that_are_added_at_once(queue: AsyncQueue) -> None:
    """None of them is announced by its own entry: rounds of promotions, five minutes apart, do not help."""
    order = Order()
    async with working(queue, order, str(queue.url), concurrency=50, promotion_interval=timedelta(minutes=5)):
        await queue.add("warm")
        await wait_until(lambda: order.has(1), "the worker to be idle")
        for expected in (301, 602):
            await add(queue, "a", 300)
            await queue.add("one", None, JobOptions(share="b"))
            await wait_until(lambda e=expected: order.has(e), "all jobs", 60)  # type: ignore[misc]


async def test_retries_delays_priorities_and_flows_keep_to_their_share(queue: AsyncQueue) -> None:
    order = Order()

    async def handle(job: AsyncActiveJob) -> None:
        await order(job)
        if job.name == "flaky" and job.attempt == 1:
            raise RuntimeError("once")

    backoff = Backoff(type="fixed", delay=timedelta(0))
    share = JobOptions(share="a", attempts=2, backoff=backoff)
    jobs = [
        await queue.add("flaky", None, share),
        await queue.add("late", None, JobOptions(share="a", delay=timedelta(milliseconds=50))),
        await queue.add("early", None, JobOptions(share="b", priority=1)),
    ]
    first = Node("first", options=JobOptions(share="a"))
    dag = Dag("g", [first, Node("second", deps=["first"], options=JobOptions(share="b"))], queue=queue.name)
    async with working(queue, handle, str(queue.url)):
        async with AsyncFlowProducer(url=str(queue.url)) as producer:
            flow = await producer.submit(dag)
            await flow.wait(timedelta(seconds=60))
        for job in jobs:
            await job.wait(timedelta(seconds=60))
    assert Counter(order.names) == {"flaky": 2, "late": 1, "early": 1, "first": 1, "second": 1}


async def test_runs_of_a_schedule_start_from_its_share(queue: AsyncQueue) -> None:
    template = JobTemplate(name="tick", options=JobOptions(share="a"))
    await queue.schedulers.upsert("often", Every(timedelta(milliseconds=20), limit=3), template)
    seen: list[str | None] = []

    async def handle(job: AsyncActiveJob) -> None:
        seen.append(job.record.share)

    async with working(queue, handle, str(queue.url)):
        await wait_until(lambda: len(seen) == 3, "three runs", 60)
    assert seen == ["a", "a", "a"]


async def test_waiting_jobs_are_counted_listed_found_and_explained(queue: AsyncQueue) -> None:
    await queue.shares.set("a", 2)
    await add(queue, "a", 30)
    last = await queue.add("last", None, JobOptions(share="a"))
    await add(queue, "b", 10)
    assert (await queue.counts()).waiting == await queue.count() == 41
    jobs = await queue.jobs(JobState.WAITING)
    assert len({job.id for job in jobs}) == 41
    assert [job.id for job in await queue.jobs(JobState.WAITING, offset=5, limit=5)] == [job.id for job in jobs[5:10]]
    assert [job.id for job in await queue.search(name="last")] == [last.id]
    assert last.record.share is None or last.record.share == "a"
    shares = await queue.shares.list()
    assert [(share.name, share.weight, share.waiting) for share in shares] == [("a", 2, 23), ("b", 1, 10)]
    async with working(queue, Order(), str(queue.url), concurrency=1) as worker:
        worker.pause()
        found = await last.explain()
    assert found.sentence
    await queue.obliterate(force=True)


async def test_the_reason_why_a_job_waits_names_its_share(queue: AsyncQueue) -> None:
    gate, order = asyncio.Event(), Order()

    async def handle(job: AsyncActiveJob) -> None:
        await order(job)
        await gate.wait()

    async with working(queue, handle, str(queue.url), concurrency=1):
        await queue.add("held")
        await wait_until(lambda: order.has(1), "the first job")
        await add(queue, "a", 20)
        last = await queue.add("last", None, JobOptions(share="a"))
        await add(queue, "b", 1)
        found = await last.explain()
        gate.set()
        await last.wait(timedelta(seconds=60))
    assert found.sentence == (
        "It waits in share 'a' of weight 1 behind 12 jobs; of 2 shares that wait, it is served next."
    )
    assert found.facts["share"] == {"name": "a", "weight": 1, "waiting": 13}
    assert found.action == f"oq share set {queue.name} a WEIGHT gives the share more"


async def test_pausing_cancelling_and_draining_reach_jobs_of_shares(queue: AsyncQueue) -> None:
    await queue.pause()
    await add(queue, "a", 50)
    job = await queue.add("last", None, JobOptions(share="a"))
    order = Order()
    async with working(queue, order, str(queue.url)):
        await job.cancel()
        assert (await job.refresh()).state is JobState.FAILED
        await (await queue.jobs(JobState.WAITING))[-1].remove()
        assert (await queue.counts()).waiting == 49
        await queue.drain()
        assert (await queue.counts()).waiting == 0
        await queue.resume()
        await queue.add("plain")
        await wait_until(lambda: order.names == ["plain"], "the job that was not drained")


async def test_a_taken_job_comes_from_a_share(queue: AsyncQueue) -> None:
    await add(queue, "a", 20)
    await add(queue, "b", 20)
    names = []
    while jobs := await queue.take(7):
        for job in jobs:
            names.append(job.name)
            await job.complete()
    assert Counter(names) == {"a": 20, "b": 20}


def test_no_job_is_lost_or_doubled_when_workers_are_killed(server_url: str, queue_name: str, raw: redis.Redis) -> None:
    with Queue(queue_name, url=server_url) as queue:
        shares = [JobOptions(share=name) for name in ("a", "a", "a", "b")]
        plain = queue.add_bulk([NewJob("work", {"seconds": 0.02}) for _ in range(60)])
        jobs = queue.add_bulk([NewJob("work", {"seconds": 0.02}, shares[number % 4]) for number in range(200)])
        held = queue.add_bulk([NewJob("linger", {"seconds": 600}, shares[0]) for _ in range(2)])
        with cli_worker(queue_name, server_url, concurrency=2) as first:
            wait_until_sync(lambda: raw.zcard(queue.keys.completed) > 10, "some jobs", 60)
            kill(first)
        with cli_worker(queue_name, server_url, concurrency=3) as second:
            wait_until_sync(lambda: raw.zcard(queue.keys.completed) > 60, "more jobs", 60)
            for job in held:
                job.cancel()
            kill(second)
        with cli_worker(queue_name, server_url, concurrency=3):
            for job in [*jobs, *plain]:
                job.wait(120)
        assert raw.zcard(queue.keys.completed) == 260
        twice = [job for job in [*jobs, *plain] if job.refresh().stalled_count]
        assert len(twice) <= 5, "only what the killed workers held"
        wait_until_sync(lambda: raw.xlen(queue.keys.stream) == 0, "nothing to be left", 60)
        left = {str(key).rpartition("}:")[2] for key in raw.keys(f"{queue.keys.base}:share*")}
        assert left <= {"shares:ahead"}


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"share": ""}, "is empty"),
        ({"share": 5}, "is not text"),
        ({"share": "a:b"}, "contains ':'"),
        ({"share": "x" * 101}, "longer than 100"),
        ({"share": "a", "lifo": True}, "determines the order of its jobs"),
        ({"share": "a", "ordering": {"key": "k"}}, "determines the order of its jobs"),
    ],
)
def test_a_share_that_cannot_be_is_refused(options: dict[str, Any], what: str) -> None:
    with pytest.raises(InvalidOptionError, match=what):
        JobOptions(**options)


def test_shares_in_the_terminal(server_url: str, queue_name: str) -> None:
    def oq(*words: str) -> Any:
        done = CliRunner().invoke(app, [*words, "--url", server_url, "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    assert oq("share", "set", queue_name, "a", "3") == {"queue": queue_name, "name": "a", "weight": 3}
    for _ in range(9):
        oq("job", "add", queue_name, "x", "--share", "b")
    assert oq("job", "show", queue_name, "1")["share"] == "b"
    assert oq("share", "ls", queue_name) == [
        {"name": "a", "weight": 3, "waiting": 0},
        {"name": "b", "weight": 1, "waiting": 1},
    ]
    assert "b" in CliRunner().invoke(app, ["share", "ls", queue_name, "--url", server_url]).stdout
    assert oq("share", "rm", queue_name, "a") == {"queue": queue_name, "name": "a", "removed": True}
    assert oq("share", "rm", queue_name, "a") == {"queue": queue_name, "name": "a", "removed": False}
