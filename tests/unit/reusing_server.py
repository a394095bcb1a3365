"""A fork server for tests, whose forks run several work items, one after another."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

from orchestration_queue.worker.forks.fork_server import ForkServer
from orchestration_queue.worker.forks.write_fence import WriteFence
from orchestration_queue.worker.sandbox.frames import Frame

__all__ = ["MOST_ITEMS", "main"]

MOST_ITEMS = 3


class _Server(ForkServer):
    most_items = MOST_ITEMS

    def run(self, frame: Frame, fence: WriteFence) -> int:
        """Do what the item's data asks for."""
        asked = frame["data"]
        if path := asked.get("until"):
            while not Path(path).exists():
                time.sleep(0.01)
        if asked.get("is_killed"):
            os.kill(os.getpid(), signal.SIGKILL)
        fence.report(number=str(random.random()))
        self.is_reusable = asked.get("is_reusable", True)
        return int(asked.get("code", 0))

    def receive(self, frame: Frame) -> None:
        """Change, and report the open sockets to forks."""
        self.dismiss_forks()
        self.send(kind="examined", hazards=[], repairs=[], sources={}, left=len(self.descriptors))


def main(
    descriptor: int, parent: int, log_level: int, fence: int, location: dict[str, str] | None, *, is_resident: bool
) -> None:
    """Serve work items."""
    del location
    server = _Server(descriptor, parent, log_level, fence, is_resident=is_resident)
    server.main(lambda: None, lambda: {"hazards": [], "repairs": [], "sources": {}})
