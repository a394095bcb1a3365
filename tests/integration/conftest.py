"""What tests against a real server share: each face of the client, and a worker played by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.by_hand import HandWorker
from tests.faces import Face


@pytest.fixture(params=["async", "sync"])
def face(request: pytest.FixtureRequest, server_url: str) -> Face:
    """One face of the client; each test runs with both."""
    return Face(request.param, server_url)


@pytest.fixture
def hand(server_url: str, queue_name: str) -> Iterator[HandWorker]:
    """A worker of the test's queue that does only what the test says."""
    with HandWorker(server_url, queue_name) as worker:
        yield worker
