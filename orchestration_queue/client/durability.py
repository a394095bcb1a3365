"""How durable a job must be before adding it returns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from orchestration_queue.errors import InvalidOptionError, NotReplicatedError
from orchestration_queue.options.base import Options
from orchestration_queue.options.durations import Positive, milliseconds, seconds
from orchestration_queue.protocol.call import Call, Reply
from orchestration_queue.protocol.keys import QueueKeys

__all__ = ["Durability", "GivenDurability", "Replicated", "check_durability", "confirmation", "read_confirmation"]


class Replicated(Options):
    """Wait until replicas have confirmed the write."""

    replicas: Annotated[int, Field(ge=1, le=100, strict=True)] = 1
    """How many replicas."""
    timeout: Positive = timedelta(seconds=1)
    """How long to wait for them: a duration, or seconds."""
    fsync: bool = False
    """Whether they must also have synced it to their append-only files (WAITAOF; needs Valkey or Redis 7.2)."""


Durability: TypeAlias = Replicated | None
"""None: the primary's reply is enough."""

GivenDurability: TypeAlias = Literal["primary", "replicated"] | Replicated
"""Durability as callers may pass it."""

_REPLICATED = Replicated()


def check_durability(durability: GivenDurability) -> Durability:
    """Return the requested durability.

    Raises:
        InvalidOptionError: It is neither ``primary``, ``replicated``, nor a :class:`Replicated`.
    """
    if isinstance(durability, Replicated):
        return durability
    if durability not in ("primary", "replicated"):
        raise InvalidOptionError(
            f"`durability` must be 'primary', 'replicated' or Replicated(...), got {durability!r}."
        )
    return None if durability == "primary" else _REPLICATED


def confirmation(keys: QueueKeys, durability: Durability) -> list[Call]:
    """Return calls that ask the server, after a write on the same connection, how many replicas have it."""
    if durability is None:
        return []
    timeout_ms = milliseconds(durability.timeout)
    if durability.fsync:
        return [Call("WAITAOF", args=(0, durability.replicas, timeout_ms), near=keys.stream)]
    return [Call("WAIT", args=(durability.replicas, timeout_ms), near=keys.stream)]


def read_confirmation(keys: QueueKeys, durability: Durability, replies: Sequence[Reply]) -> None:
    """Read the replies to :func:`confirmation`.

    Raises:
        ServerError: The server can't say.
        NotReplicatedError: Fewer replicas than requested confirmed the write.
    """
    if durability is None:
        return
    (reply,) = replies
    if isinstance(reply, Exception):
        raise reply
    confirmed = int(reply[1] if durability.fsync else reply)
    if confirmed < durability.replicas:
        raise NotReplicatedError(keys.queue, confirmed, durability.replicas, seconds(durability.timeout))
