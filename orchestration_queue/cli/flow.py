"""`oq flow`: look at flows, and steer them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from orchestration_queue.cli import drawing
from orchestration_queue.cli.common import (
    JsonFlag,
    Prefix,
    Url,
    Yes,
    ask,
    console,
    moment_text,
    show_fields,
    show_json,
    show_table,
    state_text,
    time_text,
)
from orchestration_queue.cli.verbs import Done, verb
from orchestration_queue.client import Flow, FlowNode, FlowProducer, FlowStatus, Queue
from orchestration_queue.client.flow_status import critical_path
from orchestration_queue.errors import StateError
from orchestration_queue.flows.stored import FlowState
from orchestration_queue.protocol.keys import DEFAULT_PREFIX

__all__ = ["app"]

app = typer.Typer(help="Flows.", no_args_is_help=True)

QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The flow's queue.")]
FlowId = Annotated[str, typer.Argument(metavar="FLOW_ID", help="The submission's id.")]

_WATCH_S = 1.0


@app.callback()
def _noun() -> None:
    pass


@contextmanager
def _flow(queue: str, flow_id: str, url: str | None, prefix: str) -> Iterator[Flow]:
    with Queue(queue, url=url, prefix=prefix) as client:
        yield client.flows.get(flow_id)


@app.command("ls")
def ls(
    queue: QueueName,
    state: Annotated[FlowState | None, typer.Option(help="Only flows in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Look at no more than so many, the newest.")] = 50,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """List a queue's flows, the newest first."""
    with Queue(queue, url=url, prefix=prefix) as client:
        flows = client.flows.list(state, limit=limit)
    if as_json:
        show_json([asdict(flow) for flow in flows])
        return
    show_table(
        ("flow", "name", "state", "nodes", "created", "finished"),
        [
            [
                escape(flow.id),
                escape(flow.name),
                state_text(flow.state) + (" [dim]paused[/]" if flow.is_paused and not flow.state.is_final else ""),
                str(flow.nodes),
                moment_text(flow.created_at),
                moment_text(flow.finished_at),
            ]
            for flow in flows
        ],
    )


@app.command("show")
def show(
    queue: QueueName, flow_id: FlowId, url: Url = None, prefix: Prefix = DEFAULT_PREFIX, as_json: JsonFlag = False
) -> None:
    """Show how a flow stands as a whole, and which chain of nodes took it so long."""
    with _flow(queue, flow_id, url, prefix) as flow:
        status, path = flow.status(), flow.critical_path()
    if as_json:
        shown = {**asdict(status), "percent": status.percent, "seconds": status.seconds}
        show_json({**shown, "critical_path": [node.name for node in path]})
        return
    show_fields(
        {
            "flow": escape(status.id),
            "name": escape(status.name),
            "state": state_text(status.state) + (" [dim]paused[/]" if status.is_paused else ""),
            "stopped": escape(status.stopped or ""),
            "nodes": ", ".join(f"{count} {state_text(name)}" for name, count in sorted(status.counts.items())),
            "ended": f"{status.percent:.0f} %",
            "started": time_text(status.started_at),
            "finished": time_text(status.finished_at),
            "took": drawing.span_text(status.seconds),
            "critical path": " → ".join(f"{escape(n.name)} ({drawing.span_text(n.seconds)})" for n in path),
        }
    )


