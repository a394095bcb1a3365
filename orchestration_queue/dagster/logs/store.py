"""Captured output on the server: one stream for each log, whose entries' ids are the offsets of their bytes.

So an entry that is sent twice is refused the second time, a reader finds its place by its offset, and a log that is
too long loses its oldest bytes.
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
from orchestration_queue.protocol.call import Call, Reply, text, texts
from orchestration_queue.server import Connection

__all__ = ["CHUNK", "NAMES", "LiveTail", "LogKey", "LogStore", "LogSubscription", "Uploads"]

CHUNK = 64 * 1024
"""Most bytes of one entry."""

NAMES = ("out", "err")
"""The outputs of a process, as their files are called."""

LogKey = Sequence[str]
"""What Dagster calls a log: its run, ``compute_logs``, and the step, for instance."""

_PAGE = 256
_IS_THERE_ALREADY = "equal or smaller"
"""In the server's words, why it takes no second entry of an id."""


@dataclass(frozen=True, slots=True)
class LogStore:
    """Logs on a server.

    Attributes:
        connect: Gives the connection; asked for each time, so that nothing connects before it must.
        prefix: First part of every key.
        max_bytes: Most bytes that are kept of one log: the last.
        ttl_ms: How long a log lives after its last byte.
    """

    connect: Callable[[], Connection]
    prefix: str
    max_bytes: int
    ttl_ms: int

    def begin(self, key: LogKey, names: Sequence[str]) -> dict[str, int]:
        """Note that a log is being written, so that it is found by its place.

        Returns:
            By name, how many bytes there are already, from an earlier capture under the same key.
        """
        member = json.dumps(list(key))
        notes: list[Call] = []
        for depth in range(1, len(key)):
            index = self._index(key[:depth])
            notes += [Call("SADD", (index,), (member,)), Call("PEXPIRE", (index,), (self.ttl_ms,))]
        lasts = [Call("XREVRANGE", (self._key(key, name),), ("+", "-", "COUNT", 1)) for name in names]
        # A log that is written again is no longer complete.
        calls = [Call("DEL", (self._key(key, "done"),)), *lasts, *notes]
        replies = self._good(self.connect().pipeline(calls, repeatable=True))
        return {name: _end(reply) for name, reply in zip(names, replies[1:], strict=False)}

    def append(self, key: LogKey, name: str, offset: int, data: bytes) -> None:
        """Store bytes that begin at an offset; a second time does no harm."""
        log = self._key(key, name)
        oldest = max(0, offset + len(data) - self.max_bytes)
        words = ("MINID", "=", f"{oldest}-0", f"{offset}-1", "data", data)
        calls = [Call("XADD", (log,), words), Call("PEXPIRE", (log,), (self.ttl_ms,))]
        added, _ = self.connect().pipeline(calls, repeatable=True)
        if isinstance(added, ServerError) and _IS_THERE_ALREADY not in str(added):
            raise added

    def complete(self, key: LogKey) -> None:
        """Note that nothing more will come."""
        call = Call("SET", (self._key(key, "done"),), ("1", "PX", self.ttl_ms))
        self.connect().execute(call, repeatable=True)

    def is_complete(self, key: LogKey) -> bool:
        """Whether nothing more will come."""
        return bool(self.connect().execute(Call("EXISTS", (self._key(key, "done"),)), repeatable=True))

    def exists(self, key: LogKey, name: str) -> bool:
        """Whether anything is there."""
        return bool(self.connect().execute(Call("EXISTS", (self._key(key, name),)), repeatable=True))

    def read(self, key: LogKey, name: str, offset: int, max_bytes: int | None) -> tuple[bytes | None, int]:
        """Bytes from an offset on.

        Returns:
            The bytes, None when there is no such log, and the offset after them. Where bytes were dropped, a line
            says so.
        """
        log = self._key(key, name)
        before = self._entries(Call("XREVRANGE", (log,), (f"{offset}-1", "-", "COUNT", 1)))
        at = before[0][0] if before else 0
        found, position, is_there = bytearray(), offset, bool(before)
        while max_bytes is None or len(found) < max_bytes:
            page = self._entries(Call("XRANGE", (log,), (f"{at}-1", "+", "COUNT", _PAGE)))
            is_there = is_there or bool(page)
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
        return (bytes(found) if is_there else None), position - excess

    def keys_below(self, prefix: LogKey) -> list[LogKey]:
        """Return the keys of all logs under a prefix, at any depth."""
        members = self.connect().execute(Call("SMEMBERS", (self._index(prefix),)), repeatable=True)
        return [json.loads(member) for member in sorted(texts(members))]

    def delete(self, keys: Sequence[LogKey]) -> None:
        """Remove logs."""
        doomed = [Call("DEL", (self._key(key, name),)) for key in keys for name in (*NAMES, "done")]
        left = [
            Call("SREM", (self._index(key[:depth]),), (json.dumps(list(key)),))
            for key in keys
            for depth in range(1, len(key))
        ]
        self._good(self.connect().pipeline([*doomed, *left], repeatable=True))

    def _entries(self, call: Call) -> list[tuple[int, bytes]]:
        reply = self.connect().execute(call, repeatable=True)
        return [(int(text(entry_id).partition("-")[0]), fields[1]) for entry_id, fields in reply]

    def _key(self, key: LogKey, name: str) -> str:
        return f"{self.prefix}:logs:{{{_path(key)}}}:{name}"

    def _index(self, prefix: LogKey) -> str:
        return f"{self.prefix}:logs:{{{_path(prefix)}}}:below"

    @staticmethod
    def _good(replies: list[Reply]) -> list[Reply]:
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies


