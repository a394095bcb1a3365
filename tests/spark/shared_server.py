"""The Connect server that all tests of one process share, whichever folder they are in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.waiting import wait_until_sync

if TYPE_CHECKING:
    from orchestration_queue.spark import ConnectServer
    from orchestration_queue.spark.connect.address import ServerState

__all__ = ["answering", "connect_server", "connect_state"]


@pytest.fixture(scope="session")
def connect_server() -> Iterator[ConnectServer]:
    """The server of :mod:`tests.spark.connect_work`, started."""
    from tests.spark.connect_work import SERVER

    SERVER.start()
    yield SERVER
    SERVER.close()


@pytest.fixture
def connect_state(connect_server: ConnectServer) -> ServerState:
    """Where it answers."""
    return answering(connect_server)


def answering(server: ConnectServer) -> ServerState:
    """Return a server's state, once it answers."""
    from orchestration_queue.spark.connect.address import read_state

    wait_until_sync(lambda: read_state(server.directory), "the server to answer", 240)
    state = read_state(server.directory)
    assert state is not None
    assert not state.problem
    return state
