"""One job's session on a Spark Connect server, with its own properties and temporary views."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Self, cast

import grpc
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql.connect.client.retries import DefaultPolicy
from pyspark.sql.connect.session import SparkSession as ConnectSession
from pyspark.sql.connect.shell.progress import ProgressHandler, StageInfo

from orchestration_queue.errors import SparkFailedError, UnrecoverableError
from orchestration_queue.spark.connect.address import place
from orchestration_queue.spark.connect.control import SessionControl, channel_builder, fence, is_refusal, reason
from orchestration_queue.spark.failure import SparkFailure
from orchestration_queue.spark.options import ISOLATION
from orchestration_queue.spark.progress import ProgressReporter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["QueryProgress", "SparkConnection"]

_MOST_RETRIES = 8
"""Retries of a call; PySpark waits 50 ms, then four times as long each time, while a server is unreachable."""
_LONGEST_BACKOFF_MS = 2_000
_WARM_UP_S = 20.0


class SparkConnection:
    """Opens a session, makes it the thread's active one, and releases it at the end.

    Args:
        url: The server's address.
        session_id: The session's id, never used before.
        tag: The tag of every operation, visible in the server's UI.
        conf: The session's properties.
        takes_artifacts: Whether to allow ``addArtifacts``; refuse it where other sessions would see the files.

    Raises:
        UnrecoverableError: Spark refuses a property.
        SparkFailedError: The server does not answer.
    """

    def __init__(
        self,
        url: str,
        session_id: str,
        tag: str,
        conf: Mapping[str, str] | None = None,
        *,
        takes_artifacts: bool = True,
    ) -> None:
        self._url = url
        # As PySpark's own builder does: its functions read the variable to learn the kind of session.
        os.environ.setdefault("SPARK_CONNECT_MODE_ENABLED", "1")
        for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
            # They print each exception, with all of Java's stack, before it is raised.
            PySparkLogger.getLogger(name).disabled = True
        # Through the constructor: the builder would make it the default session of all threads.
        builder = channel_builder(url, session_id)
        self._control = SessionControl(url, session_id, builder)
        self._session = ConnectSession(connection=builder)
        self.session = cast("SparkSession", self._session)  # it has the methods, but does not inherit
        self._session.client.set_retry_policies(
            [DefaultPolicy(max_retries=_MOST_RETRIES, max_backoff=_LONGEST_BACKOFF_MS)]
        )
        self._session.addTag(tag)
        if not takes_artifacts:
            self._session.client.add_artifacts = _refuse_artifacts  # type: ignore[method-assign]
        try:
            self._configure(conf or {})
        except BaseException:
            self.close()
            raise
        ConnectSession._active_session.session = self._session

    def _configure(self, conf: Mapping[str, str]) -> None:
        try:
            try:
                self._control.open(conf)
            except grpc.RpcError as error:
                if not is_refusal(error):
                    raise
                self._control.open()
                self._set_each(conf)
        except grpc.RpcError as error:
            raise SparkFailedError(
                f"The Spark Connect server at {place(self._url)} does not answer ({reason(error)}); "
                "check that it runs, and that its address and token are correct.",
                kind=type(error).__name__,
            ) from None

    def _set_each(self, conf: Mapping[str, str]) -> None:
        """Find the property that Spark refuses."""
        for name, value in conf.items():
            try:
                self._session.conf.set(name, value)
            except PySparkException as error:
                raise UnrecoverableError(
                    f"Spark refuses property {name}={value!r} for a session ({SparkFailure.of(error).message}); "
                    "correct it, or pass it to the server: ConnectServer(SparkOptions(conf=...))."
                ) from None

    def __enter__(self) -> Self:
        """Return the connection itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the session."""
        self.close()

    def keep(self) -> None:
        """Keep the server from closing the session as unused, from another thread."""
        self._control.keep()

    def cut(self) -> None:
        """End the session and everything that runs in it, from another thread. Its user's calls fail from then on."""
        with contextlib.suppress(grpc.RpcError):
            self._control.interrupt()
            self._control.release()
        self._session.client.close()

    def close(self) -> None:
        """Release the session, unless it was released."""
        client = self._session.client
        if not client.is_closed:
            with contextlib.suppress(grpc.RpcError):
                self._control.release()
            client.close()
        if getattr(ConnectSession._active_session, "session", None) is self._session:
            ConnectSession._active_session.session = None
        # PySpark keeps every client there until the process ends.
        atexit.unregister(client._on_exit)


def _refuse_artifacts(*_: object, **__: object) -> NoReturn:
    raise UnrecoverableError(
        "addArtifacts() would expose its files to all jobs of this Spark Connect server, whose sessions share class "
        "loaders; make modules importable where the worker starts, list jars in the server's `spark.jars`, or pass the "
        f"server `conf={{{ISOLATION!r}: 'true'}}`."
    )


class QueryProgress(ProgressHandler):
    """A handler that PySpark calls with the progress of the running query.

    Args:
        report: Called with the percentage of the query's tasks, and a text.
        every_s: Seconds between two reports.
    """

    def __init__(self, report: Callable[[int, str], None], every_s: float = 0.5) -> None:
        self._reporter = ProgressReporter(report, every_s)
        self._numbers: dict[str, int] = {}

    def __call__(
        self, stages: Iterable[StageInfo] | None, inflight_tasks: int, operation_id: str | None, done: bool
    ) -> None:
        """Report progress. The end of a query is not the end of the job, since another query may follow."""
        known = list(stages or ())
        if done or not known:
            return
        self._reporter.at(
            self._numbers.setdefault(operation_id or "", len(self._numbers) + 1),
            sum(stage.num_completed_tasks for stage in known),
            sum(stage.num_tasks for stage in known),
            inflight_tasks,
            sum(stage.num_bytes_read for stage in known),
        )


def main(url: str, session: str | None = None, jobs: str | None = None) -> None:
    """Act for the supervisor, which has no gRPC: end the session of a dead worker, or without one warm up the server.

    The first query loads most of Spark, and takes seconds. Java interprets the next ones until it has compiled what
    they use: on a busy machine, the median of the first 100 jobs was 600 ms, and that of the next 100 was 160 ms. So an
    idle server gets more queries until its first job, which creates the file ``jobs``.
    """
    if session is not None:
        fence(url, session)
        return
    deadline = time.monotonic() + _WARM_UP_S
    while True:
        began = time.monotonic()
        with SparkConnection(url, str(uuid.uuid4()), "warm-up") as connection:
            spark = connection.session
            spark.range(100).selectExpr("id % 7 as key").groupBy("key").count().collect()
        time.sleep(0 if jobs is None else time.monotonic() - began)  # leave half of the time to other processes
        if jobs is None or Path(jobs).exists() or time.monotonic() > deadline:
            return


if __name__ == "__main__":
    main(**json.load(sys.stdin))
