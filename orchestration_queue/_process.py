"""What every child process of this package does first."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

__all__ = ["die_with_parent"]

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, however that ends.

    Called by the child itself, first thing: doing it between fork and exec would run Python in a process that may have
    inherited locked locks. A parent that died before the call is noticed by its changed id.

    Args:
        parent: The parent's process id, as the parent itself knows it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)
