"""Checks of qless's queues."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from orchestration_queue.doctor.finding import Finding, all_checks, count, hint, problem
from orchestration_queue.errors import ServerError
from orchestration_queue.protocol.call import Call, texts
from orchestration_queue.server import Connection
from orchestration_queue.server.clock import now_ms

if TYPE_CHECKING:
    from orchestration_queue.wires.qless import QlessClient

__all__ = ["CHECKS", "SERVER_CHECKS", "InspectedQless", "InspectedQlessQueue", "find"]

_LATE_S = 300
"""Workers of the original ask their queues once a minute."""
_MANY_FAILED = 10_000


def _names(connection: Connection) -> list[str]:
    """Return the names of the qless queues of a server, as it lists them; none for users without the permission."""
    try:
        return texts(connection.execute(Call("ZRANGE", ("ql:queues",), (0, -1)), repeatable=True))
    except ServerError:
        return []


@dataclass(frozen=True)
class InspectedQless:
    """What all qless queues of a server share, under inspection."""

    connection: Connection
    name: str = "qless"

    def client(self) -> QlessClient:
        """Return a client of the same server. It loads the library, unless it is there."""
        from orchestration_queue.wires.qless import QlessClient

        return QlessClient(url=self.connection.url)


class _Sizes(NamedTuple):
    ready: int
    expired: int
    overdue: int
    late_recurring: int
    is_paused: bool


@dataclass(frozen=True)
class InspectedQlessQueue:
    """A qless queue under inspection."""

    queue: str
    connection: Connection

    @property
    def name(self) -> str:
        """Its name in findings."""
        return f"qless queue {self.queue}"

    @cached_property
    def sizes(self) -> _Sizes:
        """How many jobs it has, and how many of them are late. One exchange."""
        late = now_ms() / 1000 - _LATE_S
        key = f"ql:q:{self.queue}"
        replies = self.connection.pipeline(
            [
                Call("ZCARD", (f"{key}-work",)),
                Call("ZCOUNT", (f"{key}-locks",), ("-inf", late)),
                Call("ZCOUNT", (f"{key}-scheduled",), ("-inf", late)),
                Call("ZCOUNT", (f"{key}-recur",), ("-inf", late)),
                Call("SISMEMBER", ("ql:paused_queues",), (self.queue,)),
            ],
            repeatable=True,
        )
        ready, expired, overdue, late_recurring, is_paused = map(int, replies)
        return _Sizes(ready, expired, overdue, late_recurring, bool(is_paused))

    def has_workers(self) -> bool:
        """Whether any worker has asked any queue lately."""
        call = Call("ZCOUNT", ("ql:workers",), (now_ms() / 1000 - _LATE_S, "+inf"))
        return bool(self.connection.execute(call, repeatable=True))


def qless_workers(inspected: InspectedQlessQueue) -> Iterator[Finding]:
    """Check that ready jobs have a worker, unless the queue is paused."""
    ready = inspected.sizes.ready
    if not ready:
        return
    if inspected.sizes.is_paused:
        yield hint(
            inspected.name,
            f"It is paused, and has {count(ready, 'ready job')}",
            "workers start none of them",
            f"oq qless resume {inspected.queue}, when they may run",
        )
    elif not inspected.has_workers():
        yield problem(
            inspected.name,
            f"It has {count(ready, 'ready job')}, and no worker has asked for jobs for {_LATE_S // 60} minutes",
            "they do not start",
            f"oq qless worker {inspected.queue}",
        )


def qless_locks(inspected: InspectedQlessQueue) -> Iterator[Finding]:
    """Check that jobs whose lock expired are taken over."""
    if inspected.sizes.expired and not inspected.sizes.is_paused:
        yield problem(
            inspected.name,
            f"The locks of {count(inspected.sizes.expired, 'job')} expired more than {_LATE_S // 60} minutes ago",
            "their workers are gone, and qless hands jobs over only when a worker asks the queue",
            f"oq qless worker {inspected.queue}",
        )


def qless_overdue(inspected: InspectedQlessQueue) -> Iterator[Finding]:
    """Check that scheduled and recurring jobs are made ready in time."""
    sizes = inspected.sizes
    if inspected.sizes.is_paused:
        return
    for number, what in ((sizes.overdue, "scheduled job"), (sizes.late_recurring, "recurring job")):
        if number:
            yield problem(
                inspected.name,
                f"{count(number, what)} {'has' if number == 1 else 'have'} been due for {_LATE_S // 60} minutes",
                "qless makes jobs ready only when a worker asks the queue, and none does",
                f"oq qless worker {inspected.queue}",
            )


def qless_failures(inspected: InspectedQless) -> Iterator[Finding]:
    """Check that failed jobs are handled."""
    groups = texts(inspected.connection.execute(Call("SMEMBERS", ("ql:failures",)), repeatable=True))
    calls = [Call("LLEN", (f"ql:f:{group}",)) for group in groups]
    failed = sum(map(int, inspected.connection.pipeline(calls, repeatable=True))) if calls else 0
    if failed > _MANY_FAILED:
        yield hint(
            inspected.name,
            f"There are {count(failed, 'failed job')}",
            "qless keeps failed jobs for good",
            "oq qless failed, then oq qless unfail or oq qless job cancel",
        )


def qless_consistency(inspected: InspectedQless) -> Iterator[Finding]:
    """Check that no records contradict each other, such as jobs in no queue; needs our library on the server."""
    loaded = inspected.connection.execute(Call("FUNCTION", args=("LIST", "LIBRARYNAME", "qless")), repeatable=True)
    if not loaded:
        yield hint(
            inspected.name,
            "The server lacks our function library for qless, so its records were not compared",
            "jobs that are in no queue are not found",
            "oq qless check, which loads it",
        )
        return
    with inspected.client() as client:
        found = client.check()
    if found:
        numbers = ", ".join(f"{number:,} {kind}" for kind, number in sorted(found.items()))
        yield problem(
            inspected.name,
            f"Its records contradict each other: {numbers}",
            "jobs that no queue holds, or that wait for removed jobs, never run",
            "oq qless check --fix",
            fix=lambda: _repair(inspected),
        )


def _repair(inspected: InspectedQless) -> str:
    with inspected.client() as client:
        repaired = client.check(repair=True)
    return f"repaired {count(sum(repaired.values()), 'record')}"


_QUEUE_CHECKS = (qless_workers, qless_locks, qless_overdue)
SERVER_CHECKS = (qless_failures, qless_consistency)
CHECKS: Final = {"Each qless queue": _QUEUE_CHECKS, "All qless queues": SERVER_CHECKS}


def find(connection: Connection, report: Callable[[str], None]) -> Iterator[Finding]:
    """Check qless's queues on a server, if it has any."""
    names = _names(connection)
    for name in names:
        report(f"checking qless queue {name}")
        yield from all_checks(InspectedQlessQueue(name, connection), _QUEUE_CHECKS)
    if names:
        report("comparing the records of qless")
        yield from all_checks(InspectedQless(connection), SERVER_CHECKS)
