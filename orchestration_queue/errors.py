"""Every error this package raises, as one tree.

::

    OrchestrationQueueError              Base of every error this package raises
    ├── UsageError                       The call is wrong as written. Nothing was sent to the server
    │   ├── InvalidNameError             A queue, job, node or scheduler name that the wire cannot carry
    │   ├── InvalidOptionError           An unknown option, or a value outside its limits
    │   ├── PayloadError                 Data that cannot be encoded, or exceeds the size limit of the wire
    │   ├── FlowError                    A graph that cannot run
    │   │   ├── CycleError               Nodes depend on each other in a cycle
    │   │   ├── DuplicateNodeError       Two nodes of one flow have the same name
    │   │   └── UnknownDependencyError   A node depends on a node that is not in the flow
    │   ├── ScheduleError                A schedule that cannot be parsed, or never runs
    │   ├── EmbeddedServerError          The data directory of the embedded server cannot be used
    │   ├── MissingExtraError            A package that an extra brings is missing, or its version does not fit
    │   └── JavaNotFoundError            No Java on this machine can run the installed Spark
    ├── StateError                       The state on the server does not allow the call
    │   ├── NotFoundError                The named object does not exist, or no longer exists
    │   │   ├── JobNotFoundError         The job does not exist: it was never added, or has been removed since
    │   │   ├── DeadLetterNotFoundError  The queue has no such dead letter
    │   │   ├── FlowNotFoundError        The queue keeps no record of such a flow
    │   │   ├── SchedulerNotFoundError   The queue has no such scheduler, or none that can be read
    │   │   ├── AlertNotFoundError       The alert rule does not exist
    │   │   └── WorkerNotFoundError      The queue has no worker with that id that is alive
    │   ├── DuplicateJobError            A job with this id already exists
    │   ├── SchedulerBusyError           Another process held the schedulers' lock for too long
    │   ├── BudgetExceededError          The flow has spent its budget, so the job was not run
    │   └── LeaseLostError               Another worker owns the job now, and the outcome of this attempt was discarded
    ├── ServerError                      The server refused a call, or sent a reply that the protocol does not know
    │   └── UnsupportedServerError       The server is too old, or lacks a command, as clones may
    ├── TransportError                   The server could not be reached
    │   └── NotReplicatedError           Too few replicas confirmed a write in time. The primary has applied it
    ├── JobFailedError                   The job failed; the message ends with its reason
    │   └── FlowFailedError              A node of a flow failed
    ├── SandboxedError                   A sandboxed handler raised an exception; the message is the job's failed reason
    │   └── SandboxDiedError             The process of a sandboxed handler died, or could not start
    └── SparkFailedError                 Spark work ended without a result
        ├── SparkTimeoutError            Spark work exceeded its ``timeout`` and was stopped with all its processes
        └── SparkCancelledError          Spark work was cancelled and stopped with all its processes

Each message says in one sentence what happened, why, and what to do next. Errors carry fields, so that programs need
not parse the text.

``Failed``, ``UnrecoverableError`` and ``RateLimitError`` are separate: handlers raise them to say to the worker what to
do with the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

__all__ = [
    "AlertNotFoundError",
    "BudgetExceededError",
    "CycleError",
    "DeadLetterNotFoundError",
    "DuplicateJobError",
    "DuplicateNodeError",
    "EmbeddedServerError",
    "Failed",
    "FlowError",
    "FlowFailedError",
    "FlowNotFoundError",
    "InvalidNameError",
    "InvalidOptionError",
    "JavaNotFoundError",
    "JobFailedError",
    "JobNotFoundError",
    "LeaseLostError",
    "MissingExtraError",
    "NotFoundError",
    "NotReplicatedError",
    "OrchestrationQueueError",
    "PayloadError",
    "RateLimitError",
    "SandboxDiedError",
    "SandboxedError",
    "ScheduleError",
    "SchedulerBusyError",
    "SchedulerNotFoundError",
    "ServerError",
    "SparkCancelledError",
    "SparkFailedError",
    "SparkTimeoutError",
    "StateError",
    "TransportError",
    "UnknownDependencyError",
    "UnrecoverableError",
    "UnsupportedServerError",
    "UsageError",
    "WorkerNotFoundError",
]


class OrchestrationQueueError(Exception):
    """Base of every error this package raises."""


class UsageError(OrchestrationQueueError, ValueError):
    """The call is wrong as written. Nothing was sent to the server."""


class InvalidNameError(UsageError):
    """A queue, job, node or scheduler name that the wire cannot carry."""


class InvalidOptionError(UsageError):
    """An unknown option, or a value outside its limits."""


class PayloadError(UsageError):
    """Data that cannot be encoded, or exceeds the size limit of the wire."""


class FlowError(UsageError):
    """A graph that cannot run."""


class CycleError(FlowError):
    """Nodes depend on each other in a cycle.

    Attributes:
        path: The nodes of one cycle; the first and the last are the same.
    """

    def __init__(self, path: Sequence[str]) -> None:
        self.path = tuple(path)
        super().__init__(
            f"The flow has a cycle, {' -> '.join(self.path)}, so none of these nodes could ever start; "
            "remove one of these dependencies."
        )


class DuplicateNodeError(FlowError):
    """Two nodes of one flow have the same name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"The flow has two nodes named {name!r}, but nodes depend on each other by name; rename one of them."
        )


