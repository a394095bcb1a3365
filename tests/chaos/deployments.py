"""What the campaign runs on, and what can happen to it: one server, a sentinel's pair, a cluster of 3+3."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import redis

from tests.chaos.saboteur import Saboteur
from tests.conftest import start_server
from tests.nodes import Cluster, Node, Nodes
from tests.waiting import wait_until_sync

__all__ = ["DEPLOYMENTS", "Deployment", "Fault"]

OUTAGE_S = 3.0


@dataclass(frozen=True)
class Fault:
    """What can happen to a server.

    Attributes:
        bring: Brings it about once, and returns when it is over.
        may_double: Whether the guarantees let jobs run twice because of it.
    """

    bring: Callable[[], object]
    may_double: bool = False


class Deployment:
    """Servers, their URL, and their faults by name."""

    name: ClassVar[str]
    queues: list[str]
    url: str
    faults: dict[str, Fault]

    def close(self) -> None:
        """End all servers."""


class Single(Deployment):
    """One server with an append-only file, behind a saboteur."""

    name = "single"

    def __init__(self, folder: Path, fsync: str = "everysec") -> None:
        self._fsync = fsync
        self._folder, self._socket = folder, folder / "valkey.sock"
        self._start()
        self._saboteur = Saboteur(self._socket, folder / "saboteur.sock").__enter__()
        self.url, self.queues = self._saboteur.url, ["q"]
        self.faults = {
            "server killed": Fault(self._kill),
            "server stalls": Fault(self._stop),
            "connections cut": Fault(self._cut),
            "replies lost": Fault(self._lose),
            "server full": Fault(self._fill),
        }

    def _start(self) -> None:
        settings = ("--appendonly", "yes", "--appendfsync", self._fsync, "--dir", str(self._folder))
        self._process: subprocess.Popen[bytes] = start_server(self._socket, *settings)
        self._raw = redis.Redis(unix_socket_path=str(self._socket))
        wait_until_sync(lambda: not self._raw.info("persistence")["loading"], "the file to be loaded")

    def _kill(self) -> None:
        self._process.kill()
        self._process.wait(60)
        time.sleep(OUTAGE_S)
        self._start()

    def _stop(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        time.sleep(OUTAGE_S)
        self._process.send_signal(signal.SIGCONT)

    def _cut(self) -> None:
        for _ in range(10):
            self._raw.client_kill_filter(_type="normal", skipme=True)
            time.sleep(OUTAGE_S / 10)

    def _lose(self) -> None:
        self._saboteur.lose_replies("FCALL", every=50)
        time.sleep(OUTAGE_S)
        self._saboteur.relent()

    def _fill(self) -> None:
        self._raw.config_set("maxmemory", 1)
        time.sleep(OUTAGE_S)
        self._raw.config_set("maxmemory", 0)

    def close(self) -> None:
        self._saboteur.__exit__(None, None, None)
        self._process.kill()
        self._process.wait(60)


class Sentinel(Deployment):
    """A primary and its replica, watched by a sentinel."""

    name = "sentinel"

    def __init__(self, folder: Path) -> None:
        self._nodes = Nodes(folder)
        self._primary = self._nodes.start()
        self._replica = self._nodes.start_replica(self._primary)
        self._sentinel = self._nodes.start_sentinel("oq", self._primary)
        self.url, self.queues = f"redis+sentinel://127.0.0.1:{self._sentinel.port}/oq", ["q"]
        self.faults = {
            "planned failover": Fault(self._fail_over),
            "primary killed": Fault(self._kill, may_double=True),
        }

    def _swap(self) -> None:
        wait_until_sync(lambda: _role(self._replica) == "master", "the replica to take over")
        self._primary, self._replica = self._replica, self._primary

    def _fail_over(self) -> None:
        def is_accepted() -> bool:
            with suppress(redis.ResponseError):
                return bool(self._sentinel.ask("SENTINEL", "FAILOVER", "oq"))
            return False

        wait_until_sync(is_accepted, "the sentinel to begin a failover")
        self._swap()
        wait_until_sync(lambda: _is_replica(self._replica), "the old primary to follow the new one")

    def _kill(self) -> None:
        self._primary.kill()
        self._swap()
        self._replica = self._nodes.start_replica(self._primary)

    def close(self) -> None:
        self._nodes.__exit__(None, None, None)


class Clustered(Deployment):
    """Three primaries with a replica each, and a queue on each of them."""

    name = "cluster"

    def __init__(self, folder: Path) -> None:
        self._nodes = Nodes(folder)
        self._cluster: Cluster = self._nodes.start_cluster(3)
        self._pairs = [(node, self._nodes.join_replica(self._cluster, node)) for node in tuple(self._cluster.nodes)]
        self.queues = [self._cluster.queue_on(primary, "q") for primary, _ in self._pairs]
        self.url = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self._cluster.nodes)
        self._moves = 0
        self.faults = {
            "planned failover": Fault(self._fail_over),
            "primary killed": Fault(self._kill, may_double=True),
            "slot moved": Fault(self._move),
        }

    def _fail_over(self, *how: str) -> tuple[Node, Node]:
        """Promote a primary's replica; returns the old primary and the new one."""
        primary, replica = self._pairs.pop(0)
        replica.ask("CLUSTER", "FAILOVER", *how)
        wait_until_sync(lambda: _role(replica) == "master", "the replica to take over")
        if not how:
            wait_until_sync(lambda: _is_replica(primary), "the old primary to follow the new one")
            self._pairs.append((replica, primary))
        return primary, replica

    def _kill(self) -> None:
        primary = self._pairs[0][0]
        lost, cluster = primary.id, self._cluster
        primary.kill()
        _, promoted = self._fail_over("TAKEOVER")
        cluster.nodes.remove(primary)
        for node in cluster.nodes:
            node.ask("CLUSTER", "FORGET", lost)
        self._pairs.append((promoted, self._nodes.join_replica(cluster, promoted)))

    def _move(self) -> None:
        queue = self.queues[self._moves % 3]
        owner = self._cluster.owner(queue)
        others = [primary for primary, _ in self._pairs if primary is not owner]
        self._cluster.move(queue, others[self._moves % len(others)])
        self._moves += 1

    def close(self) -> None:
        self._nodes.__exit__(None, None, None)


def _role(node: Node) -> str:
    return str(node.raw.info("replication")["role"])


def _is_replica(node: Node) -> bool:
    found = node.raw.info("replication")
    return bool(found["role"] == "slave" and found["master_link_status"] == "up")


DEPLOYMENTS: dict[str, Callable[[Path], Deployment]] = {each.name: each for each in (Single, Sentinel, Clustered)}
