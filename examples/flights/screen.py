"""The demo's output: a live display in a terminal, plain lines elsewhere, and a summary at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import pandas as pd
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from examples.flights import settings

if TYPE_CHECKING:
    from examples.flights.watch import NodeView, RunView, Snapshot

__all__ = ["LiveScreen", "PlainScreen", "Screen", "flow_tree", "result_table", "screen_for"]

_LOOKS = {
    "completed": ("✔", "green"),
    "active": ("▶", "yellow"),
    "failed": ("✘", "bold red"),
    "delayed": ("↻", "magenta"),
    "waiting": ("•", "cyan"),
}
_NOT_YET = ("·", "dim")
_PROGRESS_EVERY_S = 5.0


class Screen(Protocol):
    """Shows the pipeline's state."""

    def say(self, text: str) -> None:
        """Tell one thing that happened."""

    def show(self, snapshot: Snapshot) -> None:
        """Show the state of everything."""

    def close(self) -> None:
        """Stop showing."""


def screen_for(console: Console) -> Screen:
    """Return a live picture for a terminal, lines for anything else."""
    return LiveScreen(console) if console.is_terminal else PlainScreen(console)


class PlainScreen:
    """A line for each change."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: dict[str, str] = {}
        self._progress_after: dict[str, float] = {}

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, highlight=False, markup=False)

    def show(self, snapshot: Snapshot) -> None:
        """Print what has changed since the last time."""
        now = {node.name: node.state for node in snapshot.nodes}
        now |= {f"Dagster run {run.job}": run.status for run in snapshot.runs}
        now[f"repeatable job {settings.FRESHNESS}"] = "has run for the first time" if snapshot.scheduled_runs else "-"
        for name, state in now.items():
            if state not in (self._last.get(name), "-", "waiting-children", "waiting"):
                self.say(f"{snapshot.elapsed_s:6.1f} s  {name}: {state}{_detail(snapshot, name)}")
        for node in snapshot.nodes:
            if node.progress and snapshot.elapsed_s >= self._progress_after.setdefault(node.name, 0):
                self._progress_after[node.name] = snapshot.elapsed_s + _PROGRESS_EVERY_S
                self.say(f"{snapshot.elapsed_s:6.1f} s  {node.name}: Spark {node.progress}")
        self._last = now

    def close(self) -> None:
        """Nothing to stop."""


class LiveScreen:
    """One picture, redrawn in place."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("  nodes    "), BarColumn(bar_width=46), MofNCompleteColumn(), TextColumn("{task.description}")
        )
        self._task = self._progress.add_task("", total=None)
        self._live = Live(Group(), console=console, refresh_per_second=8, transient=True)
        self._live.start()

    def say(self, text: str) -> None:
        """Print a line above the picture."""
        self._live.console.print(text, highlight=False, markup=False)

    def show(self, snapshot: Snapshot) -> None:
        """Redraw."""
        seconds = f"{snapshot.elapsed_s:.0f} s"
        self._progress.update(self._task, total=len(snapshot.nodes), completed=snapshot.done, description=seconds)
        self._live.update(Group(_picture(snapshot), self._progress))

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._live.stop()


def _detail(snapshot: Snapshot, name: str) -> str:
    node = next((node for node in snapshot.nodes if node.name == name), None)
    return "" if node is None or node.rows is None else f" ({node.rows:,} rows)"


def _look(node: NodeView, label: str) -> Text:
    sign, style = _LOOKS.get(node.state, _NOT_YET)
    return Text(f"{sign} {label}", style=style)


def _row(snapshot: Snapshot, names: Sequence[str], strip: str = "") -> Text:
    return Text("  ").join(_look(snapshot.node(name), name.removeprefix(strip)) for name in names)


def _picture(snapshot: Snapshot) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column()
    table.add_row("  raw", _row(snapshot, list(settings.RAW_NODES.values()), "raw_"))
    table.add_row("  months", _row(snapshot, list(settings.MONTH_NODES.values()), f"{settings.MONTHLY}_"))
    table.add_row("  clean", _row(snapshot, [settings.CLEAN_FLIGHTS, settings.CLEAN_WEATHER]))
    table.add_row("  report", _row(snapshot, [settings.DELAYS, settings.REPORT]))
    table.add_row("  every 5 s", f"{settings.FRESHNESS} has run {snapshot.scheduled_runs} times")
    for node in snapshot.nodes:
        if node.progress:
            table.add_row("  Spark", f"{node.name}: Spark {node.progress}")
    for run in snapshot.runs:
        by = f", requested by sensor {run.sensor}" if run.sensor else ""
        took = f" {run.seconds:.0f} s" if run.seconds else ""
        table.add_row("  Dagster", f"{run.job}: {run.status.lower()}{took}{by}")
    return table


def flow_tree(snapshot: Snapshot) -> Tree:
    """Every node with state, time and rows, below what it waits for."""
    prepare, report = snapshot.runs
    tree = Tree("[bold]flights")
    flow = tree.add(f"[bold]{prepare.job}[/] Dagster run {_short(prepare)}, {prepare.status.lower()}")
    for name in settings.RAW_NODES.values():
        branch = flow.add(_line(snapshot, name))
        if name == settings.RAW_NODES["flights"]:
            for month in settings.MONTH_NODES.values():
                branch.add(_line(snapshot, month))
            branch.add(Text.assemble(_line(snapshot, settings.CLEAN_FLIGHTS), ("  (after all months)", "dim")))
        if name == settings.RAW_NODES["weather"]:
            branch.add(_line(snapshot, settings.CLEAN_WEATHER))
    by = f", requested by sensor {report.sensor}" if report.sensor else ""
    second = tree.add(f"[bold]{report.job}[/] Dagster run {_short(report)}, {report.status.lower()}{by}")
    second.add(_line(snapshot, settings.DELAYS)).add(_line(snapshot, settings.REPORT))
    return tree


def _short(run: RunView) -> str:
    """Return a run's id as Dagster's UI shortens it."""
    return (run.run_id or "-")[:8]


def _line(snapshot: Snapshot, name: str) -> Text:
    node = snapshot.node(name)
    line = _look(node, f"{name:<16}")
    line.append(f"  {node.state}", style="default")
    if node.record and node.record.seconds is not None:
        line.append(f"  {node.record.seconds:.2f} s", style="default")
    if node.rows is not None:
        line.append(f"  {node.rows:,} rows", style="default")
    if node.record and node.record.stalled_count:
        line.append("  taken over from a lost worker", style="yellow")
    return line


def result_table(frame: pd.DataFrame, title: str) -> Table:
    """Return the rows of a data frame as a table."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for name, column in frame.items():
        table.add_column(str(name), justify="right" if pd.api.types.is_numeric_dtype(column) else "left")
    for row in frame.itertuples(index=False):
        table.add_row(
            *(
                f"{value:,.1f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
                for value in row
            )
        )
    return table
