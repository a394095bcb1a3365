"""What the project leaves behind for its test to read."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["is_set", "note", "signs", "span"]


def _scratch() -> Path:
    return Path(os.environ["SCRATCH"])


def note(name: str, line: object) -> None:
    """Add a line to a trace."""
    with (_scratch() / name).open("a") as file:
        file.write(f"{line}\n")


def is_set(name: str) -> bool:
    """Return whether the test has made this file."""
    return (_scratch() / name).exists()


def signs(prefix: str) -> list[str]:
    """Return the rest of the names of the files that the test has made with this prefix."""
    return sorted(path.name.removeprefix(prefix) for path in _scratch().glob(f"{prefix}*"))


@contextmanager
def span(name: str, seconds: float = 0.2) -> Iterator[None]:
    """Note when a body began and ended; it takes at least this long."""
    began = time.time()
    yield
    time.sleep(seconds)
    note(name, f"{began} {time.time()}")
