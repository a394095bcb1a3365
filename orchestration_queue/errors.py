"""Every error this package raises, as one tree.

::

    OrchestrationQueueError
    ├── UsageError                     the caller is wrong; nothing was sent
    │   ├── InvalidNameError             a queue, job or scheduler name the wire cannot carry
    │   ├── InvalidOptionError           an option outside its limits
    │   ├── PayloadError                 data that cannot be encoded, or is too large
    │   ├── FlowError                    a graph that cannot run
    │   │   ├── CycleError                 nodes that wait for each other
    │   │   ├── DuplicateNodeError         two nodes of one name
    │   │   └── UnknownDependencyError     a dependency on a node that is not there
    │   ├── ScheduleError                a schedule that never fires or cannot be read
    │   ├── EmbeddedServerError          the embedded server's directory cannot be used
    │   └── JavaNotFoundError            no Java here that the installed Spark runs on
    ├── StateError                     the world moved on since the caller looked
    │   ├── JobNotFoundError             no such job: never added, removed, or expired
    │   ├── DuplicateJobError            a job of that id exists already
    │   ├── SchedulerBusyError           somebody else holds the schedulers' lock
    │   ├── BudgetExceededError          a flow has spent what it may
    │   └── LeaseLostError               another worker owns the job now
    ├── ServerError                    the server refused, or said something impossible
    │   └── UnsupportedServerError       too old, or without functions
    ├── TransportError                 the server could not be reached
    ├── JobFailedError                 the job itself failed
    ├── SandboxedError                 a sandboxed handler raised, in its own process
    │   └── SandboxDiedError             that process died, or could not start
    └── SparkFailedError               Spark work ended without a result
        ├── SparkCancelledError          it was told to stop
        └── SparkTimeoutError            it took longer than allowed

Each message says what happened, why, and what to do next, in one sentence. Errors carry fields, so that
programs need not parse the text.

``UnrecoverableError`` stands apart: it is not raised by the package but by a job's handler, to say
"do not try this again".
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "BudgetExceededError",
    "CycleError",
    "DuplicateJobError",
    "DuplicateNodeError",
    "EmbeddedServerError",
    "FlowError",
    "FlowFailedError",
    "InvalidNameError",
    "InvalidOptionError",
    "JavaNotFoundError",
    "JobFailedError",
    "JobNotFoundError",
    "LeaseLostError",
    "OrchestrationQueueError",
    "PayloadError",
    "SandboxDiedError",
    "SandboxedError",
    "ScheduleError",
    "SchedulerBusyError",
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
]


class OrchestrationQueueError(Exception):
    """Something this package could not do."""


class UsageError(OrchestrationQueueError, ValueError):
    """The call is wrong as written; nothing was sent to the server."""


class InvalidNameError(UsageError):
    """A name the wire cannot carry."""


class InvalidOptionError(UsageError):
    """An option outside its limits."""


class PayloadError(UsageError):
    """Data that cannot be encoded, or is larger than the wire allows."""


class FlowError(UsageError):
    """A graph that cannot run."""


class CycleError(FlowError):
    """Nodes wait for each other in a circle.

    Attributes:
        path: The nodes of one real cycle, first and last the same.
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
            f"The flow has two nodes named {name!r}, and names are how nodes depend on each other; rename one of them."
        )


class UnknownDependencyError(FlowError):
    """A node depends on a name that no node has."""

    def __init__(self, node: str, dependency: str) -> None:
        self.node, self.dependency = node, dependency
        super().__init__(
            f"Node {node!r} depends on {dependency!r}, which is not in the flow; add that node or correct the name."
        )


class ScheduleError(UsageError):
    """A schedule that cannot be read, or never fires."""


class EmbeddedServerError(UsageError):
    """The embedded server's data directory cannot be used."""


class JavaNotFoundError(UsageError):
    """No Java on this machine suits the installed Spark."""


class StateError(OrchestrationQueueError):
    """The world moved on since the caller looked."""


class JobNotFoundError(StateError):
    """No such job: never added, removed, or expired."""

    def __init__(self, queue: str, job_id: str) -> None:
        self.queue, self.job_id = queue, job_id
        super().__init__(
            f"Queue {queue!r} has no job {job_id!r}: it was never added, or has been removed since; "
            "check the queue and the id."
        )


class DuplicateJobError(StateError):
    """A job of that id exists already."""

    def __init__(self, queue: str, job_id: str) -> None:
        self.queue, self.job_id = queue, job_id
        super().__init__(
            f"Queue {queue!r} already has a job {job_id!r}, and ids are unique; "
            "use another id, or remove that job first."
        )


