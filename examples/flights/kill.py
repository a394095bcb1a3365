"""Kills the scheduler leader, optionally while it processes a month."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

from examples.flights import settings
from examples.flights.fleet import Fleet
from orchestration_queue.flows import split_job_id
from orchestration_queue.protocol.call import Call, text, texts
from orchestration_queue.protocol.keys import GROUP, QueueKeys
from orchestration_queue.protocol.record import pairs
from orchestration_queue.server import Connection

__all__ = ["LeaderKiller", "find_leaders"]

_ALL = 10_000
_LOOK_EVERY_S = 0.01


def find_leaders(logs: Path) -> list[str]:
    """Return the worker that fired each run of the repeatable job, in order, as the workers' logs say."""
    fired = f"Schedule {settings.FRESHNESS} of queue {settings.QUEUE} fired job"
    lines = [
        (line, log.stem) for log in logs.glob("worker-*.log") for line in log.read_text().splitlines() if fired in line
    ]
    return [worker for _, worker in sorted(lines)]  # a line begins with its time


class LeaderKiller:
    """Kills the worker that fired the repeatable job last, once all tables are there or in the middle of a month.

    In a month, the worker is held (SIGSTOP) while we look a second time, so that the kill cannot fall between two jobs.

    Args:
        connection: The server.
        fleet: The demo's processes.
        logs: The directory of their logs.
    """

    def __init__(self, connection: Connection, fleet: Fleet, logs: Path) -> None:
        self._connection = connection
        self._keys = QueueKeys(settings.QUEUE)
        self._fleet = fleet
        self._logs = logs
        self._runs_before = 0
        self.victim = ""
        """The killed worker; empty before the kill."""
        self.lost_node = ""
        """The month that it was at; empty when it was at none."""

    @property
    def successor(self) -> str:
        """The worker that fired the repeatable job after the kill; empty before that."""
        after = [worker for worker in find_leaders(self._logs)[self._runs_before :] if worker != self.victim]
        return after[0] if self.victim and after else ""

    def kill(self) -> bool:
        """Kill the leader, whatever it is at; False before the first run of the schedule."""
        leaders = find_leaders(self._logs)
        if leaders:
            self._kill(leaders[-1], leaders)
        return bool(leaders)

    def watch(self, seconds: float) -> bool:
        """Wait for the moment, for so long; True when this call killed a worker. Some job must have run before."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            leaders = find_leaders(self._logs)
            if leaders and self._try(leaders[-1], leaders):
                return True
            time.sleep(_LOOK_EVERY_S)
        return False

    def _try(self, worker: str, leaders: list[str]) -> bool:
        if not self._month_at(worker):
            return False
        self._fleet.signal(worker, signal.SIGSTOP)
        self.lost_node = self._month_at(worker)
        if not self.lost_node:
            self._fleet.signal(worker, signal.SIGCONT)
            return False
        self._kill(worker, leaders)
        return True

    def _kill(self, worker: str, leaders: list[str]) -> None:
        self._fleet.signal(worker, signal.SIGKILL)
        self.victim, self._runs_before = worker, len(leaders)

    def _month_at(self, worker: str) -> str:
        """Return the month that the worker is at; empty when it is at none."""
        pending = Call("XPENDING", (self._keys.stream,), (GROUP, "-", "+", _ALL, self._consumer(worker)))
        for entry_id in (text(entry[0]) for entry in self._connection.execute(pending)):
            for _, fields in self._connection.execute(Call("XRANGE", (self._keys.stream,), (entry_id, entry_id))):
                _, node = split_job_id(pairs(fields)["jobId"]) or ("", "")
                if node in settings.MONTH_NODES.values():
                    return node
        return ""

    def _consumer(self, worker: str) -> str:
        """Find the name under which the worker takes jobs: its registration has its process id."""
        pattern = self._keys.worker("*")
        _, keys = self._connection.execute(Call("SCAN", args=("0", "MATCH", pattern, "COUNT", _ALL)))
        for key in texts(keys):
            described = self._connection.execute(Call("GET", (key,)))
            if described and json.loads(described)["pid"] == self._fleet.pid(worker):
                return key.removeprefix(pattern.removesuffix("*"))
        return "-"
