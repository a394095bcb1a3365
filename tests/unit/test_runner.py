"""A runner brings every run to exactly one outcome, whatever its handler does."""

from __future__ import annotations

import asyncio
import functools
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, cast

import pytest

from orchestration_queue.errors import RateLimitError, UnrecoverableError
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.lease import Completion, Failure, Lease, Postponement, Settlement
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import AsyncConnection
from orchestration_queue.worker import (
    ActiveJob,
    AsyncActiveJob,
    CallNext,
    Handler,
    JobInterrupt,
    Router,
    turns,
)
from orchestration_queue.worker import runner as module
from orchestration_queue.worker.runner import Runner
from orchestration_queue.worker.threads import Threads
from tests.waiting import wait_until

NO_CONNECTION = cast(AsyncConnection, None)
"""None of these handlers speaks with a server."""


@pytest.fixture
def threads() -> Iterator[Threads]:
    threads = Threads(2)
    yield threads
    threads.shutdown()


class Run:
    """Runs one job, and keeps what was told."""

    def __init__(self, threads: Threads, handler: Handler | Router, **options: Any) -> None:
        self.runner = Runner(handler, QueueKeys("q"), NO_CONNECTION, threads, **options)
        self.told: list[Settlement] = []
        self.given_up: set[Lease] = set()

    def begin(self, attempts_made: int = 0, **options: Any) -> asyncio.Task[None]:
        fields = {"name": "work", "opts": json.dumps(options), "attemptsMade": str(attempts_made)}
        self.lease = Lease(JobRecord("1", {**fields, "processedOn": "1700000000000"}), "1-1")
        return asyncio.create_task(self.runner.run(self.lease, self.told.append, self.given_up))

    async def outcome(self, attempts_made: int = 0, **options: Any) -> Settlement:
        await self.begin(attempts_made, **options)
        (outcome,) = self.told
        return outcome

    async def failure(self, attempts_made: int = 0, **options: Any) -> Failure:
        outcome = await self.outcome(attempts_made, **options)
        assert isinstance(outcome, Failure)
        return outcome


def both_ways(act: Callable[[], Any]) -> list[Any]:
    """A handler on the loop and one in a thread that do the same."""

    async def on_loop(_: AsyncActiveJob) -> Any:
        return act()

    def in_thread(_: ActiveJob) -> Any:
        return act()

    return [pytest.param(on_loop, id="loop"), pytest.param(in_thread, id="thread")]


def raising(error: BaseException) -> Callable[[], Any]:
    def act() -> Any:
        raise error

    return act


class ForeignError(Exception):
    __qualname__ = "UnrecoverableError"


ForeignError.__name__ = "UnrecoverableError"


# Interrupts, rate limits and errors


@pytest.mark.parametrize("limit_ms", [None, 60_000])
@pytest.mark.parametrize("handler", both_ways(raising(JobInterrupt(lambda lease: Postponement(lease, 7)))))
async def test_an_interrupt_settles_the_job(threads: Threads, handler: Handler, limit_ms: int) -> None:
    run = Run(threads, handler)
    assert await run.outcome(timeout=limit_ms) == Postponement(run.lease, 7)


async def test_an_interrupt_that_cannot_be_settled_fails_the_attempt(threads: Threads) -> None:
    async def handler(_: AsyncActiveJob) -> None:
        raise JobInterrupt(lambda lease: Postponement(lease, int("soon")))

    failure = await Run(threads, handler).failure(attempts=3)
    assert failure.reason.startswith("ValueError: invalid literal")
    assert failure.max_attempts == 3


@pytest.mark.parametrize(
    ("delay", "delay_ms"),
    [(None, 2500), (timedelta(seconds=9), 9000), (timedelta(0), 0), (timedelta(seconds=-4), 0)],
    ids=str,
)
async def test_a_rate_limit_is_always_tried_again_and_the_worker_hears_of_it(
    threads: Threads, delay: timedelta | None, delay_ms: int
) -> None:
    async def handler(_: AsyncActiveJob) -> None:
        raise RateLimitError(delay)

    pauses: list[int] = []
    run = Run(threads, handler, rate_limit_delay=timedelta(seconds=2.5), on_rate_limit=pauses.append)
    failure = await run.failure(attempts_made=4, attempts=1)
    assert (failure.reason, failure.max_attempts, failure.backoff_ms) == ("rate limited", 6, delay_ms)
    assert pauses == [delay_ms]