class SchedulerBusyError(StateError):
    """Somebody else holds the schedulers' lock for longer than we are willing to wait."""

    def __init__(self, queue: str, waited_s: float) -> None:
        self.queue = queue
        super().__init__(
            f"The schedulers of queue {queue!r} stayed locked by another process for {waited_s:.0f} s; try again."
        )


class BudgetExceededError(StateError):
    """A job's flow has spent its budget, so the job was not run. The message is the wire's own."""

    def __init__(self) -> None:
        super().__init__("Budget exceeded")


class LeaseLostError(StateError):
    """Another worker owns the job now; its outcome here was discarded."""

    def __init__(self, queue: str, job_id: str) -> None:
        self.queue, self.job_id = queue, job_id
        super().__init__(
            f"Job {job_id!r} of queue {queue!r} is no longer ours: its lease ended and another worker took it, "
            "so this outcome was discarded; raise `lease` if the worker was only slow."
        )


class ServerError(OrchestrationQueueError):
    """The server refused a call, or replied with something the protocol does not know.

    Attributes:
        code: The code word of the server's error, such as ``BUSYGROUP`` or ``OQ_BAD_ARGUMENT``; empty if it has none.
    """

    def __init__(self, message: str, *, code: str = "") -> None:
        self.code = code
        super().__init__(message)


class UnsupportedServerError(ServerError):
    """The server is too old, or lacks functions."""


class TransportError(OrchestrationQueueError):
    """The server could not be reached.

    Attributes:
        maybe_applied: True when the call had been sent before the connection failed, so that the server may
            have carried it out.
    """

    def __init__(self, message: str, *, maybe_applied: bool) -> None:
        self.maybe_applied = maybe_applied
        super().__init__(message)


class JobFailedError(OrchestrationQueueError):
    """The job itself failed, for the reason it left behind."""

    def __init__(self, queue: str, job_id: str, reason: str) -> None:
        self.queue, self.job_id, self.reason = queue, job_id, reason
        super().__init__(f"Job {job_id!r} of queue {queue!r} failed: {reason}")


class SandboxedError(OrchestrationQueueError):
    """A sandboxed handler raised this in its process; the message is the reason that the job carries.

    Attributes:
        kind: The name of the exception's type there.
        traceback: Where it happened, as text; also a note of this exception.
    """

    def __init__(self, reason: str, *, kind: str = "", traceback: str = "") -> None:
        self.kind, self.traceback = kind, traceback
        super().__init__(reason)
        if traceback:
            self.add_note(traceback)


class SandboxDiedError(SandboxedError):
    """The process of a sandboxed handler died while it ran the job, or could not run it.

    Attributes:
        exit_code: How it ended; negative for a signal, None when it was ended for speaking nonsense.
    """

    def __init__(self, reason: str, *, exit_code: int | None = None) -> None:
        self.exit_code = exit_code
        super().__init__(reason, kind=type(self).__name__)


class SparkFailedError(OrchestrationQueueError):
    """Spark work ended without a result.

    Attributes:
        kind: The type of the Python exception that ended it; empty when the process was killed.
        exit_code: How its process ended; negative for a signal.
    """

    def __init__(self, reason: str, *, kind: str = "", exit_code: int | None = None) -> None:
        self.kind, self.exit_code = kind, exit_code
        super().__init__(reason)


class SparkTimeoutError(SparkFailedError, TimeoutError):
    """Spark work took longer than its ``timeout`` and was stopped, with all its processes."""


class SparkCancelledError(SparkFailedError):
    """Spark work was told to stop, and was stopped, with all its processes."""


class FlowFailedError(JobFailedError):
    """A node of a flow failed.

    Attributes:
        node: The node's name.
        dependents: Names of the nodes that will not run because of it (or of another failed node).
    """

    def __init__(self, queue: str, job_id: str, reason: str, *, node: str, dependents: Sequence[str]) -> None:
        super().__init__(queue, job_id, reason)
        self.node, self.dependents = node, tuple(dependents)
        in_vain = f", and {', '.join(self.dependents)} will not run" if self.dependents else ""
        self.args = (f"Node {node!r} (job {job_id!r} of queue {queue!r}) failed{in_vain}: {reason}",)


class UnrecoverableError(Exception):
    """Raise this in a handler when trying the job again would be pointless: it fails at once."""
