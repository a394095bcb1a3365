"""Stored scheduler entries, the lock under which they change, and their due runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
from orchestration_queue.protocol.functions import glidemq, oq1
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.record import pairs

__all__ = [
    "DROP",
    "EDIT_LOCK_MS",
    "DueEntries",
    "DueEntry",
    "PastRun",
    "drop",
    "due_entries",
    "entries",
    "entry",
    "fire",
    "histories",
    "history",
    "index",
    "put",
    "renew_lock",
    "replace",
    "try_lock",
    "unlock",
]

DROP = "drop"
"""Replaces an entry's text to remove it."""

EDIT_LOCK_MS = 5000
"""How long the lock of an edit lasts if its holder dies."""


def try_lock(keys: QueueKeys, token: str, ttl_ms: int = EDIT_LOCK_MS) -> Operation[bool]:
    """Take the lock; read False if another process holds it."""
    call = glidemq.try_lock(lock_key=keys.schedulers_lock, token=token, ttl_ms=ttl_ms)
    return Operation(call, _is_one)


def renew_lock(keys: QueueKeys, token: str, ttl_ms: int = EDIT_LOCK_MS) -> Operation[bool]:
    """Renew the lock; read False if it is no longer ours."""
    call = glidemq.renew_lock(lock_key=keys.schedulers_lock, token=token, ttl_ms=ttl_ms)
    return Operation(call, _is_one)


def unlock(keys: QueueKeys, token: str) -> Operation[bool]:
    """Release the lock; read False if it was no longer ours."""
    return Operation(glidemq.unlock(lock_key=keys.schedulers_lock, token=token), _is_one)


def fire(
    keys: QueueKeys,
    token: str,
    now_ms: int,
    runs: Sequence[tuple[oq1.NewJob, oq1.RunOrigin]],
    updates: Sequence[oq1.EntryUpdate],
    misses: Sequence[tuple[str, int]] = (),
    *,
    looked_ms: int = 0,
) -> Operation[list[str] | None]:
    """Add a tick's jobs, and store and drop its entries. If the lock is no longer ours, change nothing and read None.

    Returns:
        The operation. It reads for each job the id, ``duplicate``, or ``held`` if an earlier job must end first.
    """
    call = oq1.fire(
        keys,
        lock_key=keys.schedulers_lock,
        token=token,
        now_ms=now_ms,
        looked_ms=looked_ms,
        jobs=[job for job, _ in runs],
        runs=[run for _, run in runs],
        updates=updates,
        misses=[oq1.MissedRun(name=name, due_ms=due_ms) for name, due_ms in misses],
    )
    return Operation(call, lambda reply: None if reply == b"lost" else [text(word) for word in reply])


@dataclass(frozen=True, slots=True)
class DueEntry:
    """An entry that is due for evaluation.

    Attributes:
        name: The scheduler.
        text: Its entry, as JSON text.
        fate: The state of the job it waits for: ``open``, ``ended`` or ``gone``; empty without one.
        ended_ms: When that job ended, epoch ms.
    """

    name: str
    text: str
    fate: str
    ended_ms: int


@dataclass(frozen=True, slots=True)
class DueEntries:
    """The entries found in the schedulers' index.

    Attributes:
        needs_full_look: Whether the index must be compared with the entries, which other clients write without it.
        entries: The due entries, the earliest first.
    """

    needs_full_look: bool
    entries: tuple[DueEntry, ...]


def due_entries(keys: QueueKeys, now_ms: int, limit: int) -> Operation[DueEntries]:
    """Read the due entries, at most ``limit``."""
    call = oq1.due_schedulers(keys, now_ms=now_ms, limit=limit)

    def read(reply: Reply) -> DueEntries:
        full, found = reply
        entries = (DueEntry(text(name), text(entry), text(fate), int(at)) for name, entry, fate, at in found)
        return DueEntries(full == 1, tuple(entries))

    return Operation(call, read)


def index(keys: QueueKeys) -> Operation[dict[str, int]]:
    """Read when each entry is due for evaluation, epoch ms, by name."""
    call = Call("ZRANGE", (keys.schedulers_due,), (0, -1, "WITHSCORES"))
    return Operation(call, lambda reply: {name: int(float(at)) for name, at in scores(reply)})


@dataclass(frozen=True, slots=True)
class PastRun:
    """The outcome of one run of a schedule.

    Attributes:
        due_ms: When it was due, epoch ms.
        at_ms: When it was evaluated, epoch ms.
        job_id: Its job; empty if none was added.
        outcome: ``fired``; ``overlap`` if it was skipped, and ``queued`` if it was postponed, because the previous job
            had not ended; ``missed`` if it was skipped because it was noticed too late.
    """

    due_ms: int
    at_ms: int
    job_id: str
    outcome: str


def history(keys: QueueKeys, name: str) -> Operation[list[PastRun]]:
    """Read the last runs of a schedule, at most 20, newest first."""
    call = Call("LRANGE", (keys.schedulers_history(name),), (0, -1))

    def read(reply: Reply) -> list[PastRun]:
        notes = (json.loads(note) for note in reply)
        return [PastRun(int(due), int(at), str(job_id), str(outcome)) for due, at, job_id, outcome in notes]

    return Operation(call, read)


def histories(keys: QueueKeys, names: Sequence[str]) -> Conversation[dict[str, list[PastRun]]]:
    """Read the last runs of several schedules in one exchange."""
    reads = {name: history(keys, name) for name in names}
    if not reads:
        return {}
    replies = all_good((yield [read.call for read in reads.values()]))
    return {name: read.read(reply) for (name, read), reply in zip(reads.items(), replies, strict=True)}


def scores(reply: Reply) -> Iterator[tuple[str, Reply]]:
    """Return members and scores of a sorted set, from a reply of either RESP version."""
    if reply and isinstance(reply[0], list):
        return ((text(name), at) for name, at in reply)
    return ((text(reply[place]), reply[place + 1]) for place in range(0, len(reply), 2))


def _is_one(reply: Reply) -> bool:
    return integer(reply) == 1


def entries(keys: QueueKeys) -> Operation[dict[str, str]]:
    """Read all stored entries, as JSON text by name."""
    return Operation(Call("HGETALL", (keys.schedulers,)), pairs)


def entry(keys: QueueKeys, name: str) -> Operation[str | None]:
    """Read one stored entry, as JSON text; None without one."""
    return Operation(Call("HGET", (keys.schedulers,), (name,)), optional_text)


def put(keys: QueueKeys, name: str, entry_text: str, look_ms: int = 0) -> Call:
    """Store an entry, due for evaluation at that time; by default immediately."""
    return oq1.put_scheduler(keys, name=name, entry=entry_text, look_ms=look_ms)


def drop(keys: QueueKeys, name: str) -> Operation[bool]:
    """Remove an entry; read False if it did not exist."""
    return Operation(put(keys, name, DROP), _is_one)


def replace(keys: QueueKeys, name: str, read: str | None, entry_text: str) -> Operation[str]:
    """Store an entry if it has not changed since it was read; read ``ok``, ``locked`` or ``changed``."""
    call = oq1.replace_scheduler(
        keys, lock_key=keys.schedulers_lock, name=name, read=read or "", entry=entry_text, look_ms=0
    )
    return Operation(call, text)
