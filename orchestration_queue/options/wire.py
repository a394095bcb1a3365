"""Read options that any client stored."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options.base import MAX_COUNT, MAX_NAME_LENGTH, MAX_PRIORITY
from orchestration_queue.options.durations import MAX_DURATION, milliseconds
from orchestration_queue.options.job import (
    DECLARED,
    MAX_HEADER_LENGTH,
    MAX_TOKENS,
    MIN_TOKENS,
    Backoff,
    Fallback,
    JobOptions,
    Ordering,
    RateLimit,
    Retention,
    TokenBucket,
)

__all__ = [
    "backoff_from_wire",
    "fallback_from_wire",
    "headers_from_wire",
    "lease_from_wire",
    "placement_from_wire",
    "retention_from_wire",
    "wire_number",
]


def wire_number(stored: object, most: float = 2**53) -> float:
    """Return a number that any client stored, at most ``most``; 0 for anything else."""
    if isinstance(stored, bool) or not isinstance(stored, (int, float)) or not stored > 0:
        return 0
    return min(stored, most)


_SHORTEST_LEASE_MS, _LONGEST_LEASE_MS = 1_000, 86_400_000


def lease_from_wire(stored: object) -> float | None:
    """Return a stored ``lockDuration`` in milliseconds; None if the wire would ignore it."""
    lease_ms = wire_number(stored)
    return lease_ms if _SHORTEST_LEASE_MS <= lease_ms <= _LONGEST_LEASE_MS else None


def backoff_from_wire(options: Mapping[str, Any]) -> Backoff | None:
    """Return the backoff in a job's stored options, from any client; None without one."""
    stored = options.get("backoff")
    if not isinstance(stored, Mapping):
        return None
    # Not validated: any name may be a strategy of the worker, even one that looks misspelled.
    return Backoff.model_construct(
        type=str(stored.get("type", "fixed")),
        delay=timedelta(milliseconds=wire_number(stored.get("delay"), milliseconds(MAX_DURATION))),
        jitter=wire_number(stored.get("jitter"), 1),
    )


def fallback_from_wire(stored: object, index: int) -> Fallback | None:
    """Return the fallback with this index, counted from 1; None if it is missing or invalid."""
    if not isinstance(stored, list) or not 1 <= index <= len(stored) or not isinstance(stored[index - 1], Mapping):
        return None
    known = {name: stored[index - 1].get(name) for name in Fallback.model_fields}
    try:
        return Fallback(**known)
    except InvalidOptionError:
        return None


def headers_from_wire(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers in a job's stored options, from any client."""
    stored = options.get("headers")
    return {str(name): str(value) for name, value in stored.items()} if isinstance(stored, dict) else {}


def retention_from_wire(option: object) -> Retention | None:
    """Return a stored ``removeOnComplete`` or ``removeOnFail`` as a :class:`Retention`, from any client."""
    match option:
        case True:
            return Retention(count=0)
        case int(kept) if kept > 0:
            return Retention(count=min(kept, MAX_COUNT))
        case dict():
            age_s, most = wire_number(option.get("age"), MAX_DURATION.total_seconds()), _count(option.get("count"))
            return Retention(count=most or None, age=timedelta(seconds=age_s) if age_s else None)
        case _:
            return None


def placement_from_wire(options: Mapping[str, Any]) -> JobOptions:
    """Return the options of similar jobs, from any client's stored options, without invalid ones.

    Delay, ids and parents are not read: they apply to one job.
    """
    ordering = _ordering_from_wire(options.get("ordering"))
    bucket = ordering.token_bucket if ordering else None
    is_lifo = options.get("lifo") is True and ordering is None
    lease_ms = lease_from_wire(options.get("lockDuration"))
    declared = {name: on_wire.read(options.get(on_wire.name)) for name, on_wire in DECLARED.items()}
    if is_lifo or ordering:
        del declared["share"]
    return JobOptions(
        priority=int(wire_number(options.get("priority"), MAX_PRIORITY)),
        lifo=is_lifo,
        attempts=_count(options.get("attempts")),
        timeout=_duration(options.get("timeout")) or None,
        ttl=_duration(options.get("ttl")),
        lease=lease_ms and timedelta(milliseconds=lease_ms),
        ordering=ordering,
        cost=_cost(wire_number(options.get("cost"), bucket.capacity if bucket else MAX_TOKENS)),
        remove_on_complete=retention_from_wire(options.get("removeOnComplete")),
        remove_on_fail=retention_from_wire(options.get("removeOnFail")),
        fallbacks=_fallbacks_from_wire(options.get("fallbacks")),
        headers={name: value[:MAX_HEADER_LENGTH] for name, value in headers_from_wire(options).items()},
        **declared,
    ).model_copy(update={"backoff": backoff_from_wire(options)})


def _cost(tokens: float) -> float:
    """Return a cost, or 0 if it is below the thousandth of a token that the wire counts in."""
    return tokens if tokens >= MIN_TOKENS else 0


def _fallbacks_from_wire(stored: object) -> tuple[Fallback, ...]:
    count = len(stored) if isinstance(stored, list) else 0
    read = (fallback_from_wire(stored, index + 1) for index in range(count))
    return tuple(fallback for fallback in read if fallback is not None)


def _ordering_from_wire(stored: object) -> Ordering | None:
    if not isinstance(stored, Mapping):
        return None
    key, limit, bucket = stored.get("key"), stored.get("rateLimit"), stored.get("tokenBucket")
    if not isinstance(key, str) or not key or key == "__" or len(key) > MAX_NAME_LENGTH:
        return None
    return Ordering(
        key=key,
        concurrency=max(1, _count(stored.get("concurrency"))),
        rate_limit=_rate_limit_from_wire(limit) if isinstance(limit, Mapping) else None,
        token_bucket=_bucket_from_wire(bucket) if isinstance(bucket, Mapping) else None,
    )


def _rate_limit_from_wire(stored: Mapping[str, Any]) -> RateLimit | None:
    try:
        return RateLimit(max=_count(stored.get("max")), duration=_duration(stored.get("duration")))
    except InvalidOptionError:
        return None


def _bucket_from_wire(stored: Mapping[str, Any]) -> TokenBucket | None:
    capacity, refill_rate = wire_number(stored.get("capacity")), wire_number(stored.get("refillRate"))
    try:
        # A job without a cost costs one token, and would never start if the bucket holds less.
        return TokenBucket(capacity=capacity, refill_rate=refill_rate) if capacity >= 1 else None
    except InvalidOptionError:
        return None


def _count(stored: object) -> int:
    return int(wire_number(stored, MAX_COUNT))


def _duration(stored_ms: object) -> timedelta:
    return timedelta(milliseconds=int(wire_number(stored_ms, milliseconds(MAX_DURATION))))
