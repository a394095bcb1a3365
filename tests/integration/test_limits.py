"""Rate limits, token limits and budgets with real workers. Windows pass by travelling in time, not by waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from orchestration_queue.client import AsyncJob, AsyncQueue, NewJob
from orchestration_queue.errors import JobFailedError, RateLimitError
from orchestration_queue.options import Budget, JobOptions, RateLimit, TokenLimit, Usage, WorkerOptions, seconds
from orchestration_queue.server import clock
from orchestration_queue.server.clock import now_ms
from orchestration_queue.worker import ActiveJob, AsyncActiveJob, Handler, Worker
from orchestration_queue.worker.events import WorkerEvent, WorkerEventType
from tests.waiting import wait_until

HOUR = timedelta(hours=1)
HOUR_MS = 3_600_000
TICK = timedelta(milliseconds=50)
SOON = timedelta(seconds=60)
Commands = Callable[[], list[str]]


@pytest.fixture
async def queue(server_url: str, queue_name: str, raw: Any) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        yield queue


_started = timedelta(0)


def travel(distance: timedelta) -> None:
    """Go so far from when the test began."""
    clock.travel(_started + distance)


@pytest.fixture(autouse=True)
def half_past_and_now_again() -> Iterator[None]:
    """Begin in the middle of an hour, with which windows of tokens begin and end; come back from every journey."""
    global _started
    _started = timedelta(milliseconds=(HOUR_MS * 3 // 2 - now_ms() % HOUR_MS) % HOUR_MS)
    travel(timedelta(0))
    yield
    clock.travel(timedelta(0))


@pytest.fixture
def commands(raw: Any) -> Iterator[Commands]:
    """All that clients asked the server since the test began."""
    heard: list[str] = []
    with raw.monitor() as monitor:

        def so_far() -> list[str]:
            raw.echo("so far")
            while (command := monitor.next_command())["command"] != "ECHO so far":
                if command["client_type"] != "lua":
                    heard.append(command["command"])
            return heard

        yield so_far


@asynccontextmanager
async def working(queue: AsyncQueue, handler: Handler, url: str, **options: Any) -> AsyncIterator[Worker]:
    """A worker of the queue, which leaves what waits for a limit in the end."""
    worker = Worker(queue.name, handler, url=url, options=WorkerOptions(promotion_interval=TICK, **options))
    running = asyncio.ensure_future(worker.run())
    try:
        yield worker
    finally:
        worker.kill()
        await asyncio.wait_for(running, 60)


class Starts:
    """A handler that notes which jobs it ran, and when."""

    def __init__(self) -> None:
        self.jobs: list[str] = []
        self.at: list[float] = []

    async def __call__(self, job: AsyncActiveJob) -> None:
        self.jobs.append(job.name)
        self.at.append(time.monotonic())

    async def reach(self, number: int) -> None:
        await wait_until(lambda: len(self.jobs) >= number, f"{number} starts")


async def rounds(raw: Any, number: int = 10) -> None:
    """Call functions this often, as workers do at every tick and for every question."""

    def calls() -> int:
        return int(raw.info("commandstats")["cmdstat_fcall"]["calls"])

    before = calls()
    await wait_until(lambda: calls() >= before + number, "the workers to ask again")


# -- Rates


async def test_two_workers_share_one_limit_and_never_exceed_a_window(
    queue: AsyncQueue, server_url: str, raw: Any
) -> None:
    starts = Starts()
    options = {"concurrency": 4, "rate_limit": RateLimit(max=3, duration=HOUR)}
    await queue.add_bulk([NewJob(str(number)) for number in range(11)])
    async with working(queue, starts, server_url, **options), working(queue, starts, server_url, **options):
        for window, allowed in enumerate((3, 6, 9, 11)):
            travel(window * HOUR)
            await starts.reach(allowed)
            await rounds(raw)
            assert len(starts.jobs) == allowed
    assert len(set(starts.jobs)) == 11


async def test_the_limit_of_the_queue_goes_before_the_workers_own(queue: AsyncQueue, server_url: str, raw: Any) -> None:
    starts = Starts()
    await queue.set_global_rate_limit(RateLimit(max=2, duration=HOUR))
    await queue.add_bulk([NewJob(str(number)) for number in range(5)])
    async with working(queue, starts, server_url, concurrency=5, rate_limit=RateLimit(max=4, duration=HOUR)):
        await starts.reach(2)
        await rounds(raw)
        assert len(starts.jobs) == 2
        await queue.set_global_rate_limit(None)
        await starts.reach(4)
        await rounds(raw)
        assert len(starts.jobs) == 4, "without it the worker's own applies, and the window continues"


async def test_a_limit_that_is_set_or_lifted_holds_from_the_next_tick_on(
    queue: AsyncQueue, server_url: str, raw: Any
) -> None:
    starts = Starts()
    async with working(queue, starts, server_url, concurrency=5):
        await queue.add("free")
        await starts.reach(1)
        await queue.set_global_rate_limit(RateLimit(max=1, duration=HOUR))
        await rounds(raw)
        await queue.add_bulk([NewJob("held")] * 4)
        await starts.reach(2)
        await rounds(raw)
        assert len(starts.jobs) == 2
        # The waiting jobs notice it, though they were to wait an hour.
        await queue.set_global_rate_limit(RateLimit(max=3, duration=HOUR))
        await starts.reach(4)
        await queue.set_global_rate_limit(None)
        await starts.reach(5)


async def test_jobs_start_in_the_order_in_which_they_came(queue: AsyncQueue, server_url: str, raw: Any) -> None:
    starts = Starts()
    await queue.add_bulk([NewJob(str(number)) for number in range(6)])
    async with working(queue, starts, server_url, concurrency=12, rate_limit=RateLimit(max=2, duration=HOUR)):
        for window in range(3):
            travel(window * HOUR)
            await starts.reach(2 * window + 2)
    assert starts.jobs == [str(number) for number in range(6)]


async def test_of_all_that_wait_one_asks(queue: AsyncQueue, server_url: str, raw: Any, commands: Commands) -> None:
    starts = Starts()
    await queue.add_bulk([NewJob("ask")] * 20)
    async with working(queue, starts, server_url, concurrency=20, rate_limit=RateLimit(max=1, duration=HOUR)):
        await starts.reach(1)
        await rounds(raw, 20)
        heard = commands()
    asked = sum("glidemq_rateLimit" in command for command in heard)
    ticks = sum("oq1_tick" in command for command in heard)
    assert 1 < asked <= ticks + 2


async def test_where_no_limit_is_set_nobody_asks(
    queue: AsyncQueue, server_url: str, raw: Any, commands: Commands
) -> None:
    starts = Starts()
    async with working(queue, starts, server_url, concurrency=5):
        await queue.add_bulk([NewJob("free")] * 50)
        await starts.reach(50)
        heard = commands()
    words = ("rateLimit", "Budget", ":tpm:", "usage:")
    assert [command for command in heard if any(word in command for word in words)] == [
        command for command in heard if "rateLimitMax" in command and command.startswith("HMGET")
    ]
    assert sum("rateLimitMax" in command for command in heard) <= 5, "at most before the first tick is over"


async def test_a_worker_that_keeps_away_starts_nothing_not_even_what_it_has(
    queue: AsyncQueue, server_url: str, raw: Any
) -> None:
    starts = Starts()
    async with working(queue, starts, server_url, concurrency=3) as worker:
        await wait_until(lambda: worker.is_listening, "the worker to listen")
        began = time.monotonic()
        worker.keep_away(timedelta(seconds=0.4))
        await queue.add_bulk([NewJob("later")] * 3)
        await starts.reach(3)
    assert min(starts.at) - began >= 0.39


async def test_jobs_that_wait_for_a_limit_keep_away_too(queue: AsyncQueue, server_url: str, raw: Any) -> None:
    starts = Starts()
    await queue.add_bulk([NewJob("ask")] * 2)
    async with working(queue, starts, server_url, concurrency=2, rate_limit=RateLimit(max=1, duration=HOUR)) as worker:
        await starts.reach(1)
        await wait_until(lambda: worker.running == 1, "the other to wait")
        began = time.monotonic()
        worker.keep_away(timedelta(seconds=0.4))
        travel(HOUR)
        await starts.reach(2)
    assert starts.at[1] - began >= 0.39


async def test_a_refused_job_keeps_the_whole_worker_away(queue: AsyncQueue, server_url: str, raw: Any) -> None:
    starts: list[float] = []

    async def call(job: AsyncActiveJob) -> None:
        starts.append(time.monotonic())
        if len(starts) == 1:
            raise RateLimitError(timedelta(seconds=0.4))

    await queue.add_bulk([NewJob("call")] * 4)
    async with working(queue, call, server_url, concurrency=1):
        await wait_until(lambda: len(starts) == 5, "all four to run, the first of them twice")
    assert min(starts[1:]) - starts[0] >= 0.39


async def test_a_job_waits_while_its_limit_cannot_be_asked_for(
    queue: AsyncQueue, server_url: str, raw: Any, caplog: pytest.LogCaptureFixture
) -> None:
    starts = Starts()
    raw.set(queue.keys.rate, "no hash")
    async with working(queue, starts, server_url, rate_limit=RateLimit(max=1, duration=HOUR)):
        job = await queue.add("ask")
        await wait_until(lambda: "its limit could not be checked" in caplog.text, "the failure to be told")
        assert starts.jobs == []
        raw.delete(queue.keys.rate)
        await job.wait(SOON)
    assert job.record.attempts_made == 0


async def test_a_job_that_is_revoked_while_it_waits_lets_the_others_pass(
    queue: AsyncQueue, server_url: str, raw: Any
) -> None:
    starts = Starts()
    jobs = await queue.add_bulk([NewJob(str(number)) for number in range(3)])
    async with working(queue, starts, server_url, concurrency=3, rate_limit=RateLimit(max=1, duration=HOUR)) as worker:
        await starts.reach(1)
        await wait_until(lambda: worker.running == 2, "the others to wait")
        assert worker.cancel(jobs[1].id)
        with pytest.raises(JobFailedError, match="revoked"):
            await jobs[1].wait(SOON)
        travel(HOUR)
        await jobs[2].wait(SOON)
    assert starts.jobs == ["0", "2"]


async def test_a_worker_that_leaves_puts_back_what_waits(queue: AsyncQueue, server_url: str, raw: Any) -> None:
    starts = Starts()
    limit = RateLimit(max=1, duration=HOUR)
    options = WorkerOptions(concurrency=3, promotion_interval=TICK, rate_limit=limit, drain=timedelta(seconds=60))
    jobs = await queue.add_bulk([NewJob(str(number)) for number in range(3)])
    leaving = Worker(queue.name, starts, url=server_url, options=options)
    running = asyncio.ensure_future(leaving.run())
    await starts.reach(1)
    await wait_until(lambda: leaving.running == 2, "the others to wait")
    leaving.stop()
    await asyncio.wait_for(running, seconds(options.drain) - 5)
    assert starts.jobs == ["0"]
    async with working(queue, starts, server_url, concurrency=3):
        for job in jobs:
            await job.wait(SOON)
    assert sorted(starts.jobs) == ["0", "1", "2"]
    assert ["stalledCount" in (await job.refresh()).fields for job in jobs] == [False] * 3


# -- Tokens


async def spend(job: AsyncActiveJob) -> None:
    """A handler that says it spent what it was told to."""
    await job.report_tokens(job.data)


async def test_tokens_are_counted_in_the_window_in_which_a_job_ends(
    queue: AsyncQueue, server_url: str, raw: Any
) -> None:
    limit = TokenLimit(max_tokens=10_000, duration=HOUR)
    async with working(queue, spend, server_url, token_limit=limit):
        for job in [await queue.add("spend", 500) for _ in range(3)]:
            await job.wait(SOON)
        key = queue.keys.tokens(now_ms() // HOUR_MS)
        assert raw.get(key) == "1500"
        assert 0 < raw.pttl(key) <= HOUR_MS
        travel(HOUR)
        await (await queue.add("spend", 7)).wait(SOON)
        assert raw.get(queue.keys.tokens(now_ms() // HOUR_MS)) == "7"


async def test_usage_counts_too_and_the_greater_number_holds(queue: AsyncQueue, server_url: str, raw: Any) -> None:
    def ask(job: ActiveJob) -> None:
        job.report_tokens(10)
        job.report_usage(Usage(tokens={"input": 30.5, "output": 5}))

    async with working(queue, ask, server_url, token_limit=TokenLimit(max_tokens=1000, duration=HOUR)):
        await (await queue.add("ask")).wait(SOON)
    assert raw.get(queue.keys.tokens(now_ms() // HOUR_MS)) == "36", "part of a token is a token"


@pytest.mark.parametrize("scope", ["worker", "queue", "both"])
async def test_no_job_starts_when_the_tokens_are_spent_until_the_window_is_over(
    queue: AsyncQueue, server_url: str, raw: Any, scope: str
) -> None:
    limit = TokenLimit.model_validate({"max_tokens": 1000, "duration": HOUR, "scope": scope})
    ended: list[str] = []

    async def spend(job: AsyncActiveJob) -> None:
        await job.report_tokens(500)
        ended.append(job.id)

    await queue.add_bulk([NewJob("spend")] * 5)
    async with working(queue, spend, server_url, token_limit=limit):
        for window, allowed in enumerate((2, 4, 5)):
            travel(window * HOUR)
            await wait_until(lambda: len(ended) >= allowed, "the jobs of this window")  # noqa: B023  at once
            await rounds(raw)
            assert len(ended) == allowed
    assert bool(raw.keys(f"{queue.keys.base}:tpm:*")) == (scope != "worker")


@pytest.mark.parametrize(("scope", "starts"), [("worker", 1), ("queue", 0)])
async def test_the_scope_says_whose_tokens_count(
    queue: AsyncQueue, server_url: str, raw: Any, scope: str, starts: int
) -> None:
    raw.set(queue.keys.tokens(now_ms() // HOUR_MS), 1000, px=HOUR_MS)
    limit = TokenLimit.model_validate({"max_tokens": 1000, "duration": HOUR, "scope": scope})
    await queue.add("spend", 5)
    async with working(queue, spend, server_url, token_limit=limit):
        await rounds(raw)
        await wait_until(lambda: raw.zcard(queue.keys.completed) == starts, "the job to run, if it may")


async def test_tokens_of_the_queue_count_only_as_the_queue_has_them(
    queue: AsyncQueue, server_url: str, raw: Any
) -> None:
    limit = TokenLimit(max_tokens=5, duration=HOUR, scope="queue")
    async with working(queue, spend, server_url, token_limit=limit):
        await (await queue.add("spend", 5)).wait(SOON)
        raw.delete(queue.keys.tokens(now_ms() // HOUR_MS))
        await (await queue.add("spend", 5)).wait(SOON)


async def test_a_job_is_done_even_if_its_tokens_cannot_be_counted(
    queue: AsyncQueue, server_url: str, raw: Any, caplog: pytest.LogCaptureFixture
) -> None:
    raw.set(queue.keys.tokens(now_ms() // HOUR_MS), "many", px=HOUR_MS)
    async with working(queue, spend, server_url, token_limit=TokenLimit(max_tokens=1000, duration=HOUR)):
        await (await queue.add("spend", 5)).wait(SOON)
    assert "could not be counted" in caplog.text


# -- Budgets


async def with_budget(queue: AsyncQueue, budget: Budget, *data: Any) -> list[AsyncJob]:
    """A flow's children, in the order in which they may start a minute from now; its root waits for them."""
    root = await queue.add("root", options=JobOptions(delay=HOUR, job_id="root"))
    later = JobOptions(delay=timedelta(minutes=1))
    jobs = [await queue.add("ask", value, later, parent=root.ref) for value in data]
    await queue.usage.set_budget(root.id, budget)
    return jobs