class UnknownDependencyError(FlowError):
    """A node depends on a node that is not in the flow."""

    def __init__(self, node: str, dependency: str) -> None:
        self.node, self.dependency = node, dependency
        super().__init__(
            f"Node {node!r} depends on {dependency!r}, which is not in the flow; add that node or correct the name."
        )


class ScheduleError(UsageError):
    """A schedule that cannot be parsed, or never runs."""


class EmbeddedServerError(UsageError):
    """The data directory of the embedded server cannot be used."""


class MissingExtraError(UsageError, ImportError):
    """A package that an extra brings is missing, or its version does not fit.

    Attributes:
        extra: The extra that installs it.
    """

    def __init__(self, package: str, extra: str, installed: str = "", needed: str = "") -> None:
        self.extra = extra
        what = (
            f"{installed} is installed, but {needed} is"
            if installed
            else f"The package {package} is not installed, but"
        )
        super().__init__(f"{what} needed here; run `pip install 'orchestration-queue[{extra}]'`.")
        self.name = package


class JavaNotFoundError(UsageError):
    """No Java on this machine can run the installed Spark."""


class StateError(OrchestrationQueueError):
    """The state on the server does not allow the call."""


class NotFoundError(StateError):
    """The named object does not exist, or no longer exists."""


class JobNotFoundError(NotFoundError):
    """The job does not exist: it was never added, or has been removed since."""

    def __init__(self, queue: str, job_id: str) -> None:
        self.queue, self.job_id = queue, job_id
        super().__init__(
            f"Queue {queue!r} has no job {job_id!r}: it was never added, or has been removed since; "
            "check the queue and the id."
        )


class DeadLetterNotFoundError(NotFoundError):
    """The queue has no such dead letter."""

    def __init__(self, queue: str, letter_id: str) -> None:
        self.queue, self.letter_id = queue, letter_id
        super().__init__(
            f"Queue {queue!r} has no dead letter {letter_id!r}: it was replayed or removed, or belongs to another "
            "queue; check the id with `dead_letters.list()`."
        )


class FlowNotFoundError(NotFoundError):
    """The queue keeps no record of such a flow."""

    def __init__(self, queue: str, flow_id: str) -> None:
        self.queue, self.flow_id = queue, flow_id
        super().__init__(
            f"Queue {queue!r} has no record of a flow {flow_id!r}: it was submitted elsewhere, or removed since; "
            f"list its flows with `oq flow ls {queue}`."
        )


class SchedulerNotFoundError(NotFoundError):
    """The queue has no such scheduler, or none that can be read."""

    def __init__(self, queue: str, name: str) -> None:
        self.queue, self.name = queue, name
        super().__init__(
            f"Queue {queue!r} has no scheduler {name!r} that can be read; "
            f"list its schedulers with list() or `oq scheduler ls {queue}`."
        )


class AlertNotFoundError(NotFoundError):
    """The alert rule does not exist.

    Attributes:
        rule: The rule's name.
    """

    def __init__(self, rule: str) -> None:
        self.rule = rule
        super().__init__(f"There is no alert rule {rule!r}; `oq alert ls` lists those that exist.")


