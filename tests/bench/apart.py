"""A worker in a process of its own, so that what it holds is not mixed with what the measuring holds."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from orchestration_queue.options import WorkerOptions
from orchestration_queue.worker import Worker

__all__ = ["Memory", "worker_apart"]

Memory = Callable[[Literal["VmRSS", "VmHWM"]], float]
"""Reads what a process holds now, or the most it ever held, in MiB."""


def _serve(url: str, queue: str, handler: Any, concurrency: int) -> None:
    asyncio.run(Worker(queue, handler, url=url, options=WorkerOptions(concurrency=concurrency)).run())


@contextmanager
def worker_apart(url: str, queue: str, handler: Any, concurrency: int) -> Iterator[Memory]:
    """A worker until the block is left.

    Args:
        url: The server.
        queue: The queue.
        handler: A function of some module's.
        concurrency: How many jobs run at a time.
    """
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_serve, args=(url, queue, handler, concurrency))
    process.start()

    def memory(figure: Literal["VmRSS", "VmHWM"]) -> float:
        status = Path(f"/proc/{process.pid}/status").read_text()
        return round(int(status.partition(f"{figure}:")[2].split()[0]) / 1024, 1)

    try:
        yield memory
    finally:
        process.terminate()
        process.join(20)
