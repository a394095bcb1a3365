"""One address of a primary and its replica, as a managed service has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.saboteur import Saboteur
from tests.nodes import Node, Nodes

__all__ = ["Endpoint", "moving_endpoint"]


class Endpoint:
    """A primary with a replica, and one address for both: it leads to the primary until the replica is promoted."""

    def __init__(self, nodes: Nodes, directory: Path) -> None:
        self.primary = nodes.start()
        self.replica = nodes.start_replica(self.primary)
        self.proxy = Saboteur(_socket(self.primary), directory / "endpoint.sock")

    @property
    def url(self) -> str:
        return self.proxy.url

    def fail_over(self) -> None:
        """Promote the replica and demote the primary. Connections stay open, and so does where the address leads."""
        self.primary.ask("SET", "mark", "x")
        assert self.primary.ask("WAIT", 1, 60_000) == 1
        self.replica.ask("REPLICAOF", "NO", "ONE")
        self.primary.ask("REPLICAOF", "127.0.0.1", self.replica.port)

    def move(self) -> None:
        """Promote the replica, and lead new connections there."""
        self.fail_over()
        self.follow()

    def follow(self) -> None:
        """Lead new connections to the new primary."""
        self.proxy.move(_socket(self.replica))


def _socket(node: Node) -> Path:
    return Path(node.raw.connection_pool.connection_kwargs["path"])


@contextmanager
def moving_endpoint(directory: Path) -> Iterator[Endpoint]:
    """An endpoint whose servers end with the block."""
    with Nodes(directory) as nodes:
        endpoint = Endpoint(nodes, directory)
        with endpoint.proxy:
            yield endpoint
