"""Run by Spark's Python daemon in place of ``pyspark.worker``: what a job changed on disk, the next job imports again.

Jobs of one Connect server share its Python workers, and code may be deployed between two of them. Spark's daemon runs
only modules whose names begin with ``pyspark``.
"""

from __future__ import annotations

import sys
import sysconfig
import time
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from pyspark import worker

__all__ = ["forget_changed_modules", "main"]

_Signature: TypeAlias = tuple[int, int]

_INSTALLED = tuple(
    f"{path}/" for path in {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
"""Whose modules are left alone: half of a library of C code cannot be imported twice."""
_UNKNOWN = (0, 0)
_CLOCK_NS = 1_000_000_000
"""How far the clock of files may be behind."""
_seen: dict[str, _Signature] = {}


def main(infile: BufferedReader, outfile: BinaryIO) -> None:
    """Serve one task."""
    infile.peek(1)  # wait for it: the last one's end may be long ago
    forget_changed_modules(sys.modules, _seen)
    began = time.time_ns() - _CLOCK_NS
    try:
        worker.main(infile, outfile)
    finally:
        new = {name: _signature(module) for name, module in list(sys.modules.items()) if name not in _seen}
        # What was written during the task may have been imported before or after.
        _seen.update({name: found if found[0] < began else _UNKNOWN for name, found in new.items() if found})


def forget_changed_modules(modules: dict[str, Any], seen: dict[str, _Signature]) -> None:
    """Remove all modules of the user's when the file of one has changed, since they may hold each other's names.

    Args:
        modules: Those that are loaded, by name.
        seen: What their files were when they had been loaded.
    """
    if all(_signature(modules.get(name)) == signature for name, signature in seen.items()):
        return
    for name in seen:
        modules.pop(name, None)
    seen.clear()


def _signature(module: Any) -> _Signature | None:
    """Return what distinguishes a changed file of the user's; None for modules without one."""
    file = getattr(module, "__file__", None)
    if not file or file.startswith(_INSTALLED) or module is sys.modules[__name__]:
        return None
    try:
        status = Path(file).stat()
    except OSError:  # in an archive, or removed
        return None
    return status.st_mtime_ns, status.st_size
