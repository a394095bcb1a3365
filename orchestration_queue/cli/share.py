"""`oq share`: the part of a queue's starts that jobs of one share get."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestration_queue.cli.common import JsonFlag, Prefix, QueueName, Url, show_json, show_table
from orchestration_queue.cli.verbs import Done, known_queue, verb
from orchestration_queue.client import Queue
from orchestration_queue.protocol.keys import DEFAULT_PREFIX

__all__ = ["app"]

app = typer.Typer(help="Divide a queue's job starts fairly between tenants.", no_args_is_help=True)

ShareName = Annotated[str, typer.Argument(help="The share.")]


@app.command("ls")
def ls(queue: QueueName, url: Url = None, prefix: Prefix = DEFAULT_PREFIX, as_json: JsonFlag = False) -> None:
    """List the shares that have a weight or waiting jobs."""
    with known_queue(queue, url, prefix) as client:
        shares = client.shares.list()
    if as_json:
        show_json([{"name": share.name, "weight": share.weight, "waiting": share.waiting} for share in shares])
        return
    show_table(
        ("share", "weight", "waiting"), [(share.name, str(share.weight), str(share.waiting)) for share in shares]
    )


@verb(app, "set", may_create=True)
def set_(
    queue: Queue,
    name: ShareName,
    weight: Annotated[int, typer.Argument(help="Its weight, 1 to 1,000: 2 gets twice the starts of 1.")],
) -> Done:
    """Set the weight of a share."""
    queue.shares.set(name, weight)
    return Done(f"Share {name} of queue {queue.name} has weight {weight:,}.", {"name": name, "weight": weight})


@verb(app, "rm")
def rm(queue: Queue, name: ShareName) -> Done:
    """Reset the weight of a share to 1; its jobs are kept."""
    removed = queue.shares.remove(name)
    sentence = f"Share {name} has weight 1 again." if removed else f"Share {name} already had weight 1."
    return Done(sentence, {"name": name, "removed": removed})
