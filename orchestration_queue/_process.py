"""Functions for child processes of this package: end with the parent, measure memory."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["die_with_parent", "memory_bytes", "report_crashes"]

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel signal this process when its parent ends in any way.

    The child calls it first: between fork and exec, Python code would run in a process that may have inherited locked
    locks. If the parent died before the call, the changed id of the parent shows it.

    Args:
        parent: The parent's process id, as the parent itself knows it.
        number: The signal; by default one that no process can catch.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def report_crashes() -> None:
    """Have this process write where its Python code was to standard error before a fatal signal ends it."""
    if sys.version_info >= (3, 14):
        # The stack of C functions comes last, and would be all that is left in the last lines of its output.
        faulthandler.enable(all_threads=False, c_stack=False)
    else:
        faulthandler.enable(all_threads=False)


def memory_bytes(process: int | None = None) -> int:
    """Return the resident memory of a process, in bytes. On systems without /proc: this one's peak, and 0 for others.

    Args:
        process: Its id; default this one.
    """
    with suppress(OSError):
        return int(Path(f"/proc/{process or 'self'}/statm").read_text().split()[1]) * resource.getpagesize()
    if process is not None:
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most << 10
