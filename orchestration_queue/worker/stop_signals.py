"""Signals that stop workers: the first drains them, the second kills them."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from orchestration_queue.worker.worker import Worker

__all__ = ["STOP_SIGNALS", "running_loop", "stopping_on_signals"]

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _SignalScope:
    """The workers that one event loop's signals stop: the first signal drains them, the second kills them."""

    def __init__(self) -> None:
        self._workers: list[Worker] = []
        self._received = 0

    def add(self, worker: Worker, loop: asyncio.AbstractEventLoop) -> None:
        if not self._workers:
            self._before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
            for number in STOP_SIGNALS:
                loop.add_signal_handler(number, self._receive)
        self._workers.append(worker)

    def remove(self, worker: Worker, loop: asyncio.AbstractEventLoop) -> None:
        self._workers.remove(worker)
        if not self._workers:
            self._received = 0
            for number, handler in self._before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)

    @property
    def is_active(self) -> bool:
        return bool(self._workers)

    def _receive(self) -> None:
        self._received += 1
        for worker in list(self._workers):
            worker.stop() if self._received == 1 else worker.kill()


_scopes: WeakKeyDictionary[asyncio.AbstractEventLoop, _SignalScope] = WeakKeyDictionary()


@contextmanager
def stopping_on_signals(worker: Worker) -> Iterator[None]:
    """Stop the worker on SIGTERM and SIGINT, if this is the main thread and the program has no handlers of its own."""
    loop = asyncio.get_running_loop()
    scope = _scopes.setdefault(loop, _SignalScope())
    is_ours = threading.current_thread() is threading.main_thread() and (scope.is_active or _are_default())
    if not is_ours:
        yield
        return
    scope.add(worker, loop)
    try:
        yield
    finally:
        scope.remove(worker, loop)


def _are_default() -> bool:
    """Whether only Python itself handles the signals; :func:`asyncio.run` counts as Python itself."""
    interrupt = signal.getsignal(signal.SIGINT)
    if isinstance(interrupt, partial) and isinstance(getattr(interrupt.func, "__self__", None), asyncio.Runner):
        interrupt = signal.default_int_handler
    return interrupt is signal.default_int_handler and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread; None without one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
