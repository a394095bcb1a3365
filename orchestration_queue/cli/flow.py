"""`oq flow`: submit, show and control flows."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
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
from orchestration_queue.cli.flow_runs import runs
from orchestration_queue.cli.targets import find_object
from orchestration_queue.cli.text import dump, print_line, styled
from orchestration_queue.cli.verbs import Done, open_queue, verb
from orchestration_queue.client import Flow, FlowNode, FlowProducer, Flows, FlowStatus, Queue
from orchestration_queue.client.flow_status import critical_path
from orchestration_queue.errors import StateError, UsageError
from orchestration_queue.flows import Dag, plan
from orchestration_queue.flows.stored import FlowState
from orchestration_queue.protocol.keys import DEFAULT_PREFIX

__all__ = ["app", "find_dag"]

app = typer.Typer(help="Submit, inspect, retry, cancel and pause flows.", no_args_is_help=True)
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The flow's queue.")]
FlowId = Annotated[str, typer.Argument(metavar="FLOW_ID", help="The submission's id.")]
_WATCH_S = 1.0
Carrier = Annotated[plan.Carrier | None, typer.Option(help="How the calls are sent; default depends on the graph.")]
Target = Annotated[str, typer.Argument(metavar="MODULE:DAG", help="The graph, as module:dag or file.py:dag.")]


@app.callback()
def _noun() -> None:
    pass


@contextmanager
def _flow(queue: str, flow_id: str, url: str | None, prefix: str) -> Iterator[Flow]:
    with open_queue(queue, url, prefix) as client:
        yield client.flows.get(flow_id)


@app.command("ls")
def ls(
    queue: QueueName,
    state: Annotated[FlowState | None, typer.Option(help="Only flows in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of flows, the newest.")] = 50,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """List a queue's flows, the newest first."""
    with open_queue(queue, url, prefix) as client:
        flows = client.flows.list(state, limit=limit)
    if as_json:
        show_json([asdict(flow) for flow in flows])
        return
    show_table(
        ("flow", "name", "state", "nodes", "created", "finished"),
        [
            [
                flow.id,
                flow.name,
                _state(flow.state, is_paused=flow.is_paused and not flow.state.is_final),
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
    """Show a flow's state and progress, and its critical path."""
    with _flow(queue, flow_id, url, prefix) as flow:
        status, path = flow.status(), flow.critical_path()
    if as_json:
        shown = {**asdict(status), "percent": status.percent, "seconds": status.seconds}
        show_json({**shown, "critical_path": [node.name for node in path]})
        return
    show_fields(
        {
            "flow": status.id,
            "name": status.name,
            "state": _state(status.state, is_paused=status.is_paused),
            "stopped": status.stopped,
            "nodes": Text(", ").join(
                Text.assemble(f"{count} ", state_text(name)) for name, count in sorted(status.counts.items())
            ),
            "ended": f"{status.percent:.0f} %",
            "started": time_text(status.started_at),
            "finished": time_text(status.finished_at),
            "took": drawing.span_text(status.seconds),
            "critical path": " → ".join(f"{n.name} ({drawing.span_text(n.seconds)})" for n in path),
        }
    )


@app.command("why")
def why(
    queue: QueueName, flow_id: FlowId, url: Url = None, prefix: Prefix = DEFAULT_PREFIX, as_json: JsonFlag = False
) -> None:
    """Explain why a flow is where it is: which nodes hold it up, and why, or which failed."""
    with _flow(queue, flow_id, url, prefix) as flow:
        found = flow.explain()
    if as_json:
        show_json({"queue": queue, **asdict(found)})
        return
    print_line(f"{flow_id} is {found.state}. {found.sentence}")
    if found.action:
        print_line(f"What to do: {found.action}.")


@app.command("tree")
def tree(
    queue: QueueName,
    flow_id: FlowId,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print a Mermaid flowchart.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Redraw every second until the flow has finished.")] = False,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Draw a flow's graph, with states, waiting and running times, and the critical path."""
    with open_queue(queue, url, prefix) as client:
        try:
            flow = client.flows.get(flow_id)
        except StateError:
            # Libraries that write no record leave only the jobs, which are found by their ids.
            with FlowProducer(url=url, prefix=prefix) as flows:
                nodes, status = flows.tree(queue, flow_id), None
        else:
            nodes, status = flow.tree(), flow.status()
            if watch and not (as_json or mermaid):
                _watch(flow, client.flows)
                return
    if as_json:
        show_json([node.to_dict() for node in nodes])
    elif mermaid:
        print_line(drawing.mermaid(nodes), lines=True)
    else:
        console().print(_draw(nodes, status))


def _draw(nodes: list[FlowNode], status: FlowStatus | None) -> RenderableType:
    path = critical_path(nodes)
    drawn = drawing.graph(nodes, {node.name for node in path})
    if status is None:
        return drawn
    took = f", took {drawing.span_text(status.seconds)}" if status.seconds is not None else ""
    paused = ", paused" if status.is_paused and not status.state.is_final else ""
    stopped = f", {status.stopped}" if status.stopped not in (None, status.state) else ""
    rest = styled(f"{paused}{stopped}, {status.percent:.0f} %{took}")
    title = Text.assemble(styled(status.id, "bold"), "  ", state_text(status.state), rest)
    legend = Text.assemble(("┃", "yellow"), (" critical path", "dim")) if path else Text("")
    return Group(title, Text(""), drawn, legend)


def _state(state: FlowState, *, is_paused: bool) -> Text:
    return Text.assemble(state_text(state), (" paused" if is_paused else "", "dim"))


def _watch(flow: Flow, flows: Flows) -> None:
    """Draw until the flow has ended."""
    with Live(console=Console(), auto_refresh=False) as live:
        while True:
            flows.reconcile()
            status = flow.status()
            live.update(_draw(flow.tree(), status), refresh=True)
            if status.state.is_final:
                return
            time.sleep(_WATCH_S)


@app.command("keep")
def keep(
    queue: QueueName,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between rounds.")] = 5.0,
    once: Annotated[bool, typer.Option("--once", help="Run once and exit.")] = False,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
) -> None:
    """Reconcile the queue's flows until interrupted: for a queue that no worker of this package serves."""
    with open_queue(queue, url, prefix) as client:
        while True:
            client.flows.reconcile()
            if once:
                return
            time.sleep(interval)


@app.command("retry")
def retry(
    queue: QueueName, flow_id: FlowId, url: Url = None, prefix: Prefix = DEFAULT_PREFIX, as_json: JsonFlag = False
) -> None:
    """Rerun failed nodes, and those that did not run because of them."""
    with _flow(queue, flow_id, url, prefix) as flow:
        names = flow.retry()
    if as_json:
        show_json(names)
    else:
        print_line(_sentence(names, "runs again", "run again", f"No node of flow {flow_id} has failed."))


@app.command("cancel")
def cancel(
    queue: QueueName,
    flow_id: FlowId,
    reason: Annotated[str, typer.Option(help="The reason, as `oq flow show` prints it.")] = "cancelled",
    yes: Yes = False,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Cancel all unfinished nodes of a flow; running ones are stopped."""
    with _flow(queue, flow_id, url, prefix) as flow:
        ask(yes, f"Cancel flow {flow_id}?")
        names = flow.cancel(reason)
    if as_json:
        show_json(names)
    else:
        print_line(_sentence(names, "is cancelled", "are cancelled", f"All nodes of flow {flow_id} had finished."))


@verb(app, "pause")
def _pause(client: Queue, flow_id: FlowId) -> Done:
    """Pause a flow: waiting nodes are held; ready and active ones continue."""
    client.flows.get(flow_id).pause()
    then = f"resume it with `oq flow resume {client.name} {flow_id}`"
    return Done(f"Flow {flow_id} is paused; {then}.", {"id": flow_id, "paused": True})


@verb(app, "resume")
def _resume(client: Queue, flow_id: FlowId) -> Done:
    """Resume a paused flow."""
    client.flows.get(flow_id).resume()
    return Done(f"Flow {flow_id} is running.", {"id": flow_id, "paused": False})


@verb(app, "rm")
def _rm(client: Queue, flow_id: FlowId, yes: Yes = False) -> Done:
    """Remove a flow that is not running, with all its jobs."""
    flow = client.flows.get(flow_id)
    ask(yes, f"Remove flow {flow_id} with all its jobs?")
    flow.remove()
    return Done(f"Flow {flow_id} is removed.", {"id": flow_id, "removed": True})


def _sentence(names: list[str], one: str, many: str, none: str) -> str:
    if not names:
        return none
    rest = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{', '.join(names[:5])}{rest} {one if len(names) == 1 else many}."


@app.command("submit")
def submit(
    target: Target,
    flow_id: Annotated[
        str | None, typer.Option(help="Your own id; submitting the same id again returns the same flow.")
    ] = None,
    wait: Annotated[float | None, typer.Option(help="Wait this many seconds for the results, and print them.")] = None,
    carrier: Carrier = None,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Submit a flow."""
    dag = find_dag(target)
    with FlowProducer(url=url, prefix=prefix) as flows:
        flow = flows.submit(dag, flow_id=flow_id, carrier=carrier)
        submitted: dict[str, Any] = {"queue": dag.queue, "id": flow.id, "nodes": len(dag.nodes)}
        submitted["carrier"] = carrier or flow.plan.carrier
        if wait is not None:
            submitted["results"] = flow.wait(wait)
    if as_json:
        show_json(submitted)
    elif wait is not None:
        typer.echo(dump(submitted["results"], indent=2))
    else:
        print_line(f"Submitted flow {flow.id}; follow it with `oq flow tree {dag.queue} {flow.id} --watch`.")


@app.command("explain")
def explain(
    target: Target,
    carrier: Carrier = None,
    prefix: Prefix = DEFAULT_PREFIX,
) -> None:
    """Show what submitting a flow would send: each call, and each node with its rule. Needs no server."""
    print_line(plan.compile(find_dag(target), "explained", prefix=prefix).explain(carrier), lines=True)


def find_dag(target: str) -> Dag:
    """Return the graph that a target names: a ``Dag``, or what a function without arguments returns.

    Raises:
        UsageError: It names nothing of the kind.
    """
    found = find_object(target, "is a flow", "pipeline:dag")
    if callable(found):
        try:
            inspect.signature(found).bind()
        except (TypeError, ValueError):
            raise UsageError(
                f"{target!r} needs arguments, so it can't be called; name a Dag, or a function without arguments."
            ) from None
    made = found() if callable(found) else found
    if isinstance(made, Dag):
        return made
    raise UsageError(f"{target!r} is a {type(made).__name__}, not a flow; name a Dag, or a function that returns one.")


app.command("runs")(runs)
