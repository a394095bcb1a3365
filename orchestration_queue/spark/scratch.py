"""A directory for one run, which does not stay even when the process that made it is killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["scratch_directory"]

_PREFIX = "oq-spark-"
_LOCK = ".lock"


@contextlib.contextmanager
def scratch_directory() -> Iterator[Path]:
    """A directory of one's own for as long as the context lasts.

    Its owner holds a lock in it, which the kernel releases when the owner dies in whatever way. So those who come
    later know which directories have no owner any more, and remove them.
    """
    parent = Path(tempfile.gettempdir())
    _remove_abandoned(parent)
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    try:
        unseen = directory / f"{_LOCK}.new"
        with unseen.open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            unseen.rename(directory / _LOCK)  # under this name only once locked: another process might be faster
            yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _remove_abandoned(parent: Path) -> None:
    for lock_file in parent.glob(f"{_PREFIX}*/{_LOCK}"):
        with contextlib.suppress(OSError):  # it is in use, another user's, or was removed just now
            if lock_file.stat().st_uid != os.getuid():
                continue
            with lock_file.open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock_file.parent, ignore_errors=True)
