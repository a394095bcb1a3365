"""Tracing hooks. No-ops unless a middleware installs a sink."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

__all__ = ["Attributes", "TracingHooks", "annotate", "is_traced", "span", "tracing_to"]

Attributes = Mapping[str, str | int]


class TracingHooks(Protocol):
    """Receives spans."""

    def span(self, name: str, attributes: Attributes) -> AbstractContextManager[Any]:
        """Return a context manager: a span within the current one."""

    def annotate(self, attributes: Attributes) -> None:
        """Add attributes to the current span."""


_spans: ContextVar[TracingHooks | None] = ContextVar("orchestration_queue_spans", default=None)


def is_traced() -> bool:
    """Whether a sink is installed."""
    return _spans.get() is not None


@contextmanager
def span(name: str, attributes: Attributes) -> Iterator[None]:
    """Make a block a span of the running job's trace."""
    if (spans := _spans.get()) is None:
        yield
        return
    with spans.span(name, attributes):
        yield


def annotate(attributes: Attributes) -> None:
    """Add attributes to the current span."""
    if (spans := _spans.get()) is not None:
        spans.annotate(attributes)


@contextmanager
def tracing_to(spans: TracingHooks) -> Iterator[None]:
    """Install a sink during the block, also for threads started with its context."""
    token = _spans.set(spans)
    try:
        yield
    finally:
        _spans.reset(token)
