"""Captured output on the server: one stream per log, whose entry ids are the offsets of their bytes.

The server rejects an entry that is sent twice, a reader continues at its offset, and a log that is too long loses its
oldest bytes.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

from orchestration_queue.dagster._compat import CapturedLogSubscription
from orchestration_queue.errors import OrchestrationQueueError, ServerError
from orchestration_queue.protocol.call import Call, Reply, all_good, text, texts
from orchestration_queue.server import Connection

__all__ = ["CHUNK", "NAMES", "LiveTail", "LogKey", "LogStore", "LogSubscription", "Uploads"]

CHUNK = 64 * 1024
"""Maximum bytes of one entry."""

NAMES = ("out", "err")
"""The outputs of a process, by the suffixes of their files."""

LogKey = Sequence[str]
"""Dagster's name of a log: its run, ``compute_logs``, and the step, for instance."""

_PAGE = 256
_EXISTS = "equal or smaller"
"""Part of the server's error for an entry whose id exists."""


@dataclass(frozen=True, slots=True)
class LogStore:
    """Logs on a server.

    Attributes:
        connect: Returns the connection; called for each use, so that the first use connects.
        prefix: First part of every key.
        max_bytes: The number of last bytes to keep of each log.
        ttl_ms: How long to keep a log after its last byte.
    """

    connect: Callable[[], Connection]
    prefix: str
    max_bytes: int
    ttl_ms: int

    def begin(self, key: LogKey, names: Sequence[str]) -> dict[str, int]:
        """Start writing a log: add it to the index, and mark it as incomplete.

        Returns:
            The number of bytes from an earlier capture with the same key, by name.
        """
        member = json.dumps(list(key))
        entries: list[Call] = []
        for depth in range(1, len(key)):
            index = self._index(key[:depth])
            entries += [Call("SADD", (index,), (member,)), Call("PEXPIRE", (index,), (self.ttl_ms,))]
        lasts = [Call("XREVRANGE", (self._key(key, name),), ("+", "-", "COUNT", 1)) for name in names]
        calls = [Call("DEL", (self._key(key, "done"),)), *lasts, *entries]
        replies = all_good(self.connect().pipeline(calls, repeatable=True))
        return {name: _end(reply) for name, reply in zip(names, replies[1:], strict=False)}

    def append(self, key: LogKey, name: str, offset: int, data: bytes) -> None:
        """Store bytes at an offset. Idempotent."""
        log = self._key(key, name)
        oldest = max(0, offset + len(data) - self.max_bytes)
        # The id is the offset: the same bytes are refused the second time, and MINID drops those before a position.
        # 0-0 is no valid id, hence the 1.
        words = ("MINID", "=", f"{oldest}-0", f"{offset}-1", "data", data)
        calls = [Call("XADD", (log,), words), Call("PEXPIRE", (log,), (self.ttl_ms,))]
        added, _ = self.connect().pipeline(calls, repeatable=True)
        if isinstance(added, ServerError) and _EXISTS not in str(added):
            raise added

    def complete(self, key: LogKey) -> None:
        """Mark a log as complete."""
        call = Call("SET", (self._key(key, "done"),), ("1", "PX", self.ttl_ms))
        self.connect().execute(call, repeatable=True)

    def is_complete(self, key: LogKey) -> bool:
        """Return whether a log is complete."""
        return bool(self.connect().execute(Call("EXISTS", (self._key(key, "done"),)), repeatable=True))

    def exists(self, key: LogKey, name: str) -> bool:
        """Return whether a log has output."""
        return bool(self.connect().execute(Call("EXISTS", (self._key(key, name),)), repeatable=True))

    def read(self, key: LogKey, name: str, offset: int, max_bytes: int | None) -> tuple[bytes | None, int]:
        """Read from an offset.

        Returns:
            The bytes, or None if the log does not exist, and the next offset. A line marks the place of dropped bytes.
        """
        log = self._key(key, name)
        before = self._entries(Call("XREVRANGE", (log,), (f"{offset}-1", "-", "COUNT", 1)))
        at = before[0][0] if before else 0
        found, position, does_exist = bytearray(), offset, bool(before)
        while max_bytes is None or len(found) < max_bytes:
            page = self._entries(Call("XRANGE", (log,), (f"{at}-1", "+", "COUNT", _PAGE)))
            does_exist = does_exist or bool(page)
            for start, data in page:
                if start > position:
                    found += f"[{start - position} bytes were dropped: more than max_bytes]\n".encode()
                    position = start
                found += data[position - start :]
                position = max(position, start + len(data))
            if len(page) < _PAGE:
                break
            at = page[-1][0] + 1
        excess = max(0, len(found) - max_bytes) if max_bytes is not None else 0
        if excess:
            del found[-excess:]
        return (bytes(found) if does_exist else None), position - excess

    def keys_below(self, prefix: LogKey) -> list[LogKey]:
        """Return the keys of all logs under a prefix, at any depth."""
        members = self.connect().execute(Call("SMEMBERS", (self._index(prefix),)), repeatable=True)
        return [json.loads(member) for member in sorted(texts(members))]

    def delete(self, keys: Sequence[LogKey]) -> None:
        """Remove logs."""
        deletions = [Call("DEL", (self._key(key, name),)) for key in keys for name in (*NAMES, "done")]
        removals = [
            Call("SREM", (self._index(key[:depth]),), (json.dumps(list(key)),))
            for key in keys
            for depth in range(1, len(key))
        ]
        all_good(self.connect().pipeline([*deletions, *removals], repeatable=True))

    def _entries(self, call: Call) -> list[tuple[int, bytes]]:
        reply = self.connect().execute(call, repeatable=True)
        return [(int(text(entry_id).partition("-")[0]), fields[1]) for entry_id, fields in reply]

    def _key(self, key: LogKey, name: str) -> str:
        return f"{self.prefix}:logs:{{{_path(key)}}}:{name}"

    def _index(self, prefix: LogKey) -> str:
        return f"{self.prefix}:logs:{{{_path(prefix)}}}:below"


