"""Who is measured: ourselves, and other Python queues on the same server in the same run."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeAlias

__all__ = ["PEERS", "QUEUE", "Contender", "Handler", "Settle", "contender", "gathered", "guarantees"]

QUEUE = "bench"
Handler: TypeAlias = Callable[[Any], Any]
"""Given each job's payload as the job starts."""
Settle: TypeAlias = Callable[[], Awaitable[object]]
"""Waits until the server holds the outcome of every started job."""


class Contender(Protocol):
    """A queue, as far as it is measured."""

    def enqueue_one_by_one(self, url: str, jobs: int, begin: Callable[[], object]) -> None:
        """Add jobs, each confirmed before the next; calls ``begin`` when connected."""

    def enqueue_bulk(self, url: str, jobs: int, begin: Callable[[], object]) -> None:
        """Add jobs in the fastest way there is."""

    @asynccontextmanager
    def working(self, url: str, concurrency: int, handler: Handler) -> AsyncIterator[Settle]:
        """Run a worker; yields what waits for the outcomes, so that the worker's shutdown is not measured."""

    @asynccontextmanager
    def producing(self, url: str) -> AsyncIterator[Callable[[Any], Any]]:
        """A coroutine function that adds one job."""


PEERS = ("taskiq", "saq", "dramatiq", "streaq", "bullmq", "chasquimq")
"""Each a module of this package, loaded when it is measured: they do not all belong into one process."""


def contender(name: str) -> Contender:
    """Return one, ready to be measured; ``ours:Threads`` is another class of its module."""
    module, _, variant = name.partition(":")
    made: Contender = getattr(importlib.import_module(f"{__name__}.{module}"), variant or "Measured")()
    return made


def guarantees(name: str) -> str:
    """Return what a contender promises, which is the first line of its module."""
    return (importlib.import_module(f"{__name__}.{name}").__doc__ or "").partition("\n")[0]


async def gathered(
    producing: AbstractAsyncContextManager[Callable[[Any], Any]], jobs: int, begin: Callable[[], object], at_once: int
) -> None:
    """Add jobs through a producer, several calls at once."""
    async with producing as produce:
        begin()
        for first in range(0, jobs, at_once):
            await asyncio.gather(*(produce({"at": number}) for number in range(first, min(first + at_once, jobs))))
