"""What a fork server does when it can't fork."""

from __future__ import annotations

import os
import socket

import pytest

from orchestration_queue.worker.forks.fork_server import FAILED, ForkServer
from orchestration_queue.worker.forks.write_fence import WriteFences, now
from orchestration_queue.worker.sandbox.frames import take


def test_a_fork_that_fails_ends_its_work_item_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine with too many processes. The server's other work items must not end with it."""

    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    fences = WriteFences(1)
    ours, theirs = socket.socketpair()
    server = ForkServer.__new__(ForkServer)  # its constructor is for a process of its own
    server._fence, server._line, server._children = fences.descriptor, theirs, {}
    with ours, theirs, fences.slot(now() + 60) as slot:
        server._fork({"number": 7, "slot": slot.index})
        assert take(bytearray(ours.recv(65_536))) == {"kind": "ended", "number": 7, "code": FAILED}
        assert "Resource temporarily unavailable" in slot.note["reason"]
    fences.close()
