"""A server of bytes, and clients of one queue."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import redis

from orchestration_queue.wires.chasquimq import AsyncChasquiQueue
from orchestration_queue.wires.chasquimq.keys import ChasquiKeys


@pytest.fixture(scope="session")
def server_url(server_url: str) -> str:
    """A server of the tests, or the Redis 8.6 that OQ_TEST_REDIS86 names as ``unix:///path``: it is flushed."""
    return os.environ.get("OQ_TEST_REDIS86", server_url)


@pytest.fixture
def server(server_url: str) -> Iterator[Any]:
    """A plain client that leaves bytes as they are."""
    client = redis.Redis(unix_socket_path=server_url.removeprefix("unix://"), protocol=2)
    client.flushall()
    yield client
    client.close()


@pytest.fixture
async def queue(server: Any, server_url: str, queue_name: str) -> AsyncIterator[AsyncChasquiQueue]:
    """A client of an empty queue."""
    async with AsyncChasquiQueue(queue_name, url=server_url) as client:
        yield client


@pytest.fixture
def keys(queue_name: str) -> ChasquiKeys:
    """The queue's keys."""
    return ChasquiKeys(queue_name)
