"""Settings and limits of a queue, which all its workers share."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from orchestration_queue.errors import OrchestrationQueueError
from orchestration_queue.options import QueueSettings, RateLimit, milliseconds
from orchestration_queue.options.wire import lease_from_wire
from orchestration_queue.protocol.call import (
    Call,
    Conversation,
    Operation,
    Reply,
    all_good,
    integer,
    optional_text,
    text,
)
from orchestration_queue.protocol.codec import dump_json
from orchestration_queue.protocol.functions import glidemq
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.record import stored_number

__all__ = [
    "StoredSettings",
    "ask_to_start",
    "dead_letter_queue",
    "global_concurrency",
    "global_rate_limit",
    "hold_group",
    "read_origin",
    "reported_tokens",
    "set_global_concurrency",
    "set_global_rate_limit",
    "set_settings",
    "settings",
    "spend_tokens",
    "stored_dead_letter_queue",
    "stored_rate_limit",
    "stored_settings",
    "tokens_spent",
]


def ask_to_start(keys: QueueKeys, limit: RateLimit, now_ms: int) -> Operation[int]:
    """Count a start if the rate allows it; read 0, or how many milliseconds to wait before asking again."""
    call = glidemq.rate_limit(keys, max_starts=limit.max, window_ms=milliseconds(limit.duration), now_ms=now_ms)
    return Operation(call, integer)


def tokens_spent(keys: QueueKeys, window: int) -> Operation[float]:
    """Read the tokens that all workers of the queue spent in a window."""
    return Operation(Call("GET", (keys.tokens(window),)), lambda reply: stored_number(optional_text(reply)))


def spend_tokens(keys: QueueKeys, window: int, tokens: int, duration_ms: int) -> list[Call]:
    """Count spent tokens; the count expires with its window. Send the calls as one transaction."""
    key = keys.tokens(window)
    return [Call("INCRBY", (key,), (tokens,)), Call("PEXPIRE", (key,), (duration_ms, "NX"))]


def reported_tokens(keys: QueueKeys, job_id: str) -> Operation[int]:
    """Read the tokens that a job reported: in its usage or as a plain number, whichever is more."""

    def read(reply: Reply) -> int:
        return math.ceil(max(stored_number(optional_text(value)) for value in reply))

    return Operation(Call("HMGET", (keys.job(job_id),), ("usage:totalTokens", "tpmTokens")), read)


_RATE = ("rateLimitMax", "rateLimitDuration")


def set_global_concurrency(keys: QueueKeys, limit: int | None) -> Call:
    """Set the maximum jobs that all workers together run at a time; None sets no limit."""
    if limit is None:
        return Call("HDEL", (keys.meta,), ("globalConcurrency",))
    return Call("HSET", (keys.meta,), ("globalConcurrency", limit))


def global_concurrency(keys: QueueKeys) -> Operation[int | None]:
    """Read how many jobs all workers together may run; None without a limit."""
    return Operation(Call("HGET", (keys.meta,), ("globalConcurrency",)), lambda reply: _read_whole(reply) or None)


def set_global_rate_limit(keys: QueueKeys, limit: RateLimit | None) -> Call:
    """Set the maximum job starts per window across all workers; None sets no limit."""
    if limit is None:
        return Call("HDEL", (keys.meta,), _RATE)
    most, duration = _RATE
    return Call("HSET", (keys.meta,), (most, limit.max, duration, max(1, milliseconds(limit.duration))))


def global_rate_limit(keys: QueueKeys) -> Operation[RateLimit | None]:
    """Read how many jobs all workers together may start per window; None without a limit."""

    def read(reply: Reply) -> RateLimit | None:
        return stored_rate_limit(*map(_read_whole, reply))

    return Operation(Call("HMGET", (keys.meta,), _RATE), read)


def stored_rate_limit(most: int, duration_ms: int) -> RateLimit | None:
    """Return a stored rate limit; None if a part of it is missing or malformed."""
    if most <= 0 or duration_ms <= 0:
        return None
    return RateLimit.model_construct(max=most, duration=timedelta(milliseconds=duration_ms))


def _read_whole(stored: Reply) -> int:
    """Return a stored positive number; 0 for anything else."""
    value = optional_text(stored) or ""
    return int(value) if value.isdecimal() and len(value) < 16 else 0


def hold_group(keys: QueueKeys, group: str, duration_ms: int, now_ms: int) -> Operation[datetime]:
    """Delay the parked jobs of an ordering group; read until when."""
    call = glidemq.rate_limit_group_external(keys, group_key=group, duration_ms=duration_ms, now_ms=now_ms)

    return Operation(call, lambda reply: datetime.fromtimestamp(integer(reply) / 1000, UTC))


def read_origin(keys: QueueKeys, token: str) -> Conversation[str]:
    """Return what distinguishes a queue from others of its name, on all servers and with all prefixes.

    Args:
        keys: The queue.
        token: A random one, stored the first time.
    """
    calls = [Call("HSETNX", (keys.meta,), ("origin", token)), Call("HGET", (keys.meta,), ("origin",))]
    _, stored = all_good((yield calls))
    return text(stored)


def stored_dead_letter_queue(keys: QueueKeys) -> Operation[str | None]:
    """Read the dead-letter queue that workers or clients stored; None without one."""
    return Operation(Call("HGET", (keys.meta,), ("deadLetterQueueName",)), lambda reply: optional_text(reply) or None)


def dead_letter_queue(keys: QueueKeys) -> Conversation[str]:
    """Return the name of a queue's dead-letter queue; empty without one, or if a damaged key hides it."""
    where = stored_dead_letter_queue(keys)
    (reply,) = yield [where.call]
    return "" if isinstance(reply, Exception) else where.read(reply) or ""


