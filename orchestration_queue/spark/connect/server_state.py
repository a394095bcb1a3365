"""The directory of a Spark Connect server, which its users and its supervisor share, and its published state.

::

    users.lock  keeper.lock  keeper.log     see orchestration_queue.server.embedded.server
    state.json                              where the server answers; there only while it does
    <process>/                           one server process, from its start to its end
        server.lock                         locked by the server itself: free means dead
        server.log  spark.properties  warehouse/  local/
        jobs                                a byte for each job it has had
        runs/<session>                      one for each job it has now, locked by the job's worker
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["JOBS", "LOG", "RUNS", "SERVER_LOCK", "ServerState", "read_state", "write_state"]

SERVER_LOCK = "server.lock"
LOG = "server.log"
JOBS = "jobs"
RUNS = "runs"
_STATE = "state.json"


@dataclass(frozen=True, slots=True)
class ServerState:
    """What the supervisor publishes to users.

    Attributes:
        process: Name of the directory of the server that answers.
        port: Its port on loopback.
        token: The secret that it requires.
        problem: Why no server can run; empty if one can.
    """

    process: str = ""
    port: int = 0
    token: str = ""
    problem: str = ""

    @property
    def url(self) -> str:
        """The address. With a token and any host except ``localhost``, PySpark would use TLS, and hang."""
        return f"sc://localhost:{self.port}/;token={self.token}"


def read_state(directory: Path) -> ServerState | None:
    """Return the server's state; None while no server answers."""
    try:
        return ServerState(**json.loads((directory / _STATE).read_text("utf-8")))
    except FileNotFoundError:
        return None


def write_state(directory: Path, state: ServerState | None) -> None:
    """Replace the server's state atomically."""
    if state is None:
        (directory / _STATE).unlink(missing_ok=True)
        return
    draft = directory / f"{_STATE}.new"
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(asdict(state)), "utf-8")
    draft.replace(directory / _STATE)
