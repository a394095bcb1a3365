"""The external side of Pipes over Valkey streams: read the step's context, and report to the step.

This file needs only ``dagster-pipes`` and ``redis``, so you can copy it to the machine that runs the work::

    from dagster_pipes import open_dagster_pipes

    with open_dagster_pipes(
        context_loader=PipesStreamContextLoader(), message_writer=PipesStreamMessageWriter()
    ) as pipes:
        pipes.report_asset_materialization(metadata={"rows": 7})

Each message is one entry of a stream: its writer, its number, counted per writer, and the message as JSON. An entry
whose reply was lost is sent again, and the reader ignores a number that it has seen.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from threading import Lock
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlencode

from dagster_pipes import (
    DagsterPipesError,
    PipesContextData,
    PipesContextLoader,
    PipesMessage,
    PipesMessageWriter,
    PipesMessageWriterChannel,
    PipesParams,
)

__all__ = ["PipesStreamContextLoader", "PipesStreamMessageWriter", "PipesStreamMessageWriterChannel", "Send"]

Command: TypeAlias = tuple[str | int, ...]
Send: TypeAlias = Callable[[Sequence[Command]], Sequence[Any]]
"""A function that executes commands in one transaction, and returns their replies."""

URL_VARIABLE = "OQ_URL"
_CHATTER = ("log", "log_external_stream")
"""Methods of messages for the stream of logs; all other messages are results."""
_PATIENCE_S = 15.0
"""How long after a failure commands are sent again, before the server counts as unreachable."""
_LIMITS = {"timeout": ("socket_timeout", 30.0), "connect_timeout": ("socket_connect_timeout", 5.0)}
"""Options of this package's URLs, by redis-py's names, and their defaults in seconds."""


class PipesStreamContextLoader(PipesContextLoader):
    """Loads the step's context from its key.

    Args:
        url: The server; default ``OQ_URL``, else the step's URL, which the step only passes on without a password.
        send: A function to use instead: executes commands in one transaction, and returns their replies.
    """

    def __init__(self, url: str | None = None, *, send: Send | None = None) -> None:
        self._url = url
        self._send = send

    @contextmanager
    def load_context(self, params: PipesParams) -> Iterator[PipesContextData]:
        """Read the context.

        Raises:
            DagsterPipesError: The context does not exist, or the server's URL is unknown.
        """
        key = _param(params, "context")
        with _connect(self._url, self._send, params) as send:
            (found,) = send([("GET", key)])
        if found is None:
            raise DagsterPipesError(
                f"Pipes context at key {key} does not exist: the step wrote it to another server, or it has expired; "
                f"check {URL_VARIABLE}, or run the step again."
            )
        yield json.loads(found)


class PipesStreamMessageWriter(PipesMessageWriter["PipesStreamMessageWriterChannel"]):
    """Writes each message to the step's streams immediately.

    Args:
        url: The server; default ``OQ_URL``, else the step's URL, which the step only passes on without a password.
        send: A function to use instead: executes commands in one transaction, and returns their replies.
    """

    def __init__(self, url: str | None = None, *, send: Send | None = None) -> None:
        self._url = url
        self._send = send

    @contextmanager
    def open(self, params: PipesParams) -> Iterator[PipesStreamMessageWriterChannel]:
        """Open a channel for messages.

        Raises:
            DagsterPipesError: The step uses another message reader, or the server's URL is unknown.
        """
        _param(params, "results")
        with _connect(self._url, self._send, params) as send:
            yield PipesStreamMessageWriterChannel(send, params)


class PipesStreamMessageWriterChannel(PipesMessageWriterChannel):
    """Writes each message in one exchange. Thread-safe.

    Args:
        send: Sends commands to the server.
        params: The parameters of the step's reader: the streams, their length and lifetime.
    """

    def __init__(self, send: Send, params: Mapping[str, Any]) -> None:
        self._send = send
        self._params = params
        self._writer = uuid.uuid4().hex
        self._written = {"logs": 0, "results": 0}
        self._lock = Lock()

    def write_message(self, message: PipesMessage) -> None:
        """Append the message to its stream; a stream at its limit loses its oldest message.

        Raises:
            redis.RedisError: The server cannot be reached.
        """
        name = "logs" if message["method"] in _CHATTER else "results"
        key = self._params[name]
        with self._lock:
            self._written[name] += 1
            entry = {
                "writer": self._writer,
                "seq": self._written[name],
                "run": self._params.get("run", ""),
                "message": json.dumps(message),
            }
            words = [word for pair in entry.items() for word in pair]
            append = ("XADD", key, "MAXLEN", "~", self._params["limit"], "*", *words)
            ttl_ms = self._params["ttl_ms"]
            # Set the longest lifetime of all writers; GT alone would treat a key without one as living forever.
            self._send([append, ("PEXPIRE", key, ttl_ms, "NX"), ("PEXPIRE", key, ttl_ms, "GT")])


def _param(params: PipesParams, name: str) -> str:
    if not isinstance(params.get(name), str):
        raise DagsterPipesError(
            f"The step's parameters contain no {name!r}, so it doesn't use streams; give it "
            "PipesStreamContextInjector and PipesStreamMessageReader, or PipesQueueClient."
        )
    return str(params[name])


@contextmanager
def _connect(url: str | None, send: Send | None, params: PipesParams) -> Iterator[Send]:
    if send is not None:
        yield send
        return
    where = url or os.environ.get(URL_VARIABLE) or params.get("url")
    if not where:
        raise DagsterPipesError(
            "The URL of the step's server is unknown, because it contains a password and the step did not pass it on; "
            f"set {URL_VARIABLE} for the work, or pass url."
        )
    scheme, _, rest = str(where).partition("://")
    plain = {"redis": "redis", "valkey": "redis", "rediss": "rediss", "valkeys": "rediss", "unix": "unix"}.get(scheme)
    with _to_server(f"{plain}://{rest}") if plain else _by_package(str(where), scheme) as send_there:
        yield send_there


@contextmanager
def _to_server(url: str) -> Iterator[Send]:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    address, _, query = url.partition("?")
    options = dict(parse_qsl(query))
    try:
        limits = {name: float(options.pop(own, default)) for own, (name, default) in _LIMITS.items()}
    except ValueError as error:
        raise DagsterPipesError(f"A time limit of the server's URL is no number ({error}); write timeout=30.") from None
    url = f"{address}?{urlencode(options)}"
    # Unless a timeout is set, redis-py 8 waits 5 s for a reply.
    client = redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), protocol=2, **limits)

    def execute(commands: Sequence[Command]) -> Sequence[Any]:
        pipeline: Any = client.pipeline(transaction=True)  # redis-py's types are incomplete
        for command in commands:
            pipeline.execute_command(*command)
        replies: Sequence[Any] = pipeline.execute()
        return replies

    def send(commands: Sequence[Command]) -> Sequence[Any]:
        give_up_at, pause_s = inf, 0.01
        while True:
            try:
                return execute(commands)
            except (redis.ConnectionError, redis.TimeoutError):
                # From the first failure on: a silent server fails each try only after the URL's timeout.
                give_up_at = min(give_up_at, time.monotonic() + _PATIENCE_S)
                if time.monotonic() + pause_s > give_up_at:
                    raise
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, 1.0)

    try:
        yield send
    finally:
        client.close()


@contextmanager
def _by_package(url: str, scheme: str) -> Iterator[Send]:
    """Connect to clusters, sentinels and embedded servers, which redis-py's URLs don't support."""
    try:
        from orchestration_queue.protocol.call import Call
        from orchestration_queue.server import Connection
    except ImportError:
        raise DagsterPipesError(
            f"redis-py alone can't connect to {scheme}://...; install orchestration-queue where the work runs, or "
            "pass send."
        ) from None

    with Connection.open(url, libraries=()) as connection:

        def send(commands: Sequence[Command]) -> Sequence[Any]:
            calls = [Call(str(command[0]), (str(command[1]),), command[2:]) for command in commands]
            return connection.pipeline(calls, atomic=True, repeatable=True)

        yield send
