"""Handlers that run in processes of their own, and some that had better."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from orchestration_queue.errors import RateLimitError, UnrecoverableError
from orchestration_queue.flows import Node
from orchestration_queue.options import Usage
from orchestration_queue.tasks import Tasks
from orchestration_queue.worker import ActiveJob, AsyncActiveJob
from orchestration_queue.worker.sandbox import sandboxed

_kept: list[bytes] = []


def echo(job: ActiveJob) -> Any:
    return job.data


def who(job: ActiveJob) -> dict[str, Any]:
    return {"pid": os.getpid(), "id": job.id, "name": job.name, "attempt": job.attempt, "queue": job.queue}


async def who_async(job: AsyncActiveJob) -> dict[str, Any]:
    await asyncio.sleep(0)
    return who(job)  # type: ignore[arg-type]  # what it reads, both faces have


@sandboxed
def decorated(job: ActiveJob) -> int:
    return os.getpid()


def speak(job: ActiveJob) -> None:
    sys.stdout.write("to standard output\n")
    sys.stderr.write("to standard error\n")
    logging.getLogger("app").info("to the log")
    job.log("half way")
    job.update_progress({"done": 0.5})


async def speak_async(job: AsyncActiveJob) -> None:
    await asyncio.gather(job.log("half way"), job.update_progress({"done": 0.5}))


class CustomError(Exception):
    pass


class HopelessError(UnrecoverableError):
    pass


def fail(job: ActiveJob) -> Any:
    match job.data:
        case "message":
            raise CustomError("with a message")
        case "silent":
            raise CustomError
        case "timeout":
            raise TimeoutError("the other side was slow")
        case "unrecoverable":
            raise UnrecoverableError("no such file")
        case "hopeless":
            raise HopelessError("no such column")
        case "exit":
            sys.exit(7)
        case "interrupted":
            raise KeyboardInterrupt
        case "no json":
            return object()
        case "too large":
            return "x" * 2_000_000
        case "not a number":
            return float("nan")
    return os.getpid()


def refused_once(job: ActiveJob) -> int:
    if job.attempt == 1:
        raise RateLimitError(timedelta(milliseconds=200))
    return job.attempt


def later(job: ActiveJob) -> Any:
    if job.data == "first":
        job.move_to_delayed(timedelta(milliseconds=200), data={"second": job.attempt})
    return job.data


def after_children(job: ActiveJob) -> dict[str, Any]:
    if not (values := job.children_values()):
        job.move_to_waiting_children()
    return values


async def after_children_async(job: AsyncActiveJob) -> dict[str, Any]:
    if not (values := await job.children_values()):
        await job.move_to_waiting_children()
    return values


def change(job: ActiveJob) -> dict[str, Any]:
    """Call whatever takes or returns more than JSON has."""
    job.update_data({"changed": True})
    job.report_usage(Usage(model="m", tokens={"input": 3}))
    return {"data": job.data, "state": job.state().name, "parents": [ref.job_id for ref in job.parents()]}


def misuse(job: ActiveJob) -> list[str]:
    """What wrong calls of a job raise."""
    wrong: list[Callable[[], object]] = [
        lambda: job.log(5),  # type: ignore[arg-type]
        lambda: job.log("a", colour="red"),  # type: ignore[call-arg]
        lambda: job.update_progress(object()),
        lambda: job.update_progress("x" * 2_000_000),
        lambda: job.report_tokens(-1),
        lambda: job.move_to_waiting_children(),
    ]
    said = []
    for call in wrong:
        try:
            said.append(f"returned {call()!r}")
        except Exception as error:
            said.append(type(error).__name__)
    return said


def give_up(job: ActiveJob) -> None:
    job.discard()
    os._exit(5)


def spin(job: ActiveJob) -> int:
    job.log(str(os.getpid()))
    while job.data == "spin":
        pass
    return os.getpid()


def cling(job: ActiveJob) -> None:
    job.log(str(os.getpid()))
    while True:
        with suppress(BaseException):
            time.sleep(60)


def tidy(job: ActiveJob) -> None:
    try:  # the cancel comes as soon as this is logged
        job.log(str(os.getpid()))
        time.sleep(60)
    finally:
        job.log("cleaned up" if job.should_stop else "interrupted")


async def tidy_async(job: AsyncActiveJob) -> None:
    try:  # the cancel comes as soon as this is logged
        await job.log(str(os.getpid()))
        await asyncio.sleep(60)
    finally:
        await job.log("cleaned up" if job.should_stop else "interrupted")


def start_another(job: ActiveJob) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    job.log(str(other.pid))
    other.wait()


def die(job: ActiveJob) -> int:
    if job.data == "exit":
        sys.stderr.write("out of ideas\n")
        sys.stderr.flush()
        os._exit(3)
    if job.data is not None:
        os.kill(os.getpid(), getattr(signal, job.data))
    return os.getpid()


def leave_a_child_behind_and_die(job: ActiveJob) -> None:
    if (child := os.fork()) == 0:
        time.sleep(600)
    job.log(str(child))
    os._exit(4)


def babble(job: ActiveJob) -> None:
    """Write into every line that is open, also the one to the worker."""
    for descriptor in map(int, os.listdir("/dev/fd")):  # noqa: PTH208  numbers, not files
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.write(descriptor, bytes.fromhex(job.data))
    time.sleep(60)


def hoard(job: ActiveJob) -> int:
    _kept.append(b"x" * 50_000_000)
    return os.getpid()


def outer(job: ActiveJob) -> Any:
    """Not found by the name it bears."""


outer.__name__ = outer.__qualname__ = "elsewhere"


sandboxed_cling = sandboxed(cling)


def fan(job: ActiveJob) -> Any:
    """Play all parts of a flow that maps over three elements."""
    if job.name == "list":
        return [0, 1, 2]
    if job.name == "read":
        return list(job.map_results("double"))
    return job.upstream_results() if job.name == "note" else job.data * 2


def stepped(job: ActiveJob) -> Any:
    def fetch(number: int) -> tuple[str, int]:
        job.log(f"runs page-{number}")
        return "page", number

    pages = []
    for number in range(job.data["pages"]):
        if number == 2 and job.attempt == 1:
            job.log("fails")
            raise ValueError("the first attempt ends here")
        pages.append(job.step(f"page-{number}", fetch, number))
    return {"attempt": job.attempt, "pages": pages}


async def stepped_async(job: AsyncActiveJob) -> Any:
    async def fetch(number: int) -> tuple[str, int]:
        await job.log(f"runs page-{number}")
        return "page", number

    pages = []
    for number in range(job.data["pages"]):
        if number == 2 and job.attempt == 1:
            await job.log("fails")
            raise ValueError("the first attempt ends here")
        pages.append(await job.step(f"page-{number}", fetch, number))
    return {"attempt": job.attempt, "pages": pages}


async def grouped(job: AsyncActiveJob) -> Any:
    async with asyncio.TaskGroup() as outer, asyncio.TaskGroup() as group:
        group.create_task(job.sleep("nap", 0.05))
        group.create_task(job.step("beside", asyncio.sleep, 0))
        outer.create_task(asyncio.sleep(0))
    return job.attempt


async def grouped_with_an_error(job: AsyncActiveJob) -> None:
    async def fail() -> None:
        raise ValueError("beside a sleep")

    async with asyncio.TaskGroup() as group:
        group.create_task(job.sleep("nap", 60))
        group.create_task(fail())


async def calling_on_loop(job: AsyncActiveJob) -> Any:
    """Call the tasks of `tests.integration.test_calls`, one and then two together."""
    await job.log("runs")
    first = await job.call("first", "double", number=1)
    both = await job.gather(
        Node("second", "double", data={"number": 2}), Node("third", "double", f"{job.queue}-there", {"number": 3})
    )
    return [job.attempt, first, *both]


def calling(job: ActiveJob) -> Any:
    """The same in a thread."""
    job.log("runs")
    first = job.call("first", "double", number=1)
    both = job.gather(
        Node("second", "double", data={"number": 2}), Node("third", "double", f"{job.queue}-there", {"number": 3})
    )
    return [job.attempt, first, *both]


def gathering_much(job: ActiveJob) -> list[int]:
    """Return the lengths of results that have 18 MB together."""
    calls = (Node(f"n-{number}", "write", data={"size": 900_000}) for number in range(20))
    return [len(text) for text in job.gather(*calls)]


def stepping(job: ActiveJob) -> None:
    for number in range(3):
        job.step(f"n-{number}", int)
    job.sleep("nap", 0.01)
    if job.attempt == 1:
        raise ValueError("again")


async def stepping_on_loop(job: AsyncActiveJob) -> None:
    for number in range(3):
        await job.step(f"n-{number}", int)
    await job.sleep("nap", 0.01)
    if job.attempt == 1:
        raise ValueError("again")


VERSIONS: dict[str, Tasks] = {name: Tasks() for name in ("1", "2", "2 in a process")}


@VERSIONS["1"].task(name="work", version="1", other_versions="wait")
async def version_1(job: AsyncActiveJob) -> str:
    await job.wait_for("go")
    return "by version 1"


@VERSIONS["2"].task(name="work", version="2", other_versions="wait")
def version_2(job: ActiveJob) -> str:
    job.wait_for("go")
    return "by version 2"


@VERSIONS["2 in a process"].task(name="work", version="2", other_versions="wait", isolation="process")
async def version_2_in_a_process(job: AsyncActiveJob) -> str:
    await job.wait_for("go")
    return "by version 2"
