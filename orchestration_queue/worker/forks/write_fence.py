"""Write fences: deadlines for the writes of work items, in memory that workers, fork servers and children share.

The worker's heartbeat extends a work item's deadline with every renewal of its lease. The work item checks it before it
writes an event. So a process that was suspended beyond its lease, or whose worker was, no longer writes anything:
another process may be running the next attempt.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["FenceSlot", "WriteFence", "WriteFences", "now"]

_SLOT_BYTES = 8192
_DEADLINE = struct.Struct("=d")
_SIGNED = struct.Struct("=?")
_LENGTH = struct.Struct("=I")
_NOTE_AT = _DEADLINE.size + _SIGNED.size
_MOST_NOTE_BYTES = _SLOT_BYTES - _NOTE_AT - _LENGTH.size
_SHORTEST_NAP_S = 0.01


def now() -> float:
    """Return the seconds of a clock that all processes of this machine share, and that runs while it sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class _Memory:
    """One work item's part of the shared memory."""

    def __init__(self, memory: mmap.mmap, index: int) -> None:
        self._memory = memory
        self._start = index * _SLOT_BYTES

    @property
    def deadline(self) -> float:
        (deadline,) = _DEADLINE.unpack_from(self._memory, self._start)
        return float(deadline)

    @deadline.setter
    def deadline(self, value: float) -> None:
        _DEADLINE.pack_into(self._memory, self._start, value)

    @property
    def has_signed(self) -> bool:
        (signed,) = _SIGNED.unpack_from(self._memory, self._start + _DEADLINE.size)
        return bool(signed)

    @has_signed.setter
    def has_signed(self, value: bool) -> None:
        _SIGNED.pack_into(self._memory, self._start + _DEADLINE.size, value)

    @property
    def note(self) -> dict[str, str]:
        at = self._start + _NOTE_AT
        (length,) = _LENGTH.unpack_from(self._memory, at)
        if not 0 < length <= _MOST_NOTE_BYTES:
            return {}
        read = json.loads(self._memory[at + _LENGTH.size : at + _LENGTH.size + length])
        return {str(name): str(value) for name, value in read.items()}

    @note.setter
    def note(self, value: dict[str, str]) -> None:
        text = json.dumps(value).encode()
        at = self._start + _NOTE_AT
        _LENGTH.pack_into(self._memory, at, 0)  # a kill in between leaves an empty note
        self._memory[at + _LENGTH.size : at + _LENGTH.size + len(text)] = text
        _LENGTH.pack_into(self._memory, at, len(text))


class WriteFences:
    """The worker's side of all fences.

    Args:
        slots: The worker's concurrency.
    """

    def __init__(self, slots: int) -> None:
        self._file = tempfile.TemporaryFile(prefix="oq-fence-")  # noqa: SIM115  it lives as long as the worker
        self._file.truncate(slots * _SLOT_BYTES)
        self._memory = mmap.mmap(self._file.fileno(), 0)
        self._free = list(range(slots))

    @property
    def descriptor(self) -> int:
        """The open file that fork servers inherit."""
        return self._file.fileno()

    @contextmanager
    def slot(self, deadline: float) -> Iterator[FenceSlot]:
        """Reserve the fence of one work item, with its first deadline."""
        index = self._free.pop()
        slot = FenceSlot(self._memory, index)
        slot.clear()
        slot.extend(deadline)
        try:
            yield slot
        finally:
            # Processes that the work item has left behind can no longer write.
            slot.extend(0.0)
            self._free.append(index)

    def close(self) -> None:
        """Release the memory."""
        self._memory.close()
        self._file.close()


class FenceSlot:
    """The worker's side of one work item's fence.

    Attributes:
        index: Its index in the shared memory.
    """

    def __init__(self, memory: mmap.mmap, index: int) -> None:
        self.index = index
        self._part = _Memory(memory, index)

    @property
    def note(self) -> dict[str, str]:
        """The values that the work item has reported."""
        return self._part.note

    @property
    def has_signed(self) -> bool:
        """Whether the work item has written an event."""
        return self._part.has_signed

    def clear(self) -> None:
        """Clear the values of a previous work item."""
        self._part.note = {}
        self._part.has_signed = False

    def extend(self, deadline: float) -> None:
        """Set the deadline. Thread-safe."""
        self._part.deadline = deadline

    def prolong(self, seconds: float) -> None:
        """Extend the deadline without a renewed lease, unless it has passed."""
        if now() < self._part.deadline < now() + seconds:
            self._part.deadline = now() + seconds


class WriteFence:
    """The work item's and its fork server's side of a fence."""

    def __init__(self, descriptor: int, index: int) -> None:
        self._memory = mmap.mmap(descriptor, 0)
        self._part = _Memory(self._memory, index)

    @property
    def left_s(self) -> float:
        """The time until the deadline; negative after it."""
        return self._part.deadline - now()

    def admit(self) -> None:
        """Check the deadline before an event is written, and mark the work item as started."""
        self.check()
        self._part.has_signed = True

    def check(self) -> None:
        """Kill this process and all that it has started if the deadline has passed."""
        if self.left_s <= 0:
            os.killpg(0, signal.SIGKILL)

    def report(self, **values: str) -> None:
        """Report values to the worker, which can read them even after a crash. Long texts lose their beginning."""
        note = {**self._part.note, **values}
        while len(json.dumps(note)) > _MOST_NOTE_BYTES:
            longest = max(note, key=lambda name: len(note[name]))
            note[longest] = note[longest][len(note[longest]) // 4 + 1 :]
        self._part.note = note

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Check the deadline in a thread, too, for work that writes nothing for a long time."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(max(_SHORTEST_NAP_S, self.left_s)):
                self.check()

        watcher = threading.Thread(target=watch, name="oq-fence", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    def close(self) -> None:
        """Release the memory."""
        self._memory.close()