class Uploads:
    """Stores the contents of files, without the bytes that the server already has.

    Args:
        store: The store.
        log_key: The log.
        new: The names of new files, which continue the server's log of an earlier capture with the same key.
    """

    def __init__(self, store: LogStore, log_key: LogKey, new: Sequence[str]) -> None:
        self._store = store
        self._log_key = log_key
        self._new = new
        self._ends: dict[str, int] | None = None
        self._shifts: dict[str, int] = {}

    def take(self, name: str, offset: int, data: bytes) -> None:
        """Store the bytes of a file that the server lacks.

        Raises:
            TransportError: The server cannot be reached.
        """
        if self._ends is None:
            self._ends = self._store.begin(self._log_key, NAMES)
            self._shifts = {output: self._ends[output] if output in self._new else 0 for output in NAMES}
        at = offset + self._shifts[name]
        known = max(0, self._ends[name] - at)
        if rest := data[known:]:
            self._store.append(self._log_key, name, at + known, rest)
            self._ends[name] = at + known + len(rest)


def _path(key: LogKey) -> str:
    """Encode a log's key as part of a server's key, without characters that could end the hash tag."""
    return "/".join(quote(part, safe="") for part in key)


def _end(last: Reply) -> int:
    """Return the offset after the last entry."""
    return int(text(last[0][0]).partition("-")[0]) + len(last[0][1][1]) if last else 0


_INTERVAL_S = 0.5


class _CompletionSource(Protocol):
    """A log manager that knows whether a log is complete."""

    def is_capture_complete(self, log_key: LogKey) -> bool: ...


class LogSubscription(CapturedLogSubscription):
    """A subscription that the subscribing thread and the tail serve, without duplicates."""

    def __init__(self, manager: Any, log_key: LogKey, cursor: str | None) -> None:
        super().__init__(manager, log_key, cursor)
        self._fetching = threading.Lock()

    def fetch(self) -> None:
        """Pass on new output. Without the lock, two threads could read from the same place."""
        with self._fetching:
            super().fetch()


class LiveTail:
    """Checks all subscribed logs for new output twice a second, while there are any.

    Args:
        manager: The log manager.
    """

    def __init__(self, manager: _CompletionSource) -> None:
        self._manager = manager
        self._lock = threading.Lock()
        self._subscriptions: list[CapturedLogSubscription] = []
        self._thread: threading.Thread | None = None
        self._changed = threading.Event()

    def add(self, subscription: CapturedLogSubscription) -> None:
        """Pass new output to a subscription until its log is complete."""
        with self._lock:
            self._subscriptions.append(subscription)
            if self._thread is None:
                self._changed.clear()
                self._thread = threading.Thread(target=self._run, name="oq-log-tail", daemon=True)
                self._thread.start()

    def remove(self, subscription: CapturedLogSubscription) -> None:
        """Stop passing output to a subscription."""
        with self._lock:
            if subscription in self._subscriptions:
                self._subscriptions.remove(subscription)
        self._changed.set()

    def close(self) -> None:
        """Remove all subscriptions, and wait for the thread."""
        with self._lock:
            self._subscriptions.clear()
            thread = self._thread
        self._changed.set()
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._subscriptions:
                    self._thread = None
                    return
                subscribed = list(self._subscriptions)
            for subscription in subscribed:
                self._notify(subscription)
            self._changed.wait(_INTERVAL_S)
            self._changed.clear()

    def _notify(self, subscription: CapturedLogSubscription) -> None:
        try:
            # Check this first, so that no output can arrive between the last read and the end.
            if self._manager.is_capture_complete(subscription.log_key):
                subscription.complete()
            subscription.fetch()
        except OrchestrationQueueError:  # the server is unreachable; the next check tries again
            return
        if subscription.is_complete:
            self.remove(subscription)
