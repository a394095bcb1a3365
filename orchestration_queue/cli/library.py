"""`oq library`: the function libraries on the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from orchestration_queue.cli.common import JsonFlag, Url, show_json, show_table
from orchestration_queue.dialects.qless import commands as qless
from orchestration_queue.errors import UsageError
from orchestration_queue.protocol.call import text
from orchestration_queue.protocol.library import LIBRARIES, is_missing_function, next_step
from orchestration_queue.server import Connection, ServerUrl

__all__ = ["app"]

app = typer.Typer(help="Inspect and load the function libraries on the server.", no_args_is_help=True)


@app.command("dump")
def dump(
    name: Annotated[str, typer.Argument(help="The library's name.")] = "glidemq",
    script: Annotated[bool, typer.Option("--script", help="As a script for EVAL; only for qless.")] = False,
) -> None:
    """Print a library, for servers on which it is loaded by other means."""
    libraries = (*LIBRARIES, qless.LIBRARY)
    library = next((library for library in libraries if library.name == name), None)
    if library is None:
        names = ", ".join(library.name for library in libraries)
        raise UsageError(f"There is no library {name!r}; there are {names}.")
    if script and library is not qless.LIBRARY:
        raise UsageError(f"Library {name!r} is not available as a script; `oq library dump qless --script` is.")
    typer.echo(qless.script_text() if script else library.text, nl=False)


@app.command("status")
def status(url: Url = None, as_json: JsonFlag = False) -> None:
    """Compare the server's libraries, or those of each primary of a cluster, with this version's. Loads nothing."""
    with Connection.open(url, libraries=()) as connection:
        rows = [row for primary in connection.primaries() for row in _held_by(primary)]
    if as_json:
        show_json(rows)
    else:
        show_table(
            ("node", "library", "ours", "server", "on connect"),
            [[value or "-" for value in row.values()] for row in rows],
        )


@app.command("load")
def load(url: Url = None, as_json: JsonFlag = False) -> None:
    """Load the libraries where they are missing or older than this version's."""
    with Connection.open(url) as connection:
        for primary in connection.primaries():
            Connection.open(primary).close()
    status(url, as_json)


def _held_by(primary: ServerUrl) -> Iterator[dict[str, str | None]]:
    with Connection.open(primary, libraries=()) as connection:
        replies = connection.pipeline([library.ask for library in LIBRARIES])
    for library, reply in zip(LIBRARIES, replies, strict=True):
        if isinstance(reply, Exception) and not is_missing_function(str(reply)):
            raise reply
        theirs = None if isinstance(reply, Exception) else text(reply)
        yield {
            "node": str(primary),
            "library": library.name,
            "ours": library.version,
            "server": theirs,
            "on_connect": next_step(library.version, theirs).value,
        }
