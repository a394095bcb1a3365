"""Prometheus's objects, created from the table of names."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from orchestration_queue.telemetry.names import Metric

__all__ = ["LabelValues", "counter", "histogram"]

_MOST_VALUES = 200


class LabelValues:
    """Limits the values of a label that clients choose: after 200, all others are ``other``."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def __call__(self, value: str) -> str:
        """Return the label's value."""
        if value not in self._seen:
            if len(self._seen) >= _MOST_VALUES:
                return "other"
            self._seen.add(value)
        return value


def counter(made: Metric, registry: CollectorRegistry) -> Counter:
    """Return a counter as described."""
    return Counter(made.name, made.what, made.labels, registry=registry)


def histogram(made: Metric, registry: CollectorRegistry) -> Histogram:
    """Return a histogram as described."""
    return Histogram(made.name, made.what, made.labels, registry=registry, buckets=made.buckets)