class Uploads:
    """Stores what files contain, from where the server already has it.

    Args:
        store: Where to.
        log_key: Which log.
        new: Files that are new, which are appended to what the server has of an earlier capture with the same key.
    """

    def __init__(self, store: LogStore, log_key: LogKey, new: Sequence[str]) -> None:
        self._store = store
        self._log_key = log_key
        self._new = new
        self._ends: dict[str, int] | None = None
        self._shifts: dict[str, int] = {}

    def take(self, name: str, offset: int, data: bytes) -> None:
        """Store bytes of a file, less those that are stored.

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
    """Spell a log's key as part of a server's: nothing in it can end the hash tag."""
    return "/".join(quote(part, safe="") for part in key)


def _end(last: Reply) -> int:
    """Return the offset after the last entry."""
    return int(text(last[0][0]).partition("-")[0]) + len(last[0][1][1]) if last else 0


_INTERVAL_S = 0.5


class _Knows(Protocol):
    """What a subscription's log manager can tell."""

    def is_capture_complete(self, log_key: LogKey) -> bool: ...


class LogSubscription(CapturedLogSubscription):
    """A subscriber, served by the subscribing thread and by the tail, and never twice with the same."""

    def __init__(self, manager: Any, log_key: LogKey, cursor: str | None) -> None:
        super().__init__(manager, log_key, cursor)
        self._fetching = threading.Lock()

    def fetch(self) -> None:
        """Tell what is new. A log that grows between two looks from the same place would be told twice."""
        with self._fetching:
            super().fetch()


class LiveTail:
    """Looks for news of all subscribed logs twice a second, as long as there are any.

    Args:
        manager: Whom to ask whether a log is complete.
    """

    def __init__(self, manager: _Knows) -> None:
        self._manager = manager
        self._lock = threading.Lock()
        self._subscriptions: list[CapturedLogSubscription] = []
        self._thread: threading.Thread | None = None
        self._changed = threading.Event()

    def add(self, subscription: CapturedLogSubscription) -> None:
        """Pass what comes to a subscription, until its log is complete."""
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
        """Forget all subscriptions, and wait for the thread."""
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
                self._tell(subscription)
            self._changed.wait(_INTERVAL_S)
            self._changed.clear()

    def _tell(self, subscription: CapturedLogSubscription) -> None:
        try:
            # Asked first, so that nothing can come between the last look and the end.
            if self._manager.is_capture_complete(subscription.log_key):
                subscription.complete()
            subscription.fetch()
        except OrchestrationQueueError:  # the server is unreachable; the next check tries again
            return
        if subscription.is_complete:
            self.remove(subscription)
