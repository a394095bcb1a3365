"""What a queue's keys must say when nothing is left to do."""

from __future__ import annotations

from typing import Any

import redis

from orchestration_queue.protocol.keys import QueueKeys

__all__ = ["counted", "is_quiet", "mistakes"]


def counted(raw: redis.Redis, metrics_key: str) -> int:
    """How many ends of jobs the metrics tell of."""
    return sum(int(number) for field, number in raw.hgetall(metrics_key).items() if str(field).endswith(":c"))


def is_quiet(raw: redis.Redis, keys: QueueKeys, *, jobs: int) -> bool:
    """Whether this number of jobs has ended, and no other is on its way."""
    return bool(raw.zcard(keys.completed) + raw.zcard(keys.failed) == jobs and not raw.zcard(keys.scheduled))


def mistakes(raw: redis.Redis, keys: QueueKeys, *, completed: int, failed: int = 0) -> dict[str, Any]:
    """All that is not as it must be after these jobs have ended; empty when the books are right."""
    found = {
        "completions counted": counted(raw, keys.metrics_completed) - completed,
        "failures counted": counted(raw, keys.metrics_failed) - failed,
        "entries of the stream": raw.xlen(keys.stream),
        "pending entries": raw.xpending(keys.stream, "workers")["pending"],
        "scheduled": raw.zcard(keys.scheduled),
        "list jobs counted as active": int(raw.get(keys.list_active) or 0),
        "list jobs noted as active": raw.zcard(keys.named("list-active:jobs")),
        "ready list jobs": raw.llen(keys.priority) + raw.llen(keys.lifo),
        "slots of groups": sum(int(raw.hget(key, "active") or 0) for key in raw.scan_iter(keys.named("group:*"))),
        "parked jobs": sum(raw.zcard(key) for key in raw.scan_iter(keys.named("groupq:*"))),
    }
    return {what: number for what, number in found.items() if number}
