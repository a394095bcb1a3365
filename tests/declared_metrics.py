"""Metrics as they are served, compared with their declarations."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from orchestration_queue.telemetry import Metric

__all__ = ["check_page", "check_registry"]

_OF_KIND = {"le"}
"""A histogram's own label."""


def check_page(text: str, declared: Iterable[Metric]) -> None:
    """Check that a page has each metric with its type, help and labels, and no other."""
    _check(text_string_to_metric_families(text), declared)


def check_registry(registry: CollectorRegistry, declared: Iterable[Metric]) -> None:
    """Check the same of a registry."""
    _check(registry.collect(), declared)


def _check(families: Iterable[Family], declared: Iterable[Metric]) -> None:
    # A counter's family is named without the suffix; and the client adds when each series began to be counted.
    found = {
        family.name + "_total" * (family.type == "counter"): family
        for family in families
        if not family.name.endswith("_created")
    }
    wanted = {metric.name: metric for metric in declared}
    assert {name: (family.type, family.documentation) for name, family in found.items()} == {
        name: (metric.kind, metric.what) for name, metric in wanted.items()
    }
    for name, family in found.items():
        labels = {frozenset(sample.labels.keys() - _OF_KIND) for sample in family.samples}
        assert labels <= {frozenset(wanted[name].labels)}, name