@pytest.mark.parametrize("error", [UnrecoverableError("never"), ForeignError("never")], ids=repr)
async def test_an_unrecoverable_error_is_known_by_its_name(threads: Threads, error: Exception) -> None:
    async def handler(_: AsyncActiveJob) -> None:
        raise error

    assert (await Run(threads, handler).failure(attempts=5)).max_attempts == 0


async def test_a_discarded_job_is_not_tried_again(threads: Threads) -> None:
    async def handler(job: AsyncActiveJob) -> None:
        job.discard()
        raise ValueError("no")

    failure = await Run(threads, handler).failure(attempts=5, backoff={"type": "fixed", "delay": 100})
    assert (failure.reason, failure.max_attempts, failure.backoff_ms) == ("ValueError: no", 0, 0)


@pytest.mark.parametrize("limit_ms", [None, 60_000])
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (SystemExit(3), "RuntimeError: the handler called exit (SystemExit(3))"),
        (KeyboardInterrupt(), "RuntimeError: the handler called exit (KeyboardInterrupt())"),
        (asyncio.CancelledError(), "RuntimeError: the handler was cancelled"),
        (TimeoutError("their time, not ours"), "their time, not ours"),
    ],
    ids=repr,
)
async def test_no_exception_of_a_coroutine_ends_the_worker(
    threads: Threads, error: BaseException, reason: str, limit_ms: int | None
) -> None:
    async def handler(_: AsyncActiveJob) -> None:
        raise error

    assert (await Run(threads, handler).failure(timeout=limit_ms)).reason == reason


async def test_a_stop_iteration_comes_out_of_a_thread(threads: Threads) -> None:
    def handler(_: ActiveJob) -> None:
        raise StopIteration("empty")

    reason = "RuntimeError: the handler raised StopIteration('empty')"
    assert (await asyncio.wait_for(Run(threads, handler).failure(), 60)).reason == reason


class _Callable:
    async def __call__(self, job: AsyncActiveJob) -> str:
        return threading.current_thread().name


async def _with_two(job: AsyncActiveJob, _other: int) -> str:
    return threading.current_thread().name


@pytest.mark.parametrize("handler", [_Callable(), functools.partial(_with_two, _other=1)], ids=["object", "partial"])
async def test_what_makes_a_coroutine_runs_on_the_loop(threads: Threads, handler: Handler) -> None:
    run = Run(threads, handler)
    assert await run.outcome() == Completion(run.lease, f'"{threading.current_thread().name}"')


# Backoff strategies


@pytest.mark.parametrize(
    ("strategy", "wait_ms"),
    [
        (lambda failures, error: timedelta(seconds=failures * len(str(error))), 9000),
        (lambda failures, error: timedelta(days=-1), 0),
        (lambda failures, error: timedelta.max, 3650 * 86_400_000),
        (lambda failures, error: failures / 0, 100),
        (lambda failures, error: None, 100),
        (lambda failures, error: 500, 100),
        (lambda failures: timedelta(0), 100),
    ],
    ids=["used", "negative", "endless", "raises", "nothing", "no timedelta", "takes too little"],
)
async def test_a_strategy_says_how_long_to_wait_and_no_nonsense_of_it_loses_the_outcome(
    threads: Threads, strategy: Any, wait_ms: int
) -> None:
    async def handler(_: AsyncActiveJob) -> None:
        raise ValueError("bad")

    run = Run(threads, handler, strategies={"steady": strategy})
    failure = await run.failure(2, attempts=5, backoff={"type": "steady", "delay": 100, "jitter": 0})
    assert (failure.reason, failure.backoff_ms) == ("ValueError: bad", wait_ms)


async def test_a_strategy_ignores_jitter_and_another_type_is_a_fixed_delay(threads: Threads) -> None:
    async def handler(_: AsyncActiveJob) -> None:
        raise ValueError("bad")

    strategies = {"steady": lambda failures, error: timedelta(seconds=1)}
    for kind, jitter, wait_ms in (("steady", 1, 1000), ("other", 0, 100)):
        run = Run(threads, handler, strategies=strategies)
        failure = await run.failure(3, attempts=9, backoff={"type": kind, "delay": 100, "jitter": jitter})
        assert failure.backoff_ms == wait_ms