async def ask(job: AsyncActiveJob) -> None:
    """A handler that reports the usage it was told to."""
    await job.report_usage(Usage(**job.data))


async def test_the_children_of_a_flow_without_budget_left_fail_unrun(
    queue: AsyncQueue, server_url: str, raw: Any
) -> None:
    starts = Starts()
    jobs = await with_budget(queue, Budget(max_tokens=5), 1, 2)
    key = queue.keys.budget("root")
    assert raw.hget(key, "onExceeded") == "fail"
    assert {raw.hget(queue.keys.job(job.id), "budgetKey") for job in jobs} == {key}
    raw.hset(key, "exceeded", 1)
    heard: list[WorkerEvent] = []
    async with working(queue, starts, server_url) as worker:
        worker.subscribe(heard.append)
        travel(timedelta(minutes=1))
        for job in jobs:
            with pytest.raises(JobFailedError, match=r"Budget exceeded$"):
                await job.wait(SOON)
    assert starts.jobs == []
    exceeded = [event.job.id for event in heard if event.type is WorkerEventType.BUDGET_EXCEEDED and event.job]
    assert sorted(exceeded) == sorted(job.id for job in jobs)


async def test_the_job_that_spends_the_rest_completes_and_the_next_one_fails(
    queue: AsyncQueue, server_url: str, raw: Any
) -> None:
    budget = Budget(max_tokens=100, token_weights={"output": 2})
    first, second = await with_budget(
        queue, budget, {"tokens": {"input": 41, "output": 30}, "costs": {"all": 0.25}}, {"tokens": {"input": 1}}
    )
    heard: list[WorkerEventType] = []
    async with working(queue, ask, server_url) as worker:
        worker.subscribe(lambda event: heard.append(event.type))
        travel(timedelta(minutes=1))
        await first.wait(SOON)
        with pytest.raises(JobFailedError, match="Budget exceeded"):
            await second.wait(SOON)
    state = await queue.usage.budget("root")
    assert state is not None
    assert (state.tokens, state.cost, state.is_exceeded) == (101, 0.25, True)
    assert dict(state.tokens_by) == {"input": 41, "output": 30}
    assert heard.count(WorkerEventType.BUDGET_EXCEEDED) == 2


