"""The pytest plugin. Loaded by every pytest that finds this package installed, so it imports and starts nothing.

Fixtures that need the package import it when a test requests them. Coroutine fixtures need pytest-asyncio, or anyio's
plugin, and are only defined with one of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from types import ModuleType
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from orchestration_queue.client import AsyncQueue, Queue
    from orchestration_queue.options import WorkerOptions
    from orchestration_queue.testing.environment import StartWorker
    from orchestration_queue.testing.time_machine import TimeMachine
    from orchestration_queue.worker import Handler, Router, Worker


def pytest_configure(config: pytest.Config) -> None:
    """Add the coroutine fixtures, if a plugin can run them."""
    plugins = config.pluginmanager
    decorator: Callable[..., Any] = pytest.fixture
    if plugins.hasplugin("asyncio"):
        import pytest_asyncio

        decorator = pytest_asyncio.fixture  # its strict mode ignores pytest's own fixtures
    elif not plugins.hasplugin("anyio"):
        return
    fixtures = ModuleType("orchestration_queue_async")  # pytest collects fixtures from modules
    vars(fixtures)["oq_async_queue"] = decorator(name="oq_async_queue")(_async_queue)
    plugins.register(fixtures, fixtures.__name__)


async def _async_queue(oq_server: str, oq_queue_name: str) -> AsyncIterator[AsyncQueue]:
    """Yield the async face of this test's queue, removed after the test."""
    from orchestration_queue.client import AsyncQueue

    async with AsyncQueue(oq_queue_name, url=oq_server) as queue:
        yield queue
        await queue.obliterate(force=True)


@pytest.fixture(scope="session")
def oq_server() -> Iterator[str]:
    """Yield the URL of a real Valkey server for this test process: any client, worker or QueueResource accepts it.

    Override it in your conftest.py to run the same tests against another server.
    """
    from orchestration_queue.testing.environment import ephemeral_server

    with ephemeral_server() as url:
        yield url


@pytest.fixture
def oq_default_server(oq_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the same server, set as the default (``OQ_URL``). Emptied after the test."""
    from orchestration_queue.protocol.call import Call
    from orchestration_queue.server import Connection

    monkeypatch.setenv("OQ_URL", oq_server)
    yield oq_server
    with Connection.open(oq_server) as connection:
        connection.execute(Call("FLUSHDB"))


@pytest.fixture
def oq_queue_name() -> str:
    """Return a queue name for this test, which no other test uses."""
    return f"test-{uuid4().hex[:12]}"


@pytest.fixture
def oq_queue(oq_server: str, oq_queue_name: str) -> Iterator[Queue]:
    """Yield a queue for this test, removed after it."""
    from orchestration_queue.client import Queue

    with Queue(oq_queue_name, url=oq_server) as queue:
        yield queue
        queue.obliterate(force=True)


@pytest.fixture
def oq_worker() -> Iterator[StartWorker]:
    """Start workers beside the test: ``oq_worker(queue, tasks)``. They are stopped after the test."""
    from orchestration_queue.testing.environment import running_worker

    with ExitStack() as stack:

        def start(
            queue: Queue | AsyncQueue, handler: Handler | Router, *, options: WorkerOptions | None = None
        ) -> Worker:
            return stack.enter_context(running_worker(queue, handler, options=options))

        yield start


@pytest.fixture
def oq_clock() -> Iterator[TimeMachine]:
    """Yield the queues' clock, which the test can set. It is set back after the test."""
    from orchestration_queue.testing.time_machine import TimeMachine

    with TimeMachine() as machine:
        yield machine
