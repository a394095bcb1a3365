"""Checks of each ChasquiMQ queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from orchestration_queue.doctor.finding import Finding, all_checks, count, hint, problem
from orchestration_queue.errors import ServerError
from orchestration_queue.protocol.call import Call, Conversation, Reply, text
from orchestration_queue.protocol.operations.keyspace import scan
from orchestration_queue.server import Connection
from orchestration_queue.server.clock import now_ms

if TYPE_CHECKING:
    from orchestration_queue.wires.chasquimq.entries import ChasquiCounts
    from orchestration_queue.wires.chasquimq.keys import ChasquiKeys

__all__ = ["CHECKS", "QUEUE_CHECKS", "InspectedChasquiQueue", "find", "queue_names"]

_LATE_MS = 60_000
_MANY_DEAD = 10_000
_NEARLY_FULL = 900_000
_PAGE = 1_000
_GROUP = "default"


def queue_names() -> Conversation[list[str]]:
    """Return the names of the ChasquiMQ queues of one server. Scans all its keys."""
    keys = yield from scan("{chasqui:*}:*")
    return sorted({key.removeprefix("{chasqui:").rpartition("}:")[0] for key in keys} - {""})


@dataclass(frozen=True)
class InspectedChasquiQueue:
    """A ChasquiMQ queue under inspection."""

    keys: ChasquiKeys
    connection: Connection

    @property
    def name(self) -> str:
        """Its name in findings."""
        return f"ChasquiMQ queue {self.keys.queue}"

    @cached_property
    def counts(self) -> ChasquiCounts:
        """Its jobs by state."""
        from orchestration_queue.wires.chasquimq.entries import count_calls, read_counts

        return read_counts(self.connection.pipeline(count_calls(self.keys), repeatable=True))

    def consumers(self) -> list[Mapping[str, Any]]:
        """Return what the server knows of each worker; none where no worker has ever served the queue."""
        args = ("CONSUMERS", self.keys.stream, _GROUP)
        try:
            reply = self.ask(Call("XINFO", args=args, near=self.keys.stream))
        except ServerError as error:
            # A missing key is a plain ERR, told apart by its words only.
            if error.code == "NOGROUP" or "no such key" in str(error):
                return []
            raise
        return [dict(zip(map(text, facts[::2]), facts[1::2], strict=True)) for facts in reply]

    def ask(self, call: Call) -> Reply:
        """Return the reply to a call that changes nothing."""
        return self.connection.execute(call, repeatable=True)


def chasquimq_workers(inspected: InspectedChasquiQueue) -> Iterator[Finding]:
    """Check that ready jobs have a worker that reads, unless the queue is paused."""
    ready = inspected.counts.ready
    if not ready:
        return
    name = inspected.keys.queue
    if inspected.counts.is_paused:
        yield hint(
            inspected.name,
            f"It is paused, and has {count(ready, 'ready job')}",
            "workers start none of them; those of chasquimq 1.3.0 ignore the pause",
            f"oq chasqui resume {name}, when they may run",
        )
    elif not any(int(worker["idle"]) < _LATE_MS for worker in inspected.consumers()):
        yield problem(
            inspected.name,
            f"It has {count(ready, 'ready job')}, and no worker has read it for a minute",
            "they do not start; workers of the original cannot read on servers older than Redis 8.6",
            f"oq chasqui worker {name} module:tasks",
        )


def chasquimq_leases(inspected: InspectedChasquiQueue) -> Iterator[Finding]:
    """Check that the leases of running jobs are renewed."""
    args = (_GROUP, "IDLE", _LATE_MS, "-", "+", _PAGE)
    try:
        stale = inspected.ask(Call("XPENDING", (inspected.keys.stream,), args))
    except ServerError as error:
        if error.code != "NOGROUP":
            raise
        return
    if stale:
        more = "at least " if len(stale) == _PAGE else ""
        yield hint(
            inspected.name,
            f"The leases of {more}{count(len(stale), 'running job')} have not been renewed for a minute",
            "their workers died, or are of the original, which never renews and may run them twice",
            "start a worker if none is running; it takes them over",
        )


def chasquimq_delayed(inspected: InspectedChasquiQueue) -> Iterator[Finding]:
    """Check that delayed jobs are promoted in time, and that the next ones can be read."""
    from orchestration_queue.wires.chasquimq.envelope import split_member

    reply = inspected.ask(Call("ZRANGE", (inspected.keys.delayed,), (0, _PAGE - 1, "WITHSCORES")))
    if not reply:
        return
    late_ms = now_ms() - float(reply[1])
    if late_ms > _LATE_MS:
        yield problem(
            inspected.name,
            f"A delayed job has been due for {late_ms / 1000:,.0f} s",
            "no worker promotes delayed jobs, so that retries do not run either",
            f"oq chasqui worker {inspected.keys.queue} module:tasks",
        )
    malformed = sum(split_member(member) is None for member in reply[::2])
    if malformed:
        yield problem(
            inspected.name,
            f"{count(malformed, 'delayed job')} of the next {len(reply) // 2:,} cannot be read",
            "promoters of the original stop at the first of them, and every delayed job and retry behind it waits",
            "run a worker of this package; it moves them to the dead-letter queue when they are due",
        )


def chasquimq_schedules(inspected: InspectedChasquiQueue) -> Iterator[Finding]:
    """Check that repeatable jobs fire, and that their specs can be read."""
    from orchestration_queue.wires.chasquimq.entries import read_schedules

    keys = inspected.keys
    due = inspected.ask(Call("ZRANGE", (keys.repeat,), (0, _PAGE - 1, "WITHSCORES")))
    calls = [Call("HMGET", (keys.spec(key.decode(errors="replace")),), ("spec", "fired")) for key in due[::2]]
    schedules = read_schedules(due, inspected.connection.pipeline(calls, repeatable=True)) if due else []
    for schedule in schedules:
        if schedule.spec is None:
            yield problem(
                inspected.name,
                f"The spec of repeatable job {schedule.key} cannot be read",
                "a scheduler of the original that meets it stops firing all repeatable jobs",
                f"oq chasqui scheduler rm {keys.queue} {schedule.key}, then add it again",
            )
    if schedules and (late_s := now_ms() / 1000 - schedules[0].next_at.timestamp()) > _LATE_MS / 1000:
        yield problem(
            inspected.name,
            f"Repeatable job {schedules[0].key} has been due for {late_s:,.0f} s",
            "no worker fires repeatable jobs",
            f"oq chasqui worker {keys.queue} module:tasks",
        )


def chasquimq_growth(inspected: InspectedChasquiQueue) -> Iterator[Finding]:
    """Check that the queue is not about to drop jobs, and that dead letters are handled."""
    counts = inspected.counts
    if counts.ready + counts.running > _NEARLY_FULL:
        yield problem(
            inspected.name,
            f"It has {count(counts.ready + counts.running, 'job')}",
            "at about 1,000,000 each new job drops the oldest without notice",
            "start more workers, or raise max_length in every producer",
        )
    if counts.dead_letters > _MANY_DEAD:
        yield hint(
            inspected.name,
            f"It has {count(counts.dead_letters, 'dead letter')}",
            "at about 100,000 each new one drops the oldest",
            f"oq chasqui dead ls {inspected.keys.queue}, then replay or purge them",
        )


QUEUE_CHECKS = (
    chasquimq_workers,
    chasquimq_leases,
    chasquimq_delayed,
    chasquimq_schedules,
    chasquimq_growth,
)
CHECKS: Final = {"Each ChasquiMQ queue": QUEUE_CHECKS}


def find(connection: Connection, report: Callable[[str], None]) -> Iterator[Finding]:
    """Check ChasquiMQ's queues on a server, if it has any."""
    names = set[str]()
    for primary in connection.primaries():
        with Connection.open(primary, libraries=()) as one:
            names.update(one.follow(queue_names()))
    if not names:
        return
    try:
        from orchestration_queue.wires.chasquimq.keys import ChasquiKeys
    except ImportError:
        yield hint(
            "ChasquiMQ",
            f"The server has its queues ({', '.join(sorted(names)[:3])}), which cannot be checked",
            "reading them needs the package msgpack",
            "pip install orchestration-queue[msgpack]",
        )
        return
    for name in sorted(names):
        report(f"checking ChasquiMQ queue {name}")
        yield from all_checks(InspectedChasquiQueue(ChasquiKeys(name), connection), QUEUE_CHECKS)
