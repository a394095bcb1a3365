"""Where Spark Connect servers answer: addresses as PySpark reads them, and the published state of a server of ours.

An address is ``sc://host:port/;name=value``. A server on this machine has a directory, which its users and its
supervisor share::

    users.lock  keeper.lock  keeper.log     see orchestration_queue.server.embedded.server
    state.json                              where the server answers; exists only while it does
    <process>/                              one server process, from its start to its end
        server.lock                         locked by the server itself: free means dead
        server.log  spark.properties  warehouse/  local/
        jobs                                a byte for each job it has had
        runs/<session>                      one for each job it has now, locked by the job's worker

Nothing here imports PySpark.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from orchestration_queue.errors import InvalidOptionError

__all__ = [
    "DEFAULT_USER",
    "JOBS",
    "LOG",
    "RUNS",
    "SERVER_LOCK",
    "ServerState",
    "check_address",
    "place",
    "read_state",
    "write_state",
]

DEFAULT_USER = "orchestration-queue"
"""The user of our sessions: the same in all processes, or a retry could not find the session of an earlier attempt."""

# PySpark's default, too.
_DEFAULT_PORT = 15002


def check_address(url: str) -> str:
    """Return the address, if PySpark can connect to it.

    Raises:
        InvalidOptionError: It is invalid, or would make PySpark hang.
    """
    if not isinstance(url, str):
        raise InvalidOptionError(f"`url` must be a string, got {url!r}; pass 'sc://host:15002'.")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    if parts.scheme != "sc" or not parts.hostname or parts.path.partition(";")[0] not in ("", "/"):
        raise InvalidOptionError(
            f"`url` must be the address of a Spark Connect server, got {_hide_token(url)!r}; pass 'sc://host:15002'."
        )
    given = parameters(url)
    if "session_id" in given:
        raise InvalidOptionError(
            f"`url` must not name a session, because each job has its own, got {_hide_token(url)!r}; remove session_id."
        )
    # With a token, PySpark uses TLS unless the host is 'localhost', and then waits forever for a server without TLS.
    if "token" in given and parts.hostname in ("127.0.0.1", "::1") and given.get("use_ssl") != "true":
        raise InvalidOptionError(
            f"`url` {_hide_token(url)!r} has a token, for which PySpark uses TLS unless the host is 'localhost'; "
            "replace the host by 'localhost', or add use_ssl=true."
        )
    return url


def parameters(url: str) -> dict[str, str]:
    """Return the parameters of an address: ``use_ssl``, ``token``, ``user_id``."""
    words = urlsplit(url).path.partition(";")[2].split(";")
    return {name: value for name, _, value in (word.partition("=") for word in words if word)}


def place(url: str) -> str:
    """Return host and port: the part of an address that may be shown and stored."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or _DEFAULT_PORT}"


def _hide_token(url: str) -> str:
    return url.partition(";")[0]


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
