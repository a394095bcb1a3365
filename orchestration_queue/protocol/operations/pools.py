"""Pools: slots that jobs of all queues share, held under leases and granted in order of arrival."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestration_queue.errors import StateError
from orchestration_queue.protocol.call import (
    Call,
    Conversation,
    Operation,
    Reply,
    all_good,
    integer,
    optional_text,
    text,
    texts,
)
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.placement import ParentRef
from orchestration_queue.protocol.record import pairs, whole_number

__all__ = [
    "MAX_RENEWALS",
    "Grant",
    "Holding",
    "Pool",
    "PoolHolder",
    "acquire",
    "define",
    "release",
    "remove",
    "renew",
    "start_woken",
    "states",
    "wait_of",
]

MAX_RENEWALS = 100
_MOST_ROUNDS = 100


@dataclass(frozen=True, slots=True)
class PoolHolder:
    """A running job that holds slots of a pool.

    Attributes:
        queue: The job's queue.
        job_id: The job's id.
        slots: How many slots it holds.
        until_ms: When its lease on them ends unless its worker renews it, epoch milliseconds.
    """

    queue: str
    job_id: str
    slots: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool, and the jobs that hold its slots.

    Attributes:
        name: Its name.
        slots: How many slots it has.
        holders: The running jobs that hold slots.
        waiting: How many jobs wait for slots.
    """

    name: str
    slots: int
    holders: tuple[PoolHolder, ...] = ()
    waiting: int = 0

    @property
    def used(self) -> int:
        """How many slots are held."""
        return sum(holder.slots for holder in self.holders)


@dataclass(frozen=True, slots=True)
class Holding:
    """The slots that one attempt of a job holds or needs.

    Attributes:
        keys: The job's queue.
        job_id: The job's id.
        taken_ms: When the attempt started, by the server.
        lease_ms: How long it holds the slots without a renewal.
        weights: Slots by pool.
    """

    keys: QueueKeys
    job_id: str
    taken_ms: int
    lease_ms: int
    weights: Mapping[str, int]

    @property
    def token(self) -> str:
        """The job's name in the keys of pools."""
        return self.keys.member(self.job_id)

    @property
    def claims(self) -> list[oq1.Claim]:
        """The slots as the server functions take them."""
        return [oq1.Claim(pool=pool, weight=weight) for pool, weight in self.weights.items()]


@dataclass(frozen=True, slots=True)
class Grant:
    """The reply to a request for slots.

    Attributes:
        is_held: Whether the attempt holds the slots.
        sleep_ms: If not, ask again after this time, or when woken.
        unknown: A pool that is not defined; None if all are.
        woken: Names of other jobs for which slots became free.
    """

    is_held: bool
    sleep_ms: int
    unknown: str | None
    woken: list[str]


def acquire(holding: Holding, now_ms: int) -> Operation[Grant]:
    """Take all slots that an attempt needs, or none. Repeating it takes them once."""
    call = oq1.acquire_pools(
        slots_key=holding.keys.pool_slots,
        claims=holding.claims,
        now_ms=now_ms,
        token=holding.token,
        taken_ms=holding.taken_ms,
        lease_ms=holding.lease_ms,
    )

    def read(reply: Reply) -> Grant:
        verdict, detail, woken = text(reply[0]), reply[1], texts(reply[2])
        if verdict == "unknown":
            return Grant(is_held=False, sleep_ms=0, unknown=text(detail), woken=woken)
        return Grant(verdict == "held", integer(detail), None, woken)

    return Operation(call, read)


def release(holding: Holding, now_ms: int) -> Operation[list[str]]:
    """Return the slots of an attempt; read the names of jobs for which slots became free."""
    call = oq1.release_pools(
        slots_key=holding.keys.pool_slots,
        claims=holding.claims,
        now_ms=now_ms,
        token=holding.token,
        taken_ms=holding.taken_ms,
    )
    return Operation(call, texts)


def renew(keys: QueueKeys, holdings: Sequence[Holding], now_ms: int) -> list[Call]:
    """Renew the leases on slots."""
    leases = [
        oq1.PoolLease(token=held.token, taken_ms=held.taken_ms, lease_ms=held.lease_ms, pool=pool, weight=weight)
        for held in holdings
        for pool, weight in held.weights.items()
    ]
    pieces = [leases[start : start + MAX_RENEWALS] for start in range(0, len(leases), MAX_RENEWALS)]
    return [oq1.renew_pools(slots_key=keys.pool_slots, leases=piece, now_ms=now_ms) for piece in pieces]


