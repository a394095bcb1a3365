"""The threads in which plain functions run."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

__all__ = ["ThreadCall", "Threads"]

_LATEST_S = 0.001
"""How long a result may wait while its thread already runs the next function."""


class ThreadCall:
    """A function's call in a thread.

    Attributes:
        ended: Its result, on the event loop.
    """

    __slots__ = ("_error", "_function", "_is_over", "_result", "ended")

    def __init__(self, function: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.ended: asyncio.Future[Any] = loop.create_future()
        self._function = function
        self._is_over = False
        self._result: Any = None
        self._error: BaseException | None = None

    def outlive_waiter(self) -> asyncio.Future[Any]:
        """Return a future of its end after a cancelled task has cancelled :attr:`ended`; the thread continues."""
        if self.ended.cancelled():
            self.ended = self.ended.get_loop().create_future()
            if self._is_over:
                self.ended.set_result(None)
        return self.ended

    def drop(self) -> None:
        """Cancel a call that has not begun, on the event loop."""
        self._is_over = True
        self.ended.cancel()

    def run(self) -> None:
        """Call the function, in the thread."""
        try:
            self._result = self._function()
        except StopIteration as error:  # no future can hold it
            self._error = RuntimeError(f"the handler raised {error!r}")
            self._error.__cause__ = error
        except BaseException as error:
            self._error = error

    def settle(self) -> None:
        """Report the result, on the event loop."""
        self._is_over = True
        if self.ended.done():
            return
        if self._error is None:
            self.ended.set_result(self._result)
        else:
            self.ended.set_exception(self._error)


class Threads:
    """The threads in which plain functions run: as many as the worker has slots, which can change while they work.

    A thread that ends a function takes the next one, and another thread is only woken when the last one woken has
    taken its first: short functions of one exchange run in a thread or two. Their results wake the event loop when no
    function is left to take, or after a millisecond. Waking a thread for each, and the loop for each result, made a
    no-op job half again as expensive.

    Args:
        count: Maximum number of threads.
    """

    def __init__(self, count: int) -> None:
        self._pool = _make_pool(count)
        self._calls: deque[ThreadCall] = deque()
        self._ended: deque[ThreadCall] = deque()
        self._is_waking = self._is_reporting = False
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop

    def call(self, function: Callable[[], Any]) -> ThreadCall:
        """Call a function in one of the threads.

        Raises:
            RuntimeError: No thread can be started.
        """
        self._loop = loop = asyncio.get_running_loop()
        call = ThreadCall(function, loop)
        self._calls.append(call)
        try:
            self._wake()
        except RuntimeError:  # no thread can be started
            if call in self._calls:
                self._calls.remove(call)
                raise
        if self._timer is None:
            self._timer = loop.call_later(_LATEST_S, self._check)
        return call

    def resize(self, count: int) -> None:
        """Run at most ``count`` functions at a time from now on. Running ones finish in their own threads."""
        before, self._pool = self._pool, _make_pool(count)
        before.shutdown(wait=False)
        self._is_waking = False  # a thread may have tried to wake another of the pool before
        if self._calls:
            self._wake()

    def shutdown(self) -> None:
        """Cancel the functions that have not begun. Running ones finish in their own threads."""
        with suppress(IndexError):  # a thread took the last one
            while True:
                self._calls.popleft().drop()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._is_waking = False

    def _wake(self) -> None:
        """Have one more thread take functions, unless one was woken that has not taken any yet."""
        if self._is_waking:
            return
        self._is_waking = True
        pool = self._pool
        try:
            pool.submit(self._work, pool)
        except RuntimeError:
            self._is_waking = False
            raise

    def _work(self, pool: ThreadPoolExecutor) -> None:
        """Run functions until none is left, in a thread of this pool."""
        # Before it takes any: what is added from here on is taken below, or wakes another thread.
        self._is_waking = False
        with suppress(IndexError):  # another thread was faster
            while pool is self._pool:
                call = self._calls.popleft()
                self._wake_another()
                call.run()
                self._ended.append(call)
                if not self._calls:
                    self._report()
        self._wake_another()  # the number of threads was changed

    def _wake_another(self) -> None:
        with suppress(RuntimeError):  # no more threads can be started, or the worker has left
            if self._calls:
                self._wake()

    def _report(self) -> None:
        if not self._is_reporting:
            self._is_reporting = True
            with suppress(RuntimeError):  # the worker's event loop is closed
                self._loop.call_soon_threadsafe(self._settle)

    def _check(self) -> None:
        """Report results of threads that run another function now."""
        # Before settling: a result that a thread left here, because it saw more functions, came before they were taken.
        self._timer = self._loop.call_later(_LATEST_S, self._check) if self._calls else None
        self._settle()

    def _settle(self) -> None:
        # Before settling: a result that comes later is reported again.
        self._is_reporting = False
        with suppress(IndexError):
            while True:
                self._ended.popleft().settle()


def _make_pool(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="oq-job")
