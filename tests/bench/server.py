"""A server to measure against, and what it says it has done."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis

__all__ = ["Cost", "Meter", "server"]


@contextmanager
def server() -> Iterator[str]:
    """A real Valkey of its own process, with the append-only file on; yields its URL.

    The file is never rewritten: a rewrite takes a core for as long as it lasts, from whatever is measured then.
    """
    from tests.conftest import start_server  # takes a second, and a client needs no server

    with tempfile.TemporaryDirectory() as directory:
        socket = Path(directory) / "valkey.sock"
        kept = ("--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0")
        process = start_server(socket, *kept)
        try:
            yield f"unix://{socket}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(10)


@dataclass(frozen=True)
class Cost:
    """What one stretch of work cost.

    Attributes:
        seconds: Wall time.
        client_us: CPU of this process, microseconds.
        server_us: CPU of the server, microseconds.
        commands: Commands the server ran, those inside functions included.
        reads: How often the server read from a socket: many commands may come with one.
    """

    seconds: float
    client_us: float
    server_us: float
    commands: int
    reads: int

    def per_job(self, jobs: int) -> dict[str, float]:
        """The same for one job, with the rate."""
        return {
            "jobs_per_s": round(jobs / self.seconds),
            "client_us": round(self.client_us / jobs, 1),
            "server_us": round(self.server_us / jobs, 1),
            "commands": round(self.commands / jobs, 2),
            "reads": round(self.reads / jobs, 3),
        }


class Meter:
    """Reads the server's own books, and this process's clock and CPU."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url, decode_responses=True)
        self._began = self._books()

    def reset(self) -> None:
        """Empty the server and its statistics."""
        self._client.flushall()
        self._client.config_resetstat()

    def begin(self) -> None:
        """Measure from here."""
        self._began = self._books()

    def end(self) -> Cost:
        """What it cost since :meth:`begin`."""
        wall, client, cpu, calls, reads = (b - a for a, b in zip(self._began, self._books(), strict=True))
        return Cost(wall, client, cpu, int(calls), int(reads))

    def watch_slow_calls(self) -> None:
        """Keep a list of the calls that take the server a millisecond or more, from here."""
        self._client.config_set("slowlog-log-slower-than", 1000)
        self._client.config_set("slowlog-max-len", 10_000)
        self._client.slowlog_reset()

    def slowest_functions(self) -> dict[str, float]:
        """Milliseconds of the longest call of each function on that list, the longest first."""
        longest: dict[str, float] = {}
        for call in self._client.slowlog_get(10_000):
            command, *words = call["command"].decode(errors="replace").split(maxsplit=2)
            if command == "FCALL":
                longest[words[0]] = max(longest.get(words[0], 0), call["duration"] / 1000)
        return dict(sorted(longest.items(), key=lambda item: -item[1]))

    def transaction_ms(self) -> float:
        """Milliseconds of the transactions since :meth:`reset`, on average; the list of slow calls leaves them out."""
        stat = self._client.info("commandstats").get("cmdstat_exec")
        return float(stat["usec_per_call"]) / 1000 if stat else 0.0

    def connections(self) -> int:
        """How many clients are connected, this meter left out."""
        return int(self._client.info("clients")["connected_clients"]) - 1

    def _books(self) -> tuple[float, float, float, int, int]:
        info = self._client.info()
        calls = sum(int(stat["calls"]) for stat in self._client.info("commandstats").values())
        cpu = (float(info["used_cpu_user"]) + float(info["used_cpu_sys"])) * 1e6
        return (time.perf_counter(), time.process_time() * 1e6, cpu, calls, int(info["total_reads_processed"]))

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
