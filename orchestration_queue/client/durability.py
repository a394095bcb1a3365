"""How safe a job must be before adding it counts as done."""

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

__all__ = ["Durability", "GivenDurability", "Replicated", "checked_durability", "confirmation", "read_confirmation"]


class Replicated(Options):
    """Wait until replicas have confirmed the write."""

    replicas: Annotated[int, Field(ge=1, le=100, strict=True)] = 1
    """How many of them."""
    timeout: Positive = timedelta(seconds=1)
    """How long to wait for them: a duration, or seconds."""
    fsync: bool = False
    """Whether they must have synced it to their append-only files, too (WAITAOF; needs Valkey or Redis 7.2)."""


Durability: TypeAlias = Replicated | None
"""None is satisfied with the primary's reply."""

GivenDurability: TypeAlias = Literal["primary", "replicated"] | Replicated
"""Durability as callers may give it."""

_REPLICATED = Replicated()


def checked_durability(durability: GivenDurability) -> Durability:
    """Return what a caller asks for.

    Raises:
        InvalidOptionError: It is neither one of the two words nor a :class:`Replicated`.
    """
    if isinstance(durability, Replicated):
        return durability
    if durability not in ("primary", "replicated"):
        raise InvalidOptionError(
            f"`durability` must be 'primary', 'replicated' or Replicated(...), got {durability!r}."
        )
    return None if durability == "primary" else _REPLICATED


def confirmation(keys: QueueKeys, durability: Durability) -> list[Call]:
    """Ask the server, after a write on the same connection, how many replicas have it."""
    if durability is None:
        return []
    timeout_ms = milliseconds(durability.timeout)
    if durability.fsync:
        return [Call("WAITAOF", args=(0, durability.replicas, timeout_ms), near=keys.stream)]
    return [Call("WAIT", args=(durability.replicas, timeout_ms), near=keys.stream)]


def read_confirmation(keys: QueueKeys, durability: Durability, replies: Sequence[Reply]) -> None:
    """Read the replies to :func:`confirmation`.

    Raises:
        ServerError: The server cannot tell.
        NotReplicatedError: Fewer replicas confirmed the write than were asked for.
    """
    if durability is None:
        return
    (reply,) = replies
    if isinstance(reply, Exception):
        raise reply
    confirmed = int(reply[1] if durability.fsync else reply)
    if confirmed < durability.replicas:
        raise NotReplicatedError(keys.queue, confirmed, durability.replicas, seconds(durability.timeout))
