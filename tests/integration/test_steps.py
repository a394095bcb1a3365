"""Durable steps: a later attempt continues where the last one ended, on each kind of handler."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncBroadcast, AsyncJob, AsyncQueue
from orchestration_queue.errors import JobFailedError, LeaseLostError, NotFoundError, StateError, UsageError
from orchestration_queue.flows import Node
from orchestration_queue.options import Backoff, JobOptions, Retention, StepOptions
from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.operations.steps import StepKind
from orchestration_queue.server.instrumentation import exchange_hooks
from orchestration_queue.states import JobState
from orchestration_queue.tasks import Tasks
from orchestration_queue.worker import ActiveJob, AsyncActiveJob, BroadcastWorker
from orchestration_queue.worker.sandbox import sandboxed
from tests.integration.sandbox_handlers import (
    VERSIONS,
    grouped,
    grouped_with_an_error,
    stepped,
    stepped_async,
    stepping,
    stepping_on_loop,
)
from tests.processes import OQ, running_process
from tests.waiting import wait_until
from tests.workers import working

SOON = timedelta(seconds=60)
TWICE = JobOptions(attempts=2, backoff=Backoff(type="fixed", delay=0.02))


class NotThereError(Exception):
    """What a step is asked to store."""

    def __init__(self, path: str, code: int) -> None:
        super().__init__(path, code)
        self.code = code


@pytest.fixture
async def queue(server_url: str, queue_name: str, raw: redis.Redis) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        yield queue


def both(work: Callable[..., Any]) -> pytest.MarkDecorator:
    """Parametrize by the handlers of both faces that run the steps `(name, function, options)` of a generator."""

    def in_thread(job: ActiveJob) -> Any:
        steps = work(job)
        try:
            name, function, options = next(steps)
            while True:
                try:
                    result = job.step(name, function, options=options)
                except Exception as error:
                    name, function, options = steps.throw(error)
                else:
                    name, function, options = steps.send(result)
        except StopIteration as end:
            return end.value

    async def on_loop(job: AsyncActiveJob) -> Any:
        steps = work(job)
        try:
            name, function, options = next(steps)
            while True:
                try:
                    result = await job.step(name, function, options=options)
                except Exception as error:
                    name, function, options = steps.throw(error)
                else:
                    name, function, options = steps.send(result)
        except StopIteration as end:
            return end.value

    return pytest.mark.parametrize("handler", [in_thread, on_loop], ids=["sync", "async"])


@pytest.mark.parametrize("handler", [sandboxed(stepped), sandboxed(stepped_async), stepped, stepped_async])
async def test_a_later_attempt_gets_what_the_first_one_stored(queue: AsyncQueue, server_url: str, handler: Any) -> None:
    async with working(queue, handler, server_url):
        job = await queue.add("work", {"pages": 3}, TWICE)
        assert await job.wait(SOON) == {"attempt": 2, "pages": [["page", 0], ["page", 1], ["page", 2]]}
    assert await job.logs() == ["runs page-0", "runs page-1", "fails", "runs page-2"]
    steps = await job.steps()
    assert [(step.name, step.number, step.attempt, step.kind) for step in steps] == [
        ("page-0", 1, 1, StepKind.RETURNED),
        ("page-1", 2, 1, StepKind.RETURNED),
        ("page-2", 3, 2, StepKind.RETURNED),
    ]
    assert all(step.size == len('["page",0]') for step in steps)


async def test_steps_run_side_by_side_and_are_read_in_one_exchange(
    queue: AsyncQueue, server_url: str, raw: redis.Redis
) -> None:
    ran: list[int] = []

    async def square(number: int) -> int:
        ran.append(number)
        await asyncio.sleep(0.01)
        return number * number

    async def work(job: AsyncActiveJob) -> list[int]:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(job.step("first", square, 9))
        squares = await asyncio.gather(*(job.step(f"n-{n}", square, number=n) for n in range(5)))
        if job.attempt == 1:
            raise ValueError("once")
        return [first.result(), *squares]

    async with working(queue, work, server_url):
        assert await (await queue.add("work", options=TWICE)).wait(SOON) == [81, 0, 1, 4, 9, 16]
    assert sorted(ran) == [0, 1, 2, 3, 4, 9]


@both(lambda job: _store_an_error(job))
async def test_an_error_is_a_result_only_if_asked(queue: AsyncQueue, server_url: str, handler: Any) -> None:
    calls.clear()
    async with working(queue, handler, server_url):
        assert await (await queue.add("work", options=TWICE)).wait(SOON) == [404, 2]
    assert calls == ["missing", "flaky", "flaky"]


calls: list[str] = []


def _store_an_error(job: ActiveJob) -> Any:
    def missing() -> None:
        calls.append("missing")
        raise NotThereError("/x", 404)

    def flaky() -> int:
        calls.append("flaky")
        if len(calls) == 2:
            raise ConnectionError("reset")
        return len(calls) - 1

    options = StepOptions(store_errors=(NotThereError,))
    try:
        yield "missing", missing, options
        raise AssertionError
    except NotThereError as error:
        code = error.code
    return [code, (yield "flaky", flaky, options)]


RICH = {"raw": b"\x00\xff", "at": datetime(2013, 1, 31, 12, tzinfo=UTC)}


@both(lambda job: _store_by_codecs(job))
async def test_a_step_has_a_codec_of_its_own(
    queue: AsyncQueue, server_url: str, raw: redis.Redis, handler: Any
) -> None:
    calls.clear()
    async with working(queue, handler, server_url):
        job = await queue.add("work", options=TWICE)
        assert await job.wait(SOON) == "ends"
    assert calls == ["rich", "long", "plain"]
    stored = raw.hmget(queue.keys.steps(job.id), "r:rich", "r:long", "r:plain")
    assert [str(text)[:3] for text in stored] == ["mp:", "gz:", "[1]"]
    assert [step.size for step in await job.steps()] == [len(str(text)) for text in stored]


def _store_by_codecs(job: ActiveJob) -> Any:
    values = {"rich": (RICH, "msgpack"), "long": ("x" * 10_000, "gzip"), "plain": ((1,), "json")}
    for name, (value, codec) in values.items():
        found = yield name, partial(_note, name, value), StepOptions(codec=codec)
        assert found == (value if name != "plain" else [1]), "in the first attempt, too"
    if job.attempt == 1:
        raise ValueError("again")
    return "ends"


def _note(name: str, value: Any) -> Any:
    calls.append(name)
    return value


async def test_what_a_codec_cannot_write_fails_the_job_for_good(queue: AsyncQueue, server_url: str) -> None:
    options = [{"codec": "pickle"}, {"codec": "msgpack"}]

    async def work(job: AsyncActiveJob) -> None:
        await job.step("x", object, options=options.pop(0))

    async with working(queue, work, server_url):
        with pytest.raises(JobFailedError, match="Codec 'pickle' is unknown; use one of json, gzip, msgpack"):
            await (await queue.add("work")).wait(SOON)
        job = await queue.add("work", options=TWICE)
        with pytest.raises(JobFailedError, match="The result of step 'x' cannot be written by the codec 'msgpack'"):
            await job.wait(SOON)
    assert (await job.refresh()).attempts_made == 1


@both(lambda job: _try_again(job))
async def test_a_step_has_attempts_of_its_own(queue: AsyncQueue, server_url: str, handler: Any) -> None:
    calls.clear()
    async with working(queue, handler, server_url):
        job = await queue.add("work", options=TWICE)
        assert await job.wait(SOON) == 3
    assert (await job.refresh()).attempts_made == 0


def _try_again(job: ActiveJob) -> Any:
    def falter() -> int:
        calls.append("x")
        if len(calls) < 3:
            raise ConnectionError("reset")
        return len(calls)

    return (yield "falter", falter, {"attempts": 3, "backoff": {"delay": 0.001}})


@both(lambda job: _use_twice(job))
async def test_a_name_is_used_once(queue: AsyncQueue, server_url: str, handler: Any) -> None:
    async with working(queue, handler, server_url):
        with pytest.raises(JobFailedError, match=r"Step 'page' of job .* was already used in this attempt"):
            await (await queue.add("work")).wait(SOON)


def _use_twice(job: ActiveJob) -> Any:
    try:
        yield "page", lambda: 1 / 0, None
    except ZeroDivisionError:
        yield "page", lambda: 1, None  # nothing was stored yet
    yield "page", lambda: 2, None


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 257, None, 5])
async def test_names_that_no_step_can_have(queue: AsyncQueue, server_url: str, name: Any) -> None:
    async def work(job: AsyncActiveJob) -> Any:
        return await job.step(name, int)

    async with working(queue, work, server_url):
        with pytest.raises(JobFailedError, match="A step's name must be"):
            await (await queue.add("work")).wait(SOON)


@pytest.mark.parametrize("result", [object(), "x" * 2**20, float("nan")], ids=["object", "large", "nan"])
async def test_a_result_that_cannot_be_stored_fails_the_job_for_good(
    queue: AsyncQueue, server_url: str, result: Any
) -> None:
    async with working(queue, lambda job: job.step("big", lambda: result), server_url):
        job = await queue.add("work", options=TWICE)
        with pytest.raises(JobFailedError, match="The result of step 'big'"):
            await job.wait(SOON)
    assert (await job.refresh()).attempts_made == 1


async def test_a_coroutine_can_be_limited_in_time_and_a_thread_cannot(queue: AsyncQueue, server_url: str) -> None:
    async def on_loop(job: AsyncActiveJob) -> Any:
        try:
            await job.step("slow", asyncio.sleep, 60, options={"timeout": 0.01})
        except TimeoutError as error:
            return str(error)

    async with working(queue, on_loop, server_url):
        assert await (await queue.add("work")).wait(SOON) == "Step 'slow' took longer than its timeout of 0.01 s."
    async with working(queue, lambda job: job.step("slow", int, options={"timeout": 5}), server_url):
        with pytest.raises(JobFailedError, match="has a timeout, which needs an event loop"):
            await (await queue.add("work")).wait(SOON)
    async with working(queue, lambda job: job.step("slow", asyncio.sleep, 5), server_url):
        with pytest.raises(JobFailedError, match="has a coroutine function, which needs an event loop"):
            await (await queue.add("work")).wait(SOON)


async def test_an_attempt_that_lost_its_job_stores_nothing(queue: AsyncQueue, server_url: str) -> None:
    begun, ended = threading.Event(), threading.Event()
    told: list[str] = []

    def work(job: ActiveJob) -> Any:
        is_stale = not begun.is_set()
        begun.set()

        def pay() -> str:
            return "late" if is_stale and ended.wait(60) else "in time"

        try:
            return job.step("pay", pay)
        except LeaseLostError as error:
            told.append(str(error))
            raise

    async with working(queue, work, server_url):
        job = await queue.add("work")
        await wait_until(begun.is_set, "the first attempt")
        await job.release()
        assert await job.wait(SOON) == "in time"
        ended.set()
        await wait_until(lambda: told, "the stale attempt to learn of it")
    assert [step.name for step in await job.steps()] == ["pay"]
    assert (await job.refresh()).result == "in time"


async def test_a_job_has_at_most_10000_steps(queue: AsyncQueue, server_url: str, raw: redis.Redis) -> None:
    async def work(job: AsyncActiveJob) -> Any:
        await job.step("first", int)
        fields: Any = {f"{kind}:{n}": "r 1 1 1 1 0 0" for n in range(9_999) for kind in "hr"}
        raw.hset(queue.keys.steps(job.id), mapping=fields)
        return await job.step("last", int)

    async with working(queue, work, server_url):
        with pytest.raises(JobFailedError, match="has 10,000 steps, the most that a job can have"):
            await (await queue.add("work")).wait(SOON)


@pytest.mark.parametrize("version", [None, "2"])
async def test_no_function_runs_whose_result_would_not_fit(
    queue: AsyncQueue, server_url: str, monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    """In the attempt that stores the version, too, which is one of the steps."""
    monkeypatch.setattr("orchestration_queue.worker.steps.MOST_STEPS", 3)
    ran: list[int] = []
    tasks = Tasks()

    @tasks.task(version=version)
    async def work(job: AsyncActiveJob) -> None:
        for number in range(4):
            await job.step(f"n-{number}", ran.append, number)

    async with working(queue, tasks, server_url):
        job = await queue.add("work")
        with pytest.raises(JobFailedError, match="has 10,000 steps, the most"):
            await job.wait(SOON)
    assert ran == ([0, 1] if version else [0, 1, 2])
    assert len(await job.steps()) == 3


async def test_a_gathering_that_does_not_fit_stores_no_call(
    queue: AsyncQueue, server_url: str, raw: redis.Redis
) -> None:
    fields: Any = {f"{kind}:n{n}": f"r {n + 2} 1 1 1 0 0" for n in range(9_850) for kind in "hr"}

    async def work(job: AsyncActiveJob) -> Any:
        await job.step(f"attempt-{job.attempt}", int)
        if job.attempt == 1:
            raw.hset(queue.keys.steps(job.id), mapping=fields)
            raise ValueError("once")
        calls = [Node(f"call-{n}", "work", data={}) for n in range(149)]
        with pytest.raises(StateError, match="has 10,000 steps, the most"):
            await job.gather(*calls)
        assert not raw.exists(queue.keys.deps(job.id))
        return [await job.step(node.name, int) for node in calls[:148]]

    async with working(queue, work, server_url):
        job = await queue.add("work", options=TWICE)
        assert await job.wait(SOON) == [0] * 148
        assert (await queue.counts()).completed == 1, "no job was called"
    assert len(await job.steps()) == 10_000


async def test_a_decorated_function_is_a_step_on_the_loop(queue: AsyncQueue, server_url: str) -> None:
    ran: list[str] = []

    async def work(job: AsyncActiveJob) -> Any:
        @job.step("fetch", options={"attempts": 2, "backoff": {"delay": 0.01}})
        async def fetch(name: str, *, options: str) -> tuple[str, str]:
            ran.append(name)
            if len(ran) == 1:
                raise OSError("once")
            return name, options

        @job.step("count")
        def count(text: str) -> int:
            ran.append("count")
            return len(text)

        assert (fetch.__name__, count.__name__) == ("fetch", "count")
        async with asyncio.TaskGroup() as group:
            fetched = group.create_task(fetch("page", options="all"))
        (counted,) = await asyncio.gather(count("four"))
        if job.attempt == 1:
            raise ValueError("once")
        with pytest.raises(UsageError, match="Step 'count' of job '1' was already used in this attempt"):
            await count("again")
        with pytest.raises(UsageError, match="Step 'sum' has arguments, but no function"):
            job.step("sum", None, 1)  # type: ignore[call-overload]
        return [fetched.result(), counted]

    async with working(queue, work, server_url):
        assert await (await queue.add("work", options=TWICE)).wait(SOON) == [["page", "all"], 4]
    assert ran == ["page", "page", "count"]


async def test_a_decorated_function_is_a_step_in_a_thread(queue: AsyncQueue, server_url: str) -> None:
    ran: list[int] = []

    def work(job: ActiveJob) -> Any:
        pages = []
        for number in range(3):

            @job.step(f"page-{number}")
            def fetch(number: int = number) -> int:
                ran.append(number)
                return number * number

            pages.append(fetch())
        if job.attempt == 1:
            raise ValueError("once")
        return pages

    async with working(queue, work, server_url):
        assert await (await queue.add("work", options=TWICE)).wait(SOON) == [0, 1, 4]
    assert ran == [0, 1, 2]


async def test_steps_are_forgotten_one_or_with_what_follows(queue: AsyncQueue, server_url: str) -> None:
    ran: list[str] = []

    async def work(job: AsyncActiveJob) -> Any:
        for name in "abc":
            await job.step(name, ran.append, name)
        raise ValueError("always")

    async with working(queue, work, server_url):
        job = await queue.add("work")
        with pytest.raises(JobFailedError):
            await job.wait(SOON)
        assert await job.forget_step("b") == 1
        await job.retry()
        with pytest.raises(JobFailedError):
            await job.wait(SOON)
        assert ran == ["a", "b", "c", "b"]
        assert [step.name for step in await job.steps()] == ["a", "c", "b"]
        assert await job.forget_step("c", following=True) == 2
        with pytest.raises(NotFoundError, match="has no stored step 'c'"):
            await job.forget_step("c")
    assert [step.name for step in await job.steps()] == ["a"]


async def test_steps_of_a_running_job_are_not_forgotten(queue: AsyncQueue, server_url: str) -> None:
    stored, forgotten = asyncio.Event(), asyncio.Event()

    async def work(job: AsyncActiveJob) -> None:
        await job.step("a", int)
        stored.set()
        await forgotten.wait()

    async with working(queue, work, server_url):
        job = await queue.add("work")
        await stored.wait()
        with pytest.raises(StateError, match="is running"):
            await job.forget_step("a")
        forgotten.set()
        await job.wait(SOON)


async def test_a_move_carries_steps(queue: AsyncQueue, server_url: str, raw: redis.Redis) -> None:
    ran: list[int] = []

    def fetch(number: int) -> str:
        ran.append(number)
        return "x" * 200_000

    async def work(job: AsyncActiveJob) -> Any:
        results = [await job.step(f"n-{n}", fetch, n) for n in range(12)]
        if job.queue == queue.name:
            raise ValueError("here")
        return len(results)

    async with AsyncQueue(f"{queue.name}-there", url=server_url) as other, working(queue, work, server_url):
        job = await queue.add("work")
        with pytest.raises(JobFailedError):
            await job.wait(SOON)
        moved = await job.move(other.name)
        assert raw.exists(queue.keys.steps(job.id)) == 0
        assert [step.number for step in await moved.steps()] == list(range(1, 13))
        async with working(other, work, server_url):
            await moved.retry()
            assert await moved.wait(SOON) == 12
        await other.obliterate(force=True)
    assert ran == list(range(12))


async def test_what_removes_a_job_removes_its_steps(queue: AsyncQueue, server_url: str, raw: redis.Redis) -> None:
    async with working(queue, lambda job: job.step("a", int), server_url):
        job = await queue.add("work")
        await job.wait(SOON)
        assert raw.exists(queue.keys.steps(job.id))
        await job.remove()
        assert not raw.exists(queue.keys.steps(job.id))
        kept_none = await queue.add("work", options=JobOptions(remove_on_complete=Retention(count=0)))
        await wait_until(lambda: not raw.exists(queue.keys.job(kept_none.id)), "its removal")
    assert not raw.exists(queue.keys.steps(kept_none.id))


async def test_what_another_library_left_of_an_earlier_job_does_not_count(
    queue: AsyncQueue, server_url: str, raw: redis.Redis
) -> None:
    raw.hset(queue.keys.steps("mine"), mapping={"h:a": "r 1 1 1 1 0 1", "r:a": "7", "h:b": "r 2 1 1 1 0 1", "r:b": "7"})
    async with working(queue, lambda job: job.step("a", lambda: "mine"), server_url):
        job = await queue.add("work", options=JobOptions(job_id="mine"))
        assert await job.wait(SOON) == "mine"
    assert [step.name for step in await job.steps()] == ["a"]


async def test_an_outcome_that_another_client_has_damaged_is_named(
    queue: AsyncQueue, server_url: str, raw: redis.Redis
) -> None:
    async def work(job: AsyncActiveJob) -> None:
        await job.step("a", int)
        raise ValueError("always")

    async with working(queue, work, server_url):
        job = await queue.add("work")
        with pytest.raises(JobFailedError):
            await job.wait(SOON)
        raw.hset(queue.keys.steps(job.id), "h:a", "?")
        await job.retry()
        with pytest.raises(JobFailedError, match="The stored step 'a' cannot be read"):
            await job.wait(SOON)
        assert await job.forget_step("a") == 1


async def until(check: Callable[[], Awaitable[object]]) -> None:
    """Return when an awaited answer is true."""
    for _ in range(6_000):
        if await check():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("Waited in vain.")


async def settled_state(queue: AsyncQueue, job_id: str, state: JobState) -> None:
    """Return when the job has this state."""

    async def has_it() -> bool:
        return (await queue.get(job_id)).state is state

    await until(has_it)


def napping(job: ActiveJob) -> Any:
    job.log("runs")
    job.step("before", job.log, "before")
    job.sleep("nap", 0.5)  # a moment that has passed when it is stored costs no second start
    return job.step("after", lambda: job.attempt)


async def napping_on_loop(job: AsyncActiveJob) -> Any:
    await job.log("runs")
    await job.step("before", job.log, "before")
    await job.sleep("nap", timedelta(seconds=0.5))
    return await job.step("after", lambda: job.attempt)


@pytest.mark.parametrize("handler", [napping, napping_on_loop, sandboxed(napping), sandboxed(napping_on_loop)])
async def test_a_sleep_frees_the_slot_and_counts_no_attempt(queue: AsyncQueue, server_url: str, handler: Any) -> None:
    async with working(queue, handler, server_url, concurrency=1):
        job = await queue.add("work", options=TWICE)
        assert await job.wait(SOON) == 1
    assert await job.logs() == ["runs", "before", "runs"]
    assert [step.name for step in await job.steps()] == ["before", "nap", "after"]


@pytest.mark.parametrize("handler", [grouped, sandboxed(grouped)], ids=["loop", "sandbox"])
async def test_a_sleep_in_a_task_group_ends_the_run(queue: AsyncQueue, server_url: str, handler: Any) -> None:
    async with working(queue, handler, server_url):
        job = await queue.add("work")
        assert await job.wait(SOON) == 1
    assert (await job.refresh()).attempts_made == 0
    assert {step.name for step in await job.steps()} == {"nap", "beside"}


async def test_an_error_beside_a_sleep_fails_the_attempt(queue: AsyncQueue, server_url: str) -> None:
    async with working(queue, grouped_with_an_error, server_url):
        with pytest.raises(JobFailedError, match="ExceptionGroup"):
            await (await queue.add("work")).wait(SOON)


async def test_a_job_that_is_started_early_sleeps_on(queue: AsyncQueue, server_url: str) -> None:
    runs: list[int] = []

    async def work(job: AsyncActiveJob) -> None:
        runs.append(job.attempt)
        await job.sleep("night", timedelta(hours=8))

    async with working(queue, work, server_url):
        job = await queue.add("work")
        await settled_state(queue, job.id, JobState.DELAYED)
        until = (await job.steps())[0].until
        await job.promote()
        await wait_until(lambda: len(runs) == 2, "the second run")
        await settled_state(queue, job.id, JobState.DELAYED)
        assert [step.until for step in await job.steps()] == [until]
        await job.forget_step("night")


@pytest.mark.parametrize("behind", [False, True])
async def test_a_machine_whose_clock_is_behind_does_not_start_the_job_again_and_again(
    queue: AsyncQueue, server_url: str, monkeypatch: pytest.MonkeyPatch, behind: bool
) -> None:
    runs: list[int] = []

    async def work(job: AsyncActiveJob) -> None:
        runs.append(job.attempt)
        await job.sleep("nap", 0.01)

    async with working(queue, work, server_url):
        if behind:
            monkeypatch.setattr("orchestration_queue.worker.steps.now_ms", lambda: 1)
        await (await queue.add("work")).wait(SOON)
    assert len(runs) <= 4, "an estimate of the server's time may be a millisecond early"


def asking(job: ActiveJob) -> Any:
    job.log("asks")
    return job.wait_for("approval")["by"]


async def asking_on_loop(job: AsyncActiveJob) -> Any:
    await job.log("asks")
    return (await job.wait_for("approval"))["by"]


@pytest.mark.parametrize("handler", [asking, asking_on_loop, sandboxed(asking)])
async def test_a_job_waits_for_a_signal_by_its_name(queue: AsyncQueue, server_url: str, handler: Any) -> None:
    async with working(queue, handler, server_url, concurrency=1):
        job = await queue.add("work")
        await settled_state(queue, job.id, JobState.SUSPENDED)
        info = await job.suspend_info()
        assert info is not None
        assert info.reason == "Step 'approval' waits for signal 'approval'"
        assert await job.signal("reminder")
        await until(lambda: _asked(job, 2))
        await settled_state(queue, job.id, JobState.SUSPENDED)
        assert await job.signal("approval", {"by": "Zoë"})
        assert await job.wait(SOON) == "Zoë"
    assert (await job.refresh()).attempts_made == 0
    (step,) = await job.steps()
    assert (step.name, step.kind, step.number) == ("approval", StepKind.SIGNALED, 1)
    assert step.duration > timedelta(0), "from its first attempt on"


async def _asked(job: AsyncJob, times: int) -> bool:
    return len(await job.logs()) == times


@pytest.mark.parametrize(("text", "data"), [('{"by":"Zoë"}', {"by": "Zoë"}), ("", None)])
async def test_a_job_waits_for_a_signal_of_a_node_client(
    queue: AsyncQueue, server_url: str, raw: Any, text: str, data: object
) -> None:
    """Its `queue.signal(id, name, data)`, key by key; without data, it sends none."""
    base = f"glide:{{{queue.name}}}"

    async def work(job: AsyncActiveJob) -> Any:
        return [await job.wait_for("approval")]

    async with working(queue, work, server_url):
        job = await queue.add("work")
        await settled_state(queue, job.id, JobState.SUSPENDED)
        own = (f"{base}:job:{job.id}", f"{base}:stream", f"{base}:events", f"{base}:suspended")
        keys = (*own, f"{base}:signals:{job.id}")
        now = str(time.time_ns() // 1_000_000)
        assert raw.fcall("glidemq_signal", len(keys), *keys, job.id, "approval", text, now) == "ok"
        assert await job.wait(SOON) == [data]


async def test_a_signal_that_arrives_during_another_wait_is_kept(queue: AsyncQueue, server_url: str) -> None:
    async def work(job: AsyncActiveJob) -> Any:
        return [await job.wait_for("first"), await job.wait_for("second")]

    async with working(queue, work, server_url):
        job = await queue.add("work")
        for name in ("second", "first"):
            await until(partial(job.signal, name, name))
        assert await job.wait(SOON) == ["first", "second"]


async def test_a_forgotten_wait_waits_for_a_new_signal(queue: AsyncQueue, server_url: str) -> None:
    async def work(job: AsyncActiveJob) -> Any:
        approval = await job.wait_for("approval")
        if approval == "no":
            raise ValueError("refused")
        return approval

    async with working(queue, work, server_url):
        job = await queue.add("work")
        await until(partial(job.signal, "approval", "no"))
        with pytest.raises(JobFailedError, match="refused"):
            await job.wait(SOON)
        await job.retry(from_step="approval")
        await until(partial(job.signal, "approval", "yes"))
        assert await job.wait(SOON) == "yes"


async def test_a_wait_that_was_in_vain_stays_so(queue: AsyncQueue, server_url: str) -> None:
    told: list[str] = []

    async def work(job: AsyncActiveJob) -> Any:
        try:
            await job.wait_for("approval", timeout=0.05)
        except TimeoutError as error:
            told.append(str(error))
        if job.attempt == 1:
            raise ValueError("once more")
        return "refused"

    intervals: dict[str, Any] = dict.fromkeys(("stalled_interval", "promotion_interval"), timedelta(minutes=5))
    async with working(queue, work, server_url, **intervals):
        job = await queue.add("work", options=TWICE)
        assert await job.wait(SOON) == "refused"
    assert told == [told[0]] * 2
    assert told[0].startswith(f"Step 'approval' of job {job.id!r} received no signal 'approval' by 20")
    assert [step.kind for step in await job.steps()] == [StepKind.TIMED_OUT]


async def test_a_name_stays_what_it_was(queue: AsyncQueue, server_url: str) -> None:
    async def work(job: AsyncActiveJob) -> Any:
        if job.attempt == 1:
            await job.step("x", int)
            raise ValueError("again")
        await job.sleep("x", 1)

    async with working(queue, work, server_url):
        with pytest.raises(JobFailedError, match=r"Step 'x' of job .* was a function in an earlier attempt"):
            await (await queue.add("work", options=TWICE)).wait(SOON)


async def test_a_broadcasts_job_has_no_steps(server_url: str, queue_name: str, raw: redis.Redis) -> None:
    told: list[str] = []

    async def work(job: AsyncActiveJob) -> None:
        for use in (job.step("x", int), job.sleep("x", 1), job.wait_for("x"), job.call("x", "y")):
            try:
                await use
            except UsageError as error:
                told.append(str(error))

    worker = BroadcastWorker(queue_name, work, subscription="s", start_from="0", url=server_url)
    async with AsyncBroadcast(queue_name, url=server_url) as broadcast:
        await broadcast.publish("subject", {})
        running = asyncio.ensure_future(worker.run())
        await wait_until(lambda: len(told) == 4, "the message")
        worker.stop()
        await asyncio.wait_for(running, 60)
    assert all("of broadcast" in text and "can't have steps" in text for text in told)


@pytest.fixture
def sent() -> Iterator[list[str]]:
    """The names of all commands about steps, in order."""
    names: list[str] = []

    def note(calls: Sequence[Call], _seconds: float, _failed: object) -> None:
        about = [call for call in calls if call.name == "oq1_storeStep" or ":steps:" in (call.first_key or "")]
        names.extend(call.name for call in about)

    exchange_hooks.append(note)
    yield names
    exchange_hooks.remove(note)


@pytest.mark.parametrize("emits", [False, True], ids=["", "events"])
async def test_a_step_costs_one_command_and_a_page_of_stored_ones_two(
    queue: AsyncQueue, server_url: str, raw: redis.Redis, sent: list[str], emits: bool
) -> None:
    """Whether an event says so or not. An attempt without steps costs none for them."""

    async def work(job: AsyncActiveJob) -> None:
        sent.clear()
        for number in range(20):
            await job.step(f"n-{number}", int)
        counted.append([*sent])
        if job.attempt < 3:
            raise ValueError("again")

    counted: list[list[str]] = []
    options = JobOptions(attempts=3, backoff=Backoff(type="fixed", delay=0.01))
    intervals: dict[str, Any] = dict.fromkeys(("stalled_interval", "promotion_interval", "lease"), timedelta(minutes=5))
    async with working(queue, work, server_url, emit_step_events=emits, **intervals):
        await (await queue.add("work", options=options)).wait(SOON)
    assert len(step_events(raw, queue)) == (20 if emits else 0)
    assert counted == [["oq1_storeStep"] * 20, ["HSCAN", "HMGET"], ["HSCAN", "HMGET"]]


def step_events(raw: Any, queue: AsyncQueue) -> list[dict[str, str]]:
    """The events of steps so far."""
    return [fields for _, fields in raw.xrange(queue.keys.events) if fields["event"] == "step"]


@pytest.mark.parametrize("handler", [stepping_on_loop, sandboxed(stepping)], ids=["loop", "sandbox"])
async def test_each_step_that_ends_or_sleeps_is_an_event_if_asked(
    queue: AsyncQueue, server_url: str, raw: redis.Redis, handler: Any
) -> None:
    """As many as statistics count: a wait has none before its signal, which comes after this attempt."""
    async with working(queue, handler, server_url, emit_step_events=True):
        job = await queue.add("work", options=TWICE)
        await job.wait(SOON)
    told = step_events(raw, queue)
    assert [tuple(event[name] for name in ("jobId", "step", "kind", "attempt")) for event in told] == [
        *((job.id, f"n-{number}", "returned", "1") for number in range(3)), (job.id, "nap", "sleeps", "1"),
    ]  # fmt: skip
    assert all(int(event["duration"]) >= 0 for event in told)


async def test_a_command_s_worker_emits_events_if_asked(queue: AsyncQueue, server_url: str, raw: redis.Redis) -> None:
    handler = "tests.integration.sandbox_handlers:stepping_on_loop"
    with running_process([OQ, "worker", handler, "--queue", queue.name, "--step-events"], server_url):
        await (await queue.add("work", options=TWICE)).wait(SOON)
    assert len(step_events(raw, queue)) == 4


async def test_a_wait_is_an_event_once_it_has_ended(queue: AsyncQueue, server_url: str, raw: redis.Redis) -> None:
    async def work(job: AsyncActiveJob) -> Any:
        with suppress(TimeoutError):
            await job.wait_for("never", timeout=0.01)
        called = await job.call("it", "part")
        return [called, await job.wait_for("approval")]

    tasks = Tasks()
    tasks.task(name="work")(work)
    tasks.task(name="part")(lambda: 1)
    async with working(queue, tasks, server_url, emit_step_events=True):
        job = await queue.add("work")
        await until(partial(job.signal, "approval", "yes"))
        assert await job.wait(SOON) == [1, "yes"]
    assert [(event["step"], event["kind"]) for event in step_events(raw, queue)] == [
        ("never", "timed_out"), ("it", "completed"), ("approval", "signaled"),
    ]  # fmt: skip


@pytest.mark.parametrize("handler", [stepping_on_loop, sandboxed(stepping)], ids=["loop", "sandbox"])
async def test_statistics_count_stored_steps(queue: AsyncQueue, server_url: str, handler: Any) -> None:
    async with working(queue, handler, server_url):
        job = await queue.add("work", options=TWICE)
        await job.wait(SOON)
    today = await queue.statistics()
    if not today.tasks:  # midnight has passed meanwhile
        today = await queue.statistics(today.day - timedelta(days=1))
    assert (today.tasks["work"].steps, today.all.steps) == (4, 4)


async def test_a_handler_without_steps_sends_nothing_for_them(
    queue: AsyncQueue, server_url: str, raw: redis.Redis, sent: list[str]
) -> None:
    async def work(job: AsyncActiveJob) -> None:
        if job.attempt == 1:
            raise ValueError("again")

    async with working(queue, work, server_url):
        job = await queue.add("work", options=TWICE)
        await job.wait(SOON)
    assert sent == []
    assert "steps" not in raw.hkeys(queue.keys.job(job.id))


async def test_code_of_another_version_fails_a_job_that_has_steps(queue: AsyncQueue, server_url: str) -> None:
    def make(version: str | None) -> Tasks:
        tasks = Tasks()

        @tasks.task(version=version)
        async def work(job: AsyncActiveJob) -> Any:
            await job.step("a", int)
            if version != "3":
                raise ValueError("a bug")
            return version

        return tasks

    async with working(queue, make(None), server_url):
        job = await queue.add("work")
        with pytest.raises(JobFailedError, match="a bug"):
            await job.wait(SOON)
    async with working(queue, make("2"), server_url):
        await job.retry()  # steps without a version get the next one
        with pytest.raises(JobFailedError, match="a bug"):
            await job.wait(SOON)
    assert [(step.name, step.kind) for step in await job.steps()] == [
        ("a", StepKind.RETURNED), ("oq.version", StepKind.RETURNED),
    ]  # fmt: skip
    async with working(queue, make("3"), server_url):
        await job.retry()
        with pytest.raises(JobFailedError, match=r"Version '2' of the code has stored steps of job .* has version '3'"):
            await job.wait(SOON)
        await job.forget_step("oq.version")
        await job.retry()
        assert await job.wait(SOON) == "3"


@pytest.mark.parametrize("new", ["2", "2 in a process"])
async def test_a_job_of_another_version_waits_for_its_own_workers(queue: AsyncQueue, server_url: str, new: str) -> None:
    async with working(queue, VERSIONS["1"], server_url):
        job = await queue.add("work")
        await settled_state(queue, job.id, JobState.SUSPENDED)
    async with working(queue, VERSIONS[new], server_url):
        await until(partial(job.signal, "go"))
        await settled_state(queue, job.id, JobState.DELAYED)
    async with working(queue, VERSIONS["1"], server_url):
        assert await job.wait(SOON) == "by version 1"
    assert (await job.refresh()).attempts_made == 0


def test_a_version_is_text() -> None:
    tasks = Tasks()
    with pytest.raises(UsageError, match="A code's version must be 1 to 100 printable characters, got 2"):
        tasks.task(version=2)  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="must be 'fail' or 'wait', got 'run'"):
        tasks.task(version="2", other_versions="run")  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="`other_versions` is given without `version`"):
        tasks.task(other_versions="wait")


async def test_the_step_of_the_version_is_reserved(queue: AsyncQueue, server_url: str) -> None:
    async with working(queue, lambda job: job.step("oq.version", int), server_url):
        with pytest.raises(JobFailedError, match="has the version of the code"):
            await (await queue.add("work")).wait(SOON)
