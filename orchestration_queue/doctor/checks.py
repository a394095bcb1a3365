"""Checks of this machine, and the run of all checks."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from importlib.util import find_spec

from orchestration_queue.client import Alerts, Queue
from orchestration_queue.doctor.alerts import ALERT_CHECKS, InspectedAlerts
from orchestration_queue.doctor.finding import Finding, all_checks, hint, problem
from orchestration_queue.doctor.queue import QUEUE_CHECKS, InspectedQueue
from orchestration_queue.doctor.server import SERVER_CHECKS, Server
from orchestration_queue.doctor.survey import Sample, sample_jobs, take_sample
from orchestration_queue.errors import JavaNotFoundError
from orchestration_queue.protocol.call import chunks, together
from orchestration_queue.protocol.keys import DEFAULT_PREFIX, QueueKeys
from orchestration_queue.protocol.operations import keyspace, worker_registry
from orchestration_queue.protocol.operations.queue_settings import dead_letter_queue
from orchestration_queue.server import Connection, ServerUrl
from orchestration_queue.wires import WIRES

__all__ = ["CHECKS", "MACHINE_CHECKS", "run_checks"]

_HERE = "this machine"


def java() -> Iterator[Finding]:
    """Check that Java is available where PySpark is installed."""
    if find_spec("pyspark") is None:
        return
    from orchestration_queue.spark.java import java_home

    try:
        java_home()
    except JavaNotFoundError as error:
        yield problem(_HERE, str(error).rstrip("."), "Spark tasks fail here", "follow the message")


def dagster() -> Iterator[Finding]:
    """Check that Dagster's instance opens where `DAGSTER_HOME` is set, and that run monitoring is on."""
    if "DAGSTER_HOME" not in os.environ or find_spec("dagster") is None:
        return
    from dagster import DagsterInstance

    try:
        with DagsterInstance.get() as instance:
            watches = instance.run_monitoring_enabled
    except Exception as error:  # whatever its storage raises
        yield problem(
            _HERE,
            f"Dagster's instance in {os.environ['DAGSTER_HOME']} does not open: {str(error).strip() or repr(error)}",
            "neither steps nor sensors run",
            "repair dagster.yaml or its storage",
        )
        return
    if not watches:
        yield hint(
            _HERE,
            "Dagster's run monitoring is off",
            "a run whose process dies is never marked as failed",
            "run_monitoring: {enabled: true} in dagster.yaml",
        )


MACHINE_CHECKS = (java, dagster)

CHECKS: dict[str, Sequence[Callable[..., Iterator[Finding]]]] = {
    "Each server": SERVER_CHECKS,
    "Each queue": QUEUE_CHECKS,
    "Alert rules, when all queues are checked": ALERT_CHECKS,
    **{what: checks for wire in WIRES for what, checks in wire.load("doctor").CHECKS.items()},
    "This machine": MACHINE_CHECKS,
}
"""The checks, by what they inspect."""


def run_checks(
    url: str | ServerUrl | None = None,
    queues: Sequence[str] | None = None,
    *,
    prefix: str = DEFAULT_PREFIX,
    report: Callable[[str], None] = lambda _: None,
) -> Generator[Finding, None, None]:
    """Check a server, its queues and this machine. Changes nothing: the one write deletes a key that never exists.

    Args:
        url: The server; default ``OQ_URL``, else the embedded server of this directory.
        queues: Names of the queues to check; None means all under the prefix, and all of other wires, found by a
            scan of all keys.
        prefix: First part of every key.
        report: Called with what is checked next.

    Raises:
        TransportError: The server cannot be reached.
    """
    with Connection.open(url, libraries=()) as connection:
        for primary in connection.primaries():
            report(f"checking {primary}")
            with Connection.open(primary, libraries=()) as one:
                server = Server.inspect(primary, one)
                for check in SERVER_CHECKS:
                    yield from check(server)
        for queue in _find_all(connection, prefix) if queues is None else _find(connection, queues, prefix):
            report(f"checking {queue.name}")
            yield from all_checks(queue, QUEUE_CHECKS)
        if queues is None:
            report("checking alert rules")
            alerts = InspectedAlerts(Alerts(connection=connection, prefix=prefix))
            yield from all_checks(alerts, ALERT_CHECKS)
            for wire in WIRES:
                yield from wire.load("doctor").find(connection, report)
    report("checking this machine")
    for machine_check in MACHINE_CHECKS:
        yield from machine_check()


def _find_all(connection: Connection, prefix: str) -> Iterator[InspectedQueue]:
    """Yield all queues. Scans all keys twice, however many queues there are."""
    workers: dict[str, list[str]] = {}
    jobs: dict[str, set[str]] = {}
    has_scanned_all = True
    for primary in connection.primaries():
        with Connection.open(primary, libraries=()) as one:
            workers |= one.follow(keyspace.queues(prefix))
            found, is_whole = one.follow(sample_jobs(prefix))
            jobs |= found
            has_scanned_all = has_scanned_all and is_whole
    letters = _find_dead_letter_queues(connection, list(workers), prefix)
    for name in sorted(workers):
        sample = take_sample(jobs.get(name, ()), has_scanned_all=has_scanned_all)
        yield _inspect(connection, name, prefix, workers[name], has_dead_letters=name in letters, sample=sample)


def _find(connection: Connection, names: Sequence[str], prefix: str) -> Iterator[InspectedQueue]:
    letters = _find_dead_letter_queues(connection, names, prefix)
    for name in names:
        yield _inspect(connection, name, prefix, None, has_dead_letters=name in letters, sample=None)


def _inspect(
    connection: Connection,
    name: str,
    prefix: str,
    workers: Sequence[str] | None,
    *,
    has_dead_letters: bool,
    sample: Sample | None,
) -> InspectedQueue:
    queue = Queue(name, connection=connection, prefix=prefix)
    registered = connection.follow(worker_registry.workers(queue.keys, workers))
    return InspectedQueue(queue, connection, registered, has_dead_letters, sample)


def _find_dead_letter_queues(connection: Connection, names: Sequence[str], prefix: str) -> set[str]:
    """Return where these queues store their dead letters."""
    keys = [QueueKeys(name, prefix) for name in names]
    found = (connection.follow(together([dead_letter_queue(each) for each in piece])) for piece in chunks(keys))
    return {name for piece in found for name in piece}
