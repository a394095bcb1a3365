"""The library on a server, beside the script inside reqless."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from orchestration_queue.wires.qless.commands import LIBRARY
from tests.qless.older import Older
from tests.qless.oracle import Both


@pytest.fixture
def server(server_url: str) -> Iterator[redis.Redis]:
    """A plain client of an empty server that has the library."""
    client = redis.Redis(unix_socket_path=server_url.removeprefix("unix://"), decode_responses=True, protocol=2)
    client.flushall()
    client.function_load(LIBRARY.text, replace=True)
    yield client
    client.close()


@pytest.fixture
def older(server: redis.Redis) -> Older:
    """The calls of the older form."""
    return Older(server)


@pytest.fixture
def both(server: redis.Redis, server_url: str) -> Iterator[Both]:
    """Both implementations, each on an empty database."""
    both = Both(server_url.removeprefix("unix://"))
    yield both
    both.close()
