"""Natural mistakes in making and running workers: each is a package error, in one sentence, before anything is sent."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

import orchestration_queue
from orchestration_queue import Tasks
from orchestration_queue.errors import OrchestrationQueueError

# Typed as anything, since a type checker would refuse most of what follows.
Worker: Any = orchestration_queue.Worker
BroadcastWorker: Any = orchestration_queue.BroadcastWorker
SharedSlots: Any = orchestration_queue.SharedSlots
WorkerOptions: Any = orchestration_queue.WorkerOptions
run_workers: Any = orchestration_queue.run_workers

AWAY = "unix:///nonexistent/server.sock"


def handle(job: Any) -> None: ...


async def handle_async(job: Any) -> None: ...


def takes_nothing() -> None: ...


def takes_two(job: Any, other: Any) -> None: ...


def needs_keyword(job: Any, *, other: Any) -> None: ...


def generate(job: Any) -> Iterator[int]:
    yield 1


async def generate_async(job: Any) -> AsyncIterator[int]:
    yield 1


NO_SLOTS: list[Any] = [4, "ordered", []]
NO_COUNTS: list[Any] = [0, -1, 1.5, "2", True, None]
NO_HANDLERS: list[Any] = [5, "mail.send", None, [], {}, b"", object()]
NO_STRATEGIES: list[Any] = [5, [handle], {"mine": 5}, {5: handle}]
NO_OPTIONS: list[Any] = [5, "fast", [], ("concurrency", 3), {1: 2}]

WRONG: list[tuple[str, Callable[..., Any], str]] = [
    *[
        (f"handler {value!r}", lambda value=value: Worker("q", value), "`handler` must be a function")
        for value in NO_HANDLERS
    ],
    *[
        (
            f"handler {function.__name__}",
            lambda function=function: Worker("q", function),
            "cannot be called with one job",
        )
        for function in (takes_nothing, takes_two, needs_keyword)
    ],
    ("a generator", lambda: Worker("q", generate), "is a generator"),
    ("an async generator", lambda: Worker("q", generate_async), "is a generator"),
    ("the class of a router", lambda: Worker("q", Tasks), "the class Tasks"),
    ("a class of jobs", lambda: Worker("q", timedelta), "the class timedelta"),
    *[
        (f"url {value!r}", lambda value=value: Worker("q", handle, url=value), "cannot be read")
        for value in ("localhost", "localhost:6379", "http://localhost", "redis://h:x")
    ],
    *[
        (f"listener {value!r}", lambda value=value: Worker("q", handle).subscribe(value), "`listener` must be")
        for value in (5, "failed", None, ["failed"])
    ],
    *[
        (f"queue {value!r}", lambda value=value: Worker(value, handle), "ueue")
        for value in ("", "a:b", "{a}", "a\nb", "a" * 257)
    ],
    *[
        (f"options {value!r}", lambda value=value: Worker("q", handle, options=value), "`options` must be")
        for value in NO_OPTIONS
    ],
    ("an unknown option", lambda: Worker("q", handle, options={"concurency": 3}), "concurency"),
    ("the wire's option", lambda: Worker("q", handle, options={"lockDuration": 3}), "lockDuration"),
    ("a wrong option", lambda: Worker("q", handle, options={"concurrency": 0}), "concurrency"),
    ("a word for a number", lambda: WorkerOptions(concurrency="many"), "concurrency"),
    ("a short lease", lambda: WorkerOptions(lease=0.5), "lease"),
    ("a negative drain", lambda: WorkerOptions(drain=-1), "drain"),
    ("an endless lease", lambda: WorkerOptions(lease=timedelta(days=2)), "lease"),
    ("no stalls of all", lambda: WorkerOptions(max_stalled=-1), "max_stalled"),
    *[
        (f"url {value!r}", lambda value=value: Worker("q", handle, url=value), "`url` must be")
        for value in (5, b"redis://localhost", ["redis://localhost"], 6379)
    ],
    *[
        (f"middleware {value!r}", lambda value=value: Worker("q", handle, middleware=value), "`middleware` must")
        for value in (5, "trace", handle, {handle}, [5], ["trace"], [None])
    ],
    *[
        (f"strategies {value!r}", lambda value=value: Worker("q", handle, strategies=value), "`strategies` must")
        for value in NO_STRATEGIES
    ],
    *[
        (f"slots {value!r}", lambda value=value: Worker("q", handle, slots=value), "`slots` must be")
        for value in NO_SLOTS
    ],
    ("no slots", lambda: SharedSlots(0), "`count` must be"),
    ("no such polling", lambda: SharedSlots(1, "random"), "polling"),
    ("batches of tasks", lambda: Worker("q", Tasks(), options={"batch": {"size": 2}}), "batch"),
    *[
        (
            f"concurrency {value!r}",
            lambda value=value: Worker("q", handle).set_concurrency(value),
            "`concurrency` must be a whole number",
        )
        for value in (*NO_COUNTS, 10_001)
    ],
    ("a long version", lambda: WorkerOptions(code_version="x" * 201), "code_version"),
    ("no subscription", lambda: BroadcastWorker("b", handle, subscription=""), "Subscription"),
    ("a bad start", lambda: BroadcastWorker("b", handle, subscription="s", start_from="newest"), "newest"),
    ("a bad handler of a broadcast", lambda: BroadcastWorker("b", 5, subscription="s"), "`handler` must be"),
    ("no workers", lambda: run_workers(), "one or more workers"),
    ("a list of workers", lambda: run_workers([Worker("q", handle)]), "one or more workers"),
    *[
        (
            f"{value!r} processes",
            lambda value=value: run_workers(Worker("q", handle), processes=value),
            "`processes` must",
        )
        for value in NO_COUNTS
    ],
]


def short(name: str) -> str:
    return re.sub(" at 0x[0-9a-f]+", "", name)[:60]


@pytest.mark.parametrize(("make", "words"), [pytest.param(make, words, id=short(name)) for name, make, words in WRONG])
def test_a_mistake_is_refused_in_one_sentence(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(OrchestrationQueueError) as refused:
        make()
    message = str(refused.value)
    assert words in message
    assert "\n" not in message
    assert message.endswith(".")


@pytest.mark.parametrize("handler", [handle, handle_async, lambda job: None, lambda *jobs: None, print, len, Tasks()])
def test_what_can_run_a_job_is_a_handler(handler: Any) -> None:
    assert Worker("q", handler, options={"concurrency": 2}).options.concurrency == 2


async def test_run_workers_refuses_to_block_an_event_loop() -> None:
    with pytest.raises(OrchestrationQueueError, match=r"await worker\.run\(\)"):
        run_workers(Worker("q", handle))


async def test_a_worker_runs_once_and_leaves_before_it_reached_its_server(caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker("q", handle, url=AWAY)
    worker.stop()
    await worker.run()
    assert not worker.is_ready
    with pytest.raises(OrchestrationQueueError, match="runs only once"):
        await worker.run()


def test_what_is_stopped_before_it_runs_leaves_at_once_from_any_thread() -> None:
    worker = Worker("q", handle, url=AWAY)
    worker.stop()
    worker.stop()
    worker.pause()
    worker.resume()
    assert run_workers(worker) is False
    worker = Worker("q", handle, url=AWAY)
    worker.kill()
    assert run_workers(worker) is True
    asyncio.run(asyncio.sleep(0))
