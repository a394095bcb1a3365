"""ChasquiMQ's queues: fed, worked and scheduled by this package, beside its Rust, Node and Python processes."""

from __future__ import annotations

from orchestration_queue.dialects.chasquimq._async.queue import AsyncChasquiQueue
from orchestration_queue.dialects.chasquimq._sync.queue import ChasquiQueue
from orchestration_queue.dialects.chasquimq.backoff import BackoffSpec
from orchestration_queue.dialects.chasquimq.entries import ChasquiCounts, ChasquiDeadLetter, ChasquiSchedule
from orchestration_queue.dialects.chasquimq.jobs import ChasquiJob, NewChasquiJob
from orchestration_queue.dialects.chasquimq.options import ChasquiWorkerOptions
from orchestration_queue.dialects.chasquimq.worker import ChasquiWorker

__all__ = [
    "AsyncChasquiQueue",
    "BackoffSpec",
    "ChasquiCounts",
    "ChasquiDeadLetter",
    "ChasquiJob",
    "ChasquiQueue",
    "ChasquiSchedule",
    "ChasquiWorker",
    "ChasquiWorkerOptions",
    "NewChasquiJob",
]