class WorkerNotFoundError(NotFoundError):
    """The queue has no worker with that id that is alive."""

    def __init__(self, queue: str, worker: str, close: str | None = None) -> None:
        self.queue, self.worker = queue, worker
        hint = f"did you mean {close!r}? " if close else ""
        super().__init__(
            f"Queue {queue!r} has no worker {worker!r} that is alive; {hint}"
            f"list its workers with `oq worker ls {queue}`."
        )


class DuplicateJobError(StateError):
    """A job with this id already exists."""

    def __init__(self, queue: str, job_id: str) -> None:
        self.queue, self.job_id = queue, job_id
        super().__init__(f"Queue {queue!r} already has a job {job_id!r}; use another id, or remove that job first.")


class SchedulerBusyError(StateError):
    """Another process held the schedulers' lock for too long."""

    def __init__(self, queue: str, waited_s: float) -> None:
        self.queue = queue
        super().__init__(
            f"The schedulers of queue {queue!r} stayed locked by another process for {waited_s:.0f} s; try again."
        )


class BudgetExceededError(StateError):
    """The flow has spent its budget, so the job was not run."""

    def __init__(self) -> None:
        super().__init__("Budget exceeded")


class LeaseLostError(StateError):
    """Another worker owns the job now, and the outcome of this attempt was discarded."""

    def __init__(self, queue: str, job_id: str) -> None:
        self.queue, self.job_id = queue, job_id
        super().__init__(
            f"Job {job_id!r} of queue {queue!r} is no longer ours: its lease expired and another worker took it over, "
            "so this outcome was discarded; raise `lease` if the worker was only slow, or make a handler that holds "
            "Python's GIL sandboxed."
        )


class ServerError(OrchestrationQueueError):
    """The server refused a call, or sent a reply that the protocol does not know.

    Attributes:
        code: The code word of the server's error, such as ``BUSYGROUP`` or ``OQ_BAD_ARGUMENT``; empty if it has none.
    """

    def __init__(self, message: str, *, code: str = "") -> None:
        self.code = code
        super().__init__(message)


class UnsupportedServerError(ServerError):
    """The server is too old, or lacks a command, as clones may.

    Attributes:
        command: The missing command; empty if the server is too old, or doesn't say which.
    """

    def __init__(self, message: str, *, command: str = "") -> None:
        self.command = command
        super().__init__(message)


class TransportError(OrchestrationQueueError):
    """The server could not be reached.

    Attributes:
        maybe_applied: Whether the call was sent before the connection failed, so that the server may have executed it.
    """

    def __init__(self, message: str, *, maybe_applied: bool) -> None:
        self.maybe_applied = maybe_applied
        super().__init__(message)


class NotReplicatedError(TransportError):
    """Too few replicas confirmed a write in time. The primary has applied it."""

    def __init__(self, queue: str, confirmed: int, wanted: int, waited_s: float) -> None:
        self.queue, self.confirmed, self.wanted = queue, confirmed, wanted
        super().__init__(
            f"{confirmed} of {wanted} replicas confirmed a write to queue {queue!r} within {waited_s:g} s, so a "
            "failover now could lose it; check the replicas, or add it again with the same job_id.",
            maybe_applied=True,
        )


STALLED_REASON = "job stalled more than maxStalledCount"
"""What the wire's functions write as the failed reason of a job that was taken over too often."""


class JobFailedError(OrchestrationQueueError):
    """The job failed; the message ends with its reason.

    A note has advice if it stalled too often.

    Attributes:
        queue: The job's queue.
        job_id: The job's id.
        reason: Why it failed.
        kind: The kind of failure of a job that a step called, such as ``ValueError``, or of a ChasquiMQ job, such as
            ``retries_exhausted``; otherwise empty.
    """

    def __init__(self, queue: str, job_id: str, reason: str, kind: str = "") -> None:
        self.queue, self.job_id, self.reason, self.kind = queue, job_id, reason, kind
        super().__init__(f"Job {job_id!r} of queue {queue!r} failed: {reason}")
        if reason == STALLED_REASON:
            self.add_note(
                "The worker processes that ran it died, or its handler held Python's GIL for longer than the lease; "
                "make the handler sandboxed."
            )


