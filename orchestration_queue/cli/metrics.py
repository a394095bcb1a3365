"""The endpoint that worker commands offer: their metrics, how full queues are, and probes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Annotated, TypeAlias

import typer

from orchestration_queue.client import Queue
from orchestration_queue.errors import UsageError
from orchestration_queue.server import Connection
from orchestration_queue.worker import Worker

__all__ = ["MetricsHost", "MetricsPort", "MetricsQueue", "QueueMetrics", "endpoint"]

MetricsPort: TypeAlias = Annotated[
    int | None, typer.Option(envvar="OQ_METRICS_PORT", help="Serve /metrics, /livez and /readyz here; 0 takes any.")
]
MetricsHost: TypeAlias = Annotated[str, typer.Option(envvar="OQ_METRICS_HOST", help="Where to serve them.")]
QueueMetrics: TypeAlias = Annotated[
    bool, typer.Option(envvar="OQ_QUEUE_METRICS", help="Show there how full the queues are, too.")
]
MetricsQueue: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(help="Show there how full this queue is, whichever worker serves it; can be repeated."),
]

_SOON = timedelta(seconds=1)


@contextmanager
def endpoint(
    workers: Sequence[Worker],
    host: str,
    port: int | None,
    queues: Sequence[str] = (),
    *,
    url: str | None,
    prefix: str,
) -> Iterator[None]:
    """Serve the metrics and probes of workers; without a port nothing.

    Args:
        workers: The workers of this process.
        host: Where to listen.
        port: The port; 0 for any.
        queues: The queues whose depth is shown, too.
        url: The server of these.
        prefix: First part of every key of theirs.

    Raises:
        UsageError: prometheus-client is not installed, or the port cannot be had.
    """
    if port is None:
        yield
        return
    try:
        from orchestration_queue.telemetry import CallMetrics, QueueCollector, TelemetryServer, WorkerMetrics
    except ImportError as error:
        raise UsageError(
            "Metrics need the package prometheus-client; install orchestration-queue[prometheus]."
        ) from error
    metrics = WorkerMetrics()
    for worker in workers:
        metrics.watch(worker)
    with ExitStack() as stack:
        if queues:
            # A connection that gives up early: scrapers wait only a few seconds.
            connection = stack.enter_context(Connection.open(url, connect_timeout=_SOON))
            shown = [Queue(name, connection=connection, prefix=prefix) for name in queues]
            QueueCollector(shown, metrics.registry)
        stack.enter_context(CallMetrics(metrics.registry))
        stack.enter_context(TelemetryServer(metrics.registry, workers, host=host, port=port))
        yield
