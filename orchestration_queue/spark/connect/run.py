"""Run a PySpark function in its own session on a Spark Connect server."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import grpc

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import (
    SparkCancelledError,
    SparkFailedError,
    SparkTimeoutError,
    TransportError,
    UnrecoverableError,
)
from orchestration_queue.options import as_timedelta
from orchestration_queue.spark.connect.control import fence, reason
from orchestration_queue.spark.connect.server import ConnectServer, SessionLease
from orchestration_queue.spark.connect.session import QueryProgress, SparkConnection
from orchestration_queue.spark.connect.watching import SessionWatchdog, StopReason, printed_to
from orchestration_queue.spark.failure import SparkFailure
from orchestration_queue.spark.options import JOB_PROPERTY, SparkOptions
from orchestration_queue.worker.observability import annotate, is_traced

__all__ = ["RunContext", "run_connect", "session_id"]

_logger = get_logger("orchestration_queue.spark")

_NAMESPACE = uuid.UUID("6f1dd2a6-5f0f-4b7c-9d0e-0c7d9a5d2b61")
"""The namespace of session ids. Never change it: an attempt must find the session of one from before an upgrade."""


class RunContext(Protocol):
    """The job that Spark work is done for, such as an :class:`~orchestration_queue.worker.ActiveJob`."""

    @property
    def id(self) -> str:
        """The job's id."""

    @property
    def queue(self) -> str:
        """The name of its queue."""

    @property
    def should_stop(self) -> bool:
        """Whether it must end."""

    @property
    def record(self) -> Any:
        """Its record at the start of the attempt; ``progress`` is that of an earlier attempt."""

    def log(self, text: str) -> None:
        """Append to its log."""

    def update_progress(self, progress: Any) -> None:
        """Store the job's progress."""


@dataclass(frozen=True, slots=True)
class _AttemptPlace:
    """Where an attempt runs: stored in the job's progress, for the next attempt.

    Attributes:
        session: The session's id.
        place: The session's server, see :class:`SessionLease`.
        run: The number of the attempt, including those that were lost.
    """

    session: str
    place: str
    run: int

    @classmethod
    def of(cls, progress: object) -> _AttemptPlace | None:
        """Return what an earlier attempt stored; None without one."""
        kept = progress.get("spark") if isinstance(progress, dict) else None
        if not isinstance(kept, dict):
            return None
        session, place, run = (kept.get(name) for name in ("session", "server", "run"))
        if isinstance(session, str) and isinstance(place, str) and isinstance(run, int):
            return cls(session, place, run)
        return None

    def progress(self, percent: int, text: str) -> dict[str, Any]:
        """Return a job's progress that holds it."""
        kept = {"session": self.session, "server": self.place, "run": self.run}
        return {"percent": percent, "text": text, "spark": kept}


def session_id(job: RunContext, run: int) -> str:
    """Return the id of one attempt's session. A closed session cannot be opened again, so each attempt has its own.

    The time at which the attempt was claimed distinguishes two attempts that both consider themselves the next.
    """
    return str(
        uuid.uuid5(_NAMESPACE, "\n".join((job.queue, job.id, str(run), job.record.fields.get("processedOn", ""))))
    )


def run_connect(
    name: str,
    function: Callable[..., Any],
    server: ConnectServer,
    options: SparkOptions,
    job: RunContext | None = None,
) -> Any:
    """Run a function in its own session, and end the session with it.

    The session's location is written to the job's progress before the session is opened. The next attempt finds it
    there, and ends what still runs in it before it begins.

    Args:
        name: The function's name, for errors.
        function: Called with the session.
        server: The server.
        options: The session's properties and the run's timeout.
        job: The job that it runs for.

    Returns:
        What the function returned.

    Raises:
        SparkFailedError: The function raised, or the server died or does not answer.
        SparkTimeoutError: It took longer than ``options.timeout``.
        SparkCancelledError: The job was asked to stop.
        UnrecoverableError: The function raised it, or Spark refuses a property.
    """
    earlier = _AttemptPlace.of(job.record.progress) if job else None
    run = earlier.run + 1 if earlier else 1
    session = session_id(job, run) if job else str(uuid.uuid4())
    lease = server.lease_session(session, lambda: job is not None and job.should_stop)
    try:
        attempt = _AttemptPlace(session, lease.place, run)
        if job is not None:
            # First: until the earlier session has ended, the next attempt must find that one.
            _fence(job, server, earlier)
            job.update_progress(attempt.progress(0, "waiting for Spark"))
        result = _run(name, function, lease, options, job, attempt)
        if job is not None:
            _report_progress(job, attempt, 100, "done")
        return result
    finally:
        lease.release()


