"""`oq queue`: which queues there are, and how full."""

from __future__ import annotations

from dataclasses import asdict

import typer

from orchestration_queue.cli.common import JsonFlag, Prefix, Url, show_json, show_table
from orchestration_queue.client import Queue
from orchestration_queue.protocol.keys import DEFAULT_PREFIX
from orchestration_queue.server import Connection

__all__ = ["app"]

app = typer.Typer(help="Queues.", no_args_is_help=True)


@app.callback()
def _noun() -> None:
    pass


@app.command("ls")
def ls(url: Url = None, prefix: Prefix = DEFAULT_PREFIX, as_json: JsonFlag = False) -> None:
    """List the queues, and how many jobs each has in which state."""
    with Connection.open(url) as connection:
        rows = []
        for name in Queue.names(connection=connection, prefix=prefix):
            queue = Queue(name, connection=connection, prefix=prefix)
            rows.append({"queue": name, **asdict(queue.counts()), "paused": queue.is_paused()})
    if as_json:
        show_json(rows)
        return
    show_table(
        ("queue", "waiting", "active", "delayed", "completed", "failed", "suspended", ""),
        [[str(value) for value in list(row.values())[:-1]] + ["paused" if row["paused"] else ""] for row in rows],
    )
