"""How many orders of several clients' calls are tried."""

from __future__ import annotations

import pytest


@pytest.fixture
def preemptions(request: pytest.FixtureRequest) -> int:
    """Up to how many preemptions orders have."""
    found: int = request.config.getoption("--preemptions")
    return found
