"""Clients and workers for qless's queues, beside its Ruby, Python and Go processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestration_queue._lazy import lazy_names

if TYPE_CHECKING:
    from orchestration_queue.wires.qless._async.client import AsyncQlessClient
    from orchestration_queue.wires.qless._async.connection import AsyncQlessEvents
    from orchestration_queue.wires.qless._async.move import AsyncQlessMove
    from orchestration_queue.wires.qless._sync.client import QlessClient
    from orchestration_queue.wires.qless._sync.connection import QlessEvents
    from orchestration_queue.wires.qless._sync.move import QlessMove
    from orchestration_queue.wires.qless.handlers import QlessNext, run_class
    from orchestration_queue.wires.qless.moving import QlessMoved
    from orchestration_queue.wires.qless.options import QlessObserver, QlessWorkerOptions
    from orchestration_queue.wires.qless.records import (
        QlessCounts,
        QlessEvent,
        QlessFailure,
        QlessJob,
        QlessRecurringJob,
        QlessStats,
        QlessWorkerCounts,
    )
    from orchestration_queue.wires.qless.worker import QlessWorker

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

TITLE = "qless"
"""Its name in texts."""

_HOMES = {
    "wires.qless._async.client": "AsyncQlessClient",
    "wires.qless._async.connection": "AsyncQlessEvents",
    "wires.qless._async.move": "AsyncQlessMove",
    "wires.qless._sync.client": "QlessClient",
    "wires.qless._sync.connection": "QlessEvents",
    "wires.qless._sync.move": "QlessMove",
    "wires.qless.handlers": "QlessNext run_class",
    "wires.qless.moving": "QlessMoved",
    "wires.qless.options": "QlessObserver QlessWorkerOptions",
    "wires.qless.records": "QlessCounts QlessEvent QlessFailure QlessJob "
    "QlessRecurringJob QlessStats QlessWorkerCounts",
    "wires.qless.worker": "QlessWorker",
}
__getattr__, __dir__ = lazy_names(__name__, {name: home for home, names in _HOMES.items() for name in names.split()})
