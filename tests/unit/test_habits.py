"""What users of other queues write by habit: each mistake says what to write here."""

from __future__ import annotations

import copy
import inspect
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import numpy
import pandas
import pyarrow
import pytest

from orchestration_queue import AsyncJob, AsyncQueue, FlowProducer, Job, JobOptions, Queue, Task, Tasks
from orchestration_queue.errors import InvalidOptionError, PayloadError, UsageError
from orchestration_queue.options.habits import JOB_HABITS, OPTION_HABITS, QUEUE_HABITS, TASK_HABITS
from orchestration_queue.protocol.codec import encode

tasks = Tasks(queue="q")


@tasks.task
def send_mail(to: str) -> str:
    return to


CLASSES = [(Task, TASK_HABITS), (Queue, QUEUE_HABITS), (AsyncQueue, QUEUE_HABITS), (Job, JOB_HABITS)]


@pytest.mark.parametrize("name", TASK_HABITS)
def test_a_task_says_what_to_write(name: str) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'; write `"):
        getattr(send_mail, name)
    assert not hasattr(send_mail, name)


@pytest.mark.parametrize("name", QUEUE_HABITS)
def test_a_queue_says_what_to_write(name: str) -> None:
    for kind in (Queue, AsyncQueue):
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'; write `"):
            getattr(kind("q"), name)


@pytest.mark.parametrize("name", JOB_HABITS)
def test_a_job_says_what_to_write(name: str) -> None:
    for kind in (Job, AsyncJob):
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'; write `"):
            getattr(kind.__new__(kind), name)


@pytest.mark.parametrize(("kind", "table"), [*CLASSES, (AsyncJob, JOB_HABITS)])
def test_habits_name_what_is_missing_and_advise_what_exists(kind: type, table: Mapping[str, str]) -> None:
    assert not {name for name in table if hasattr(kind, name)}
    own = {"{task}": Task, "queue": Queue, "job": Job}
    for advice in table.values():
        for subject, method in re.findall(r"(\{task\}|\bqueue|\bjob)\.(\w+)", advice):
            assert hasattr(own[subject], method) or method in ("function", "schedulers"), advice


def test_the_advice_names_the_task() -> None:
    with pytest.raises(AttributeError, match=re.escape("write `send_mail.add(...)`.")):
        send_mail.delay("a")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("max_retries", "use 'attempts', which counts the first run, too."),
        ("time_limit", "use 'timeout'."),
        ("removeOnComplete", "use 'remove_on_complete'."),
        ("jobId", "use 'job_id'."),
        ("timeLimit", "use 'timeout'."),
        ("eta", "use 'delay_until'."),
        ("speed", "check its spelling."),
    ],
)
def test_an_option_of_another_queue_is_translated(name: str, advice: str) -> None:
    with pytest.raises(InvalidOptionError, match=re.escape(f"JobOptions has no option {name!r}; {advice}")):
        JobOptions(**{name: 1})


def test_translations_are_options() -> None:
    assert {found.partition(",")[0] for found in OPTION_HABITS.values()} <= JobOptions.model_fields.keys()
    assert not OPTION_HABITS.keys() & JobOptions.model_fields.keys()


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("timeout", "pass `options=JobOptions(timeout=...)`."),
        ("max_retries", "pass `options=JobOptions(...)` with 'attempts', which counts the first run, too."),
        ("bind", "pass name, queue, options, isolation or version."),
    ],
)
def test_an_argument_of_task_says_where_it_belongs(name: str, advice: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"@tasks.task has no argument {name!r}; {advice}")):
        tasks.task(**{name: 3})  # type: ignore[call-overload]


def test_tasks_are_copied_as_before() -> None:
    assert copy.copy(send_mail).add.__func__ is Task.add  # type: ignore[attr-defined]
    assert inspect.signature(send_mail) == inspect.signature(send_mail.function)


def test_a_generator_is_refused_as_a_task() -> None:
    def values() -> Iterator[int]:
        yield 1

    async def later() -> AsyncIterator[int]:
        yield 1

    for function in (values, later):
        with pytest.raises(UsageError, match="is a generator, and a job has one result; return a list"):
            Tasks().task(function)


async def test_the_wrong_kind_of_with_names_the_right_class() -> None:
    queue: Any = AsyncQueue("q")
    with pytest.raises(UsageError, match=r"AsyncQueue needs `async with`; use Queue in code without a loop"), queue:
        pass
    other: Any
    for other in (Queue("q"), FlowProducer()):
        name = type(other).__name__
        with pytest.raises(UsageError, match=rf"{name} needs `with`; use Async{name} in coroutines"):
            async with other:
                pass


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        (numpy.zeros(2), "what its .tolist() returns has one"),
        (pandas.DataFrame({"a": [1]}), "what its .to_dict('records') returns has one"),
        (pandas.Series([1]), "what its .tolist() returns has one"),
        (pyarrow.table({"a": [1]}), "what its .to_pylist() returns has one"),
    ],
)
def test_a_table_or_an_array_says_how_it_becomes_json(value: object, advice: str) -> None:
    with pytest.raises(PayloadError, match=re.escape(advice)):
        encode({"rows": value})


SECOND_LOOP = """
import asyncio
from orchestration_queue import AsyncQueue, NewJob
queue = AsyncQueue("q")
asyncio.run(queue.counts())
asyncio.run(queue.{call})
"""


@pytest.mark.parametrize("call", ["add('n', {})", "add_bulk([NewJob('n', {})] * 300)"])
def test_a_client_of_an_earlier_loop_says_so(call: str, server_url: str) -> None:
    code = SECOND_LOOP.replace("{call}", call)
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"OQ_URL": server_url},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "UsageError: This client is connected in another event loop" in ended.stderr, ended.stderr
    assert "create a client in each loop" in ended.stderr
