"""Draining runs a queue's jobs as its workers would, and returns their outcomes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestration_queue import (
    ActiveJob,
    AsyncActiveJob,
    AsyncQueue,
    Backoff,
    Cron,
    Dag,
    Every,
    FlowProducer,
    JobOptions,
    JobState,
    JobTemplate,
    Node,
    Ordering,
    Queue,
    RateLimit,
    RepeatAfterComplete,
    Retention,
    WorkerOptions,
)
from orchestration_queue.errors import JobFailedError, UnrecoverableError, UsageError
from orchestration_queue.options import Batch
from orchestration_queue.testing import TimeMachine, assert_enqueued, drain, drain_async, enqueued
from tests.testing.conftest import Workshop

DAY = timedelta(days=1)


def test_jobs_run_in_order_and_come_back_finished(oq_queue: Queue, workshop: Workshop) -> None:
    for n in (1, 2, 3):
        oq_queue.add("double", {"n": n})
    finished = drain(oq_queue, workshop.tasks)
    assert [(job.name, job.state, job.result) for job in finished] == [
        ("double", JobState.COMPLETED, 2),
        ("double", JobState.COMPLETED, 4),
        ("double", JobState.COMPLETED, 6),
    ]
    assert workshop.ran == [1, 2, 3]
    assert enqueued(oq_queue) == []


async def test_in_a_coroutine_it_is_awaited(oq_async_queue: AsyncQueue, workshop: Workshop) -> None:
    await oq_async_queue.add("note", {"text": "hello"})
    (job,) = await drain_async(oq_async_queue, workshop.tasks)
    assert job.state is JobState.COMPLETED
    assert workshop.ran == ["hello"]


async def test_the_sync_face_refuses_to_block_a_loop(oq_queue: Queue, workshop: Workshop) -> None:
    with pytest.raises(UsageError, match="await drain_async"):
        drain(oq_queue, workshop.tasks)


def test_an_empty_queue_is_drained_at_once(oq_queue: Queue, workshop: Workshop) -> None:
    assert drain(oq_queue, workshop.tasks) == []


def test_a_single_handler_will_do(oq_queue: Queue) -> None:
    def handle(job: ActiveJob) -> Any:
        return job.data["n"] + 1

    oq_queue.add("anything", {"n": 1})
    assert [job.result for job in drain(oq_queue, handle)] == [2]


def test_jobs_that_jobs_add_are_drained_too(oq_queue: Queue) -> None:
    def count_down(job: ActiveJob) -> None:
        if job.data:
            oq_queue.add("count", job.data - 1)

    oq_queue.add("count", 3)
    assert [job.data for job in drain(oq_queue, count_down)] == [3, 2, 1, 0]


@pytest.mark.parametrize(
    "options",
    [
        JobOptions(priority=7),
        JobOptions(lifo=True),
        JobOptions(ordering=Ordering(key="k")),
        JobOptions(lease=timedelta(seconds=5)),
    ],
    ids=["priority", "lifo", "ordering", "lock"],
)
def test_ready_jobs_of_every_kind_are_found(oq_queue: Queue, workshop: Workshop, options: JobOptions) -> None:
    for n in range(3):
        oq_queue.add("double", {"n": n}, options)
    assert sorted(job.result for job in drain(oq_queue, workshop.tasks)) == [0, 2, 4]


def test_a_failure_is_raised_as_the_handler_raised_it(oq_queue: Queue, workshop: Workshop) -> None:
    oq_queue.add("fail", {"why": "no such city"})
    oq_queue.add("double", {"n": 1})
    oq_queue.add("fail", {"why": "no such street"})
    with pytest.raises(LookupError, match="no such city") as caught:
        drain(oq_queue, workshop.tasks)
    assert workshop.ran == [1], "the others were run first"
    notes = "\n".join(caught.value.__notes__)
    assert "Job 1 (fail)" in notes
    assert "Job 3 (fail) failed too: LookupError: no such street" in notes
    assert any(entry.name == "fail" for entry in caught.traceback), "the traceback leads into the handler"


def test_failures_are_returned_on_request(oq_queue: Queue, workshop: Workshop) -> None:
    oq_queue.add("fail", {"why": "as told"})
    (job,) = drain(oq_queue, workshop.tasks, raise_failures=False)
    assert (job.state, job.failed_reason) == (JobState.FAILED, "LookupError: as told")
    assert drain(oq_queue, workshop.tasks) == [], "a failure of before is none of the next drain"


def test_arguments_that_do_not_fit_fail_as_they_do_in_production(oq_queue: Queue, workshop: Workshop) -> None:
    oq_queue.add("double", {"m": 1})
    with pytest.raises(UnrecoverableError, match="cannot take the job's data"):
        drain(oq_queue, workshop.tasks)


def test_a_jobs_time_limit_is_raised_too(oq_queue: Queue) -> None:
    async def sleep(job: AsyncActiveJob) -> None:
        await asyncio.Event().wait()

    oq_queue.add("sleep", options=JobOptions(timeout=timedelta(milliseconds=20)))
    with pytest.raises(TimeoutError, match="Job timeout exceeded"):
        drain(oq_queue, sleep)


def test_a_failure_that_no_handler_saw_is_raised_too(
    oq_queue: Queue, workshop: Workshop, oq_clock: TimeMachine
) -> None:
    oq_queue.add("note", options=JobOptions(ttl=timedelta(hours=1)))
    oq_clock.travel(timedelta(hours=2))
    with pytest.raises(JobFailedError, match="expired"):
        drain(oq_queue, workshop.tasks)


def test_retries_at_once_are_part_of_it(oq_queue: Queue, workshop: Workshop) -> None:
    oq_queue.add("succeed_on", {"attempt": 3}, JobOptions(attempts=3))
    (job,) = drain(oq_queue, workshop.tasks)
    assert (job.result, job.attempts_made, workshop.ran) == ("at last", 2, [1, 2, 3])


def test_pauses_before_retries_are_waited_for_only_on_request(oq_queue: Queue, workshop: Workshop) -> None:
    oq_queue.add("succeed_on", {"attempt": 4}, JobOptions(attempts=4, backoff=Backoff(delay=timedelta(hours=1))))
    assert drain(oq_queue, workshop.tasks) == []
    assert workshop.ran == [1]
    (job,) = drain(oq_queue, workshop.tasks, including_delayed=True)
    assert workshop.ran == [1, 2, 3, 4]
    assert job.finished_at is not None
    assert job.added_at is not None
    assert job.finished_at - job.added_at >= timedelta(hours=1 + 2 + 4), "exponential backoff, on the queue's clock"


def test_delayed_jobs_run_in_the_order_in_which_they_are_due(oq_queue: Queue, workshop: Workshop) -> None:
    before = TimeMachine().now()
    for days in (3, 1, 2):
        oq_queue.add("note", {"text": f"day {days}"}, JobOptions(delay=days * DAY))
    assert drain(oq_queue, workshop.tasks) == []
    finished = drain(oq_queue, workshop.tasks, including_delayed=True)
    assert workshop.ran == ["day 1", "day 2", "day 3"]
    # A job's start time is that of the exchange that took it, which may have been sent before the clock traveled.
    assert [(job.finished_at - before).days for job in finished if job.finished_at] == [1, 2, 3]
    assert abs(TimeMachine().now() - datetime.now(UTC)) < timedelta(hours=1), "the time travelled was taken back"


def test_with_a_clock_of_the_test_the_time_travelled_stays(
    oq_queue: Queue, workshop: Workshop, oq_clock: TimeMachine
) -> None:
    before = oq_clock.now()
    oq_queue.add("note", options=JobOptions(delay=10 * DAY))
    drain(oq_queue, workshop.tasks, including_delayed=True)
    assert oq_clock.now() - before >= 10 * DAY


def test_a_groups_rate_limit_is_travelled_through(oq_queue: Queue, workshop: Workshop) -> None:
    slow = JobOptions(ordering=Ordering(key="k", rate_limit=RateLimit(max=1, duration=timedelta(hours=1))))
    for n in range(3):
        oq_queue.add("double", {"n": n}, slow)
    finished = drain(oq_queue, workshop.tasks, including_delayed=True)
    starts = [job.started_at for job in finished if job.started_at]
    assert [job.result for job in finished] == [0, 2, 4]
    assert starts[2] - starts[0] >= timedelta(hours=2)


def test_a_month_of_a_schedule_is_lived_through_run_by_run(
    oq_queue: Queue, workshop: Workshop, oq_clock: TimeMachine
) -> None:
    oq_clock.travel_to(datetime(2024, 3, 1, tzinfo=UTC))
    oq_queue.schedulers.upsert("nightly", Cron("30 2 * * *", tz="Europe/Berlin"), JobTemplate(name="note"))
    finished = drain(oq_queue, workshop.tasks, timeout=60, until=datetime(2024, 4, 1, tzinfo=UTC))
    starts = [job.started_at for job in finished if job.started_at]
    assert [start.day for start in starts] == list(range(1, 31)), "on the 31st the clock in Berlin had no half past two"
    assert all((start.hour, start.minute) == (1, 30) for start in starts)
    assert oq_clock.now() >= datetime(2024, 4, 1, tzinfo=UTC)


def test_a_jump_over_missed_runs_fires_once(oq_queue: Queue, workshop: Workshop, oq_clock: TimeMachine) -> None:
    oq_queue.schedulers.upsert("hourly", Every(timedelta(hours=1)), JobTemplate(name="note"))
    drain(oq_queue, workshop.tasks)
    workshop.ran.clear()
    oq_clock.travel(30 * DAY)
    drain(oq_queue, workshop.tasks)
    assert workshop.ran == ["noted"]


def test_schedules_that_wait_for_their_job_are_lived_through(
    oq_queue: Queue, workshop: Workshop, oq_clock: TimeMachine
) -> None:
    oq_queue.schedulers.upsert("chained", RepeatAfterComplete(timedelta(hours=6)), JobTemplate(name="note"))
    drain(oq_queue, workshop.tasks, until=DAY + timedelta(hours=1))
    assert 4 <= len(workshop.ran) <= 5


def test_jobs_that_are_not_kept_come_back_as_they_ended(oq_queue: Queue, workshop: Workshop) -> None:
    gone = Retention(count=0)
    oq_queue.add("double", {"n": 5}, JobOptions(remove_on_complete=gone))
    oq_queue.add("fail", {"why": "x"}, JobOptions(remove_on_fail=gone))
    double, fail = drain(oq_queue, workshop.tasks, raise_failures=False)
    assert (double.state, double.result) == (JobState.COMPLETED, 10)
    assert (fail.state, fail.failed_reason) == (JobState.FAILED, "LookupError: x")
    assert oq_queue.jobs("completed") == []


def test_jobs_that_expired_are_among_the_finished(oq_queue: Queue, workshop: Workshop, oq_clock: TimeMachine) -> None:
    oq_queue.add("note", options=JobOptions(ttl=timedelta(hours=1)))
    oq_clock.travel(timedelta(hours=2))
    (job,) = drain(oq_queue, workshop.tasks, raise_failures=False)
    assert (job.state, job.failed_reason, workshop.ran) == (JobState.FAILED, "expired", [])


def test_a_paused_queue_is_left_as_it_is(oq_queue: Queue, workshop: Workshop) -> None:
    oq_queue.add("note")
    oq_queue.pause()
    assert drain(oq_queue, workshop.tasks) == []
    assert_enqueued(oq_queue, "note", count=1)
    oq_queue.resume()
    assert len(drain(oq_queue, workshop.tasks)) == 1


def test_a_whole_flow_is_drained(oq_queue: Queue, oq_server: str) -> None:
    def handle(job: ActiveJob) -> Any:
        return sum(job.upstream_results().values()) + 1

    dag = Dag("sums", [Node("a"), Node("b", deps=["a"]), Node("c", deps=["a", "b"])], queue=oq_queue.name)
    with FlowProducer(url=oq_server) as flows:
        flows.submit(dag)
    assert {job.name for job in enqueued(oq_queue)} == {"a", "b", "c"}, "those that wait are there too"
    assert [(job.name, job.result) for job in drain(oq_queue, handle)] == [("a", 1), ("b", 2), ("c", 4)]


def test_options_reach_the_worker(oq_queue: Queue) -> None:
    met = threading.Barrier(3)

    def meet(job: ActiveJob) -> int:
        return met.wait(60)

    for _ in range(3):
        oq_queue.add("meet")
    finished = drain(oq_queue, meet, timeout=60, options=WorkerOptions(concurrency=3))
    assert sorted(job.result for job in finished) == [0, 1, 2], "all three ran together"


def test_batches_are_drained_too(oq_queue: Queue) -> None:
    def handle(jobs: list[ActiveJob]) -> list[Any]:
        return [ValueError("odd") if job.data % 2 else job.data for job in jobs]

    for n in range(4):
        oq_queue.add("number", n)
    batched = WorkerOptions(batch=Batch(size=3))
    finished = drain(oq_queue, handle, options=batched, raise_failures=False)
    assert sorted((job.data, job.result, job.failed_reason) for job in finished) == [
        (0, 0, None),
        (1, None, "ValueError: odd"),
        (2, 2, None),
        (3, None, "ValueError: odd"),
    ]


def test_a_result_that_cannot_be_written_fails_as_in_production(oq_queue: Queue) -> None:
    def handle(job: ActiveJob) -> Any:
        return object()

    oq_queue.add("odd")
    with pytest.raises(JobFailedError, match="cannot be written"):
        drain(oq_queue, handle)


def test_what_does_not_end_is_named(oq_queue: Queue) -> None:
    async def hang(job: AsyncActiveJob) -> None:
        await asyncio.Event().wait()

    oq_queue.add("hang")
    oq_queue.add("wait")
    with pytest.raises(TimeoutError, match=r"after 3 s: 1 jobs ready, 1 active, among them 1 \(hang\)"):
        drain(oq_queue, hang, timeout=3)  # time enough to start


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda: {"until": DAY, "including_delayed": True}, "pass one of them"),
        (lambda: {"until": -DAY}, "must not be in the past"),
        (lambda: {"until": datetime.now(UTC) - DAY}, "must not be in the past"),
        (lambda: {"until": datetime(2040, 1, 1)}, "aware"),  # noqa: DTZ001
        (lambda: {"until": timedelta.max}, "cannot count"),
        (lambda: {"timeout": -1}, "`timeout` must be"),
    ],
    ids=["both", "negative", "past", "naive", "far", "timeout"],
)
def test_what_cannot_be_is_refused(
    oq_queue: Queue, workshop: Workshop, arguments: Callable[[], dict[str, Any]], message: str
) -> None:
    oq_queue.add("note")
    with pytest.raises(UsageError, match=message):
        drain(oq_queue, workshop.tasks, **arguments())
    assert_enqueued(oq_queue, "note", count=1)
