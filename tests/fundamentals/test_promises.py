"""What this package promises, a short test each. If you read one test file, read this one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from orchestration_queue import (
    ActiveJob,
    AsyncActiveJob,
    Dag,
    Every,
    FlowProducer,
    JobOptions,
    JobState,
    JobTemplate,
    Node,
    Queue,
    Tasks,
    Worker,
    WorkerOptions,
)
from orchestration_queue.errors import CycleError, InvalidOptionError, JobFailedError, OrchestrationQueueError

SOON = timedelta(seconds=60)


@contextmanager
def working(url: str, handler: Callable[[Any], Any] | Tasks, queue: str = "q", concurrency: int = 4) -> Iterator[None]:
    """A worker beside the test, in a thread with a loop of its own."""
    quick = WorkerOptions(concurrency=concurrency, promotion_interval=timedelta(milliseconds=100))
    running = threading.Event()
    over: Callable[[], object] = running.set

    async def run() -> None:
        nonlocal over
        worker = Worker(queue, handler, url=url, options=quick)
        loop = asyncio.get_running_loop()
        over = lambda: loop.call_soon_threadsafe(worker.stop)  # noqa: E731
        running.set()
        await worker.run()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    running.wait()
    try:
        yield
    finally:
        over()
        thread.join(60)
        assert not thread.is_alive()


async def echo(job: AsyncActiveJob) -> Any:
    return job.data


def test_a_job_runs_and_its_result_comes_back(url: str) -> None:
    with Queue("q", url=url) as queue, working(url, echo):
        assert queue.add("echo", {"n": 1}).wait(SOON) == {"n": 1}


def test_a_job_of_an_id_is_added_once(url: str) -> None:
    with Queue("q", url=url) as queue:
        assert queue.add("echo", 1, JobOptions(job_id="once")).is_new
        assert not queue.add("echo", 2, JobOptions(job_id="once")).is_new
        assert queue.get("once").record.data == 1


def test_a_failing_job_is_tried_again_and_then_fails_with_its_reason(url: str) -> None:
    tries: list[int] = []

    def fail(job: ActiveJob) -> None:
        tries.append(job.attempt)
        raise ValueError("no such row")

    failing = pytest.raises(JobFailedError, match="ValueError: no such row")
    with Queue("q", url=url) as queue, working(url, fail), failing:
        queue.add("fail", options=JobOptions(attempts=3)).wait(SOON)
    assert tries == [1, 2, 3]


def test_a_step_whose_result_is_stored_never_runs_again(url: str) -> None:
    ran: list[tuple[str, int]] = []

    def work(job: ActiveJob) -> None:
        job.step("first", ran.append, ("first", job.attempt))
        if job.attempt == 1:
            raise ValueError("in between")
        job.step("second", ran.append, ("second", job.attempt))

    with Queue("q", url=url) as queue, working(url, work):
        queue.add("work", options=JobOptions(attempts=2)).wait(SOON)
    assert ran == [("first", 1), ("second", 2)]


def test_a_delayed_job_waits_for_its_time(url: str) -> None:
    with Queue("q", url=url) as queue:
        job = queue.add("echo", options=JobOptions(delay=timedelta(milliseconds=300)))
        assert job.refresh().state is JobState.DELAYED
        with working(url, echo):
            job.wait(SOON)
        record = job.refresh()
    assert record.started_at is not None
    assert record.added_at is not None
    assert record.started_at - record.added_at >= timedelta(milliseconds=300)


def test_a_node_runs_after_all_it_depends_on_and_sees_their_results(url: str) -> None:
    tasks = Tasks()

    @tasks.task
    def number(n: int) -> int:
        return n

    @tasks.task
    def total(job: ActiveJob) -> dict[str, int]:
        return job.upstream_results()

    nodes = [Node("one", "number", data={"n": 1}), Node("two", "number", data={"n": 2})]
    dag = Dag("sums", [Node("total", deps=("one", "two")), *nodes], queue="q")
    with FlowProducer(url=url) as flows, working(url, tasks):
        assert flows.submit(dag).wait(SOON)["total"] == {"one": 1, "two": 2}


def test_a_flow_of_an_id_is_submitted_once(url: str) -> None:
    dag = Dag("d", [Node("a"), Node("b", deps=("a",))], queue="q")
    with FlowProducer(url=url) as flows, Queue("q", url=url) as queue:
        flows.submit(dag, flow_id="once")
        flows.submit(dag, flow_id="once")
        assert queue.counts().waiting == 1


def test_a_schedule_makes_jobs(url: str) -> None:
    seen = threading.Semaphore(0)

    async def tick(_: AsyncActiveJob) -> None:
        seen.release()

    with Queue("q", url=url) as queue, working(url, tick):
        queue.schedulers.upsert("often", Every(timedelta(milliseconds=200)), JobTemplate(name="tick"))
        assert seen.acquire(timeout=60)
        assert seen.acquire(timeout=60)


def test_what_was_accepted_is_there_when_everybody_has_left_and_come_back(url: str) -> None:
    with Queue("q", url=url) as queue:
        queue.add("echo", {"n": 1}, JobOptions(job_id="kept"))
    with Queue("q", url=url) as queue:
        assert queue.get("kept").record.data == {"n": 1}


@pytest.mark.parametrize(
    ("attempt", "error"),
    [
        (lambda queue: queue.add("x", options=JobOptions(delay=timedelta(seconds=-1))), InvalidOptionError),
        (lambda queue: queue.add("x", options=JobOptions(job_id="a:b")), InvalidOptionError),
        (lambda _: Dag("d", [Node("a", deps=("b",)), Node("b", deps=("a",))], queue="q"), CycleError),
    ],
    ids=["negative delay", "job id with a colon", "cycle"],
)
def test_bad_input_fails_at_the_caller_in_one_sentence_and_writes_nothing(
    url: str, attempt: Callable[[Queue], object], error: type[OrchestrationQueueError]
) -> None:
    with Queue("q", url=url) as queue:
        with pytest.raises(error) as raised:
            attempt(queue)
        assert "\n" not in str(raised.value)
        assert queue.counts().waiting == 0