@dataclass(frozen=True, slots=True)
class StoredSettings:
    """The settings of a queue that workers and takers need, besides its limits.

    Attributes:
        job_options: Options, with the wire's names, for jobs that were added without them.
        lease_ms: The lease of jobs whose options set none; None if not set.
        dead_letter_queue: The queue for its dead letters; None if not set.
    """

    job_options: Mapping[str, Any] = field(default_factory=dict)
    lease_ms: int | None = None
    dead_letter_queue: str | None = None


_DEAD_LETTERS = "default:deadLetterQueue"
_DEFAULTS = tuple(f"default:{name}" for name in QueueSettings.WIRE_NAMES)
_LIMITS = ("globalConcurrency", *_RATE)


def set_settings(keys: QueueKeys, changes: QueueSettings) -> list[Call]:
    """Store the given settings, and remove those given as None. Send the calls as one transaction."""
    calls, given = [], changes.model_fields_set
    options = changes.wire_changes()
    if changed := {name: value for name, value in options.items() if value is not None}:
        words = [word for name, value in changed.items() for word in (f"default:{name}", dump_json(value))]
        calls.append(Call("HSET", (keys.meta,), tuple(words)))
    if removed := [f"default:{name}" for name, value in options.items() if value is None]:
        calls.append(Call("HDEL", (keys.meta,), tuple(removed)))
    if "dead_letter_queue" in given:
        calls.append(_set_dead_letter_queue(keys, changes.dead_letter_queue))
    if "concurrency" in given:
        calls.append(set_global_concurrency(keys, changes.concurrency))
    if "rate_limit" in given:
        calls.append(set_global_rate_limit(keys, changes.rate_limit))
    return calls


def _set_dead_letter_queue(keys: QueueKeys, name: str | None) -> Call:
    """Store it for workers and for readers. When it is removed, a worker with its own setting stores that again."""
    if name is None:
        return Call("HDEL", (keys.meta,), (_DEAD_LETTERS, "deadLetterQueueName"))
    return Call("HSET", (keys.meta,), (_DEAD_LETTERS, name, "deadLetterQueueName", name))


def settings(keys: QueueKeys) -> Operation[QueueSettings]:
    """Read all settings, without invalid ones."""

    def read(reply: Reply) -> QueueSettings:
        options, letters, limits = _split(keys, reply)
        concurrency, most, window_ms = map(_read_whole, limits)
        return QueueSettings.from_wire(options, letters, concurrency or None, stored_rate_limit(most, window_ms))

    return Operation(Call("HMGET", (keys.meta,), (*_DEFAULTS, _DEAD_LETTERS, *_LIMITS)), read)


def stored_settings(keys: QueueKeys) -> Operation[StoredSettings]:
    """Read the settings that workers and takers need besides a tick, which has the limits; without invalid ones."""

    def read(reply: Reply) -> StoredSettings:
        options, letters, _ = _split(keys, reply)
        lease_ms = lease_from_wire(options.pop("lockDuration", None))
        return StoredSettings(options, int(lease_ms) if lease_ms else None, letters)

    return Operation(Call("HMGET", (keys.meta,), (*_DEFAULTS, _DEAD_LETTERS)), read)


def _split(keys: QueueKeys, reply: Reply) -> tuple[dict[str, Any], str | None, Sequence[Reply]]:
    """Return the jobs' options, the dead-letter queue, and the remaining replies."""
    *stored, letters = reply[: len(_DEFAULTS) + 1]
    texts = zip(QueueSettings.WIRE_NAMES, map(optional_text, stored), strict=True)
    values = {name: _read_json(value) for name, value in texts if value}
    options = {name: value for name, value in values.items() if value is not None}
    rest = reply[len(_DEFAULTS) + 1 :]
    return options, _read_queue_name(keys, optional_text(letters)), rest


def _read_queue_name(keys: QueueKeys, name: str | None) -> str | None:
    """Return a stored queue name; None if it is invalid, or the queue's own."""
    try:
        return name if name and name != keys.queue and QueueKeys(name, keys.prefix) else None
    except OrchestrationQueueError:
        return None


def _read_json(stored: str) -> Any:
    try:
        return json.loads(stored)
    except (ValueError, RecursionError):
        return None
