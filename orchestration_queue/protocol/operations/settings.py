"""Settings of a queue, which all its workers share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from orchestration_queue.options import RateLimit, milliseconds
from orchestration_queue.protocol.call import Call, Operation, Reply, integer, optional_text
from orchestration_queue.protocol.functions import glidemq
from orchestration_queue.protocol.keys import QueueKeys

__all__ = [
    "global_concurrency",
    "global_rate_limit",
    "hold_group",
    "set_global_concurrency",
    "set_global_rate_limit",
    "stored_dead_letter_queue",
    "stored_rate_limit",
]

_RATE = ("rateLimitMax", "rateLimitDuration")


def set_global_concurrency(keys: QueueKeys, limit: int | None) -> Call:
    """Let all workers together run at most so many jobs; None sets no bound."""
    if limit is None:
        return Call("HDEL", (keys.meta,), ("globalConcurrency",))
    return Call("HSET", (keys.meta,), ("globalConcurrency", limit))


def global_concurrency(keys: QueueKeys) -> Operation[int | None]:
    """How many jobs all workers together may run; None without a bound."""
    return Operation(Call("HGET", (keys.meta,), ("globalConcurrency",)), lambda reply: _whole(reply) or None)


def set_global_rate_limit(keys: QueueKeys, limit: RateLimit | None) -> Call:
    """Let all workers together start at most so many jobs in each window; None sets no bound."""
    if limit is None:
        return Call("HDEL", (keys.meta,), _RATE)
    most, duration = _RATE
    return Call("HSET", (keys.meta,), (most, limit.max, duration, max(1, milliseconds(limit.duration))))


def global_rate_limit(keys: QueueKeys) -> Operation[RateLimit | None]:
    """How many jobs all workers together may start in each window; None without a bound."""

    def read(reply: Reply) -> RateLimit | None:
        return stored_rate_limit(*map(_whole, reply))

    return Operation(Call("HMGET", (keys.meta,), _RATE), read)


def stored_rate_limit(most: int, duration_ms: int) -> RateLimit | None:
    """A rate limit as some client set it; None when one of its parts is none."""
    if most <= 0 or duration_ms <= 0:
        return None
    return RateLimit.model_construct(max=most, duration=timedelta(milliseconds=duration_ms))


def _whole(stored: Reply) -> int:
    """A stored positive number; 0 for what is none."""
    value = optional_text(stored) or ""
    return int(value) if value.isdecimal() and len(value) < 16 else 0


def hold_group(keys: QueueKeys, group: str, duration_ms: int, now_ms: int) -> Operation[datetime]:
    """Let the parked jobs of an ordering group wait for a while; returns until when."""
    call = glidemq.rate_limit_group_external(
        ratelimited_key=keys.ratelimited,
        events_key=keys.events,
        group_key=group,
        duration_ms=duration_ms,
        now_ms=now_ms,
    )

    return Operation(call, lambda reply: datetime.fromtimestamp(integer(reply) / 1000, UTC))


def stored_dead_letter_queue(keys: QueueKeys) -> Operation[str | None]:
    """Where the queue's dead letters are, as its workers or clients have told."""
    return Operation(Call("HGET", (keys.meta,), ("deadLetterQueueName",)), lambda reply: optional_text(reply) or None)
