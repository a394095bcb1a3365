"""Workers: take jobs, run their handlers, renew their leases, report their outcomes."""

from orchestration_queue.protocol.outcome import Strategy
from orchestration_queue.worker.active_job import JobInterrupt
from orchestration_queue.worker.broadcast import BroadcastWorker
from orchestration_queue.worker.events import WorkerEvent, WorkerEventType
from orchestration_queue.worker.interfaces import CallNext, Handler, Middleware, Router
from orchestration_queue.worker.job import ActiveJob, AsyncActiveJob
from orchestration_queue.worker.sandbox import sandboxed
from orchestration_queue.worker.serving import run_workers, shard_workers
from orchestration_queue.worker.slots import Polling, SharedSlots
from orchestration_queue.worker.worker import Worker

__all__ = [
    "ActiveJob",
    "AsyncActiveJob",
    "BroadcastWorker",
    "CallNext",
    "Handler",
    "JobInterrupt",
    "Middleware",
    "Polling",
    "Router",
    "SharedSlots",
    "Strategy",
    "Worker",
    "WorkerEvent",
    "WorkerEventType",
    "run_workers",
    "sandboxed",
    "shard_workers",
]