async def test_a_backoff_that_no_worker_here_knows_waits_for_its_delay_and_is_logged(
    threads: Threads, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(_: AsyncActiveJob) -> None:
        raise ValueError("bad")

    for kind, said in (("other", 1), ("steady", 0), ("fixed", 0), ("exponential", 0)):
        caplog.clear()
        run = Run(threads, handler, strategies={"steady": lambda failures, error: timedelta(seconds=1)})
        await run.failure(attempts=5, backoff={"type": kind, "delay": 100})
        assert caplog.text.count("not among this worker's strategies; its stored delay is used") == said


async def test_a_strategy_is_not_asked_after_the_last_attempt(threads: Threads) -> None:
    async def handler(_: AsyncActiveJob) -> None:
        raise UnrecoverableError("never")

    asked: list[int] = []
    run = Run(threads, handler, strategies={"steady": lambda failures, _: asked.append(failures)})
    await run.failure(attempts=5, backoff={"type": "steady", "delay": 100})
    assert asked == []


# Middleware


async def test_middleware_is_wrapped_around_the_run_outermost_first(threads: Threads) -> None:
    seen: list[str] = []

    def named(name: str) -> Any:
        async def middleware(job: AsyncActiveJob, call_next: CallNext) -> Any:
            seen.append(f"{name} before {job.id}")
            result = await call_next()
            seen.append(f"{name} after")
            return [name, result]

        return middleware

    def handler(_: ActiveJob) -> str:
        seen.append("handler")
        return "done"

    run = Run(threads, handler, middleware=[named("a"), named("b")], around=lambda record: [named(record.name)])
    outcome = await run.outcome()
    assert outcome == Completion(run.lease, '["work",["a",["b","done"]]]')
    assert seen == ["work before 1", "a before 1", "b before 1", "handler", "b after", "a after", "work after"]


async def test_a_middlewares_error_fails_the_attempt(threads: Threads) -> None:
    async def refuse(_job: AsyncActiveJob, _call_next: CallNext) -> Any:
        raise PermissionError("not today")

    async def handler(_: AsyncActiveJob) -> None:
        raise AssertionError("never called")

    assert (await Run(threads, handler, middleware=[refuse]).failure()).reason == "PermissionError: not today"


@pytest.mark.parametrize("handler", both_ways(lambda: "done"))
async def test_waiting_in_middleware_does_not_count_as_the_handlers_time(threads: Threads, handler: Handler) -> None:
    loop, waited = asyncio.get_running_loop(), [0]
    real_time = loop.time
    loop.time = lambda: real_time() + waited[0]  # type: ignore[method-assign]  # an hour passes when we say so

    async def wait(_job: AsyncActiveJob, call_next: CallNext) -> Any:
        waited[0] += 3600
        await asyncio.sleep(0.001)  # whatever had been due within the hour, happens
        return await call_next()

    run = Run(threads, handler, middleware=[wait])
    assert await run.outcome(timeout=60_000) == Completion(run.lease, '"done"')


# Time limits, and what must stop


async def test_a_coroutine_over_its_time_is_cancelled_and_may_clean_up(threads: Threads) -> None:
    ended: list[str] = []

    async def handler(job: AsyncActiveJob) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(f"must stop: {job.should_stop}")

    assert (await Run(threads, handler).failure(timeout=20)).reason == "Job timeout exceeded"
    assert ended == ["must stop: True"]


async def test_a_coroutine_that_blocks_the_loop_for_longer_than_its_timeout_fails_and_is_named(
    threads: Threads, caplog: pytest.LogCaptureFixture
) -> None:
    async def crunch(_: AsyncActiveJob) -> str:
        await asyncio.sleep(0)
        time.sleep(0.3)  # noqa: ASYNC251  what must not be done, and is
        return "done"

    failure = await Run(threads, crunch).failure(timeout=100)
    assert (failure.reason, failure.kind) == ("Job timeout exceeded", "timeout")
    (told,) = [record.getMessage() for record in caplog.records if "blocked" in record.getMessage()]
    assert re.match(r"Job '1' \('work'\) of queue q: \S+crunch blocked the event loop for 0\.[3-9] s, ", told)


async def test_a_coroutine_that_blocks_the_loop_within_its_timeout_is_named(
    threads: Threads, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "_LONG_S", 0.01)

    async def crunch(_: AsyncActiveJob) -> str:
        time.sleep(0.02)  # noqa: ASYNC251  what must not be done, and is
        await asyncio.sleep(0)
        return "done"

    run = Run(threads, crunch)
    assert await run.outcome(timeout=600_000) == Completion(run.lease, '"done"')
    assert "crunch blocked the event loop" in caplog.text


async def test_a_coroutine_that_another_kept_waiting_is_not_blamed(threads: Threads) -> None:
    started = asyncio.Event()

    async def wait(_: AsyncActiveJob) -> str:
        started.set()
        await asyncio.sleep(0.05)
        return "done"

    run = Run(threads, wait)
    running = run.begin(timeout=100)
    await started.wait()
    time.sleep(0.3)  # noqa: ASYNC251  as another handler
    await running
    assert run.told == [Completion(run.lease, '"done"')]


async def test_a_function_that_ends_too_late_fails_though_the_loop_was_blocked_meanwhile(
    threads: Threads,
) -> None:
    ended = threading.Event()

    def crunch(_: ActiveJob) -> str:
        time.sleep(0.2)
        ended.set()
        return "done"

    run = Run(threads, crunch)
    running = run.begin(timeout=100)
    for _ in range(3):
        await asyncio.sleep(0)  # it is submitted
    assert ended.wait(60)
    await running
    assert [cast(Failure, told).reason for told in run.told] == ["Job timeout exceeded"]


async def test_a_coroutine_that_swallows_its_cancellation_keeps_its_place_but_not_its_job(
    threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CLEANUP_S", 0.05)
    release = asyncio.Event()

    async def handler(_: AsyncActiveJob) -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        raise ValueError("too late to matter")

    run = Run(threads, handler)
    running = run.begin(timeout=20)
    await wait_until(lambda: run.told, "the outcome to be told")
    assert not running.done()
    release.set()
    await asyncio.wait_for(running, 60)
    assert [cast(Failure, told).reason for told in run.told] == ["Job timeout exceeded"]


@pytest.mark.parametrize("limit", [{}, {"timeout": 60_000}], ids=["unlimited", "limited"])
async def test_a_task_group_that_fails_is_no_cancellation_by_the_worker(
    threads: Threads, limit: dict[str, int]
) -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("no good")

    async def handler(job: AsyncActiveJob) -> str:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
        except* ValueError:
            if job.attempt > 1:
                raise
        return "it copes"

    done = await Run(threads, handler).outcome(**limit)
    assert cast(Completion, done).result == '"it copes"'
    failure = await Run(threads, handler).failure(1, **limit)
    assert failure.reason.startswith("ExceptionGroup: unhandled errors in a TaskGroup")


async def test_a_group_of_errors_keeps_its_cause(threads: Threads) -> None:
    async def handler(_: AsyncActiveJob) -> None:
        raise ExceptionGroup("both", [ValueError("no good")]) from KeyError("the cause")

    failure = await Run(threads, handler).failure()
    assert "KeyError: 'the cause'" in failure.traceback


async def test_a_thread_over_its_time_is_asked_to_stop_and_keeps_its_place(threads: Threads) -> None:
    release, asked = threading.Event(), threading.Event()

    def handler(job: ActiveJob) -> None:
        while not release.wait(0.001):
            if job.should_stop:
                asked.set()

    run = Run(threads, handler)
    running = run.begin(timeout=20)
    await wait_until(asked.is_set, "the handler to be asked")
    assert [cast(Failure, told).reason for told in run.told] == ["Job timeout exceeded"]
    assert not running.done()
    release.set()
    await asyncio.wait_for(running, 60)


@pytest.mark.parametrize("limit_ms", [None, 60_000])
@pytest.mark.parametrize("then", ["return", "raise"])
async def test_of_a_run_that_was_given_up_nothing_is_told(threads: Threads, limit_ms: int | None, then: str) -> None:
    started = asyncio.Event()

    async def handler(_: AsyncActiveJob) -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if then == "raise":
                raise ValueError("while cleaning up") from None
        return "swallowed"

    run = Run(threads, handler)
    running = run.begin(timeout=limit_ms)
    await started.wait()
    run.given_up.add(run.lease)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert run.told == []
