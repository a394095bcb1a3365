"""`oq flow runs`: the last runs of a flow, a scheduler or a Dagster job side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from orchestration_queue.cli.common import (
    STATE_COLORS,
    JsonFlag,
    Prefix,
    QueueName,
    Url,
    console,
    moment_text,
    show_json,
    show_table,
    state_text,
)
from orchestration_queue.cli.drawing import SIGNS, span_text
from orchestration_queue.cli.text import Cell, print_line, styled
from orchestration_queue.cli.verbs import format_count, open_queue
from orchestration_queue.client import FlowRun, FlowRuns, RunNode
from orchestration_queue.client.run_reading import MOST_RUNS
from orchestration_queue.protocol.keys import DEFAULT_PREFIX

__all__ = ["runs"]

_MOST_LISTED = 10
_SLOWEST, _GONE, _ABSENT = "▲", "?", " "
_TITLES = {"flow": "Flow", "scheduler": "Scheduler", "dagster_job": "Dagster job"}


def runs(
    queue: QueueName,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The flow's name; see `oq flow ls`.")] = None,
    scheduler: Annotated[str | None, typer.Option(help="The runs of this scheduler instead, at most 20.")] = None,
    dagster_job: Annotated[str | None, typer.Option(help="The runs of this Dagster job instead.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=MOST_RUNS, help="How many runs, the newest.")] = MOST_RUNS,
    url: Url = None,
    prefix: Prefix = DEFAULT_PREFIX,
    as_json: JsonFlag = False,
) -> None:
    """Show the last runs of a flow side by side, with the slowest, the newly failing, and those that are late."""
    with open_queue(queue, url, prefix) as client:
        found = client.flows.runs(name, scheduler=scheduler, dagster_job=dagster_job, limit=limit)
    if as_json:
        show_json(asdict(found))
        return
    more = "; older records were not read" if found.has_more else ""
    title = f"{_TITLES[found.of]} {found.name} in queue {queue}"
    print_line(f"{title}: {format_count(len(found.runs), 'run')}, the newest first{more}")
    if found.runs:
        print_line("")
        _show_grid(found)
        print_line("")
        _show_runs(found.runs[:_MOST_LISTED])


def _show_grid(found: FlowRuns) -> None:
    newest = found.runs[0]
    rows: list[list[Cell]] = [
        [
            styled("run", "bold"),
            Text.assemble(*map(_run_sign, found.runs)),
            span_text(newest.seconds),
            span_text(newest.expected),
        ]
    ]
    for name in found.nodes:
        nodes = [found.node(run, name) for run in found.runs]
        shown = nodes[0]
        rows.append(
            [
                name,
                Text.assemble(*map(_node_sign, nodes)),
                span_text(shown.seconds) if shown else "",
                span_text(shown.expected) if shown else "",
            ]
        )
    show_table(("node", "runs", "newest", "expected"), rows)
    legend = [("✘", "red reverse"), (" newly failing  ", "dim"), (_SLOWEST, "yellow"), (" slowest  ", "dim")]
    console().print(Text.assemble(*legend, (_GONE, "dim"), (" removed", "dim")))


def _run_sign(run: FlowRun) -> Text:
    sign = SIGNS.get(run.state, _GONE if run.state == "gone" else "·")
    return _mark(sign, run.state, is_new=run.is_newly_failing, is_slowest=run.is_slowest)


def _node_sign(node: RunNode | None) -> Text:
    if node is None:
        return Text(_ABSENT)
    sign = _GONE if node.outcome == "gone" else SIGNS.get(node.outcome, "·")
    return _mark(sign, node.outcome, is_new=node.is_newly_failing, is_slowest=node.is_slowest)


def _mark(sign: str, state: str, *, is_new: bool, is_slowest: bool) -> Text:
    if is_slowest:
        return Text(_SLOWEST, style="yellow")
    color = "dim" if state == "gone" else STATE_COLORS.get(state, "magenta")
    return Text(sign, style=f"{color} reverse" if is_new else color)


def _show_runs(runs: Sequence[FlowRun]) -> None:
    rows: list[list[Cell]] = [
        [
            run.id,
            state_text(run.state),
            moment_text(run.created_at),
            span_text(run.seconds),
            span_text(run.expected),
            _remarks(run),
        ]
        for run in runs
    ]
    show_table(("run", "state", "submitted", "took", "expected", ""), rows)


def _remarks(run: FlowRun) -> Text:
    words = [
        ("late", "yellow", run.is_late),
        ("slowest", "yellow", run.is_slowest),
        ("newly failing", "red", run.is_newly_failing),
        ("retried", "dim", run.is_retried),
        ("paused", "dim", run.is_paused),
        ("nodes not read", "dim", run.nodes is None),
    ]
    shown = [styled(word, style) for word, style, is_so in words if is_so]
    if run.stopped not in (None, run.state):
        shown.append(styled(str(run.stopped), "dim"))
    return Text(", ").join(shown)
