"""Kills one worker in the middle of a month."""

from __future__ import annotations

import json
import signal

from examples.flights import settings
from examples.flights.fleet import Fleet
from examples.flights.watch import Snapshot
from orchestration_queue.flows import split_job_id
from orchestration_queue.protocol.call import Call, text, texts
from orchestration_queue.protocol.keys import GROUP, QueueKeys
from orchestration_queue.protocol.record import pairs
from orchestration_queue.server import Connection

__all__ = ["WorkerKiller"]

_ALL = 1000


class WorkerKiller:
    """Waits until a worker is at work on a month, and kills it then.

    The worker is held (SIGSTOP) while we look whether it really has a month in its hands, so that the kill cannot
    fall between two jobs.

    Args:
        connection: The server.
        fleet: The demo's processes.
        victim: The worker's name among them.
    """

    def __init__(self, connection: Connection, fleet: Fleet, victim: str) -> None:
        self._connection = connection
        self._keys = QueueKeys(settings.QUEUE)
        self._fleet = fleet
        self._victim = victim
        self.lost_node = ""
        """The month that the killed worker was at; empty before the kill."""

    def try_once(self, snapshot: Snapshot) -> bool:
        """Kill it if the moment has come; True when this call did."""
        months = [snapshot.node(name) for name in settings.MONTH_NODES.values()]
        if self.lost_node or not any(month.is_done for month in months):
            return False
        self._fleet.signal(self._victim, signal.SIGSTOP)
        self.lost_node = self._month_in_hand()
        self._fleet.signal(self._victim, signal.SIGKILL if self.lost_node else signal.SIGCONT)
        return bool(self.lost_node)

    def _month_in_hand(self) -> str:
        """The month that the worker holds; empty when it holds none."""
        pending = Call("XPENDING", (self._keys.stream,), (GROUP, "-", "+", _ALL, self._consumer()))
        for entry_id in (text(entry[0]) for entry in self._connection.execute(pending)):
            entries = self._connection.execute(Call("XRANGE", (self._keys.stream,), (entry_id, entry_id)))
            for _, fields in entries:
                _, node = split_job_id(pairs(fields)["jobId"]) or ("", "")
                if node in settings.MONTH_NODES.values():
                    return node
        return ""

    def _consumer(self) -> str:
        """The name under which the worker takes jobs: its registration tells its process id."""
        pid = self._fleet.pid(self._victim)
        pattern = self._keys.worker("*")
        _, keys = self._connection.execute(Call("SCAN", args=("0", "MATCH", pattern, "COUNT", 1_000_000)))
        for key in texts(keys):
            described = self._connection.execute(Call("GET", (key,)))
            if described and json.loads(described)["pid"] == pid:
                return key.removeprefix(pattern.removesuffix("*"))
        return "-"
