"""Checks of each server: one, or every primary of a cluster."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestration_queue.doctor.finding import Finding, hint, problem
from orchestration_queue.doctor.libraries import Owner, read_libraries
from orchestration_queue.errors import ServerError, UnsupportedServerError
from orchestration_queue.protocol.call import Call, text
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.library import LIBRARIES, Library, Step, next_step
from orchestration_queue.server import Connection, ServerUrl
from orchestration_queue.server.clock import now_ms

__all__ = ["SERVER_CHECKS", "Server"]

_PINGS = 21
_SLOW_EXCHANGE_MS = 5
_SKEW_MS = 1000
_FULL = 0.85


@dataclass(frozen=True, slots=True)
class Server:
    """A server and its ``INFO``."""

    url: ServerUrl
    connection: Connection
    info: Mapping[str, str]

    @classmethod
    def inspect(cls, url: ServerUrl, connection: Connection) -> Server:
        """Read ``INFO``; it is empty for a user without the permission."""
        try:
            info = text(connection.execute(Call("INFO"), repeatable=True))
        except ServerError:
            info = ""
        lines = (line.partition(":") for line in info.splitlines() if not line.startswith("#"))
        return cls(url, connection, {name: value for name, colon, value in lines if colon})

    @property
    def where(self) -> str:
        """Its address in findings, without the password."""
        return str(self.url)


def rights(server: Server) -> Iterator[Finding]:
    """Check that the server has the commands of clients and workers, and that the user may send them, and `INFO`."""
    needed = {
        "+info": Call("INFO"),
        "+time": Call("TIME"),
        "+fcall": LIBRARIES[0].ask,
        "+fcall_ro": oq1.read_jobs(QueueKeys("oq-doctor"), most_bytes=0, fields=[oq1.FieldName("id")], job_ids=[]),
        "+@read": Call("EXISTS", ("glide:{oq-doctor}:meta",)),
        "+@write": Call("DEL", ("glide:{oq-doctor}:meta",)),
        "+scan": Call("SCAN", args=("0", "MATCH", "glide:{oq-doctor}:*")),
        "": Call("FUNCTION", args=("LIST", "LIBRARYNAME", LIBRARIES[0].name)),  # that few users are allowed
    }
    replies = server.connection.pipeline(list(needed.values()), repeatable=True)
    for rule, reply in zip(needed, replies, strict=True):
        if rule and isinstance(reply, Exception) and "has no permissions" in str(reply):
            yield problem(
                server.where,
                f"The user lacks the permission {rule}",
                "clients, workers or these checks need it",
                f"grant it: ACL SETUSER <user> {rule}, with ~<prefix>:* as its keys",
            )
        elif isinstance(reply, UnsupportedServerError):
            yield problem(
                server.where,
                f"The server lacks the command {reply.command}",
                "clients, workers or these checks need it",
                "use Valkey, or Redis 7 or newer, where the command is neither renamed nor disabled",
            )


def eviction(server: Server) -> Iterator[Finding]:
    """Check that `maxmemory-policy` is `noeviction`; with any other a full server discards jobs."""
    policy = server.info.get("maxmemory_policy", "noeviction")
    if policy == "noeviction":
        return

    def fix() -> str:
        server.connection.execute(Call("CONFIG", args=("SET", "maxmemory-policy", "noeviction")))
        return "maxmemory-policy is noeviction until the server restarts; set it in its configuration, too"

    yield problem(
        server.where,
        f"maxmemory-policy is {policy}",
        "a full server evicts keys, and with them jobs that have not run",
        "set maxmemory-policy noeviction",
        fix,
    )


def memory(server: Server) -> Iterator[Finding]:
    """Check that memory is left below `maxmemory`; a full server refuses new jobs."""
    used, most = int(server.info.get("used_memory", 0)), int(server.info.get("maxmemory", 0))
    if most and used > _FULL * most:
        yield problem(
            server.where,
            f"{used / most:.0%} of maxmemory is in use",
            "at 100 % new jobs and outcomes are refused",
            "raise maxmemory, or keep fewer finished jobs: JobOptions(remove_on_complete=...), oq queue clean",
        )


def persistence(server: Server) -> Iterator[Finding]:
    """Check that the append-only file is on and written without errors; otherwise a crash loses accepted jobs."""
    if server.info.get("aof_enabled") == "0":
        yield problem(
            server.where,
            "The append-only file is off",
            "when the server dies, jobs that it accepted since its last snapshot are gone",
            "set appendonly yes",
        )
    for name in ("aof_last_write_status", "rdb_last_bgsave_status"):
        if server.info.get(name, "ok") != "ok":
            yield problem(
                server.where,
                f"{name} is {server.info[name]}",
                "what was accepted is not on disk, and the server may refuse to take more",
                "check the server's log and its disk",
            )


def replication(server: Server) -> Iterator[Finding]:
    """Check that the server is a primary with a replica that can replace it."""
    if server.info.get("role") == "slave":
        yield problem(
            server.where,
            "This is a replica",
            "it takes no jobs",
            "name the primary in the URL, or the sentinels: redis+sentinel://",
        )
    elif server.info.get("connected_slaves") == "0" and server.url.kind != "embedded":
        yield hint(
            server.where,
            "It has no replica",
            "during an outage of this server nothing runs, and its disk has the only copy",
            "add a replica and sentinels, or use a cluster, where that matters",
        )


def libraries(server: Server) -> Iterator[Finding]:
    """Check that the function libraries are loaded, none by an older release, and `glidemq` not by glide-mq."""
    try:
        loaded = read_libraries(server.connection)
    except ServerError:
        return  # the check of rights reports it
    for each in loaded:
        library, version = each.library, each.version
        subject = f"The function library {library.name}"

        def fix(url: ServerUrl = server.url, library: Library = library) -> str:
            Connection.open(url, libraries=LIBRARIES if library in LIBRARIES else (library,)).close()
            return f"loaded {library.name}"

        if each.step is not Step.KEEP:
            older = f"of an older release: its version is {version}, this release's {library.version}"
            yield hint(
                server.where,
                f"{subject} is {'missing' if version is None else older}",
                "the next client or worker of this release loads it, if its user has the permission",
                "oq library load, as a user with that permission",
                fix,
            )
        elif each.owner is Owner.UPSTREAM:
            is_older = next_step(library.version.partition(".")[0], version) is Step.REPLACE
            yield (problem if is_older else hint)(
                server.where,
                f"{subject} is glide-mq's own, of version {version}",
                "it may lack functions that this release calls"
                if is_older
                else "it has weaknesses that this package's text, of the same protocol, has not",
                "upgrade glide-mq where it is in use, else run: oq library load --foreign"
                if is_older
                else "if no process of glide-mq relies on it: oq library load --foreign",
            )
        elif each.owner is Owner.UNKNOWN:
            yield hint(
                server.where,
                f"{subject}, of version {version}, is not this package's",
                "its functions may do anything else under the names that this release calls",
                "compare FUNCTION LIST with `oq library dump`; `oq library load --foreign` replaces it",
            )


def clock(server: Server) -> Iterator[Finding]:
    """Check that this machine's clock and the server's agree within a second."""
    sent = now_ms()
    try:
        seconds, microseconds = server.connection.execute(Call("TIME"), repeatable=True)
    except ServerError:
        return  # the check of rights reports it
    skew = int(seconds) * 1000 + int(microseconds) // 1000 - (sent + now_ms()) // 2
    if abs(skew) > _SKEW_MS:
        yield hint(
            server.where,
            f"The server's clock is {abs(skew) / 1000:.1f} s {'ahead of' if skew > 0 else 'behind'} this machine's",
            "workers use the server's clock, but a delay is computed on the machine that adds the job",
            "synchronize both by NTP",
        )


def round_trip(server: Server) -> Iterator[Finding]:
    """Check that an exchange takes less than 5 ms; every job costs at least one."""
    exchanges = []
    for _ in range(_PINGS):
        began = time.perf_counter()
        server.connection.execute(Call("PING"), repeatable=True)
        exchanges.append((time.perf_counter() - began) * 1000)
    if (median := statistics.median(exchanges)) > _SLOW_EXCHANGE_MS:
        yield hint(
            server.where,
            f"An exchange with the server takes {median:.1f} ms",
            f"one worker slot runs fewer than {1000 / median:,.0f} jobs a second, and adding one by one is no faster",
            "move closer to the server, raise concurrency, add in bulk",
        )


def slots(server: Server) -> Iterator[Finding]:
    """Check that a cluster serves all its slots; queues in the others are blocked."""
    if server.info.get("cluster_enabled") != "1":
        return
    info = text(server.connection.execute(Call("CLUSTER", args=("INFO",)), repeatable=True))
    facts = dict(line.partition(":")[::2] for line in info.splitlines())
    if facts.get("cluster_state") != "ok" or facts.get("cluster_slots_ok") != "16384":
        yield problem(
            server.where,
            f"Of the cluster's 16,384 slots {facts.get('cluster_slots_ok')} are served; "
            f"its state is {facts.get('cluster_state')}",
            "queues of the missing slots can be neither read nor written",
            "bring the missing primaries back, or give their slots to others",
        )


SERVER_CHECKS = (rights, libraries, eviction, memory, persistence, replication, slots, clock, round_trip)
