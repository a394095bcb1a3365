"""The two ends of a fork that may run several work items, one after another."""

from __future__ import annotations

import socket
from contextlib import suppress
from dataclasses import dataclass

from orchestration_queue.worker.forks.write_fence import WriteFence
from orchestration_queue.worker.sandbox.frames import Frame, pack, take

__all__ = ["ForkChild", "await_item"]

_CHUNK = 1 << 16
_DONE = b"1"


@dataclass(slots=True, eq=False)
class ForkChild:
    """The server's end.

    Attributes:
        pid: The process.
        number: The number of its work item; None while it runs none.
        fence: The fence of its work item.
        line: The socket to it; None if it runs no further work item.
        idle_until: When to end it if it has run none until then.
    """

    pid: int
    number: int | None
    fence: WriteFence | None
    line: socket.socket | None
    idle_until: float = 0.0

    def is_done(self) -> bool:
        """Whether it has just ended its work item well, and waits for another one."""
        if self.line is None or self.number is None:
            return False
        try:
            return self.line.recv(len(_DONE)) == _DONE
        except OSError:  # it has said nothing yet, or is gone
            return False

    def begin(self, frame: Frame, fence: WriteFence) -> bool:
        """Have it run another work item; return whether it could be sent."""
        if self.line is None:
            return False
        try:
            self.line.sendall(pack(frame))
        except OSError:  # it is gone, or the message is too long for its buffer; what it got of that, it ignores
            return False
        self.number, self.fence = frame["number"], fence
        return True


def await_item(line: socket.socket) -> Frame | None:
    """Say in a fork that its work item has ended well; return the next one, None if it must end."""
    received = bytearray()
    with suppress(OSError):
        line.sendall(_DONE)
        while chunk := line.recv(_CHUNK):
            received += chunk
            if (frame := take(received)) is not None:
                return frame
    return None
