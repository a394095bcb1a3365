"""What the tests of this folder share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos.saboteur import Saboteur

_figures = pytest.StashKey[list[str]]()


@pytest.fixture
def saboteur(server_url: str, tmp_path: Path) -> Iterator[Saboteur]:
    """In front of the server, and harmless until told otherwise."""
    with Saboteur(Path(server_url.removeprefix("unix://")), tmp_path / "saboteur.sock") as saboteur:
        yield saboteur


@pytest.fixture
def recovered(request: pytest.FixtureRequest) -> Callable[[float, float], None]:
    """Record after how many seconds work continued, and the maximum; the figures are printed at the end."""

    def note(seconds: float, most: float) -> None:
        figures = request.config.stash.setdefault(_figures, [])
        figures.append(f"{seconds:6.2f} s of {most:g} s  {request.node.name}")
        assert seconds <= most, f"work continued only after {seconds:.2f} s"

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print how long each recovery took."""
    if figures := config.stash.get(_figures, []):
        terminalreporter.section("recovery times")
        for figure in figures:
            terminalreporter.write_line(figure)
