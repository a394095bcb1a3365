"""Clients and workers for qless's queues, beside its Ruby, Python and Go processes."""

from __future__ import annotations

from orchestration_queue.dialects.qless._async.client import AsyncQlessClient
from orchestration_queue.dialects.qless._async.connection import AsyncQlessEvents
from orchestration_queue.dialects.qless._async.move import AsyncQlessMove
from orchestration_queue.dialects.qless._sync.client import QlessClient
from orchestration_queue.dialects.qless._sync.connection import QlessEvents
from orchestration_queue.dialects.qless._sync.move import QlessMove
from orchestration_queue.dialects.qless.handlers import QlessNext, run_class
from orchestration_queue.dialects.qless.moving import QlessMoved
from orchestration_queue.dialects.qless.options import QlessObserver, QlessWorkerOptions
from orchestration_queue.dialects.qless.records import (
    QlessCounts,
    QlessEvent,
    QlessFailure,
    QlessJob,
    QlessRecurringJob,
    QlessStats,
    QlessWorkerCounts,
)
from orchestration_queue.dialects.qless.worker import QlessWorker

__all__ = [
    "AsyncQlessClient",
    "AsyncQlessEvents",
    "AsyncQlessMove",
    "QlessClient",
    "QlessCounts",
    "QlessEvent",
    "QlessEvents",
    "QlessFailure",
    "QlessJob",
    "QlessMove",
    "QlessMoved",
    "QlessNext",
    "QlessObserver",
    "QlessRecurringJob",
    "QlessStats",
    "QlessWorker",
    "QlessWorkerCounts",
    "QlessWorkerOptions",
    "run_class",
]
