"""Slots of a cluster: the slot of each key, and the primary that serves it."""

from __future__ import annotations

from binascii import crc_hqx
from dataclasses import dataclass
from typing import TypeAlias

from orchestration_queue.protocol.call import Call, Reply, text

__all__ = ["CLUSTER_SLOTS", "Address", "SlotMap", "call_slot", "key_slot", "read_slot_map"]

Address: TypeAlias = tuple[str, int]
"""Host and port."""

CLUSTER_SLOTS = Call("CLUSTER", args=("SLOTS",))
"""Ask any node of a cluster which node serves which slots; see :func:`read_slot_map`."""

_SLOTS = 16384


@dataclass(frozen=True, slots=True)
class SlotMap:
    """Which primary serves which slots.

    Attributes:
        ranges: First slot, last slot, and the primary that serves them.
    """

    ranges: tuple[tuple[int, int, Address], ...]

    @property
    def primaries(self) -> tuple[Address, ...]:
        """Every primary that serves a slot, each once."""
        return tuple(dict.fromkeys(address for _, _, address in self.ranges))

    def primary(self, slot: int | None) -> Address:
        """Return the primary that serves the slot; for None or an unserved slot, always the same one of them."""
        serving = (address for first, last, address in self.ranges if slot is not None and first <= slot <= last)
        return next(serving, self.ranges[0][2])


def key_slot(key: str) -> int:
    """Return the slot of a key: of its hash tag if it has one."""
    _, opened, rest = key.partition("{")
    tag, closed, _ = rest.partition("}")
    return crc_hqx((tag if opened and closed and tag else key).encode(), 0) % _SLOTS


def call_slot(call: Call) -> int | None:
    """Return the slot that decides where a call is carried out; None when any server will do."""
    return None if call.first_key is None else key_slot(call.first_key)


def read_slot_map(reply: Reply, asked_host: str) -> SlotMap:
    """Read the reply to :data:`CLUSTER_SLOTS`.

    Args:
        reply: For each range: first slot, last slot, the primary, its replicas.
        asked_host: The host of the node that replied; it replaces a host that this node does not know.
    """
    ranges = []
    for first, last, primary, *_ in reply:
        host = "" if primary[0] is None else text(primary[0])
        ranges.append((first, last, (asked_host if host in ("", "?") else host, primary[1])))
    return SlotMap(tuple(ranges))
