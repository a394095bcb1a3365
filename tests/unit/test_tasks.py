"""Calls become data of jobs, data become arguments; what does not fit is refused in a sentence that says why."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, cast

import pytest
from pydantic import BaseModel, ConfigDict, Field

from orchestration_queue.client import NewJob
from orchestration_queue.errors import InvalidNameError, PayloadError, UnrecoverableError, UsageError
from orchestration_queue.options import Backoff, JobOptions
from orchestration_queue.protocol.codec import encode, find_codec
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.tasks import Depends, Tasks, current_job
from orchestration_queue.worker import ActiveJob, AsyncActiveJob, Router


def async_job(data: Any, codec: str = "json") -> AsyncActiveJob:
    """A running job with this payload; nothing in these tests speaks through it."""
    stored = encode(data, codec=find_codec(codec))
    return AsyncActiveJob(JobRecord("1", {"data": stored}), QueueKeys("q"), cast(Any, None))


def job(data: Any, codec: str = "json") -> ActiveJob:
    return ActiveJob(async_job(data, codec), cast(Any, None))


@dataclass
class Counts:
    rows: int
    path: Path


class Color(Enum):
    RED = "red"


class Order(BaseModel):
    number: int
    price: Decimal = Field(alias="unitPrice")


def test_a_task_is_still_its_function() -> None:
    tasks = Tasks()

    @tasks.task
    def add(a: int, b: int = 1) -> int:
        """Add them."""
        return a + b

    assert add(2) == 3
    assert (list(tasks), add.__doc__, list(inspect.signature(add).parameters)) == (["add"], "Add them.", ["a", "b"])
    assert tasks["add"] is add


def test_data_become_typed_arguments_and_results_become_json() -> None:
    tasks = Tasks()

    @tasks.task(name="clean")
    def clean_day(day: date, target: Path) -> Counts:
        return Counts(day.day, target / "x")

    assert tasks.handler("clean")(job({"day": "2013-01-31", "target": "/data"})) == {"rows": 31, "path": "/data/x"}


def test_what_a_call_says_reaches_the_function_as_it_was() -> None:
    tasks = Tasks()
    said: dict[str, Any] = {
        "day": date(2013, 1, 31),
        "order": Order(number=1, unitPrice=Decimal("1.10")),
        "colors": {Color.RED},
        "wait": timedelta(seconds=90),
        "pair": (1, "b"),
        "counts": [Counts(1, Path("/x"))],
    }

    @tasks.task
    def echo(
        day: date,
        order: Order,
        colors: set[Color],
        wait: timedelta,
        pair: tuple[int, str],
        counts: list[Counts],
        copy: bool = True,
        json: str = "names of pydantic's own are names like others",
    ) -> bool:
        got = {"day": day, "order": order, "colors": colors, "wait": wait, "pair": pair, "counts": counts}
        return got == said and copy

    sent = echo.job(**said)
    assert sent == NewJob("echo", sent.data)
    assert sent.data["order"] == {"number": 1, "unitPrice": "1.10"}
    assert tasks.handler("echo")(job(sent.data)) is True


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    day: date
    pair: tuple[int, int] = (1, 2)


@pytest.mark.parametrize("codec", ["json", "gzip", "msgpack"])
def test_strict_types_stay_what_they_are_through_every_codec(codec: str) -> None:
    tasks = Tasks()
    given = Strict(day=date(2013, 1, 31))

    @tasks.task
    def echo(day: Annotated[date, Field(strict=True)], model: Strict) -> Strict:
        assert (day, model) == (given.day, given)
        return model

    result = tasks.handler("echo")(job(echo.job(given.day, given).data, codec))
    assert echo._signature.result(result) == given


def test_bytes_that_a_codec_carries_reach_the_function() -> None:
    tasks = Tasks()

    @tasks.task
    def size(raw: bytes, at: datetime) -> int:
        assert at == datetime(2013, 1, 31, tzinfo=UTC)
        return len(raw)

    data = {"raw": b"\xff\x00", "at": datetime(2013, 1, 31, tzinfo=UTC)}
    assert tasks.handler("size")(job(data, "msgpack")) == 2
    with pytest.raises(PayloadError, match="cannot be written as JSON"):
        size.job(b"\xff\x00", datetime.now(UTC))


def test_what_is_left_to_defaults_is_left_to_the_workers() -> None:
    tasks = Tasks()

    @tasks.task
    def add(a: int, b: int = 1) -> int:
        return a + b

    assert add.job(2).data == {"a": 2}
    assert add.job(b=3, a=2).data == {"a": 2, "b": 3}


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda task: task.job(), r"cannot be called like this: missing a required argument: 'n'; see double\(n: "),
        (lambda task: task.job(1, [], 2, 3), "too many positional arguments"),
        (lambda task: task.job(1, size=2), "unexpected keyword argument 'size'"),
        (lambda task: task.job(1, n=2), "multiple values for argument 'n'"),
        (lambda task: task.job("many"), "because n: Input should be a valid integer"),
        (lambda task: task.job(1, tags=[1]), r"because tags.0: Input should be a valid string"),
        (lambda task: task.job(1, job=None), "unexpected keyword argument 'job'"),
        (lambda task: task.job(1, database="x"), "unexpected keyword argument 'database'"),
        (lambda task: task.job(n=1, anything=object()), "cannot be written as JSON"),
        (lambda task: task.add(1), "Task 'double' has no queue"),
        (lambda task: task.with_queue("q").add("many"), "because n: Input should be a valid integer"),
        (lambda task: task.add_bulk([NewJob("other")]), "cannot add the job of task 'other'"),
        (lambda task: task.node("x")("many"), "because n: Input should be a valid integer"),
    ],
)
def test_calls_that_do_not_fit_are_refused_before_anything_is_sent(call: Callable[[Any], Any], says: str) -> None:
    tasks = Tasks(url="redis://nowhere.invalid")

    def provider() -> str:
        return "a database"

    @tasks.task
    def double(
        job: ActiveJob,
        n: int,
        tags: list[str] | None = None,
        anything: Any = None,
        database: str = Depends(provider),
    ) -> int:
        return n * 2

    with pytest.raises(UsageError, match=says):
        call(double)


async def test_coroutines_are_refused_alike() -> None:
    tasks = Tasks(url="redis://nowhere.invalid")

    @tasks.task
    async def double(n: int) -> int:
        return n * 2

    with pytest.raises(UsageError, match="valid integer"):
        await cast(Any, double).aio.add("many")
    with pytest.raises(UsageError, match="has no queue"):
        await double.aio.add(1)
    with pytest.raises(UsageError, match="job of task 'other'"):
        await double.with_queue("q").aio.add_bulk([NewJob("other")])


def test_a_parameter_annotated_as_the_job_receives_it() -> None:
    tasks = Tasks()

    @tasks.task
    def who(job: ActiveJob) -> str:
        return job.id

    assert tasks.handler("who")(job({})) == "1"
    assert who.job().data == {}


async def test_a_coroutine_function_stays_one() -> None:
    tasks = Tasks()

    @tasks.task
    async def double(n: int, job: AsyncActiveJob) -> int:
        return n * 2

    assert inspect.iscoroutinefunction(tasks.handler("double"))
    assert await tasks.handler("double")(async_job({"n": 4})) == 8


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({}, "because n: Field required"),
        ({"n": "many"}, "because n: Input should be a valid integer"),
        ({"n": 1, "m": 2}, "because m: Extra inputs are not permitted"),
        ([1], "because data: Input should be"),
        ("text", "because data: Input should be"),
    ],
)
def test_data_that_do_not_fit_fail_the_job_for_good(data: Any, says: str) -> None:
    tasks = Tasks()

    @tasks.task
    def double(n: int) -> int:
        return n * 2

    with pytest.raises(UnrecoverableError, match=says):
        tasks.handler("double")(job(data))


@pytest.mark.parametrize("result", [object(), b"\xff", [Decimal]])
def test_a_result_that_cannot_be_written_fails_the_job_for_good(result: object) -> None:
    tasks = Tasks()

    @tasks.task
    def give() -> Any:
        return result

    with pytest.raises(
        UnrecoverableError, match=r"Task 'give' returned a value that can't be written as JSON \(.+\); return"
    ):
        tasks.handler("give")(job({}))


def test_an_unknown_task_fails_the_job_for_good() -> None:
    with pytest.raises(UnrecoverableError, match="no task 'x'"):
        Tasks().handler("x")


def test_a_task_alone_serves_jobs_of_its_name() -> None:
    tasks = Tasks()

    @tasks.task
    def double(n: int) -> int:
        return n * 2

    assert isinstance(double, Router)
    assert double.handler("double")(job({"n": 4})) == 8
    with pytest.raises(UnrecoverableError, match=r"serves task 'double' alone, so the job 'other' cannot run here"):
        double.handler("other")


def test_two_tasks_of_one_name_are_refused() -> None:
    tasks = Tasks()

    def twice() -> None: ...

    tasks.task(twice)
    with pytest.raises(InvalidNameError, match="two tasks named 'twice'"):
        tasks.task(twice)


def spread(*numbers: int) -> None: ...
def spread_names(**numbers: int) -> None: ...
def by_place(number: int, /) -> None: ...
def of_unknown_type(what: NotThere) -> None: ...  # type: ignore[name-defined]  # noqa: F821  the point


def asks_too_much(path: str) -> str:
    return path


def serves_a_job() -> int:
    return 1


def serves_a_worker(n: int = Depends(serves_a_job)) -> int:
    return n


def wants_what_nobody_fills(path: str = Depends(asks_too_much)) -> None: ...
def wants_what_lives_too_long(n: int = Depends(serves_a_worker, scope="worker")) -> None: ...


class Opaque:
    """What pydantic knows nothing of."""


def of_opaque_type(what: Opaque) -> None: ...


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (spread, "give it a plain parameter"),
        (spread_names, "give it a plain parameter"),
        (by_place, "give it a plain parameter"),
        (of_opaque_type, "has a parameter that no job's data can fill"),
        (of_unknown_type, r"has an annotation that cannot be read \(name 'NotThere' is not defined\)"),
        (wants_what_nobody_fills, "Provider asks_too_much has the parameter 'path', which nothing fills"),
        (wants_what_lives_too_long, 'serves_job, which serves one job; make that scope="worker"|serves_a_job, which'),
    ],
)
def test_functions_that_no_job_can_call_are_refused(function: Callable[..., Any], says: str) -> None:
    tasks = Tasks()
    with pytest.raises(UsageError, match=says):
        tasks.task(function)
    assert list(tasks) == []


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Tasks(queue="a:b"), "contains ':'"),
        (lambda: Tasks(codec="pickle"), "Codec 'pickle' is unknown"),
        (lambda: Tasks().task(queue="{a}")(serves_a_job), "contains '{'"),
        (lambda: Depends(cast(Any, "a name")), "pass a function"),
        (lambda: Depends(serves_a_job, scope=cast(Any, "request")), "a function and scope 'job' or 'worker'"),
    ],
)
def test_what_cannot_be_set_up_is_refused(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        make()


def test_options_given_later_leave_the_others_as_they_are() -> None:
    tasks = Tasks(queue="images")
    patient = JobOptions(attempts=3, backoff=Backoff(delay=timedelta(seconds=5)))

    @tasks.task(options=patient)
    def resize(path: str) -> None: ...

    urgent = resize.with_options(JobOptions(priority=1, attempts=1)).with_queue("urgent")
    assert urgent.job("x").options == JobOptions(attempts=1, backoff=patient.backoff, priority=1)
    assert (urgent.queue, resize.queue, resize.job("x").options) == ("urgent", "images", patient)
    assert (urgent.name, urgent.handler("resize")) == ("resize", tasks.handler("resize"))


def test_a_task_becomes_a_node_of_a_flow() -> None:
    tasks = Tasks(queue="images")

    @tasks.task(options=JobOptions(attempts=2))
    def resize(path: str, width: int = 100) -> None: ...

    first = resize.node("first")("a.png")
    second = resize.node("second", deps=[first, "other"])(path="a.png", width=3)
    assert (first.job_name, first.queue, first.data, first.options.attempts) == (
        "resize",
        "images",
        {"path": "a.png"},
        2,
    )
    assert (second.deps, second.data) == (("first", "other"), {"path": "a.png", "width": 3})


def test_results_are_read_as_the_function_is_annotated() -> None:
    tasks = Tasks()

    @tasks.task
    def orders() -> dict[int, Order]:
        return {}

    @tasks.task
    def opaque() -> Opaque:
        return Opaque()

    assert orders._signature.result({"1": {"number": 1, "unitPrice": "2.50"}})[1].price == Decimal("2.50")
    with pytest.raises(
        PayloadError, match=r"does not match its function's return annotation, because 1\.number: Field"
    ):
        orders._signature.result({"1": {}})
    with pytest.raises(UsageError, match="which no JSON can be read as"):
        opaque._signature.result({})


class Opened:
    """Keeps the order in which providers open and close."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def plain(self) -> str:
        self.said.append("plain")
        return "plain"

    def yielding(self) -> Iterator[str]:
        self.said.append("open yielding")
        yield "yielding"
        self.said.append("close yielding")


