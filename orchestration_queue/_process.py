"""What every child process of this package does first, and what it knows about its own state."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["die_with_parent", "memory_bytes"]

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel signal this process when its parent ends, however that ends.

    Called by the child itself, first thing: doing it between fork and exec would run Python in a process that may have
    inherited locked locks. A parent that died before the call is noticed by its changed id.

    Args:
        parent: The parent's process id, as the parent itself knows it.
        number: The signal; default one that no process can catch.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def memory_bytes(process: int | None = None) -> int:
    """Return the bytes that a process holds now. Where the system does not say: of this one the most ever, of others 0.

    Args:
        process: Its id; default this one.
    """
    with suppress(OSError):
        return int(Path(f"/proc/{process or 'self'}/statm").read_text().split()[1]) * resource.getpagesize()
    if process is not None:
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most << 10
