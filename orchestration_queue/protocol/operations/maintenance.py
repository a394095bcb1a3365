"""The periodic maintenance of a queue: promote, requeue and check in one call."""

from __future__ import annotations

from dataclasses import dataclass

from orchestration_queue.protocol.call import Operation, Reply
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import QueueKeys

__all__ = ["Tick", "tick"]


@dataclass(frozen=True, slots=True)
class Tick:
    """What came of one round of housekeeping.

    Attributes:
        moved: Jobs it made ready.
        due_ms: When the next delayed job or limited group is due, epoch ms; -1 when nothing is.
        repeatable: How many repeatable jobs the queue has.
        is_paused: Whether the queue asks its workers to take nothing.
        rate_max: Most starts in each window that the queue allows; 0 for no limit.
        rate_window_ms: That window.
        server_ms: The server's own time, epoch ms.
        schedules_due_ms: When repeatable jobs are due for evaluation, epoch ms; -1 for never.
    """

    moved: int
    due_ms: int
    repeatable: int
    is_paused: bool
    rate_max: int
    rate_window_ms: int
    server_ms: int
    schedules_due_ms: int = -1


def tick(keys: QueueKeys, now_ms: int, *, heal: bool = False) -> Operation[Tick]:
    """Make ready what is due (at most 1,000 jobs), and read the queue's settings; one exchange.

    With ``heal``, the count of list jobs in workers' hands is corrected too.
    """
    call = oq1.tick(keys, now_ms=now_ms, heal=heal)
    return Operation(call, _read)


def _read(reply: Reply) -> Tick:
    moved, due_ms, repeatable, is_paused, rate_max, rate_window_ms, server_ms, look_ms = reply
    return Tick(moved, due_ms, repeatable, bool(is_paused), rate_max, rate_window_ms, server_ms, look_ms)