def _fence(job: RunContext, server: ConnectServer, earlier: _AttemptPlace | None) -> None:
    """End what an earlier attempt left running, if its server can be reached."""
    if earlier is None or (url := server.url_of(earlier.place)) is None:
        return  # that server is gone, or its own supervisor fences the session
    try:
        ended = fence(url, earlier.session)
    except (grpc.RpcError, TimeoutError) as error:
        why = reason(error) if isinstance(error, grpc.RpcError) else error
        raise SparkFailedError(
            f"An earlier attempt may still run in session {earlier.session}, and cannot be ended ({why}); "
            "the job fails, to be retried, rather than run twice."
        ) from None
    if ended:
        _log(job, f"ended {len(ended)} running operation(s) of an earlier attempt")


def _run(
    name: str,
    function: Callable[..., Any],
    lease: SessionLease,
    options: SparkOptions,
    job: RunContext | None,
    attempt: _AttemptPlace,
) -> Any:
    tag = f"oq-{job.id}" if job else f"oq-{attempt.session}"
    conf = dict(options.session_conf) | ({JOB_PROPERTY: job.id} if job else {})
    with SparkConnection(
        lease.url, attempt.session, tag.replace(",", "_"), conf, takes_artifacts=lease.takes_artifacts
    ) as connection:
        watch = SessionWatchdog(
            should_stop=lambda: job is not None and job.should_stop,
            server_is_alive=lease.is_alive,
            timeout=as_timedelta(options.timeout),
            cut=connection.cut,
            keep=connection.keep,
        )
        try:
            with watch, _capture_output(connection, job, attempt):
                if is_traced():
                    application = connection.session.conf.get("spark.app.id", "")
                    annotate({"spark.application.id": application or "", "spark.session.id": attempt.session})
                result = function(connection.session)
        except Exception as error:
            if watch.stop_reason is not None:
                raise _stop_error(name, watch.stop_reason, options, lease) from None
            if isinstance(error, (UnrecoverableError, SparkFailedError)):
                raise
            raise _build_error(error, job) from None
    if watch.stop_reason is not None:  # a function that caught the error had no session to continue with
        raise _stop_error(name, watch.stop_reason, options, lease)
    return result


@contextlib.contextmanager
def _capture_output(connection: SparkConnection, job: RunContext | None, attempt: _AttemptPlace) -> Iterator[None]:
    """Send output to the job's log, and Spark's progress to the job's progress. Without a job, change nothing."""
    if job is None:
        yield
        return
    connection.session.registerProgressHandler(QueryProgress(partial(_report_progress, job, attempt)))
    with printed_to(lambda line: _log(job, line)):
        yield


def _report_progress(job: RunContext, attempt: _AttemptPlace, percent: int, text: str) -> None:
    with contextlib.suppress(TransportError):  # the next will arrive, or it no longer matters
        job.update_progress(attempt.progress(percent, text))


def _log(job: RunContext | None, line: str) -> None:
    if job is None:
        _logger.info("%s", line)
        return
    # A short outage of the server costs lines, not the work; a longer one costs the lease.
    with contextlib.suppress(TransportError):
        job.log(line)


def _stop_error(name: str, stop_reason: StopReason, options: SparkOptions, lease: SessionLease) -> SparkFailedError:
    if stop_reason == "timeout":
        return SparkTimeoutError(
            f"Spark work {name!r} took longer than {options.timeout} and its session was ended; "
            "raise SparkOptions.timeout if it may take longer."
        )
    if stop_reason == "cancelled":
        return SparkCancelledError(f"Spark work {name!r} was asked to stop, and its session was ended.")
    return SparkFailedError(
        f"The Spark Connect server {lease.place} died while it ran {name!r} (unless it was killed, it ran out of "
        "memory: raise SparkOptions.memory); a new server is started, and the job can be retried there."
    )


def _build_error(error: Exception, job: RunContext | None) -> SparkFailedError:
    failure = SparkFailure.of(error)
    _log(job, str(failure))
    for frame in reversed(failure.frames):
        _log(job, f"  at {frame}")
    return SparkFailedError(str(failure), kind=failure.kind)
