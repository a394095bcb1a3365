"""`oq library`: the function libraries on the server."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestration_queue.cli.common import JsonFlag, Url, show_json, show_table
from orchestration_queue.errors import UsageError
from orchestration_queue.protocol.call import text
from orchestration_queue.protocol.library import LIBRARIES, is_missing_function, next_step
from orchestration_queue.server import Connection

__all__ = ["app"]

app = typer.Typer(help="The function libraries on the server.", no_args_is_help=True)


@app.command("dump")
def dump(name: Annotated[str, typer.Argument(help="The library's name.")] = "glidemq") -> None:
    """Print a library as this version would load it, for servers that we may not load into."""
    library = next((library for library in LIBRARIES if library.name == name), None)
    if library is None:
        names = ", ".join(library.name for library in LIBRARIES)
        raise UsageError(f"There is no library {name!r}; there are {names}.")
    typer.echo(library.text, nl=False)


@app.command("status")
def status(url: Url = None, as_json: JsonFlag = False) -> None:
    """Compare the server's libraries with ours. Loads nothing."""
    rows: list[dict[str, str | None]] = []
    with Connection.open(url, libraries=()) as connection:
        replies = connection.pipeline([library.ask for library in LIBRARIES])
    for library, reply in zip(LIBRARIES, replies, strict=True):
        if isinstance(reply, Exception) and not is_missing_function(str(reply)):
            raise reply
        theirs = None if isinstance(reply, Exception) else text(reply)
        step = next_step(library.version, theirs)
        rows.append({"library": library.name, "ours": library.version, "server": theirs, "on_connect": step.value})
    if as_json:
        show_json(rows)
    else:
        show_table(
            ("library", "ours", "server", "on connect"), [[value or "-" for value in row.values()] for row in rows]
        )