def test_providers_are_opened_once_per_job_and_closed_in_reverse() -> None:
    tasks, opened = Tasks(), Opened()

    @contextmanager
    def nested(inner: str = Depends(opened.yielding), plain: str = Depends(opened.plain)) -> Iterator[str]:
        opened.said.append("open nested")
        yield f"{inner}+{plain}"
        opened.said.append("close nested")

    @tasks.task
    def run(
        n: int, a: str = Depends(nested), b: str = Depends(opened.yielding), job: ActiveJob = Depends(ActiveJob)
    ) -> list[Any]:
        assert current_job() is job
        opened.said.append(f"run {n}")
        return [a, b, job.id]

    assert tasks.handler("run")(job({"n": 1})) == ["yielding+plain", "yielding", "1"]
    assert opened.said == ["open yielding", "plain", "open nested", "run 1", "close nested", "close yielding"]
    tasks.handler("run")(job({"n": 2}))
    assert opened.said.count("open yielding") == 2


async def test_a_coroutine_may_depend_on_everything() -> None:
    tasks, said = Tasks(), list[str]()

    async def coroutine() -> int:
        return 1

    async def generator(n: int = Depends(coroutine)) -> AsyncIterator[int]:
        yield n + 1
        said.append("closed generator")

    @asynccontextmanager
    async def decorated(n: int = Depends(generator)) -> AsyncIterator[int]:
        try:
            yield n + 1
        except ValueError as error:
            said.append(f"saw {error}")
            raise

    @tasks.task
    async def run(n: int = Depends(decorated), job: AsyncActiveJob = Depends(AsyncActiveJob)) -> int:
        said.append(f"ran with {n} as {job.id}")
        raise ValueError("trouble")

    with pytest.raises(ValueError, match="trouble"):
        await tasks.handler("run")(async_job({}))
    assert said == ["ran with 3 as 1", "saw trouble"]


