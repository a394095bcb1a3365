"""Fair shares: jobs that name a share wait there, and start by the shares' weights."""

from __future__ import annotations

from dataclasses import dataclass

from orchestration_queue.protocol.call import (
    Call,
    Conversation,
    Operation,
    Reply,
    all_good,
    chunks,
    integer,
    optional_text,
    texts,
)
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.record import pairs, whole_number

__all__ = ["Share", "ShareWait", "busy", "set_weight", "states", "unset_weight", "wait_of", "waiting"]

_DEFAULT_WEIGHT = 1


@dataclass(frozen=True, slots=True)
class Share:
    """A share of a queue.

    Attributes:
        name: Its name.
        weight: Its part of the starts beside other shares that have waiting jobs: twice the weight, twice the starts.
        waiting: How many jobs wait in it, without those few that are on the stream already.
    """

    name: str
    weight: int = _DEFAULT_WEIGHT
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class ShareWait:
    """How a job waits in its share.

    Attributes:
        share: The share.
        before: How many jobs of the share start before it.
        shares: How many shares have waiting jobs.
        turn: How many of these are served before this one is again.
    """

    share: Share
    before: int
    shares: int
    turn: int


def set_weight(keys: QueueKeys, name: str, weight: int) -> Call:
    """Set the weight of a share."""
    return Call("HSET", (keys.shares,), (name, weight))


def unset_weight(keys: QueueKeys, name: str) -> Operation[bool]:
    """Reset the weight of a share to the default; read False if none was set."""
    return Operation(Call("HDEL", (keys.shares,), (name,)), lambda reply: integer(reply) == 1)


def waiting(keys: QueueKeys) -> Call:
    """Ask how many jobs wait in shares; the reply is empty when none does."""
    return Call("HGET", (keys.meta,), ("shared",))


def states(keys: QueueKeys) -> Conversation[list[Share]]:
    """Return the shares that have a weight or waiting jobs, by name. Two exchanges for 1,000 shares."""
    stored, busy = all_good((yield [Call("HGETALL", (keys.shares,)), Call("ZRANGE", (keys.shares_waiting,), (0, -1))]))
    weights = {name: _weight(weight) for name, weight in pairs(stored).items()}
    sizes: dict[str, int] = {}
    for names in chunks(texts(busy)):
        sizes.update(zip(names, all_good((yield [Call("ZCARD", (keys.share(name),)) for name in names])), strict=True))
    names = sorted({*weights, *sizes})
    return [Share(name, weights.get(name, _DEFAULT_WEIGHT), sizes.get(name, 0)) for name in names]


def _weight(stored: str | None) -> int:
    return max(_DEFAULT_WEIGHT, whole_number(stored) or 0)


def busy(keys: QueueKeys) -> Conversation[list[str]]:
    """Return the shares that have waiting jobs, the next served first."""
    (names,) = all_good((yield [Call("ZRANGE", (keys.shares_waiting,), (0, -1))]))
    return texts(names)


def wait_of(keys: QueueKeys, job_id: str, name: str) -> Conversation[ShareWait | None]:
    """Return how a job waits in a share; None when it is not there, being on the stream already. One exchange."""
    rank, size, shares, turn, weight = all_good(
        (
            yield [
                Call("ZRANK", (keys.share(name),), (job_id,)),
                Call("ZCARD", (keys.share(name),)),
                Call("ZCARD", (keys.shares_waiting,)),
                Call("ZRANK", (keys.shares_waiting,), (name,)),
                Call("HGET", (keys.shares,), (name,)),
            ]
        )
    )
    if rank is None:
        return None
    return ShareWait(Share(name, _weight(optional_text(weight)), size), rank, shares, _rank(turn))


def _rank(reply: Reply) -> int:
    return 0 if reply is None else integer(reply)
