"""The queue's repeatable jobs as stored, and the lock under which they change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestration_queue.protocol.call import Call, Operation, Reply, integer, optional_text
from orchestration_queue.protocol.functions import glidemq, oq1
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.record import pairs

__all__ = ["EDIT_LOCK_MS", "drop", "entries", "entry", "fire", "put", "renew_lock", "try_lock", "unlock"]

EDIT_LOCK_MS = 5000
"""How long the lock of an edit holds, should its holder die."""


def try_lock(keys: QueueKeys, token: str, ttl_ms: int = EDIT_LOCK_MS) -> Operation[bool]:
    """Take the lock, unless somebody else holds it."""
    call = glidemq.try_lock(lock_key=keys.schedulers_lock, token=token, ttl_ms=ttl_ms)
    return Operation(call, _is_one)


def renew_lock(keys: QueueKeys, token: str, ttl_ms: int = EDIT_LOCK_MS) -> Operation[bool]:
    """Hold the lock longer; False when it is no longer ours."""
    call = glidemq.renew_lock(lock_key=keys.schedulers_lock, token=token, ttl_ms=ttl_ms)
    return Operation(call, _is_one)


def unlock(keys: QueueKeys, token: str) -> Operation[bool]:
    """Give the lock back; False when it was no longer ours."""
    return Operation(glidemq.unlock(lock_key=keys.schedulers_lock, token=token), _is_one)


def fire(
    keys: QueueKeys,
    token: str,
    jobs: Sequence[oq1.NewJob],
    updates: Mapping[str, str],
    drops: Sequence[str],
) -> Operation[bool]:
    """Add a tick's jobs, store and drop its entries: all of it while the lock is ours, else nothing and False."""
    call = oq1.fire(
        lock_key=keys.schedulers_lock,
        schedulers_key=keys.schedulers,
        id_key=keys.id,
        stream_key=keys.stream,
        scheduled_key=keys.scheduled,
        events_key=keys.events,
        jobs=jobs,
        updates=[oq1.EntryUpdate(name=name, entry=entry) for name, entry in updates.items()],
        drops=drops,
        token=token,
    )
    return Operation(call, lambda reply: reply != b"lost")


def _is_one(reply: Reply) -> bool:
    return integer(reply) == 1


def entries(keys: QueueKeys) -> Operation[dict[str, str]]:
    """All stored entries, as JSON text by name."""
    return Operation(Call("HGETALL", (keys.schedulers,)), pairs)


def entry(keys: QueueKeys, name: str) -> Operation[str | None]:
    """One stored entry, as JSON text."""
    return Operation(Call("HGET", (keys.schedulers,), (name,)), optional_text)


def put(keys: QueueKeys, name: str, entry_text: str) -> Call:
    """Store an entry."""
    return Call("HSET", (keys.schedulers,), (name, entry_text))


def drop(keys: QueueKeys, name: str) -> Operation[bool]:
    """Remove an entry; False when there was none."""
    return Operation(Call("HDEL", (keys.schedulers,), (name,)), _is_one)
