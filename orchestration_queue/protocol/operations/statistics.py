"""Write and read the statistics of a queue and day."""

from __future__ import annotations

from datetime import date

from orchestration_queue.protocol.call import Call, Operation
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.record import pairs, when
from orchestration_queue.protocol.statistics import DayStatistics, Tally, read_day

__all__ = ["count", "statistics"]


def count(keys: QueueKeys, now_ms: int, tally: Tally) -> Call:
    """Add what a worker counted to the statistics of the day; the tally starts over."""
    now = when(now_ms)
    day = "1970-01-01" if now is None else now.date().isoformat()
    return oq1.count_jobs(keys, day=day, counts=[oq1.DayCount(field, by) for field, by in tally.take()])


def statistics(keys: QueueKeys, day: date) -> Operation[DayStatistics]:
    """Read the statistics of a day; empty for a day without jobs, and after 30 days."""
    call = Call("HGETALL", (keys.statistics(day.isoformat()),))
    return Operation(call, lambda reply: read_day(day, pairs(reply).items()))
