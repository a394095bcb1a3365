"""A queue on every server the library must run on: embedded Valkey, and Debian's Redis 7.0 where it is installed."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator

import pytest
import redis

from tests.conftest import start_server
from tests.lua.coverage import MEASURE, LineCoverage
from tests.lua.wire import Wire, load_library


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


@pytest.fixture(scope="package", params=["valkey", "redis"])
def library_client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, lua_coverage: LineCoverage | None
) -> Iterator[redis.Redis]:
    """A client of a server that has the library, one server for all tests of this folder."""
    binary = shutil.which("redis-server") if request.param == "redis" else None
    if request.param == "redis" and binary is None:
        pytest.skip("no redis-server on the PATH (Debian: apt-get install redis-server)")
    socket = tmp_path_factory.mktemp(request.param) / "server.sock"
    process = start_server(socket, binary=binary)
    client = redis.Redis(unix_socket_path=str(socket), decode_responses=True, protocol=2)
    load_library(client)
    yield client
    client.close()
    process.send_signal(signal.SIGTERM)
    process.wait(10)


@pytest.fixture
def wire(library_client: redis.Redis, lua_coverage: LineCoverage | None) -> Iterator[Wire]:
    """The queue ``q`` on an empty server."""
    library_client.flushall()
    yield Wire(library_client)
    if lua_coverage:
        lua_coverage.collect(library_client)