@app.command("tree")
def tree(
    queue: QueueName,
    flow_id: FlowId,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print a Mermaid flowchart.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Draw again every second until the flow has ended.")] = False,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Draw a flow's nodes, how far each is, how long it waited and took, and the critical path."""
    with Queue(queue, url=url, prefix=prefix) as client:
        try:
            flow = client.flows.get(flow_id)
        except StateError:
            # Libraries that write no record leave only the jobs, which are found by their ids.
            with FlowProducer(url=url, prefix=prefix) as flows:
                nodes, status = flows.tree(queue, flow_id), None
        else:
            nodes, status = flow.tree(), flow.status()
            if watch and not (as_json or mermaid):
                _watch(flow)
                return
    if as_json:
        show_json([node.to_dict() for node in nodes])
    elif mermaid:
        typer.echo(drawing.mermaid(nodes))
    else:
        console().print(_drawn(nodes, status))


def _drawn(nodes: list[FlowNode], status: FlowStatus | None) -> RenderableType:
    path = critical_path(nodes)
    drawn = drawing.graph(nodes, {node.name for node in path})
    if status is None:
        return drawn
    took = f", took {drawing.span_text(status.seconds)}" if status.seconds is not None else ""
    paused = ", paused" if status.is_paused and not status.state.is_final else ""
    stopped = f", {escape(status.stopped)}" if status.stopped not in (None, status.state) else ""
    title = f"[bold]{escape(status.id)}[/]  {state_text(status.state)}{paused}{stopped}, {status.percent:.0f} %{took}"
    legend = Text.from_markup("[yellow]┃[/] [dim]critical path[/]") if path else Text("")
    return Group(Text.from_markup(title), Text(""), drawn, legend)


def _watch(flow: Flow) -> None:
    """Draw until the flow has ended."""
    with Live(console=Console(), auto_refresh=False) as live:
        while True:
            status = flow.status()
            live.update(_drawn(flow.tree(), status), refresh=True)
            if status.state.is_final:
                return
            time.sleep(_WATCH_S)


@app.command("retry")
def retry(
    queue: QueueName, flow_id: FlowId, url: Url = None, prefix: Prefix = DEFAULT_PREFIX, as_json: JsonFlag = False
) -> None:
    """Let the failed nodes run again, and those that did not run because of them."""
    with _flow(queue, flow_id, url, prefix) as flow:
        names = flow.retry()
    if as_json:
        show_json(names)
    else:
        typer.echo(_told(names, "runs again", "run again", f"No node of flow {flow_id} has failed."))


@app.command("cancel")
def cancel(
    queue: QueueName,
    flow_id: FlowId,
    reason: Annotated[str, typer.Option(help="Why, for those who look at it later.")] = "cancelled",
    yes: Yes = False,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Withdraw everything of a flow that has not finished; what runs is stopped."""
    with _flow(queue, flow_id, url, prefix) as flow:
        ask(yes, f"Cancel flow {flow_id}?")
        names = flow.cancel(reason)
    if as_json:
        show_json(names)
    else:
        typer.echo(_told(names, "is withdrawn", "are withdrawn", f"All nodes of flow {flow_id} had finished."))


@verb(app, "pause")
def _pause(client: Queue, flow_id: FlowId) -> Done:
    """Start no more nodes of those that wait for others; what is ready or runs goes on."""
    client.flows.get(flow_id).pause()
    then = f"let it go on with `oq flow resume {client.name} {flow_id}`"
    return Done(f"Flow {flow_id} is paused; {then}.", {"id": flow_id, "paused": True})


@verb(app, "resume")
def _resume(client: Queue, flow_id: FlowId) -> Done:
    """Let a paused flow go on."""
    client.flows.get(flow_id).resume()
    return Done(f"Flow {flow_id} goes on.", {"id": flow_id, "paused": False})


@verb(app, "rm")
def _rm(client: Queue, flow_id: FlowId, yes: Yes = False) -> Done:
    """Remove a flow that does not run: all its jobs, and its record."""
    flow = client.flows.get(flow_id)
    ask(yes, f"Remove flow {flow_id} with all its jobs?")
    flow.remove()
    return Done(f"Flow {flow_id} is removed.", {"id": flow_id, "removed": True})


def _told(names: list[str], one: str, many: str, none: str) -> str:
    if not names:
        return none
    rest = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{', '.join(names[:5])}{rest} {one if len(names) == 1 else many}."
