"""A job's data become a function's arguments, or the job fails with a sentence that says why."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, cast

import pytest

from orchestration_queue.errors import InvalidNameError, UnrecoverableError, UsageError
from orchestration_queue.protocol.codec import dump_json
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.tasks import Tasks
from orchestration_queue.worker import ActiveJob, AsyncActiveJob


def job(data: Any) -> ActiveJob:
    """A running job with this payload; nothing in these tests speaks through it."""
    record = JobRecord("1", {"data": dump_json(data)})
    return ActiveJob(AsyncActiveJob(record, QueueKeys("q"), cast(Any, None)), cast(Any, None))


@dataclass
class Counts:
    rows: int
    path: Path


def test_a_task_is_still_its_function() -> None:
    tasks = Tasks()

    @tasks.task
    def add(a: int, b: int = 1) -> int:
        return a + b

    assert add(2) == 3
    assert list(tasks) == ["add"]


def test_data_become_typed_arguments_and_results_become_json() -> None:
    tasks = Tasks()

    @tasks.task(name="clean")
    def clean_day(day: date, target: Path) -> Counts:
        return Counts(day.day, target / "x")

    assert tasks.handler("clean")(job({"day": "2013-01-31", "target": "/data"})) == {"rows": 31, "path": "/data/x"}


def test_a_parameter_annotated_as_the_job_receives_it() -> None:
    tasks = Tasks()

    @tasks.task
    def who(job: ActiveJob) -> str:
        return job.id

    assert tasks.handler("who")(job({})) == "1"


async def test_a_coroutine_function_stays_one() -> None:
    tasks = Tasks()

    @tasks.task
    async def double(n: int, job: AsyncActiveJob) -> int:
        return n * 2

    assert await tasks.handler("double")(job({"n": 4})) == 8


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({}, "because n: Field required"),
        ({"n": "many"}, "because n: Input should be a valid integer"),
        ({"n": 1, "m": 2}, "because m: Extra inputs are not permitted"),
        ([1], "because data: Input should be"),
    ],
)
def test_data_that_do_not_fit_fail_the_job_for_good(data: Any, says: str) -> None:
    tasks = Tasks()

    @tasks.task
    def double(n: int) -> int:
        return n * 2

    with pytest.raises(UnrecoverableError, match=says):
        tasks.handler("double")(job(data))


def test_an_unknown_task_fails_the_job_for_good() -> None:
    with pytest.raises(UnrecoverableError, match="no task 'x'"):
        Tasks().handler("x")


def test_two_tasks_of_one_name_are_refused() -> None:
    tasks = Tasks()

    def twice() -> None: ...

    tasks.task(twice)
    with pytest.raises(InvalidNameError, match="two tasks named 'twice'"):
        tasks.task(twice)


def test_parameters_that_no_data_can_fill_are_refused() -> None:
    def spread(*numbers: int) -> None: ...

    with pytest.raises(UsageError, match="plain parameter"):
        Tasks().task(spread)
