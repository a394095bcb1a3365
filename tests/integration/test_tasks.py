"""Tasks with real workers: typed calls and results, what providers make, middleware, and logs that reach the job."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import date, timedelta
from typing import Any

import pytest
import redis
from pydantic import BaseModel

from orchestration_queue.client import AsyncFlowProducer, AsyncQueue, Queue
from orchestration_queue.errors import JobFailedError, PayloadError
from orchestration_queue.flows import Dag
from orchestration_queue.options import Backoff, JobOptions
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.tasks import Depends, JobFields, JobLogs, JsonLines, Tasks, current_job
from orchestration_queue.worker import ActiveJob, AsyncActiveJob, CallNext, Worker
from tests import isolated
from tests.waiting import wait_until
from tests.workers import QUICK

pytestmark = pytest.mark.usefixtures("raw")


class Report(BaseModel):
    day: date
    rows: int


@pytest.fixture
async def tasks(server_url: str, queue_name: str) -> AsyncIterator[Tasks]:
    with Tasks(queue_name, url=server_url) as tasks:
        async with tasks:
            yield tasks


@asynccontextmanager
async def working(tasks: Tasks, queue: str, url: str) -> AsyncIterator[Worker]:
    worker = Worker(queue, tasks, url=url, options=QUICK)
    running = asyncio.ensure_future(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(running, 60)


async def test_a_call_arrives_typed_and_so_does_its_result(tasks: Tasks, queue_name: str, server_url: str) -> None:
    @tasks.task
    async def count(day: date, rows: int = 7) -> Report:
        return Report(day=day, rows=rows)

    @tasks.task
    def count_in_thread(job: ActiveJob, day: date) -> Report:
        return Report(day=day, rows=job.attempt)

    day = date(2013, 1, 31)
    async with working(tasks, queue_name, server_url):
        job = await count.aio.add(day, rows=3)
        assert await job.wait() == Report(day=day, rows=3)
        assert (job.is_new, job.queue) == (True, queue_name)
        in_thread = await asyncio.to_thread(count_in_thread.add, day=day)
        assert await asyncio.to_thread(in_thread.wait, 60) == Report(day=day, rows=1)
        assert (await count.track(job).wait()).rows == 3


async def test_many_go_in_one_call_and_a_queue_takes_them_too(tasks: Tasks, queue_name: str, server_url: str) -> None:
    @tasks.task
    async def double(n: int) -> int:
        return n * 2

    async with working(tasks, queue_name, server_url), AsyncQueue(queue_name, url=server_url) as queue:
        mine = await double.aio.add_bulk(double.job(n) for n in range(3))
        assert [await job.wait() for job in mine] == [0, 2, 4]
        plain = await asyncio.to_thread(double.add_bulk, [double.job(4)])
        assert await asyncio.to_thread(plain[0].wait) == 8
        (other,) = await queue.add_bulk([double.job(5)])
        assert await double.track(other).wait() == 10


async def test_options_and_queue_can_be_said_per_call(
    tasks: Tasks, queue_name: str, server_url: str, raw: redis.Redis
) -> None:
    @tasks.task(options=JobOptions(attempts=3))
    async def double(n: int) -> int:
        return n * 2

    late = double.with_options(JobOptions(delay=timedelta(hours=1), job_id="mine")).with_queue(queue_name + "-late")
    first, second = await late.aio.add(1), await late.aio.add(1)
    assert (first.id, first.is_new, second.is_new) == ("mine", True, False)
    stored = raw.hgetall(QueueKeys(queue_name + "-late").job("mine"))
    assert json.loads(stored["opts"]) == {"attempts": 3, "delay": 3_600_000, "jobId": "mine"}
    assert (stored["name"], json.loads(stored["data"]), stored["state"]) == ("double", {"n": 1}, "delayed")


async def test_attempts_backoff_and_timeout_of_a_task_hold_for_jobs_of_any_producer(
    tasks: Tasks, queue_name: str, server_url: str
) -> None:
    tries: list[str] = []

    @tasks.task(options=JobOptions(attempts=2, backoff=Backoff(type="fixed", delay=timedelta(milliseconds=5))))
    async def fail(job: AsyncActiveJob) -> None:
        tries.append(job.id)
        raise ValueError

    @tasks.task(options=JobOptions(timeout=timedelta(milliseconds=20)))
    async def hang() -> None:
        await asyncio.sleep(600)

    async with AsyncQueue(queue_name, url=server_url) as queue, working(tasks, queue_name, server_url):
        named_only = await queue.add("fail", {})
        of_its_own = await queue.add("fail", {}, JobOptions(attempts=1))
        for job in (named_only, of_its_own):
            with pytest.raises(JobFailedError, match="ValueError"):
                await job.wait(timeout=60)
        hanging = await queue.add("hang", {})
        with pytest.raises(JobFailedError, match="Job timeout exceeded"):
            await hanging.wait(timeout=60)
        await hanging.refresh()
        assert "The limit is 0.02 s, by the option `timeout`" in (hanging.traceback or "")
    assert sorted(tries) == sorted([named_only.id, named_only.id, of_its_own.id])


async def test_nothing_is_sent_when_a_call_does_not_fit(
    tasks: Tasks, queue_name: str, server_url: str, raw: redis.Redis
) -> None:
    @tasks.task
    async def double(n: float) -> float:
        return n * 2

    for bad in ("many", float("nan"), None):
        with pytest.raises((PayloadError, ValueError)):
            await double.aio.add(bad)  # type: ignore[arg-type]  # the point
        with pytest.raises((PayloadError, ValueError)):
            await asyncio.to_thread(double.add, bad)  # type: ignore[arg-type]  # the point
    assert raw.keys("*") == []


async def test_a_result_that_is_not_as_annotated_is_refused_where_it_is_read(
    tasks: Tasks, queue_name: str, server_url: str
) -> None:
    @tasks.task
    async def lie() -> int:
        return "no number"  # type: ignore[return-value]  # the point

    async with working(tasks, queue_name, server_url):
        job = await lie.aio.add()
        with pytest.raises(PayloadError, match="does not match its function's return annotation"):
            await job.wait()


async def test_tasks_become_nodes_of_flows(tasks: Tasks, queue_name: str, server_url: str) -> None:
    @tasks.task
    async def extract(rows: int) -> list[int]:
        return list(range(rows))

    @tasks.task
    async def total(job: AsyncActiveJob, plus: int) -> int:
        return sum(sum(part) for part in (await job.upstream_results()).values()) + plus

    parts = [extract.node(f"part{rows}")(rows) for rows in (10, 100)]
    dag = Dag("sums", [*parts, total.node("total", deps=parts)(plus=5)], queue_name)
    async with working(tasks, queue_name, server_url), AsyncFlowProducer(url=server_url) as flows:
        results = await (await flows.submit(dag)).wait(timedelta(seconds=60))
    assert results["total"] == 5000


async def test_jobs_of_plain_and_coroutine_tasks_share_what_serves_a_worker(
    tasks: Tasks, queue_name: str, server_url: str
) -> None:
    said: list[str] = []

    @asynccontextmanager
    async def database() -> AsyncIterator[str]:
        said.append("open database")
        yield f"database of {threading.current_thread().name}"
        said.append("close database")

    async def session(database: str = Depends(database, scope="worker")) -> AsyncIterator[str]:
        said.append("open session")
        yield f"session of {database}"
        said.append("close session")

    def where() -> Iterator[str]:
        thread = threading.current_thread().name
        yield thread
        assert threading.current_thread().name == thread

    @tasks.task
    async def on_loop(session: str = Depends(session), where: str = Depends(where)) -> list[str]:
        return [session, where]

    @tasks.task
    def in_thread(session: str = Depends(session), where: str = Depends(where)) -> list[str]:
        return [session, where, threading.current_thread().name]

    async with working(tasks, queue_name, server_url):
        await wait_until(lambda: said == ["open database"], "the worker to open what serves all its jobs")
        shared = "session of database of MainThread"
        assert await (await on_loop.aio.add()).wait() == [shared, "MainThread"]
        result = await (await in_thread.aio.add()).wait()
        assert (result[0], result[1]) == (shared, result[2])
        assert result[1].startswith("oq-job")
        with tasks.override(session, "stub"):
            assert (await (await on_loop.aio.add()).wait())[0] == "stub"
        assert said == ["open database", *["open session", "close session"] * 2]
    assert said[-1] == "close database"


async def test_each_worker_opens_its_own(tasks: Tasks, queue_name: str, server_url: str) -> None:
    opened: list[object] = []

    def connection() -> Iterator[int]:
        opened.append(object())
        yield len(opened)
        opened.pop()

    @tasks.task
    def which(connection: int = Depends(connection, scope="worker")) -> int:
        return connection

    other = queue_name + "-other"
    async with working(tasks, queue_name, server_url):
        await wait_until(lambda: len(opened) == 1, "the first worker to be there")
        async with working(tasks, other, server_url):
            results = [await (await which.with_queue(name).aio.add()).wait() for name in (queue_name, other)]
            assert results == [1, 2]
        assert len(opened) == 1
    assert opened == []


async def test_what_cannot_be_opened_keeps_the_worker_from_starting(
    tasks: Tasks, queue_name: str, server_url: str
) -> None:
    def broken() -> str:
        raise ConnectionError("the database is unreachable")

    @tasks.task
    def which(connection: str = Depends(broken, scope="worker")) -> str:
        return connection

    with pytest.raises(ConnectionError, match="the database is unreachable"):
        await Worker(queue_name, tasks, url=server_url, options=QUICK).run()


async def test_a_provider_that_fails_fails_the_attempt(tasks: Tasks, queue_name: str, server_url: str) -> None:
    tries: list[int] = []

    async def flaky(job: AsyncActiveJob = Depends(AsyncActiveJob)) -> int:
        tries.append(job.attempt)
        if job.attempt == 1:
            raise ConnectionError("away")
        return job.attempt

    @tasks.task(options=JobOptions(attempts=2))
    async def run(attempt: int = Depends(flaky)) -> int:
        return attempt

    async with working(tasks, queue_name, server_url):
        assert await (await run.aio.add()).wait() == 2
    assert tries == [1, 2]


async def test_middleware_wraps_every_run_the_outermost_first(queue_name: str, server_url: str) -> None:
    said: list[str] = []

    def telling(name: str) -> Any:
        async def middleware(job: AsyncActiveJob, call_next: CallNext) -> Any:
            said.append(f"{name} before {job.name}")
            result = await call_next()
            said.append(f"{name} after {result}")
            return result + 1

        return middleware

    async with Tasks(queue_name, url=server_url, middleware=[telling("outer"), telling("inner")]) as tasks:

        @tasks.task
        def one() -> int:
            return 1

        async with working(tasks, queue_name, server_url):
            assert await (await one.aio.add()).wait() == 3
    assert said == ["outer before one", "inner before one", "inner after 1", "outer after 2"]


app = logging.getLogger("tests.app")


@pytest.fixture(autouse=True)
def verbose() -> Iterator[None]:
    app.setLevel(logging.DEBUG)
    handlers = list(logging.getLogger().handlers)
    yield
    app.setLevel(logging.NOTSET)
    assert logging.getLogger().handlers == handlers


@contextmanager
def logging_tasks(queue_name: str, url: str, **options: Any) -> Iterator[Tasks]:
    with Tasks(queue_name, url=url, middleware=[JobLogs(**options)]) as tasks:
        yield tasks


async def test_what_a_task_logs_reaches_its_job_from_wherever_it_was_said(queue_name: str, server_url: str) -> None:
    def deep_inside(n: int) -> None:
        app.info("deep inside of %s", current_job().id)
        app.debug("too quiet")

    async with Tasks(queue_name, url=server_url, logs=True) as tasks:

        @tasks.task
        async def on_loop(n: int) -> None:
            deep_inside(n)
            await asyncio.gather(asyncio.to_thread(deep_inside, n), asyncio.create_task(asyncio.sleep(0)))
            app.warning("done")

        @tasks.task
        def in_thread(n: int) -> None:
            deep_inside(n)
            try:
                _ = n / 0
            except ZeroDivisionError:
                app.exception("n is %d", n)

        async with working(tasks, queue_name, server_url):
            both = [await on_loop.aio.add(1), await in_thread.aio.add(2)]
            for job in both:
                await job.wait()
        first, second = both
        line = "INFO tests.app: deep inside of {}"
        assert await first.logs() == [line.format(first.id)] * 2 + ["WARNING tests.app: done"]
        said, trace = await second.logs()
        assert said == line.format(second.id)
        assert trace.startswith("ERROR tests.app: n is 2\nTraceback")
        assert trace.endswith("ZeroDivisionError: division by zero")


async def test_lines_reach_the_log_of_a_run_that_fails_before_the_outcome_does(
    queue_name: str, server_url: str
) -> None:
    with logging_tasks(queue_name, server_url) as tasks:

        @tasks.task(options=JobOptions(attempts=2))
        def fail(job: ActiveJob) -> None:
            app.info("attempt %d", job.attempt)
            raise ValueError("trouble")

        async with working(tasks, queue_name, server_url), AsyncQueue(queue_name, url=server_url) as queue:
            (job,) = await queue.add_bulk([fail.job()])
            with pytest.raises(JobFailedError, match="trouble"):
                await job.wait()
            assert await job.logs() == ["INFO tests.app: attempt 1", "INFO tests.app: attempt 2"]


async def test_many_lines_go_in_few_trips_while_the_job_still_runs(
    queue_name: str, server_url: str, raw: redis.Redis
) -> None:
    go_on = threading.Event()

    def pushes() -> int:
        return int(dict(raw.info("commandstats")).get("cmdstat_rpush", {}).get("calls", 0))

    with logging_tasks(queue_name, server_url) as tasks, Queue(queue_name, url=server_url) as queue:

        @tasks.task
        def talk() -> None:
            for n in range(1000):
                app.info("line %d", n)
            go_on.wait(60)
            app.info("the last")

        async with working(tasks, queue_name, server_url):
            (job,) = await asyncio.to_thread(queue.add_bulk, [talk.job()])
            before = pushes()
            try:
                await wait_until(lambda: len(job.logs()) == 1000, "the lines to be there before the job ends")
            finally:
                go_on.set()
            await asyncio.to_thread(job.wait)
        lines = job.logs()
        assert lines == [f"INFO tests.app: line {n}" for n in range(1000)] + ["INFO tests.app: the last"]
        assert pushes() - before <= 100, "ten that are full, and one for each tenth of a second that the talk takes"


async def test_a_log_is_bounded_and_says_so(queue_name: str, server_url: str) -> None:
    with logging_tasks(queue_name, server_url, max_lines=3) as tasks:

        @tasks.task
        async def talk() -> None:
            for n in range(5):
                app.info("%d %s", n, "\ud800" + "x" * 10_000)

        async with working(tasks, queue_name, server_url), AsyncQueue(queue_name, url=server_url) as queue:
            (job,) = await queue.add_bulk([talk.job()])
            await job.wait()
            *kept, last = await job.logs()
    assert [line[:18] for line in kept] == [f"INFO tests.app: {n} " for n in range(3)]
    assert {len(line) for line in kept} == {4000}
    assert last == "2 more lines were left out"


async def test_records_carry_whose_they_are_into_any_format(
    queue_name: str, server_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.handler.addFilter(JobFields())
    with logging_tasks(queue_name, server_url, formatter=JsonLines(), level=logging.DEBUG) as tasks:

        @tasks.task
        async def talk() -> None:
            app.debug("%d rows", 7, extra={"rows": 7, "day": date(2013, 1, 31)})

        async with working(tasks, queue_name, server_url), AsyncQueue(queue_name, url=server_url) as queue:
            (job,) = await queue.add_bulk([talk.job()])
            await job.wait()
            (line,) = await job.logs()
    told = json.loads(line)
    assert told.pop("at").endswith("+00:00")
    mine = {"job_id": job.id, "job_attempt": 1, "job_queue": queue_name}
    assert told == {
        "level": "DEBUG",
        "logger": "tests.app",
        "message": "7 rows",
        "rows": 7,
        "day": "2013-01-31",
        **mine,
    }
    (record,) = (record for record in caplog.records if record.name == "tests.app")
    assert {name: getattr(record, name) for name in mine} == mine


async def test_handlers_that_are_no_tasks_may_have_their_logs_kept_too(queue_name: str, server_url: str) -> None:
    def in_thread(job: ActiveJob) -> None:
        app.info("in a thread")
        assert current_job().id == job.id

    worker = Worker(queue_name, in_thread, url=server_url, options=QUICK, middleware=[JobLogs()])
    running = asyncio.ensure_future(worker.run())
    async with AsyncQueue(queue_name, url=server_url) as queue:
        job = await queue.add("n")
        await job.wait()
        assert await job.logs() == ["INFO tests.app: in a thread"]
    worker.stop()
    await running


async def test_a_run_that_says_nothing_sends_nothing(queue_name: str, server_url: str, raw: redis.Redis) -> None:
    with logging_tasks(queue_name, server_url) as tasks:

        @tasks.task
        async def silent() -> None:
            app.debug("too quiet")

        async with working(tasks, queue_name, server_url), AsyncQueue(queue_name, url=server_url) as queue:
            (job,) = await queue.add_bulk([silent.job()])
            await job.wait()
    assert raw.exists(QueueKeys(queue_name).log(job.id)) == 0


async def test_jobs_side_by_side_each_keep_their_own_lines(queue_name: str, server_url: str) -> None:
    with logging_tasks(queue_name, server_url) as tasks:

        @tasks.task
        def talk(n: int) -> None:
            for _ in range(20):
                app.info("of %d", n)

        async with working(tasks, queue_name, server_url), AsyncQueue(queue_name, url=server_url) as queue:
            jobs = await queue.add_bulk([talk.job(n) for n in range(12)])
            for n, job in enumerate(jobs):
                await job.wait()
                assert await job.logs() == [f"INFO tests.app: of {n}"] * 20


def test_adding_works_from_many_loops_and_threads(server_url: str, queue_name: str, raw: redis.Redis) -> None:
    with Tasks(queue_name, url=server_url) as tasks:

        @tasks.task
        def note(n: int) -> None: ...

        async def on_a_loop(n: int) -> None:
            async with tasks:
                await asyncio.gather(*(note.aio.add(n) for _ in range(5)))

        def in_a_thread(n: int) -> None:
            for _ in range(5):
                note.add(n)

        threads = [threading.Thread(target=in_a_thread, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        for n in range(3):
            asyncio.run(on_a_loop(n))
        for thread in threads:
            thread.join()
        note.add(1)
        tasks.close()
        note.add(2)  # a caller after the end connects again
    with Queue(queue_name, url=server_url) as queue:
        assert queue.counts().waiting == 32


@pytest.mark.parametrize("codec", ["gzip", "msgpack"])
async def test_workers_read_the_data_of_every_codec(
    queue_name: str, server_url: str, raw: redis.Redis, codec: str
) -> None:
    async with Tasks(queue_name, url=server_url, codec=codec) as tasks:

        @tasks.task
        async def total(reports: list[Report]) -> int:
            return sum(report.rows for report in reports)

        async with working(tasks, queue_name, server_url):
            job = await total.aio.add([Report(day=date(2013, 1, 31), rows=4)] * 2)
            assert await job.wait() == 8
    prefix = {"gzip": "gz:", "msgpack": "mp:"}[codec]
    assert str(raw.hget(QueueKeys(queue_name).job(job.id), "data")).startswith(prefix)


async def test_a_task_may_run_in_a_process_of_its_own(queue_name: str, server_url: str) -> None:
    async with working(isolated.tasks, queue_name, server_url), AsyncQueue(queue_name, url=server_url) as queue:
        doubled, multiplied = await queue.add_bulk([isolated.double.job(21), isolated.multiply.job(4)])
        result, process = await isolated.double.track(doubled).wait()
        assert (result, await isolated.multiply.track(multiplied).wait()) == (42, 8)
        assert process != os.getpid()
        assert (await doubled.refresh()).progress == 21
