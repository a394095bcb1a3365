"""All checks, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence

from orchestration_queue.client import Queue
from orchestration_queue.doctor.finding import Finding, problem
from orchestration_queue.doctor.machine_checks import MACHINE_CHECKS
from orchestration_queue.doctor.queue import QUEUE_CHECKS, InspectedQueue
from orchestration_queue.doctor.server import SERVER_CHECKS, Server
from orchestration_queue.errors import ServerError
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.server import Connection

__all__ = ["CHECKS", "run_checks"]

CHECKS: dict[str, Sequence[Callable[..., Iterator[Finding]]]] = {
    "Each server": SERVER_CHECKS,
    "Each queue": QUEUE_CHECKS,
    "This machine": MACHINE_CHECKS,
}
"""What is looked at, by what it is looked at in."""


def run_checks(
    url: str | None = None,
    queues: Sequence[str] | None = None,
    *,
    prefix: str = DEFAULT_PREFIX,
    tell: Callable[[str], None] = lambda _: None,
) -> Generator[Finding, None, None]:
    """Look at a server, its queues, and this machine. Changes nothing, but for a key that is never there.

    Args:
        url: The server; default ``OQ_URL``, else the embedded server of this directory.
        queues: Which; None means all under the prefix, for which all keys are walked.
        prefix: First part of every key.
        tell: Called with what is looked at next.

    Raises:
        TransportError: The server cannot be reached.
    """
    with Connection.open(url, libraries=()) as connection:
        for primary in connection.primaries():
            tell(f"looking at {primary}")
            with Connection.open(primary, libraries=()) as one:
                server = Server.look(primary, one)
                for check in SERVER_CHECKS:
                    yield from check(server)
        for name in Queue.names(connection=connection, prefix=prefix) if queues is None else queues:
            tell(f"looking at queue {name}")
            yield from _queue(InspectedQueue(Queue(name, connection=connection, prefix=prefix), connection))
    tell("looking at this machine")
    for machine_check in MACHINE_CHECKS:
        yield from machine_check()


def _queue(inspected: InspectedQueue) -> Iterator[Finding]:
    try:
        for check in QUEUE_CHECKS:
            yield from check(inspected)
    except ServerError as error:
        yield problem(
            inspected.name,
            f"It cannot be looked at: {str(error).rstrip('.')}",
            "what is wrong with it stays unknown",
            "mend the server or the user's rights first",
        )
