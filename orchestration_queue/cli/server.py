"""`oq server` and `oq library`: the embedded server, and the function libraries on any server."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestration_queue.cli.common import (
    JsonFlag,
    Prefix,
    Url,
    moment_text,
    report,
    show_fields,
    show_json,
    show_table,
)
from orchestration_queue.client import Queue
from orchestration_queue.doctor.libraries import BUNDLED, Owner, read_libraries
from orchestration_queue.doctor.server import Server
from orchestration_queue.errors import TransportError, UsageError
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.protocol.library import LIBRARIES, Library
from orchestration_queue.server import Connection, ServerUrl, parse_url
from orchestration_queue.server.embedded.server import (
    explained,
    has_supervisor,
    is_pinned,
    is_used,
    pin,
    socket_path,
    unpin,
)

__all__ = ["app", "library_app"]

_NOT_RUNNING = 3
_LONGEST_END_S = 15.0
"""A supervisor gives its server 10 s to end by itself."""
_POLL_S = 0.05
app = typer.Typer(help="Run the embedded server in the background.", no_args_is_help=True)
library_app = typer.Typer(help="Inspect and load the function libraries on the server.", no_args_is_help=True)


@app.command("start")
def start(url: Url = None, as_json: JsonFlag = False) -> None:
    """Start the embedded server and keep it running until `oq server stop`."""
    place = _parse_embedded(url)
    # Pinned while this connection uses it, so that its supervisor can't leave in between.
    with Connection.open(place) as connection, explained(place.path):
        was_kept = is_pinned(place.path)
        pin(place.path)
        facts = _facts(place, connection)
    again = "was kept running already" if was_kept else "is kept running"
    report(
        as_json, f"The server in {place.path} {again} (process {facts['pid']}); end it with `oq server stop`.", **facts
    )


@app.command("stop")
def stop(url: Url = None, as_json: JsonFlag = False) -> None:
    """Stop keeping the embedded server: it exits now, or with its last user."""
    place = _parse_embedded(url)
    with explained(place.path):
        was_running = has_supervisor(place.path)
        unpin(place.path)
        is_running = was_running and not _has_ended(place.path)
    sentence = (
        f"The server in {place.path} is in use; it ends with the last process that uses it."
        if is_running
        else f"The server in {place.path} has ended."
        if was_running
        else f"No server runs in {place.path}."
    )
    report(as_json, sentence, directory=str(place.path), was_running=was_running, running=is_running)


@app.command("status")
def status(url: Url = None, prefix: Prefix = DEFAULT_PREFIX, as_json: JsonFlag = False) -> None:
    """Show the embedded server's state; exit with code 3 if it is not running."""
    place = _parse_embedded(url)
    with explained(place.path):
        is_running = has_supervisor(place.path)
    if not is_running:
        report(
            as_json, f"No server runs in {place.path}; see `oq server start`.", running=False, directory=str(place.path)
        )
        raise typer.Exit(_NOT_RUNNING)
    with Connection.open(place, libraries=()) as connection:
        facts = _facts(place, connection) | {"jobs": _jobs(connection, prefix)}
    if as_json:
        show_json(facts)
    else:
        show_fields(_lines(facts))


def _parse_embedded(url: str | None) -> ServerUrl:
    place = parse_url(url)
    if place.kind != "embedded":
        raise UsageError(
            f"The server {place} is not an embedded one, so `oq server` can't start or stop it; name a directory, "
            "like `--url embedded://.oq`, or check it with `oq doctor`."
        )
    return place


def _has_ended(directory: Path) -> bool:
    """Wait until an unused server has ended; return False as soon as a client uses it.

    Raises:
        TransportError: It takes longer than a server may take.
    """
    deadline = time.monotonic() + _LONGEST_END_S
    while has_supervisor(directory):
        if is_used(directory):
            return False
        if time.monotonic() > deadline:
            raise TransportError(
                f"The server in {directory} has not ended within {_LONGEST_END_S:g} s, though no client uses it; "
                f"{directory / 'supervisor.log'} holds its log.",
                maybe_applied=True,
            )
        time.sleep(_POLL_S)
    return True