def test_a_value_takes_the_place_of_a_provider_while_it_is_overridden() -> None:
    tasks, opened = Tasks(), Opened()

    def outer(inner: str = Depends(opened.yielding)) -> str:
        return f"outer of {inner}"

    @tasks.task
    def run(a: str = Depends(outer), b: str = Depends(opened.plain, scope="worker")) -> list[str]:
        return [a, b]

    with tasks.override(opened.yielding, "stub"), tasks.override(opened.plain, "shared stub"):
        assert tasks.handler("run")(job({})) == ["outer of stub", "shared stub"]
    assert opened.said == []
    with pytest.raises(UsageError, match=r"is worker-scoped, but the worker started without it"):
        tasks.handler("run")(job({}))


def test_outside_of_jobs_there_is_no_current_job() -> None:
    with pytest.raises(UsageError, match="No job runs here"):
        current_job()


def test_what_runs_in_a_process_of_its_own_cannot_share_a_workers_values() -> None:
    tasks = Tasks()
    with pytest.raises(UsageError, match=r"which can't reach the worker-scoped serves_a_job"):
        tasks.task(isolation="process")(needs_shared)
    with pytest.raises(UsageError, match="which cannot find"):
        tasks.task(isolation="process")(lambda: None)


def needs_shared(n: int = Depends(serves_a_job, scope="worker")) -> None: ...
