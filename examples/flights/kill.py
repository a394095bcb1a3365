"""Kills one worker in the middle of a month."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Sequence

from examples.flights import settings
from examples.flights.fleet import Fleet
from orchestration_queue.flows import split_job_id
from orchestration_queue.protocol.call import Call, text, texts
from orchestration_queue.protocol.keys import GROUP, QueueKeys
from orchestration_queue.protocol.record import pairs
from orchestration_queue.server import Connection

__all__ = ["WorkerKiller"]

_ALL = 10_000
_LOOK_EVERY_S = 0.01


class WorkerKiller:
    """Waits until a worker is at work on a month, and kills it then.

    The worker is held (SIGSTOP) while we look a second time, so that the kill cannot fall between two jobs.

    Args:
        connection: The server.
        fleet: The demo's processes.
        workers: The workers' names among them.
    """

    def __init__(self, connection: Connection, fleet: Fleet, workers: Sequence[str]) -> None:
        self._connection = connection
        self._keys = QueueKeys(settings.QUEUE)
        self._fleet = fleet
        self._workers = workers
        self.victim = ""
        """The killed worker; empty before the kill."""
        self.lost_node = ""
        """The month that it was at."""

    def watch(self, seconds: float) -> bool:
        """Wait for the moment, for so long; True when this call killed a worker. Some job must have run before."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not self.victim and any(self._try(worker) for worker in self._workers):
                return True
            time.sleep(_LOOK_EVERY_S)
        return False

    def _try(self, worker: str) -> bool:
        if not self._month_at(worker):
            return False
        self._fleet.signal(worker, signal.SIGSTOP)
        self.lost_node = self._month_at(worker)
        if not self.lost_node:
            self._fleet.signal(worker, signal.SIGCONT)
            return False
        self._fleet.signal(worker, signal.SIGKILL)
        self.victim = worker
        return True

    def _month_at(self, worker: str) -> str:
        """The month that the worker has in its hands; empty when it has none."""
        pending = Call("XPENDING", (self._keys.stream,), (GROUP, "-", "+", _ALL, self._consumer(worker)))
        for entry_id in (text(entry[0]) for entry in self._connection.execute(pending)):
            for _, fields in self._connection.execute(Call("XRANGE", (self._keys.stream,), (entry_id, entry_id))):
                _, node = split_job_id(pairs(fields)["jobId"]) or ("", "")
                if node in settings.MONTH_NODES.values():
                    return node
        return ""

    def _consumer(self, worker: str) -> str:
        """The name under which the worker takes jobs: its registration tells its process id."""
        pattern = self._keys.worker("*")
        _, keys = self._connection.execute(Call("SCAN", args=("0", "MATCH", pattern, "COUNT", _ALL)))
        for key in texts(keys):
            described = self._connection.execute(Call("GET", (key,)))
            if described and json.loads(described)["pid"] == self._fleet.pid(worker):
                return key.removeprefix(pattern.removesuffix("*"))
        return "-"