@pytest.mark.parametrize(
    ("budget", "used"),
    [
        (Budget(max_tokens_by={"output": 5}), {"tokens": {"output": 6}}),
        (Budget(max_cost=1), {"total_cost": 1.5}),
        (Budget(max_cost_by={"all": 1}), {"costs": {"all": 1.5}}),
        (Budget(max_tokens=5), {"total_tokens": 6}),
    ],
)
async def test_every_bound_of_a_budget_holds(
    queue: AsyncQueue, server_url: str, raw: Any, budget: Budget, used: dict[str, Any]
) -> None:
    (job,) = await with_budget(queue, budget, used)
    async with working(queue, ask, server_url):
        travel(timedelta(minutes=1))
        await job.wait(SOON)
    assert raw.hget(queue.keys.budget("root"), "exceeded") == "1"


async def test_jobs_of_a_budget_that_pauses_are_put_off_for_a_day_without_losing_an_attempt(
    queue: AsyncQueue, server_url: str, raw: Any
) -> None:
    starts = Starts()
    (job,) = await with_budget(queue, Budget(max_tokens=5, on_exceeded="pause"), 1)
    raw.hset(queue.keys.budget("root"), "exceeded", 1)
    day = timedelta(days=1)
    async with working(queue, starts, server_url):
        travel(timedelta(minutes=1))
        at_ms = now_ms()
        await wait_until(lambda: (raw.zscore(queue.keys.scheduled, job.id) or 0) > at_ms + 80_000_000, "a put-off job")
        put_off_ms = raw.zscore(queue.keys.scheduled, job.id) - at_ms
        assert -10 <= put_off_ms - day.total_seconds() * 1000 < 60_000
        assert (await job.refresh()).attempts_made == 0
        assert (await queue.usage.set_budget("root", Budget(max_tokens=50))).is_exceeded is False
        travel(day + timedelta(minutes=2))
        await job.wait(SOON)
    assert starts.jobs.count("ask") == 1


async def test_a_job_is_done_even_if_its_budget_cannot_be_charged(
    queue: AsyncQueue, server_url: str, raw: Any, caplog: pytest.LogCaptureFixture
) -> None:
    (job,) = await with_budget(queue, Budget(max_tokens=5), {"total_tokens": 6})
    raw.hset(queue.keys.budget("root"), "usedTokens", "many")
    async with working(queue, ask, server_url):
        travel(timedelta(minutes=1))
        await job.wait(SOON)
    assert "was not charged" in caplog.text


async def test_a_job_waits_while_its_budget_cannot_be_asked_for(
    queue: AsyncQueue, server_url: str, raw: Any, caplog: pytest.LogCaptureFixture
) -> None:
    (job,) = await with_budget(queue, Budget(max_tokens=5), {})
    key = queue.keys.budget("root")
    raw.delete(key)
    raw.set(key, "no hash")
    async with working(queue, ask, server_url):
        travel(timedelta(minutes=1))
        await wait_until(lambda: "budget could not be read" in caplog.text, "the failure to be told")
        raw.delete(key)
        await job.wait(SOON)
    assert job.record.attempts_made == 0