def define(keys: QueueKeys, pool: str, slots: int, now_ms: int) -> Operation[list[str]]:
    """Define a pool, or change its number of slots; read the names of jobs for which slots became free."""
    return Operation(oq1.set_pool(slots_key=keys.pool_slots, now_ms=now_ms, pool=pool, count=slots), texts)


def remove(keys: QueueKeys, pool: str, now_ms: int) -> Operation[bool]:
    """Remove a pool; read False if it is not defined.

    Raises:
        StateError: By the operation: jobs hold or wait for its slots; it is unchanged.
    """

    def read(reply: Reply) -> bool:
        word = text(reply)
        if word == "in_use":
            raise StateError(
                f"Pool {pool!r} is in use: jobs hold or wait for its slots; "
                f"set it to 0 slots with `oq pool set {pool} 0`, cancel the jobs, and then remove it."
            )
        return word == "removed"

    return Operation(oq1.remove_pool(slots_key=keys.pool_slots, now_ms=now_ms, pool=pool), read)


def start_woken(keys: QueueKeys, tokens: Sequence[str], now_ms: int, *, is_last: bool) -> Conversation[list[str]]:
    """Start jobs for which slots became free.

    Args:
        keys: The keys of any queue with the pools' prefix.
        tokens: The jobs' names.
        now_ms: Epoch milliseconds.
        is_last: Skip jobs that are still active because they are about to wait, so that others go first.

    Returns:
        The jobs that are still active, to be started a moment later.
    """
    active: list[str] = []
    waking = list(tokens)
    for _ in range(_MOST_ROUNDS):
        if not waking:
            break
        skipped: list[oq1.Skipped] = []
        queues: dict[QueueKeys, list[str]] = {}
        for token in waking:
            job = ParentRef.of_member(token)
            if job is None:
                skipped.append(oq1.Skipped(token=token, gone=True))
            else:
                queues.setdefault(job.keys, []).append(job.job_id)
        calls = [
            oq1.start_parked(queue, jobs=[oq1.Parked(job_id=job_id) for job_id in jobs])
            for queue, jobs in queues.items()
        ]
        replies = (yield calls) if calls else []
        for (queue, jobs), reply in zip(queues.items(), replies, strict=True):
            # If one queue refuses, the jobs of others are started nevertheless.
            letters = "l" * len(jobs) if isinstance(reply, Exception) else text(reply)
            for job_id, letter in zip(jobs, letters, strict=True):
                if letter == "a" and not is_last:
                    active.append(queue.member(job_id))
                elif letter != "r":
                    skipped.append(oq1.Skipped(token=queue.member(job_id), gone=letter == "g"))
        waking = []
        if skipped:
            (reply,) = all_good(
                (yield [oq1.skip_waiters(slots_key=keys.pool_slots, waiters=skipped[:100], now_ms=now_ms)])
            )
            waking = texts(reply)
    return active


def states(keys: QueueKeys, now_ms: int, names: Sequence[str] | None = None) -> Conversation[list[Pool]]:
    """Read pools by name; all without names. Two exchanges."""
    (stored,) = all_good((yield [Call("HGETALL", (keys.pool_slots,))]))
    slots = pairs(stored)
    found = sorted(slots) if names is None else [name for name in names if name in slots]
    calls = [
        call
        for name in found
        for call in (Call("HGETALL", (keys.pool_holders(name),)), Call("ZCARD", (keys.pool_waiters(name),)))
    ]
    replies = all_good((yield calls)) if calls else []
    return [
        Pool(name, whole_number(slots[name]) or 0, _holders(pairs(holders), now_ms), integer(waiting))
        for name, holders, waiting in zip(found, replies[::2], replies[1::2], strict=True)
    ]


def _holders(stored: Mapping[str, str], now_ms: int) -> tuple[PoolHolder, ...]:
    holders = []
    for token, words in stored.items():
        job = ParentRef.of_member(token)
        numbers = [whole_number(word) for word in words.split()]
        match numbers:
            case [int(until_ms), int(slots), int()] if job is not None and until_ms > now_ms:
                holders.append(PoolHolder(job.keys.queue, job.job_id, slots, until_ms))
    return tuple(sorted(holders, key=lambda holder: (holder.queue, holder.job_id)))


def wait_of(keys: QueueKeys, job_id: str) -> Operation[dict[str, int]]:
    """Read the slots that a job waits for, by pool; empty if it waits for none."""

    def read(reply: Reply) -> dict[str, int]:
        try:
            weights = json.loads(optional_text(reply) or "{}")["pools"]
            return {str(name): int(weight) for name, weight in weights.items()}
        except (ValueError, TypeError, KeyError, AttributeError):
            return {}

    return Operation(Call("HGET", (keys.pool_waiting,), (keys.member(job_id),)), read)
