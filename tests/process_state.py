"""The state of the process that tests share: what one test file changes does not reach the next."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD, signal.SIGPIPE)


@dataclass(frozen=True)
class ProcessState:
    """What a test or a library may change for all that follows in this process."""

    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    path: list[str] = field(default_factory=lambda: list(sys.path))
    directory: str = field(default_factory=os.getcwd)
    handlers: dict[signal.Signals, Any] = field(
        default_factory=lambda: {name: signal.getsignal(name) for name in SIGNALS}
    )
    log_level: int = field(default_factory=lambda: logging.getLogger().level)
    log_handlers: list[logging.Handler] = field(default_factory=lambda: list(logging.getLogger().handlers))
    logging_disabled: int = field(default_factory=lambda: logging.root.manager.disable)

    def restore(self) -> None:
        """Undo every change since."""
        restore_environment(self.environment)
        sys.path[:] = self.path
        os.chdir(self.directory)
        for number, handler in self.handlers.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        root = logging.getLogger()
        root.setLevel(self.log_level)
        root.handlers[:] = self.log_handlers
        logging.disable(self.logging_disabled)


def restore_environment(before: dict[str, str]) -> None:
    """Set the environment to what it was."""
    if os.environ != before:
        os.environ.clear()
        os.environ.update(before)


BEFORE = pytest.StashKey[ProcessState]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Restore the state after the last test of each file, when the file's fixtures are gone."""
    before = item.config.stash.setdefault(BEFORE, ProcessState())
    try:
        return (yield)
    finally:
        if nextitem is None or nextitem.path != item.path:
            before.restore()
            del item.config.stash[BEFORE]


@pytest.fixture(autouse=True)
def environment_is_given_back() -> Iterator[None]:
    """Undo what a test changed in the environment, even by way of a library.

    PySpark leaves a variable behind with each Connect session, and takes it for the kind of every later one.
    """
    before = dict(os.environ)
    yield
    restore_environment(before)
