"""The threads in which plain functions run: as many as the worker has slots, which can change."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

__all__ = ["Threads"]

P = ParamSpec("P")
T = TypeVar("T")


class Threads(Executor):
    """A thread pool whose size can change while it is in use.

    Args:
        count: Maximum number of threads.
    """

    def __init__(self, count: int) -> None:
        self._pool = _make_pool(count)

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a function in one of the threads."""
        return self._pool.submit(function, *args, **kwargs)

    def resize(self, count: int) -> None:
        """Run at most ``count`` functions at a time from now on. Running ones finish in their own threads."""
        before, self._pool = self._pool, _make_pool(count)
        before.shutdown(wait=False)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more functions."""
        self._pool.shutdown(wait, cancel_futures=cancel_futures)


def _make_pool(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="oq-job")
