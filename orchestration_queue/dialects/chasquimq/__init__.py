"""Clients, workers and schedulers for ChasquiMQ's queues, beside its Rust, Node and Python processes."""

from __future__ import annotations

from orchestration_queue.dialects.chasquimq._async.client import AsyncChasquiEvents
from orchestration_queue.dialects.chasquimq._async.move import AsyncChasquiMove
from orchestration_queue.dialects.chasquimq._async.queue import AsyncChasquiQueue
from orchestration_queue.dialects.chasquimq._sync.client import ChasquiEvents
from orchestration_queue.dialects.chasquimq._sync.move import ChasquiMove
from orchestration_queue.dialects.chasquimq._sync.queue import ChasquiQueue
from orchestration_queue.dialects.chasquimq.entries import (
    ChasquiCounts,
    ChasquiDeadLetter,
    ChasquiEvent,
    ChasquiSchedule,
)
from orchestration_queue.dialects.chasquimq.envelope import BackoffSpec
from orchestration_queue.dialects.chasquimq.jobs import ChasquiJob, NewChasquiJob
from orchestration_queue.dialects.chasquimq.moving import Moved
from orchestration_queue.dialects.chasquimq.options import ChasquiObserver, ChasquiWorkerOptions
from orchestration_queue.dialects.chasquimq.relay import ChasquiRef, add_relay
from orchestration_queue.dialects.chasquimq.worker import ChasquiWorker

__all__ = [
    "AsyncChasquiEvents",
    "AsyncChasquiMove",
    "AsyncChasquiQueue",
    "BackoffSpec",
    "ChasquiCounts",
    "ChasquiDeadLetter",
    "ChasquiEvent",
    "ChasquiEvents",
    "ChasquiJob",
    "ChasquiMove",
    "ChasquiObserver",
    "ChasquiQueue",
    "ChasquiRef",
    "ChasquiSchedule",
    "ChasquiWorker",
    "ChasquiWorkerOptions",
    "Moved",
    "NewChasquiJob",
    "add_relay",
]
