"""Removing a whole queue."""

from __future__ import annotations

from orchestration_queue.protocol.call import Call, integer
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.reading import groups
from orchestration_queue.protocol.operations.scanning import FIRST_PAGE, queue_pattern, scan_page
from orchestration_queue.protocol.operations.steps import Steps, all_good

__all__ = ["active_jobs", "remove_queue"]


def active_jobs(keys: QueueKeys) -> Steps[int]:
    """How many jobs any worker holds, of lists, of the stream, or of a broadcast; in one trip."""
    described, (listed,) = yield from groups(keys, Call("GET", (keys.list_active,)))
    return sum(int(group["pending"]) for group in described) + max(0, int(listed or 0))


def remove_queue(keys: QueueKeys) -> Steps[int]:
    """Remove every key of a queue; returns how many. Walks all keys of the queue's server. May be sent again anywhere.

    What workers take jobs from goes first, so that none starts any more; with it the sequence numbers of ordering
    keys, since those of jobs that are added meanwhile must not run ahead of their group's. The counter of ids goes
    last: as long as jobs are left, a job that is added meanwhile must not be given the id of one of them.
    """
    last = [keys.id, keys.meta]
    first = [keys.stream, keys.priority, keys.lifo, keys.scheduled, keys.schedulers, keys.named("ordering")]
    removed = yield from _unlink(first)
    cursor = FIRST_PAGE
    while True:
        page, cursor = yield from scan_page(queue_pattern(keys, "*"), cursor, keys.stream)
        removed += yield from _unlink([key for key in page if key not in last])
        if cursor == FIRST_PAGE:
            break
    all_good((yield [Call("SREM", (keys.usage_queues,), (keys.queue,))]))
    return removed + (yield from _unlink(last))


def _unlink(found: list[str]) -> Steps[int]:
    if not found:
        return 0
    (reply,) = all_good((yield [Call("UNLINK", tuple(found))]))
    return integer(reply)
