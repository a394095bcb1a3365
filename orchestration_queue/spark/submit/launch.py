"""The process between a worker and its ``spark-submit``: ends ``spark-submit`` with the worker.

``spark-submit`` becomes a Java process, which starts the application's Python, which starts Python workers. The kernel
signals only one process when a parent dies: this one, which then kills the whole group.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from orchestration_queue._process import die_with_parent
from orchestration_queue.server.embedded.supervisor import die_with

__all__ = ["main"]


def main(command: Sequence[str], parent: int, channel: int) -> int:
    """Run a command to its end, and write its exit code to the channel."""

    def end_with_parent(*_: object) -> None:
        # While the parent lives, it signals the whole group itself, and kills what does not exit.
        if os.getppid() != parent:
            os.killpg(0, signal.SIGKILL)

    signal.signal(signal.SIGTERM, end_with_parent)
    die_with_parent(parent, signal.SIGTERM)
    os.set_inheritable(channel, False)
    code = subprocess.Popen(command, preexec_fn=die_with(os.getpid())).wait()
    with os.fdopen(channel, "w") as reply:
        json.dump({"exit_code": code}, reply)
    return abs(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:-2], int(sys.argv[-2]), int(sys.argv[-1])))
