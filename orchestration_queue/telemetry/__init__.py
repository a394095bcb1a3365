"""Telemetry of workers and queues: Prometheus metrics and probes."""

from orchestration_queue.telemetry.calls import CallMetrics
from orchestration_queue.telemetry.names import METRICS, Metric
from orchestration_queue.telemetry.queues import QueueCollector
from orchestration_queue.telemetry.server import TelemetryServer
from orchestration_queue.telemetry.workers import WorkerMetrics

__all__ = ["METRICS", "CallMetrics", "Metric", "QueueCollector", "TelemetryServer", "WorkerMetrics"]
