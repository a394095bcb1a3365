"""A queue's sizes, read from the server at each scrape."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from heapq import nlargest
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from orchestration_queue.client import Queue
from orchestration_queue.errors import OrchestrationQueueError
from orchestration_queue.server.clock import now_ms
from orchestration_queue.telemetry.names import metric

__all__ = ["QueueCollector"]

_MOST_SHARES = 50


class QueueCollector(Collector):
    """Exports queue sizes. Use it in one process: all processes would export the same.

    Each scrape takes about fifteen commands per queue, in six exchanges; one scan of all keys for the registered
    workers; and two exchanges for the pools, which the queues of a prefix share.

    Args:
        queues: The queues.
        registry: The registry of the metrics.
    """

    def __init__(self, queues: Sequence[Queue], registry: CollectorRegistry) -> None:
        self._queues = queues
        registry.register(self)

    def describe(self) -> Iterator[Any]:
        """Read nothing before the first scrape."""
        return iter(())

    def collect(self) -> Iterator[Any]:
        """Yield the current values; for a queue whose server does not answer, only that."""
        families = {
            name: GaugeMetricFamily(metric(name).name, metric(name).what, labels=metric(name).labels)
            for name in (
                *("depth", "oldest_ready_age_seconds", "paused", "workers", "server_up"),
                *("pool_slots", "pool_slots_used", "pool_jobs_waiting", "share_jobs_waiting"),
            )
        }
        shared: set[tuple[str, str]] = set()
        for queue in self._queues:
            try:
                self._read(queue, families)
                if (pools_of := (str(queue.url), queue.keys.prefix)) not in shared:
                    self._read_pools(queue, families)
                    shared.add(pools_of)
            except OrchestrationQueueError:
                families["server_up"].add_metric([queue.name], 0)
            else:
                families["server_up"].add_metric([queue.name], 1)
        yield from families.values()

    @staticmethod
    def _read(queue: Queue, families: dict[str, GaugeMetricFamily]) -> None:
        since = queue.oldest_ready()
        age_s = max(0.0, now_ms() / 1000 - since.timestamp()) if since else 0.0
        figures: list[tuple[str, float]] = [
            ("oldest_ready_age_seconds", age_s),
            ("paused", queue.is_paused()),
            ("workers", len(queue.workers())),
        ]
        counts = dataclasses.asdict(queue.counts())
        for name, value in figures:
            families[name].add_metric([queue.name], value)
        for state, count in counts.items():
            families["depth"].add_metric([queue.name, state], count)
        shares = nlargest(_MOST_SHARES, queue.shares.list(), key=lambda share: share.waiting)
        for share in shares:
            families["share_jobs_waiting"].add_metric([queue.name, share.name], share.waiting)

    @staticmethod
    def _read_pools(queue: Queue, families: dict[str, GaugeMetricFamily]) -> None:
        for pool in queue.pools.list():
            families["pool_slots"].add_metric([pool.name], pool.slots)
            families["pool_slots_used"].add_metric([pool.name], pool.used)
            families["pool_jobs_waiting"].add_metric([pool.name], pool.waiting)
