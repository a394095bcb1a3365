"""Which workers of a queue are alive."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

from orchestration_queue.protocol.call import Call, optional_text
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.scanning import queue_pattern, scan
from orchestration_queue.protocol.operations.steps import Steps, all_good, chunks
from orchestration_queue.protocol.record import when

__all__ = ["WorkerInfo", "workers"]


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker that is alive, or was a moment ago.

    Attributes:
        id: Its name among the queue's consumers.
        host: The machine it runs on.
        pid: Its process there.
        started_at: When it started, by its own clock.
        active_jobs: How many jobs it ran when it last told.
    """

    id: str
    host: str
    pid: int
    started_at: datetime
    active_jobs: int


def workers(keys: QueueKeys) -> Steps[list[WorkerInfo]]:
    """The registered workers, the oldest first. Walks all keys of the queue's server; then one read for each 1,000."""
    registered = yield from scan(queue_pattern(keys, "w:*"), keys.stream)
    found = []
    for piece in chunks(registered):
        (replies,) = all_good((yield [Call("MGET", tuple(piece))]))
        told = zip(piece, map(optional_text, replies), strict=True)
        found += [info for key, text in told if text and (info := _read(key.rpartition(":w:")[2], text))]
    return sorted(found, key=lambda info: (info.started_at, info.id))


def _read(consumer: str, stored: str) -> WorkerInfo | None:
    """A registration of any language; None when it says too little."""
    try:
        told = json.loads(stored)
        host, pid, started_ms = told["addr"], told["pid"], told["startedAt"]
        if not isinstance(host, str) or (started_at := when(int(started_ms))) is None:
            return None
        return WorkerInfo(consumer, host, int(pid), started_at, int(told.get("activeJobs") or 0))
    except (ValueError, TypeError, KeyError, OverflowError, OSError):
        return None
