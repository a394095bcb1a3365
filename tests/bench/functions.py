"""What single server functions cost the server: commands and microseconds a job by its own books, and their limit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any

import redis

from orchestration_queue.options import JobOptions
from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.functions import glidemq
from orchestration_queue.protocol.keys import GROUP, QueueKeys
from orchestration_queue.protocol.lease import Completion, Lease
from orchestration_queue.protocol.operations import exchanges, worker_registry
from orchestration_queue.protocol.placement import add_job, add_jobs, new_job
from orchestration_queue.protocol.record import JobRecord, pairs
from orchestration_queue.server import Connection

__all__ = ["costs"]

KEYS = QueueKeys("cost")
NOW_MS = 1_800_000_000_000
PLAIN = JobOptions()


class Bench:
    """One server with the libraries, and its books."""

    def __init__(self, url: str) -> None:
        self._books = redis.Redis.from_url(url)
        self._books.flushall()
        self._connection = Connection.open(url)
        self.send([worker_registry.create_group(KEYS)])

    def send(self, calls: Iterable[Call]) -> list[Any]:
        """Make calls one after the other."""
        return [self._connection.execute(call) for call in calls]

    def close(self) -> None:
        """Close both connections."""
        self._connection.close()
        self._books.close()

    def add(self, jobs: int) -> list[str]:
        """Put plain jobs into the queue."""
        replies = self.send(add_job(KEYS, "noop", "{}", PLAIN, NOW_MS) for _ in range(jobs))
        return [reply.decode() for reply in replies]

    def take(self, jobs: int) -> list[tuple[str, str]]:
        """Have this number of jobs delivered; returns ids and entry ids."""
        deliveries = self._connection.run(exchanges.read_group(KEYS, "c", jobs, 1))
        return [(delivery.job_id, delivery.entry_id) for delivery in deliveries]

    def cost(self, jobs: int, calls: Iterable[Call]) -> dict[str, object]:
        """Make the calls, which serve this number of jobs, and read the books."""
        ready = list(calls)
        self._books.config_resetstat()
        self.send(ready)
        stats = self._books.info("commandstats")
        inner = {
            name.removeprefix("cmdstat_"): round(stat["calls"] / jobs, 2)
            for name, stat in stats.items()
            if name not in ("cmdstat_fcall", "cmdstat_config|resetstat", "cmdstat_info")
        }
        whole_us = stats["cmdstat_fcall"]["usec"]
        # What the commands inside take by the server's books: the limit of what better Lua could reach.
        bare_us = sum(stat["usec"] for name, stat in stats.items() if name.removeprefix("cmdstat_") in inner)
        return {
            "commands": round(sum(inner.values()), 2),
            "server_us": round(whole_us / jobs, 1),
            "bare_commands_us": round(bare_us / jobs, 1),
            "to_bare_commands": round(whole_us / bare_us, 2),
            "by_command": dict(sorted(inner.items())),
        }


def _activate(job_id: str, entry_id: str) -> Call:
    return glidemq.move_to_active(
        stream_key=KEYS.stream, job_key=KEYS.job(job_id), now_ms=NOW_MS, entry_id=entry_id, group=GROUP, job_id=job_id
    )


def _complete(function: Callable[..., Call], job_id: str, entry_id: str, **more: object) -> Call:
    return function(
        KEYS,
        job_key=KEYS.job(job_id),
        metrics_key=KEYS.metrics_completed,
        job_id=job_id,
        entry_id=entry_id,
        returnvalue="null",
        now_ms=NOW_MS,
        group=GROUP,
        **more,
    )


def _add_job(bench: Bench, jobs: int) -> dict[str, object]:
    return bench.cost(jobs, (add_job(KEYS, "noop", "{}", PLAIN, NOW_MS) for _ in range(jobs)))


def _add_bulk(bench: Bench, jobs: int) -> dict[str, object]:
    call = add_jobs(KEYS, [new_job("noop", "{}", PLAIN, NOW_MS) for _ in range(100)])
    return bench.cost(jobs, [call] * (jobs // 100))


def _move_to_active(bench: Bench, jobs: int) -> dict[str, object]:
    bench.add(jobs)
    return bench.cost(jobs, [_activate(*delivery) for delivery in bench.take(jobs)])


def _complete_only(bench: Bench, jobs: int) -> dict[str, object]:
    bench.add(jobs)
    taken = bench.take(jobs)
    bench.send(_activate(*delivery) for delivery in taken)
    return bench.cost(jobs, [_complete(glidemq.complete, *delivery) for delivery in taken])


def _complete_and_fetch_next(bench: Bench, jobs: int) -> dict[str, object]:
    bench.add(2 * jobs)
    taken = bench.take(jobs)
    bench.send(_activate(*delivery) for delivery in taken)
    hints = {"consumer": "c", "ordering_key_hint": "__", "group_key_hint": "__", "processed_on_hint": str(NOW_MS)}
    return bench.cost(jobs, [_complete(glidemq.complete_and_fetch_next, *delivery, **hints) for delivery in taken])


def _exchange(batch: int) -> Callable[[Bench, int], dict[str, object]]:
    def run(bench: Bench, jobs: int) -> dict[str, object]:
        bench.add(2 * jobs)
        started = bench.send([exchanges.exchange(KEYS, "c", NOW_MS, want=jobs).call])[0][1]
        fields = iter(started)
        leases = [
            Lease(JobRecord(job_id.decode(), pairs(flat)), entry_id.decode())
            for job_id, entry_id, flat in zip(fields, fields, fields, strict=True)
        ]
        trips = [
            exchanges.exchange(
                KEYS,
                "c",
                NOW_MS,
                settle=[Completion(lease, "null") for lease in leases[first : first + batch]],
                want=batch,
            ).call
            for first in range(0, jobs, batch)
        ]
        return bench.cost(jobs, trips)

    return run


FUNCTIONS: dict[str, Callable[[Bench, int], dict[str, object]]] = {
    "glidemq_addJob": _add_job,
    "glidemq_moveToActive": _move_to_active,
    "glidemq_complete": _complete_only,
    "glidemq_completeAndFetchNext": _complete_and_fetch_next,
    "oq1_addBulk, 100 a call": _add_bulk,
    "oq1_exchange, settle 1 and take 1": _exchange(1),
    "oq1_exchange, settle 32 and take 32": _exchange(32),
    "oq1_exchange, settle 100 and take 100": _exchange(100),
}


def costs(url: str, jobs: int = 3200) -> dict[str, dict[str, object]]:
    """Cost per plain job of each function, in a queue without groups, parents or retention."""
    table = {}
    for name, measure in FUNCTIONS.items():
        with closing(Bench(url)) as bench:
            table[name] = measure(bench, jobs)
    return table
