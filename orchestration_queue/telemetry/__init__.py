"""Telemetry of workers and queues: Prometheus metrics and probes."""

from orchestration_queue._extras import named_extra

with named_extra():
    from orchestration_queue.telemetry.metrics import CallMetrics, WorkerMetrics
    from orchestration_queue.telemetry.names import METRICS, Metric
    from orchestration_queue.telemetry.queues import QueueCollector
    from orchestration_queue.telemetry.server import TelemetryServer

__all__ = ["METRICS", "CallMetrics", "Metric", "QueueCollector", "TelemetryServer", "WorkerMetrics"]
