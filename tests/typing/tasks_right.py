"""Tasks as users write them. Type checkers must agree with every line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any, assert_type

from pydantic import BaseModel

from orchestration_queue import ActiveJob, AsyncActiveJob, AsyncQueue, Job, JobOptions, NewJob, Node, Queue, Tasks
from orchestration_queue.tasks import AsyncTaskJob, Depends, TaskJob

tasks = Tasks(queue="images")


class Picture(BaseModel):
    path: str
    width: int


class Storage:
    """What a provider makes."""


async def open_storage() -> AsyncIterator[Storage]:
    yield Storage()


@contextmanager
def decorated() -> Iterator[Storage]:
    yield Storage()


@asynccontextmanager
async def decorated_async() -> AsyncIterator[Storage]:
    yield Storage()


async def made_by_coroutine(storage: Storage = Depends(open_storage)) -> Storage:
    return storage


@tasks.task
def thumbnail(path: str, width: int = 100, storage: Storage = Depends(open_storage, scope="worker")) -> Picture:
    return Picture(path=path, width=width)


@tasks.task(queue="slow", options=JobOptions(attempts=3))
async def resize(path: str, width: int, storage: Storage = Depends(decorated_async)) -> Picture:
    return Picture(path=path, width=width)


@tasks.task
def with_job(job: ActiveJob, n: int, storage: Storage = Depends(decorated)) -> list[int]:
    return [n] * job.attempt


@tasks.task(name="with-job")
async def with_async_job(job: AsyncActiveJob, n: int) -> dict[str, int]:
    return {job.id: n}


@tasks.task
async def loosely(data: dict[str, Any], job: AsyncActiveJob = Depends(AsyncActiveJob)) -> dict[str, Any]:
    return {**data, "id": job.id}


def plain_code(queue: Queue) -> None:
    assert_type(thumbnail("a.png"), Picture)
    assert_type(thumbnail.add("a.png"), TaskJob[Picture])
    a_job: Job = thumbnail.add("a.png")
    assert_type(thumbnail.track(a_job), TaskJob[Picture])
    assert_type(thumbnail.add("a.png", width=3).wait(), Picture)
    assert_type(resize.add(path="a.png", width=3).wait(timeout=5), Picture)
    assert_type(with_job.add(3).wait(), list[int])
    assert_type(with_async_job.add(n=3).wait(), dict[str, int])
    assert_type(thumbnail.job("a.png"), NewJob)
    assert_type(
        thumbnail.with_options(JobOptions(delay=timedelta(minutes=1))).with_queue("later").add("a.png").wait(), Picture
    )
    assert_type([job.wait() for job in thumbnail.add_bulk([thumbnail.job("a.png")])], list[Picture])
    assert_type(resize.track(queue.get("1")).wait(), Picture)
    assert_type(resize.node("small", deps=["load"])(path="a.png", width=1), Node)


async def coroutine(queue: AsyncQueue) -> None:
    assert_type(await resize("a.png", 3), Picture)
    assert_type(await resize.aio.add("a.png", width=3), AsyncTaskJob[Picture])
    assert_type(await (await resize.aio.add("a.png", width=3)).wait(), Picture)
    assert_type(await (await thumbnail.aio.add("a.png")).wait(), Picture)
    assert_type(await (await loosely.aio.add({"a": 1})).wait(), dict[str, Any])
    assert_type(await (await resize.aio.add_bulk([resize.job("a.png", 1)]))[0].wait(), Picture)
    assert_type(await resize.track(await queue.get("1")).wait(), Picture)
