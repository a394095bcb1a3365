"""Prometheus's objects, made as the table of names describes them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from orchestration_queue.telemetry.names import Metric

__all__ = ["counter", "histogram"]


def counter(made: Metric, registry: CollectorRegistry) -> Counter:
    """A counter as described."""
    return Counter(made.name, made.what, made.labels, registry=registry)


def histogram(made: Metric, registry: CollectorRegistry) -> Histogram:
    """A histogram as described."""
    return Histogram(made.name, made.what, made.labels, registry=registry, buckets=made.buckets)