class SandboxedError(OrchestrationQueueError):
    """A sandboxed handler raised an exception; the message is the job's failed reason.

    Attributes:
        kind: The name of the exception's type.
        traceback: The traceback as text; also added to this exception as a note.
    """

    def __init__(self, reason: str, *, kind: str = "", traceback: str = "") -> None:
        self.kind, self.traceback = kind, traceback
        super().__init__(reason)
        if traceback:
            self.add_note(traceback)


class SandboxDiedError(SandboxedError):
    """The process of a sandboxed handler died, or could not start.

    Attributes:
        exit_code: Negative for a signal; None when the worker ended the process because of a malformed reply.
    """

    def __init__(self, reason: str, *, exit_code: int | None = None) -> None:
        self.exit_code = exit_code
        super().__init__(reason, kind=type(self).__name__)


class SparkFailedError(OrchestrationQueueError):
    """Spark work ended without a result.

    Attributes:
        kind: The type of the Python exception; empty when the process was killed.
        exit_code: The exit code of the process; negative for a signal.
    """

    def __init__(self, reason: str, *, kind: str = "", exit_code: int | None = None) -> None:
        self.kind, self.exit_code = kind, exit_code
        super().__init__(reason)


class SparkTimeoutError(SparkFailedError, TimeoutError):
    """Spark work exceeded its ``timeout`` and was stopped with all its processes."""


class SparkCancelledError(SparkFailedError):
    """Spark work was cancelled and stopped with all its processes."""


class FlowFailedError(JobFailedError):
    """A node of a flow failed.

    Attributes:
        node: The node's name.
        dependents: Names of the nodes that will not run because this or another node failed.
    """

    def __init__(self, queue: str, job_id: str, reason: str, *, node: str, dependents: Sequence[str]) -> None:
        super().__init__(queue, job_id, reason)
        self.node, self.dependents = node, tuple(dependents)
        in_vain = f", and {', '.join(self.dependents)} will not run" if self.dependents else ""
        self.args = (f"Node {node!r} (job {job_id!r} of queue {queue!r}) failed{in_vain}: {reason}",)


_LONGEST_KIND = 100


class Failed(Exception):  # noqa: N818  read in a handler: raise Failed(kind="upload error")
    """Raise this in a handler to fail the attempt with your own kind of failure.

    It is retried like any other exception. Kinds group failed jobs in ``queue.failures()``; without this error the kind
    is the exception's qualified class.

    Args:
        message: What happened; default the kind.
        kind: A short text that is the same for failures to be handled alike, such as ``upload error``.

    Raises:
        UsageError: The kind is not 1 to 100 printable characters.
    """

    def __init__(self, message: str = "", *, kind: str) -> None:
        if not isinstance(kind, str) or not kind.isprintable() or not 0 < len(kind) <= _LONGEST_KIND:
            raise UsageError(
                f"`kind` must be 1 to {_LONGEST_KIND} printable characters, got {kind!r}; pass `kind='upload error'`."
            )
        self.kind = kind
        super().__init__(message or kind)

    # Exceptions are pickled with positional arguments only.
    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_failed, (str(self), self.kind)


def _rebuild_failed(message: str, kind: str) -> Failed:
    return Failed(message, kind=kind)


class UnrecoverableError(Exception):
    """Raise this in a handler to fail the job immediately, without its remaining retries."""


_MAX_SECONDS = 1e9


class RateLimitError(Exception):
    """Raise this in a handler whose upstream service refuses more calls: the worker starts no job for a while.

    The job is tried again after the delay and keeps its attempts.

    Args:
        delay: How long to wait, as a duration or in seconds; a negative one means no wait. Default the
            window of the worker's rate limit, or a second.
    """

    def __init__(self, delay: timedelta | float | None = None) -> None:
        if isinstance(delay, (int, float)) and not isinstance(delay, bool) and abs(delay) < _MAX_SECONDS:
            delay = timedelta(seconds=delay)
        if not isinstance(delay, timedelta | None):
            raise UsageError(f"`delay` must be a timedelta or seconds, got {delay!r}; pass `delay=5`.")
        super().__init__("rate limited")
        self.delay = delay
