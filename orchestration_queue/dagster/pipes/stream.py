"""The step's side of Pipes over Valkey streams: write the context to a key, and read messages from two streams."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import dagster as dg
from dagster_pipes import PipesContextData, PipesMessage, PipesParams

from orchestration_queue.dagster.checks import check_number
from orchestration_queue.dagster.pipes.inbox import Inbox, read_entries
from orchestration_queue.dagster.pipes.session import DEFAULT_LIMIT, DEFAULT_TTL, PipesKeys, shareable_url
from orchestration_queue.errors import InvalidOptionError, OrchestrationQueueError, TransportError, UsageError
from orchestration_queue.options import milliseconds
from orchestration_queue.options.durations import check_duration
from orchestration_queue.protocol.call import Call, Reply, optional_text, text
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.server import Connection, parse_url

__all__ = ["PipesStreamContextInjector", "PipesStreamMessageReader"]

_SLICE_MS = 200
"""How long one read waits, and so at most the end of the session or a signal."""
_PAGE = 1_000
_RENEWAL_S = 60.0
_AWAY_S = 0.5
"""Pause between two attempts while the server is unreachable."""


class _PipesSession:
    """A server, a session's name, and the lifetime of its keys, for the injector and the reader."""

    def __init__(
        self, url: str | None, connection: Connection | None, session: str | None, prefix: str, ttl: timedelta
    ) -> None:
        if url is not None and connection is not None:
            raise UsageError("`url` and `connection` exclude each other; pass only one.")
        if not timedelta(seconds=1) <= check_duration(ttl, "ttl") <= timedelta(days=365):
            raise InvalidOptionError(f"`ttl` must be from a second to 365 days, got {ttl}.")
        self._url, self._connection, self._ttl_ms, self._prefix = url, connection, milliseconds(ttl), prefix
        if url is not None:
            parse_url(url)
        self._session = session
        PipesKeys("new" if session is None else session, prefix)

    @property
    def ttl_ms(self) -> int:
        return self._ttl_ms

    def keys(self) -> PipesKeys:
        """Return the keys of the named session, or of a new one."""
        return PipesKeys(uuid.uuid4().hex if self._session is None else self._session, self._prefix)

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        if self._connection is not None:
            yield self._connection
            return
        with Connection.open(self._url, libraries=()) as connection:
            yield connection


class PipesStreamContextInjector(dg.PipesContextInjector):
    """Writes the step's context to a key that outlives the step, so that work that starts late still finds it.

    Args:
        url: The server; default ``OQ_URL``, else the embedded server of this directory.
        connection: An open connection to use instead; it stays open.
        session: The session's name; default a new one. A later attempt of the step with this name finds its work.
        prefix: First part of every key.
        ttl: How long to keep the key.

    Raises:
        InvalidNameError: The session's name or the prefix cannot be part of a key.
        InvalidOptionError: ``ttl`` is not from a second to 365 days.
        UsageError: Both ``url`` and ``connection`` are given.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        connection: Connection | None = None,
        session: str | None = None,
        prefix: str = DEFAULT_PREFIX,
        ttl: timedelta = DEFAULT_TTL,
    ) -> None:
        self._place = _PipesSession(url, connection, session, prefix, ttl)

    @contextmanager
    def inject_context(self, context_data: PipesContextData) -> Iterator[PipesParams]:
        """Write the context; it is kept after the block.

        Raises:
            TransportError: The server cannot be reached.
        """
        key = self._place.keys().context
        with self._place.connect() as connection:
            words = (json.dumps(context_data), "PX", self._place.ttl_ms)
            connection.execute(Call("SET", (key,), words), repeatable=True)
            params = {"context": key, "url": shareable_url(connection.url)}
        yield params

    def no_messages_debug_text(self) -> str:
        """Return what to check if no messages arrive."""
        return (
            "The context is in a key of the queue's server. Expected PipesStreamContextLoader to be passed to "
            "open_dagster_pipes in the external process."
        )


class PipesStreamMessageReader(dg.PipesMessageReader):
    """Reads messages of the external process within about a millisecond, and loses none if the step is restarted.

    Logs are shown as they arrive. Materializations, checks and custom messages are reported when the session ends: if
    the external process runs again, only those of its last run. A step that is retried with the same session gets all
    results again, but only the logs that it has not shown yet.

    Args:
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        connection: An open connection to use instead. It stays open.
        session: The session's name; default: a new one.
        reader: The reader's name, such as the run's id. It skips logs that a reader with this name passed on before.
        prefix: First part of every key.
        ttl: How long the session's keys are kept after their last read.
        limit: About how many logs, and how many results, the session keeps.

    Raises:
        InvalidNameError: The session's name or the prefix can't be part of a key.
        InvalidOptionError: ``ttl`` is not from a second to 365 days, or ``limit`` is below 1.
        UsageError: Both ``url`` and ``connection`` are given.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        connection: Connection | None = None,
        session: str | None = None,
        reader: str = "",
        prefix: str = DEFAULT_PREFIX,
        ttl: timedelta = DEFAULT_TTL,
        limit: int = DEFAULT_LIMIT,
    ) -> None:
        self._place = _PipesSession(url, connection, session, prefix, ttl)
        if check_number(limit, "limit") < 1:
            raise InvalidOptionError(f"`limit` must be >= 1, got {limit}.")
        self._reader = reader
        self._limit = limit

    @property
    def expected_writer_count(self) -> int:
        """The number of writers to wait for; Dagster warns about readers without it."""
        return 1

    @contextmanager
    def read_messages(self, handler: Any) -> Iterator[PipesParams]:
        """Read until the session ends, and then the remaining messages.

        Raises:
            TransportError: The server cannot be reached at the start or the end.
        """
        keys = self._place.keys()
        with self._place.connect() as connection:
            reading = _Reading(connection, keys, self._reader, self._place.ttl_ms, handler)
            with reading.in_background():
                yield {
                    "results": keys.results,
                    "logs": keys.logs,
                    "limit": self._limit,
                    "ttl_ms": self._place.ttl_ms,
                    "url": shareable_url(connection.url),
                }

    def no_messages_debug_text(self) -> str:
        """Return what to check if no messages arrive."""
        return (
            "Messages are read from streams of the queue's server. Expected PipesStreamMessageWriter to be passed to "
            "open_dagster_pipes in the external process."
        )


