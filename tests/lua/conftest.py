"""A queue on every server the library must run on: embedded Valkey, and Debian's Redis 7.0 where it is installed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import redis

from tests.conftest import start_server
from tests.lua.chasquimq import load_chasquimq_library
from tests.lua.coverage import MEASURE, LineCoverage
from tests.lua.oq1 import load_own_library
from tests.lua.wire import Wire, load_library

SERVERS = ["valkey", "redis"] if shutil.which("redis-server") else ["valkey"]
"""The header of the session says when the second is not there: see tests/session.py."""
if "OQ_TEST_BINARY" in os.environ:
    SERVERS = ["named"]


@pytest.fixture(scope="package", autouse=True)
def lua_coverage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LineCoverage | None]:
    """What measures the lines that the tests of this folder run, when they are measured."""
    if coverage := request.config.stash.get(MEASURE, None):
        with coverage.measuring(tmp_path_factory.mktemp("lua")):
            yield coverage
    else:
        yield None


@pytest.fixture(scope="package")
def library_servers(
    tmp_path_factory: pytest.TempPathFactory, lua_coverage: LineCoverage | None
) -> Iterator[Callable[[str], redis.Redis]]:
    """Clients of servers that have both libraries, one server of each kind for all tests of this folder."""
    started: dict[str, redis.Redis] = {}
    with ExitStack() as stack:

        def client_of(kind: str) -> redis.Redis:
            if kind not in started:
                socket = tmp_path_factory.mktemp(kind) / "server.sock"
                process = start_server(socket, binary=shutil.which("redis-server") if kind == "redis" else None)
                stack.callback(process.wait, 60)
                stack.callback(process.kill)
                client = redis.Redis(unix_socket_path=str(socket), decode_responses=True, protocol=2)
                stack.callback(client.close)
                load_library(client)
                load_own_library(client)
                load_chasquimq_library(client)
                if lua_coverage:
                    stack.callback(lua_coverage.collect, client)
                started[kind] = client
            return started[kind]

        yield client_of


@pytest.fixture(params=SERVERS)
def library_client(request: pytest.FixtureRequest, library_servers: Callable[[str], redis.Redis]) -> redis.Redis:
    """A client of each kind of server."""
    return library_servers(request.param)


@pytest.fixture
def wire(library_client: redis.Redis) -> Wire:
    """The queue ``q`` on an empty server."""
    library_client.flushall()
    return Wire(library_client)
