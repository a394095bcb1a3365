"""Mistakes that type checkers must find: each line with a mark, and no other, with the named error."""

from __future__ import annotations

from collections.abc import AsyncIterator

from orchestration_queue import ActiveJob, JobOptions, Tasks
from orchestration_queue.tasks import Depends

tasks = Tasks(queue="images")


async def connect() -> AsyncIterator[int]:
    yield 1


@tasks.task
def thumbnail(path: str, width: int = 100, *, database: int = Depends(connect)) -> list[int]:
    return [width]


@tasks.task(options=JobOptions(attempts=3))
async def resize(path: str, width: int) -> bytes:
    return b""


@tasks.task
def with_job(job: ActiveJob, n: int) -> int:
    return n


thumbnail.add(7)  # error: arg-type
thumbnail.add(path="a.png", width="wide")  # error: arg-type
thumbnail.add()  # error: call-arg
thumbnail.add("a.png", height=3)  # error: call-arg
thumbnail.job(width=3)  # error: call-arg
thumbnail.job(path=b"a.png")  # error: arg-type
with_job.add("many")  # error: arg-type
text: str = thumbnail.add("a.png").wait()  # error: assignment
number: int = resize.add("a.png", 3).wait()  # error: assignment
thumbnail.node("small")(3)  # error: arg-type
tasks.task(isolation="jail")  # error: call-overload


@tasks.task
def depends_on_another_type(database: str = Depends(connect)) -> None:  # error: assignment
    ...


async def coroutine() -> None:
    await resize.aio.add("a.png", "wide")  # error: call-overload
    await resize.aio.add("a.png")  # error: call-overload
    another: str = await (await resize.aio.add("a.png", 3)).wait()  # error: assignment
    await resize.aio.add(another, 3)
    resize.job("a.png", 3).name = "another"  # error: misc