class _Reading:
    """One session's reading: by a thread until the session ends, then by the caller's thread."""

    def __init__(self, connection: Connection, keys: PipesKeys, reader: str, ttl_ms: int, handler: Any) -> None:
        self._connection, self._keys, self._reader, self._ttl_ms = connection, keys, reader, ttl_ms
        self._handler = handler
        self._cursors = {keys.results: "0-0", keys.logs: "0-0"}
        read_until = connection.execute(Call("HGET", (keys.read,), (reader,)), repeatable=True)
        self._stored_position = optional_text(read_until) or "0-0"
        self._inbox = Inbox(self._stored_position)
        self._renew_at = 0.0
        self._must_stop = threading.Event()
        self._fault: Exception | None = None

    @contextmanager
    def in_background(self) -> Iterator[None]:
        """Read while the block runs; afterwards read the remaining messages and pass on the results."""
        thread = threading.Thread(target=self._keep_reading, name="oq-pipes", daemon=True)
        thread.start()
        try:
            yield
        except BaseException:
            self._end(thread)
            self._finish_if_possible()
            raise
        self._end(thread)
        self._finish()

    def _end(self, thread: threading.Thread) -> None:
        self._must_stop.set()
        thread.join()

    def _keep_reading(self) -> None:
        while not self._must_stop.is_set():
            try:
                self._read(block_ms=_SLICE_MS)
            except TransportError:  # the server may return; messages are read then or at the end
                self._must_stop.wait(_AWAY_S)
            except Exception as fault:  # _finish raises it in the session's thread
                self._fault = fault
                return

    def _finish(self) -> None:
        if self._fault is not None:
            raise self._fault
        while self._read(block_ms=None):
            pass
        self._pass_on(self._inbox.conclude())

    def _finish_if_possible(self) -> None:
        """Read the last messages; ignore errors, which would hide the failure of the work."""
        try:
            self._finish()
        except OrchestrationQueueError:
            return

    def _read(self, block_ms: int | None) -> int:
        """Read a page of both streams and store the position in one exchange; return the number of streams read."""
        block = () if block_ms is None else ("BLOCK", block_ms)
        streams = ("STREAMS", *self._cursors, *self._cursors.values())
        read = Call("XREAD", args=("COUNT", _PAGE, *block, *streams), near=self._keys.results)
        *_, reply = self._connection.pipeline([*self._upkeep(), read], repeatable=True)
        if isinstance(reply, Exception):
            raise reply
        for stream, found in reply or ():
            self._take(text(stream), found)
        return len(reply or ())

    def _take(self, stream: str, found: Reply) -> None:
        entries = read_entries(found)
        is_log = stream == self._keys.logs
        self._pass_on(self._inbox.logs(entries) if is_log else self._inbox.results(entries))
        self._cursors[stream] = entries[-1].id

    def _upkeep(self) -> list[Call]:
        """Build the calls that are due: store the position in the logs, and renew the keys' lifetime."""
        calls = []
        if (until := self._cursors[self._keys.logs]) != self._stored_position and until != "0-0":
            calls.append(Call("HSET", (self._keys.read,), (self._reader, until)))
            calls.append(Call("PEXPIRE", (self._keys.read,), (self._ttl_ms,)))
            self._stored_position = until
        if (now := time.monotonic()) >= self._renew_at:
            # GT: the other side may have set a longer life.
            calls += [Call("PEXPIRE", (key,), (self._ttl_ms, "GT")) for key in self._keys.all]
            self._renew_at = now + min(_RENEWAL_S, self._ttl_ms / 3000)
        return calls

    def _pass_on(self, messages: Sequence[PipesMessage]) -> None:
        for message in messages:
            self._handler.handle_message(message)