def _facts(place: ServerUrl, connection: Connection) -> dict[str, Any]:
    info = Server.inspect(place, connection).info
    return {
        "running": True,
        "kept": is_pinned(place.path),
        "directory": str(place.path),
        "socket": str(socket_path(place.path)),
        "pid": int(info["process_id"]),
        "since": datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=int(info["uptime_in_seconds"])),
        "memory_bytes": int(info["used_memory"]),
    }


def _jobs(connection: Connection, prefix: str) -> dict[str, int]:
    """Count the jobs of all queues together in each state."""
    jobs: Counter[str] = Counter()
    for name in Queue.names(connection=connection, prefix=prefix):
        jobs.update(asdict(Queue(name, connection=connection, prefix=prefix).counts()))
    return dict(jobs)


def _lines(facts: Mapping[str, Any]) -> dict[str, str]:
    jobs = ", ".join(f"{count} {state}" for state, count in facts["jobs"].items() if count)
    return {
        "directory": facts["directory"],
        "socket": facts["socket"],
        "pid": str(facts["pid"]),
        "since": moment_text(facts["since"]),
        "memory": f"{facts['memory_bytes'] / 1024**2:.1f} MiB",
        "jobs": jobs or "none",
        "kept": "until `oq server stop`" if facts["kept"] else "while it is used",
    }


@library_app.command("dump")
def dump_library(
    name: Annotated[str, typer.Argument(help="The library's name.")] = "glidemq",
) -> None:
    """Print a library, for servers on which it is loaded by other means."""
    typer.echo(_find_library(name).text, nl=False)


def _find_library(name: str) -> Library:
    """Return the library of this package with this name.

    Raises:
        UsageError: It has none.
    """
    for library in BUNDLED:
        if library.name == name:
            return library
    names = ", ".join(library.name for library in BUNDLED)
    raise UsageError(f"Library {name!r} is unknown; use one of {names}.")


@library_app.command("status")
def library_status(url: Url = None, as_json: JsonFlag = False) -> None:
    """Show which libraries each primary has, whose they are, and what connecting changes. Loads nothing.

    `loaded by` is `orchestration_queue` (a release of this package), `glide-mq`, or `unknown`. `on connect` is what a
    client or worker of this release does: `keep`, `load`, or `replace` an older text of this package.
    """
    with Connection.open(url, libraries=()) as connection:
        rows = [row for primary in connection.primaries() for row in _rows(primary)]
    if as_json:
        show_json(rows)
    else:
        show_table(
            ("node", "library", "ours", "server", "loaded by", "on connect"),
            [[value or "-" for value in row.values()] for row in rows],
        )


@library_app.command("load")
def load_library(
    names: Annotated[list[str] | None, typer.Argument(help="Load those of these wires, too.")] = None,
    url: Url = None,
    foreign: Annotated[
        bool, typer.Option("--foreign", help="Replace glide-mq's own `glidemq`, too, and texts of unknown origin.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Load the libraries where they are missing or of an older release, then show their status.

    Those of other wires are loaded where the server has older ones, or if you name them.
    """
    wanted = (*LIBRARIES, *map(_find_library, names or ()))
    with Connection.open(url, libraries=()) as connection:
        for primary in connection.primaries():
            with Connection.open(primary, libraries=wanted) as node:
                loaded = read_libraries(node)
                for each in loaded if foreign else ():
                    if each.owner is not Owner.OURS:
                        node.execute(each.library.load(replace=True))
            Connection.open(primary, libraries=[each.library for each in loaded]).close()
    library_status(url, as_json)


def _rows(primary: ServerUrl) -> Iterator[dict[str, str | None]]:
    with Connection.open(primary, libraries=()) as connection:
        for each in read_libraries(connection):
            yield {
                "node": str(primary),
                "library": each.library.name,
                "ours": each.library.version,
                "server": each.version,
                "loaded_by": each.owner and each.owner.value,
                "on_connect": each.step.value,
            }
