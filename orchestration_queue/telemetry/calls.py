"""Metrics of server calls: how long they take, and what the server refuses."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from prometheus_client import CollectorRegistry

from orchestration_queue.protocol.call import Call
from orchestration_queue.server.instrumentation import watchers
from orchestration_queue.telemetry.names import metric
from orchestration_queue.telemetry.prometheus import counter, histogram

__all__ = ["CallMetrics"]

_SEVERAL = "pipeline"


class CallMetrics:
    """Measures the calls of all connections of this process, of clients and workers, during the block.

    Args:
        registry: The registry of the metrics.

    Examples:
        >>> from prometheus_client import REGISTRY
        >>> with CallMetrics(REGISTRY), Queue("orders") as queue:  # doctest: +SKIP
        ...     queue.add("order")
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = histogram(metric("server_call_duration_seconds"), registry)
        self._errors = counter(metric("server_call_errors_total"), registry)

    def __enter__(self) -> Self:
        watchers.append(self._count)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        watchers.remove(self._count)

    def _count(self, calls: Sequence[Call], took_s: float, failed: Sequence[tuple[str, str]]) -> None:
        for name, code in failed:
            self._errors.labels(name, code).inc()
        if not any("BLOCK" in call.args and not call.is_function for call in calls):
            names = {call.name for call in calls}
            self._seconds.labels(names.pop() if len(names) == 1 else _SEVERAL).observe(took_s)
