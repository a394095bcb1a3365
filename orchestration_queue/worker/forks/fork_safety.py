"""Find the threads, connections and open databases that make it unsafe to fork a process.

A fork copies memory and descriptors, but only the calling thread. A child of a process with a native thread pool waits
forever for threads that it does not have, and two children of a process with a connection write to the same stream.
"""

from __future__ import annotations

import fcntl
import gc
import os
import random
import signal
import socket
import stat
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = [
    "changed_files",
    "close_idle_connections",
    "decide",
    "find_hazards",
    "find_repairs",
    "open_descriptors",
    "reseed",
    "source_files",
]

_FORK_SAFE_THREADS = frozenset({"jemalloc_bg_thd"})
"""Threads of libraries that restart them in the child."""
_GPU_DEVICES = ("/dev/nvidia", "/dev/kfd")
_MOST_NAMES = 5
_OURS = frozenset({"dagster", "dagster_shared", "orchestration_queue"})


def decide(hazards: Sequence[str], repairs: Sequence[str], *, is_forked: bool = False) -> str:
    """Return the isolation of loaded code, and its reason: ``fork``, ``fork after repair`` or ``spawn``.

    Args:
        hazards: The result of :func:`find_hazards`.
        repairs: The repairs before or after a fork.
        is_forked: Whether work items are forked in any case, because their run requests it.
    """
    if hazards:
        chosen = "fork, as requested, although" if is_forked else "spawn:"
        return f"{chosen} importing the code leaves {'; '.join(hazards)}"
    if repairs:
        return f"fork after repair: {'; '.join(repairs)}"
    return "fork: importing the code leaves no threads, connections or open databases"


def open_descriptors() -> frozenset[int]:
    """Return this process's open file descriptors; none if the system does not list them."""
    found = set()
    with suppress(OSError):
        listed = [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]
        for descriptor in listed:
            with suppress(OSError):  # the one that listed the others is closed
                os.fstat(descriptor)
                found.add(descriptor)
    return frozenset(found)


def find_hazards(known: Set[int] = frozenset()) -> list[str]:
    """Return descriptions of everything that makes forks of this process unsafe; empty if they are safe.

    Args:
        known: Descriptors to ignore, because they were open before the user's code was loaded.
    """
    hazards = []
    if threads := _lost_threads():
        shown = ", ".join(sorted(set(threads))[:_MOST_NAMES])
        hazards.append(f"{len(threads)} thread{'s' * (len(threads) > 1)} ({shown})")
    for descriptor in sorted(open_descriptors() - known):
        with suppress(OSError):  # it was closed
            if hazard := _describe(descriptor):
                hazards.append(hazard)
    return list(dict.fromkeys(hazards))


