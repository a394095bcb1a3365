"""Signals to the workers of a queue: something is due early, or a running job is cancelled."""

from __future__ import annotations

from dataclasses import dataclass

from orchestration_queue.protocol.call import Call, Operation, Reply, text
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.record import pairs

__all__ = ["Signal", "read_signals", "wake_workers"]

_MOST = 100


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal to the workers of a queue.

    Attributes:
        id: Its entry in the stream of signals.
        cancelled: The running job that was cancelled; None when something is due.
    """

    id: str
    cancelled: str | None = None

    @property
    def at_ms(self) -> int:
        """When it was sent, by the server's clock, epoch ms."""
        return int(self.id.partition("-")[0])


def read_signals(keys: QueueKeys, after: str, block_ms: int) -> Operation[list[Signal]]:
    """Wait for signals after that entry."""
    args = ("COUNT", _MOST, "BLOCK", block_ms, "STREAMS", keys.wake, after)

    def read(reply: Reply) -> list[Signal]:
        entries = reply[0][1] if reply else ()
        return [Signal(text(entry_id), pairs(fields).get("cancel")) for entry_id, fields in entries]

    return Operation(Call("XREAD", args=args, near=keys.wake), read)


def wake_workers(keys: QueueKeys) -> Call:
    """Signal the workers that something is due sooner than they know."""
    return oq1.wake(keys)
