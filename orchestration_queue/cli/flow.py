"""`oq flow`: look at a flow."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from orchestration_queue.cli.common import JsonFlag, Prefix, Url, seconds_text, show_json, show_table, state_text
from orchestration_queue.client import FlowNode, FlowProducer
from orchestration_queue.protocol.keys import DEFAULT_PREFIX

__all__ = ["app", "show_nodes"]

app = typer.Typer(help="Flows.", no_args_is_help=True)


@app.callback()
def _noun() -> None:
    pass


@app.command("tree")
def tree(
    queue: Annotated[str, typer.Argument(help="The flow's queue.")],
    flow_id: Annotated[str, typer.Argument(help="The submission's id.")],
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Show a flow's nodes, how far each is, and how long it took."""
    with FlowProducer(url=url, prefix=prefix) as flows:
        nodes = flows.tree(queue, flow_id)
    if as_json:
        show_json([node.to_dict() for node in nodes])
    else:
        show_nodes(nodes)


def show_nodes(nodes: list[FlowNode]) -> None:
    """Print nodes as a table in which dependents stand to the right of what they wait for."""
    show_table(
        ("node", "state", "seconds", "attempts", "waits for", "reason"),
        [
            [
                escape("  " * node.depth + node.name),
                state_text(node.state),
                seconds_text(node.seconds),
                str(node.attempts),
                escape(", ".join(node.deps)),
                escape(node.failed_reason or ""),
            ]
            for node in nodes
        ],
    )
