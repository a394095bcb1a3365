"""A worker that runs beside the test, as it would beside the application."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

from orchestration_queue.client import AsyncQueue, Queue
from orchestration_queue.options import WorkerOptions
from orchestration_queue.worker import Handler, Router, Worker

__all__ = ["StartWorker", "running_worker"]

StartWorker = Callable[..., Worker]
"""The type of the fixture ``oq_worker``: takes a queue, a handler and ``options``."""


@contextmanager
def running_worker(
    queue: Queue | AsyncQueue, handler: Handler | Router, *, options: WorkerOptions | None = None
) -> Iterator[Worker]:
    """Run a worker of the queue in a thread with its own event loop, until the context ends.

    For tests of code that waits for its jobs. To run jobs and inspect them afterwards, use
    :func:`~orchestration_queue.testing.drain`.

    Args:
        queue: The queue, sync or async.
        handler: One handler for all jobs, or a router such as :class:`orchestration_queue.tasks.Tasks`.
        options: The worker's options. At the end, running jobs have ``options.drain`` to finish.

    Yields:
        The worker. Its methods belong on its own event loop.

    Raises:
        TransportError: The server was unreachable; raised when the context ends.
    """
    worker = Worker(queue.name, handler, url=queue.url, options=options, prefix=queue.keys.prefix)
    started: Future[asyncio.AbstractEventLoop] = Future()
    ended: Future[None] = Future()

    async def work() -> None:
        started.set_result(asyncio.get_running_loop())
        await worker.run()

    thread = threading.Thread(target=_run, args=(work(), ended), name="oq-testing-worker", daemon=True)
    thread.start()
    loop = started.result()
    try:
        yield worker
    finally:
        with suppress(RuntimeError):  # it has ended by itself
            loop.call_soon_threadsafe(worker.stop)
        thread.join()
    ended.result()


def _run(work: Any, ended: Future[None]) -> None:
    try:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            runner.run(work)
    except BaseException as error:
        ended.set_exception(error)
    else:
        ended.set_result(None)
