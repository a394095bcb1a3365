"""Which signals of a program stop its workers, and how: the first drains them, the second gives up their jobs."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import TypeAlias
from weakref import WeakKeyDictionary

__all__ = ["STOP_SIGNALS", "handling_signals", "owning_signals", "stopping_on_signals"]

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_Handler: TypeAlias = Callable[[int, FrameType | None], object] | int | None
"""What :func:`signal.getsignal` returns; None for a handler that Python can't restore."""

_REPEAT_S = 0.2
"""Time within which signals are one request: `timeout` signals its command, and then the command's process group."""

_is_owned = False
"""Whether this program exists to run workers, and its signals are theirs."""


@contextmanager
def owning_signals() -> Iterator[None]:
    """Give this program's signals to its workers, whatever imported modules make of them. Also a decorator.

    SIGTERM stops them even if the program was started with it ignored or blocked: a supervisor sends it, and waits. The
    others stay ignored if they are: a shell ignores SIGINT for a script's commands in the background.
    """
    global _is_owned
    if not _is_main_thread():
        yield
        return
    was_owned, before = _is_owned, signal.getsignal(signal.SIGTERM)
    # Ends the program until a worker takes it. Without a handler, the kernel drops it for process 1 of a container.
    signal.signal(signal.SIGTERM, _exit if os.getpid() == 1 else signal.SIG_DFL)
    # A blocked signal stays blocked across fork and exec, so the mask may be that of the program's parent.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    _is_owned = True
    try:
        yield
    finally:
        _is_owned = was_owned
        _restore({signal.SIGTERM: before})


@contextmanager
def handling_signals(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Have a function handle the stop signals that are free, and restore their handlers in the end."""
    before: dict[signal.Signals, _Handler] = {}
    for number in STOP_SIGNALS:
        if _is_free(number):
            before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        _restore(before)


@contextmanager
def stopping_on_signals(
    stop: Callable[[], object],
    kill: Callable[[], object] | None = None,
    *,
    numbers: Sequence[signal.Signals] = STOP_SIGNALS,
) -> Iterator[None]:
    """Stop a worker of this event loop on those of the signals that are free: each is judged by itself.

    In a command, as :func:`owning_signals` marks it, all but the ignored ones are free. Elsewhere those are that only
    Python itself handles.

    Args:
        stop: Called by the first signal, on the event loop.
        kill: Called by the second.
        numbers: The signals.
    """
    loop = asyncio.get_running_loop()
    scope = _scopes.setdefault(loop, _SignalScope(loop))
    worker = (stop, kill)
    scope.add(worker, numbers)
    try:
        yield
    finally:
        scope.remove(worker)


_Worker: TypeAlias = tuple[Callable[[], object], Callable[[], object] | None]


class _SignalScope:
    """The workers of one event loop, which its signals stop together."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._workers: list[_Worker] = []
        self._before: dict[signal.Signals, _Handler] = {}
        self._first_at: float | None = None

    def add(self, worker: _Worker, numbers: Sequence[signal.Signals]) -> None:
        self._workers.append(worker)
        for number in numbers:
            if number not in self._before and _is_free(number):
                # asyncio's remove_signal_handler() restores Python's default, not what was set before.
                self._before[number] = signal.getsignal(number)
                self._loop.add_signal_handler(number, self._receive)

    def remove(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        if self._workers:
            return
        for number in self._before:
            self._loop.remove_signal_handler(number)
        _restore(self._before)
        self._before, self._first_at = {}, None

    def _receive(self) -> None:
        now = self._loop.time()
        if self._first_at is None:
            self._first_at = now
            for stop, _ in list(self._workers):
                stop()
        elif now - self._first_at > _REPEAT_S:
            for _, kill in list(self._workers):
                if kill is not None:
                    kill()


_scopes: WeakKeyDictionary[asyncio.AbstractEventLoop, _SignalScope] = WeakKeyDictionary()


def _is_free(number: signal.Signals) -> bool:
    """Whether a worker may take this signal now."""
    # Python allows signal handlers to be changed in the main thread alone.
    if not _is_main_thread():
        return False
    handler = signal.getsignal(number)
    if _is_owned:
        return number == signal.SIGTERM or handler is not signal.SIG_IGN
    if number != signal.SIGINT:
        return handler is signal.SIG_DFL
    if isinstance(handler, partial) and isinstance(getattr(handler.func, "__self__", None), asyncio.Runner):
        return True  # that of asyncio.run()
    return handler is signal.default_int_handler


def _is_main_thread() -> bool:
    """Whether signal handlers can be changed here."""
    return threading.current_thread() is threading.main_thread()


def _restore(handlers: Mapping[signal.Signals, _Handler]) -> None:
    for number, handler in handlers.items():
        if handler is not None:
            signal.signal(number, handler)


def _exit(number: int, _frame: FrameType | None) -> None:
    # As shells report a process that a signal has ended.
    sys.exit(128 + number)
