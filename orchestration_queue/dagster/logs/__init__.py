"""Compute logs on the queue's server."""

from orchestration_queue.dagster.logs.compute_logs import StreamComputeLogManager

__all__ = ["StreamComputeLogManager"]
