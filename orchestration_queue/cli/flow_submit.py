"""`oq flow submit` and `oq flow explain`: run a graph of a module or a file, or show what running it sends."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from orchestration_queue.cli.common import JsonFlag, Prefix, Url, show_json
from orchestration_queue.cli.flow import app
from orchestration_queue.cli.targets import named_object
from orchestration_queue.cli.text import dump, print_line
from orchestration_queue.client import FlowProducer
from orchestration_queue.errors import UsageError
from orchestration_queue.flows import Dag, plan
from orchestration_queue.protocol.keys import DEFAULT_PREFIX

__all__ = ["named_dag"]

Carrier = Annotated[plan.Carrier | None, typer.Option(help="How the calls are sent; default depends on the graph.")]
Target = Annotated[str, typer.Argument(metavar="MODULE:DAG", help="The graph, as module:dag or file.py:dag.")]


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
    dag = named_dag(target)
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
    print_line(plan.compile(named_dag(target), "explained", prefix=prefix).explain(carrier), lines=True)


def named_dag(target: str) -> Dag:
    """Return the graph that a target names: a ``Dag``, or what a function without arguments returns.

    Raises:
        UsageError: It names nothing of the kind.
    """
    found = named_object(target, "is a flow", "pipeline:dag")
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
