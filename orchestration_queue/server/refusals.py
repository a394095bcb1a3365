"""Refusals by a server that say something about the server and not about the call, and what to do about each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

__all__ = ["REFUSALS_OF_SERVERS", "Refusal", "Resend", "is_passing", "resend_of"]


class Resend(StrEnum):
    """How a refused call is sent again."""

    NO = "no"
    RECONNECT = "on a new connection"
    """The address may lead to another server by now."""
    WAIT = "after a pause"
    WAIT_LONG = "after a pause, up to `timeout`"
    """It lasts for as long as another client likes."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One kind of refusal. None of them applied the call.

    Attributes:
        meaning: What the server says with it.
        advice: What to do if it lasts.
        resend: Whether a client sends the call again before it raises.
        passes: Whether a worker waits for it to pass; otherwise the worker ends if it can't start for this reason.
    """

    meaning: str
    advice: str
    resend: Resend = Resend.NO
    passes: bool = True


REFUSALS_OF_SERVERS: Mapping[str, Refusal] = MappingProxyType(
    {
        "READONLY": Refusal(
            "The server is a replica, or was demoted to one after the connection was opened",
            "connect to the primary instead of a replica",
            Resend.RECONNECT,
        ),
        "MASTERDOWN": Refusal(
            "The server is a replica without its primary, and may not serve stale data",
            "connect to the primary instead of a replica",
            Resend.RECONNECT,
        ),
        "UNBLOCKED": Refusal(
            "A blocking read was ended because the server was demoted to a replica",
            "connect to the primary instead of a replica",
            Resend.RECONNECT,
        ),
        "LOADING": Refusal(
            "The server loads its data, after a restart or as a new replica",
            "wait until it has loaded its data",
            Resend.RECONNECT,
        ),
        "CLUSTERDOWN": Refusal(
            "A part of the cluster's slots, or most of its primaries, are out of service",
            "check the cluster with CLUSTER INFO",
            Resend.WAIT,
        ),
        "TRYAGAIN": Refusal(
            "The keys of a call are being moved to another node of the cluster",
            "try again once the slot has been moved",
            Resend.WAIT,
        ),
        "NOREPLICAS": Refusal(
            "Fewer replicas are connected than `min-replicas-to-write` demands",
            "check the primary's replicas",
            Resend.WAIT,
        ),
        "BUSY": Refusal(
            "A script or function of another client has been running for more than 5 s (`busy-reply-threshold`)",
            "end it with SCRIPT KILL or FUNCTION KILL",
            Resend.WAIT_LONG,
        ),
        "MISCONF": Refusal(
            "The server cannot write its snapshot or append-only file",
            "see the server's log and its disk",
        ),
        "OOM": Refusal(
            "The server is full (`maxmemory`) and evicts nothing",
            "raise `maxmemory`, or remove finished jobs with `oq queue clean`",
        ),
        "NOPERM": Refusal(
            "The user may not run a command, or not use a key",
            "ask for an ACL that allows FCALL, FUNCTION and the queue's keys to this user",
            passes=False,
        ),
        "UNKILLABLE": Refusal(
            "The reply to SCRIPT KILL and FUNCTION KILL if the script has already written; no call of this package",
            "wait until the script ends",
            passes=False,
        ),
    }
)
"""By the code with which the server's error begins."""


def resend_of(code: str) -> Resend:
    """Return how a call that was refused with this code is sent again."""
    found = REFUSALS_OF_SERVERS.get(code)
    return found.resend if found else Resend.NO


def is_passing(code: str) -> bool:
    """Return whether the same call may succeed later, without a change to the caller."""
    found = REFUSALS_OF_SERVERS.get(code)
    return found is not None and found.passes
