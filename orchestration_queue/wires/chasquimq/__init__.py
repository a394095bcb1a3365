"""Clients, workers and schedulers for ChasquiMQ's queues, beside its Rust, Node and Python processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestration_queue._lazy import lazy_names

if TYPE_CHECKING:
    from orchestration_queue.wires.chasquimq._async.client import AsyncChasquiEvents
    from orchestration_queue.wires.chasquimq._async.move import AsyncChasquiMove
    from orchestration_queue.wires.chasquimq._async.queue import AsyncChasquiQueue
    from orchestration_queue.wires.chasquimq._sync.client import ChasquiEvents
    from orchestration_queue.wires.chasquimq._sync.move import ChasquiMove
    from orchestration_queue.wires.chasquimq._sync.queue import ChasquiQueue
    from orchestration_queue.wires.chasquimq.entries import (
        ChasquiCounts,
        ChasquiDeadLetter,
        ChasquiEvent,
        ChasquiSchedule,
    )
    from orchestration_queue.wires.chasquimq.envelope import BackoffSpec
    from orchestration_queue.wires.chasquimq.jobs import ChasquiJob, NewChasquiJob
    from orchestration_queue.wires.chasquimq.moving import Moved
    from orchestration_queue.wires.chasquimq.options import ChasquiObserver, ChasquiWorkerOptions
    from orchestration_queue.wires.chasquimq.relay import ChasquiRef, add_relay
    from orchestration_queue.wires.chasquimq.worker import ChasquiWorker

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

TITLE = "ChasquiMQ"
"""Its name in texts."""

_HOMES = {
    "wires.chasquimq._async.client": "AsyncChasquiEvents",
    "wires.chasquimq._async.move": "AsyncChasquiMove",
    "wires.chasquimq._async.queue": "AsyncChasquiQueue",
    "wires.chasquimq._sync.client": "ChasquiEvents",
    "wires.chasquimq._sync.move": "ChasquiMove",
    "wires.chasquimq._sync.queue": "ChasquiQueue",
    "wires.chasquimq.entries": "ChasquiCounts ChasquiDeadLetter ChasquiEvent ChasquiSchedule",
    "wires.chasquimq.envelope": "BackoffSpec",
    "wires.chasquimq.jobs": "ChasquiJob NewChasquiJob",
    "wires.chasquimq.moving": "Moved",
    "wires.chasquimq.options": "ChasquiObserver ChasquiWorkerOptions",
    "wires.chasquimq.relay": "ChasquiRef add_relay",
    "wires.chasquimq.worker": "ChasquiWorker",
}
__getattr__, __dir__ = lazy_names(__name__, {name: home for home, names in _HOMES.items() for name in names.split()})
