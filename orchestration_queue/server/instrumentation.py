"""Observe how long exchanges take and what the server refuses. Costs nothing without observers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from orchestration_queue.errors import TransportError
from orchestration_queue.protocol.call import Call, Reply
from orchestration_queue.server.driver_errors import REFUSALS, error_code

__all__ = ["ExchangeHook", "exchange_hooks", "report_exchange"]

ExchangeHook: TypeAlias = Callable[[Sequence[Call], float, Sequence[tuple[str, str]]], object]
"""Called with each exchange, in any thread: its calls, how many seconds it took, and the name and the code of
each call that failed. A call that did not reach the server has the code ``unreachable``, one without an answer
``interrupted``."""

exchange_hooks: list[ExchangeHook] = []


@contextmanager
def report_exchange(calls: Sequence[Call]) -> Iterator[list[Reply]]:
    """Report the block's exchange to the hooks; the block leaves its replies in the list."""
    replies: list[Reply] = []
    failed: list[tuple[str, str]] = []
    began = time.perf_counter()
    try:
        yield replies
        refusals = zip(calls, replies, strict=True)
        failed += [(call.name, error_code(reply) or "ERR") for call, reply in refusals if isinstance(reply, REFUSALS)]
    except TransportError as error:
        code = "interrupted" if error.maybe_applied else "unreachable"
        failed += [(name, code) for name in dict.fromkeys(call.name for call in calls)]
        raise
    finally:
        took = time.perf_counter() - began
        for hook in tuple(exchange_hooks):
            hook(calls, took, failed)