def _lost_threads() -> list[str]:
    """Return the names of the threads that a forked child would lack.

    Some libraries (OpenBLAS) stop their threads before a fork and restart them on demand. Only a fork shows which ones,
    so this forks a child that does nothing.
    """
    tasks = Path("/proc/self/task")
    if not tasks.is_dir():
        return [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    _fork_once()
    names = []
    for task in tasks.iterdir():
        with suppress(OSError):  # it has ended
            if int(task.name) != os.getpid():
                names.append((task / "comm").read_text().strip())
    return [name for name in names if name not in _FORK_SAFE_THREADS]


def _fork_once() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns about forks with threads
        child = os.fork()
    if not child:
        os._exit(0)
    os.kill(child, signal.SIGKILL)  # it may hang in a handler that runs after a fork
    os.waitpid(child, 0)


def _describe(descriptor: int) -> str | None:
    """Describe a descriptor that forked children must not share; return None for others."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISSOCK(mode):
        return _describe_socket(descriptor)
    path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
    if path.startswith(_GPU_DEVICES):
        return f"the GPU ({path})"
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    # What several processes append does not overwrite each other.
    is_updated = flags & os.O_ACCMODE == os.O_RDWR and not flags & os.O_APPEND
    if stat.S_ISREG(mode) and is_updated and Path(path).exists():  # not a temporary file without a name
        return f"the open file {path}"
    return None


def _describe_socket(descriptor: int) -> str | None:
    # A copy of the descriptor, since a socket object closes its own.
    with socket.socket(fileno=os.dup(descriptor)) as copy:
        try:
            peer = copy.getpeername()
        except OSError:  # it only listens, or is not connected
            return None
    if copy.family in (socket.AF_INET, socket.AF_INET6):
        return f"a connection to {peer[0]}:{peer[1]}"
    return f"a connection to {os.fsdecode(peer)}" if peer else "a connection to another process"


_SEEDED = {"numpy": "numpy.random", "torch": "torch"}
"""Libraries with a global random number generator, and its module."""


def find_repairs() -> list[str]:
    """Return descriptions of the repairs that :func:`reseed` makes in each fork for loaded libraries."""
    return [f"random numbers of {name} are seeded again" for name, module in _SEEDED.items() if module in sys.modules]


def reseed() -> None:
    """Seed the random number generators again, because a fork would draw the same numbers as its siblings."""
    random.seed()
    for module in _SEEDED.values():
        if (loaded := sys.modules.get(module)) is not None:
            loaded.seed()


def close_idle_connections() -> list[str]:
    """Close idle connections in pools of known libraries, which reopen them on demand; return descriptions of these.

    Connections in use stay open, and so do databases in memory, which would be lost.
    """
    closers = dict(_closers())
    pools = [found for found in gc.get_objects() if type(found) in closers]
    closed = [name for pool in pools if (name := closers[type(pool)](pool))]
    return [f"idle connections of {name} were closed" for name in dict.fromkeys(closed)]


def _closers() -> Iterator[tuple[type, Callable[[Any], str]]]:
    """Yield for each type of pool a function that closes its idle connections and returns its library, '' if none."""
    if engines := sys.modules.get("sqlalchemy.engine"):
        yield engines.Engine, _close_engine
    if redis := sys.modules.get("redis"):
        yield redis.ConnectionPool, _close_redis
    if urllib3 := sys.modules.get("urllib3"):
        yield urllib3.PoolManager, _close_urllib3


def _close_engine(engine: Any) -> str:
    if engine.dialect.name == "sqlite" or not getattr(engine.pool, "checkedin", int)():
        return ""
    engine.dispose()
    return "SQLAlchemy"


def _close_redis(pool: Any) -> str:
    had = any(connection._sock is not None for connection in getattr(pool, "_available_connections", ()))
    pool.disconnect(inuse_connections=False)
    return "redis" if had else ""


def _close_urllib3(manager: Any) -> str:
    had = len(manager.pools) > 0
    manager.clear()
    return "urllib3" if had else ""


def source_files(extra: Iterable[str] = ()) -> dict[str, int]:
    """Return the files of the imported user code, with their times of modification.

    Installed packages are omitted: they change only with a deployment, which starts new workers.
    """
    found: dict[str, int] = {}
    installed = tuple({sys.prefix, sys.base_prefix, sys.exec_prefix})
    files = [str(path) for path in extra]
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        is_ours = name.partition(".")[0] in _OURS
        if isinstance(path, str) and path.endswith(".py") and not is_ours and not path.startswith(installed):
            files.append(path)
    for path in files:
        with suppress(OSError):
            found[path] = Path(path).stat().st_mtime_ns
    return found


def changed_files(sources: dict[str, int]) -> list[str]:
    """Return the files that were changed or removed since :func:`source_files` listed them."""
    changed = []
    for path, changed_ns in sources.items():
        try:
            is_same = os.stat(path).st_mtime_ns == changed_ns  # noqa: PTH116  a fork waits for this: no objects
        except OSError:
            is_same = False
        if not is_same:
            changed.append(path)
    return changed
