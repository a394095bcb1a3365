"""Workers: take jobs, run them, keep their leases, tell their outcomes."""

from orchestration_queue.worker.job import ActiveJob, AsyncActiveJob
from orchestration_queue.worker.runner import Handler, Router
from orchestration_queue.worker.worker import Worker

__all__ = ["ActiveJob", "AsyncActiveJob", "Handler", "Router", "Worker"]
