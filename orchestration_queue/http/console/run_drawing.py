"""The geometry of runs side by side: a grid of nodes and runs, and two runs on one time axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup

from orchestration_queue.client import FlowRun, FlowRuns, RunNode
from orchestration_queue.http.console.views import duration, part

__all__ = ["LEGEND", "Cell", "Grid", "GridRow", "Pair", "PairRow", "Span", "draw_grid", "draw_pair", "gap", "remarks"]

_MOST_ROWS = 100
"""Rows of a grid; above that, those of nodes that failed or were slow come first."""
_LEVELS = 5
"""Shades of a cell, by its part of the longest duration in its row."""
_SIGNS = {
    "completed": "✓",
    "failed": "✕",
    "cancelled": "⊘",
    "upstream_failed": "⊘",
    "skipped": "»",
    "missed": "»",
    "overlap": "»",
    "active": "▸",
    "running": "▸",
    "gone": "?",
}
_USUAL = "completed"
_WAITS, _SLOWEST, _LATE = "…", "▲", "!"
LEGEND = (
    ("✓", "completed"),
    ("✕", "failed"),
    ("⊘", "cancelled, or did not run because another node failed"),
    ("»", "skipped"),
    ("▸", "running"),
    ("…", "waits"),
    ("?", "removed, and nothing says how it ended"),
    ("▲", "slowest, and 1.5 times as long as usual"),
    ("!", "late: 1.5 times as long as expected"),
)
"""Signs of a grid with their meanings."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A node of a run, or the run as a whole.

    Attributes:
        state: The state that determines its color.
        level: Its shade, 0 to 5.
        sign: What it is without color.
        title: What it is in words.
        node: The node; None for a run as a whole.
        marks: Classes for what is different about it.
        home: The page's queue.
    """

    state: str
    level: int
    sign: str
    title: str
    node: RunNode | None
    marks: str
    home: str

    @property
    def look(self) -> str:
        """Its classes; none for its state if that is the most frequent, as there are thousands of cells."""
        state = "" if self.state == _USUAL else f"s-{self.state} "
        return f"{state}d{self.level} {self.marks}".rstrip()

    @property
    def url(self) -> Markup:
        """The page of its job, from a page of a queue's; empty if the job was removed. Safe, since it is quoted."""
        node = self.node
        if node is None or not node.is_kept:
            return Markup()
        # Short, as there are thousands of them.
        queue = "" if node.queue == self.home else f"../{part(node.queue)}/"
        return Markup(f"{queue}jobs/{part(node.job_id)}")  # noqa: S704


@dataclass(frozen=True, slots=True)
class GridRow:
    """A node in all runs.

    Attributes:
        name: The node.
        expected: What to expect of the newest run, in seconds.
        cells: A cell per run; None where the run has no such node.
    """

    name: str
    expected: float | None
    cells: Sequence[Cell | None]


@dataclass(frozen=True, slots=True)
class Grid:
    """The nodes of runs, newest run first.

    Attributes:
        whole: A cell per run as a whole.
        rows: A row per node.
        left_out: Nodes without a row.
    """

    whole: Sequence[Cell]
    rows: Sequence[GridRow]
    left_out: int


@dataclass(frozen=True, slots=True)
class Span:
    """A node on the time axis, in percent of it.

    Attributes:
        node: The node.
        x: Its start.
        width: Its duration.
        due: When it was expected to end; None without an expectation.
        is_open: Whether its latest attempt has ended without an end of the node, as while it waits for a retry.
    """

    node: RunNode
    x: float
    width: float
    due: float | None
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class PairRow:
    """A node of two runs.

    Attributes:
        name: The node.
        nodes: The node in each run; None where the run has no such node.
        spans: The same on the time axis; None where it has not started.
    """

    name: str
    nodes: Sequence[RunNode | None]
    spans: Sequence[Span | None]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two runs on one time axis, each from its submission on.

    Attributes:
        runs: The runs.
        rows: Their nodes, dependencies first.
        ticks: Positions on the axis in percent, with their text.
        left_out: Nodes without a row.
    """

    runs: Sequence[FlowRun]
    rows: Sequence[PairRow]
    ticks: Sequence[tuple[float, str, str]]
    left_out: int


def draw_grid(found: FlowRuns) -> Grid:
    """Return the grid of runs."""
    most = max((run.seconds or 0 for run in found.runs), default=0)
    whole = [_run_cell(run, most) for run in found.runs]
    names = _choose(found)
    return Grid(whole, [_row(found, name) for name in names], len(found.nodes) - len(names))


def _choose(found: FlowRuns) -> list[str]:
    """Return the nodes that get a row, in the order of the graph: if not all, those with problems before others."""
    if len(found.nodes) <= _MOST_ROWS:
        return list(found.nodes)
    nodes = [node for run in found.runs for node in (run.nodes or {}).values()]
    pressing = {node.name for node in nodes if node.outcome in ("failed", "active") or node.is_slowest}
    chosen = set(sorted(found.nodes, key=lambda name: name not in pressing)[:_MOST_ROWS])
    return [name for name in found.nodes if name in chosen]


def _row(found: FlowRuns, name: str) -> GridRow:
    nodes = [found.node(run, name) for run in found.runs]
    most = max((node.seconds or 0 for node in nodes if node), default=0)
    expected = next((node.expected for node in nodes if node), None)
    return GridRow(name, expected, [_node_cell(node, most, found.queue) if node else None for node in nodes])


def _run_cell(run: FlowRun, most: float) -> Cell:
    is_late = run.is_late and run.state == "running"
    sign = _LATE if is_late else _SLOWEST if run.is_slowest else _SIGNS.get(run.state, _WAITS)
    marks = "new" if run.is_newly_failing else "late" if run.is_late or run.is_slowest else ""
    took = duration(run.seconds) if run.seconds is not None else ""
    title = ", ".join(filter(None, [run.state.replace("_", " "), took, *remarks(run)]))
    return Cell(run.state, _level(run.seconds, most), sign, title, None, marks, "")


def _node_cell(node: RunNode, most: float, home: str) -> Cell:
    sign = _SLOWEST if node.is_slowest else _SIGNS.get(node.outcome, _WAITS)
    words = [node.outcome.replace("_", " ").replace("-", " ")]
    if node.seconds is not None:
        words.append(duration(node.seconds))
    if node.is_newly_failing:
        words.append("newly failing")
    if node.is_slowest:
        words.append(f"slowest, usually {duration(node.expected)}" if node.expected is not None else "slowest")
    if not node.is_kept and node.outcome != "gone":
        words.append("its job was removed")
    marks = "new" if node.is_newly_failing else "late" if node.is_slowest else "" if node.is_kept else "past"
    return Cell(node.outcome, _level(node.seconds, most), sign, ", ".join(words), node, marks, home)


def _level(seconds: float | None, most: float) -> int:
    return max(1, math.ceil(_LEVELS * seconds / most)) if seconds is not None and most else 0


def remarks(run: FlowRun) -> list[str]:
    """Return what is different about a run, in words."""
    said = (
        ("late" if run.state == "running" else "took long", run.is_late),
        ("slowest", run.is_slowest),
        ("newly failing", run.is_newly_failing),
        ("retried", run.is_retried),
        ("paused", run.is_paused),
    )
    return [word for word, is_so in said if is_so]


def gap(first: float | None, second: float | None) -> str:
    """Format by how much longer the first took than the second."""
    if first is None or second is None:
        return "\N{EN DASH}"
    sign = "+" if first >= second else "\N{MINUS SIGN}"
    return f"{sign}{duration(abs(first - second))}"


def draw_pair(found: FlowRuns, first: FlowRun, second: FlowRun) -> Pair:
    """Place the nodes of two runs on one time axis."""
    runs = (first, second)
    seconds = max(0.001, *(_end(run, found.read_at) for run in runs))
    names = [name for name in found.nodes if any(found.node(run, name) for run in runs)]
    rows = [_pair_row(found, runs, name, seconds) for name in names[:_MOST_ROWS]]
    texts = ("0", duration(seconds / 2), duration(seconds))
    ticks = list(zip((0.0, 50.0, 100.0), ("start", "middle", "end"), texts, strict=True))
    return Pair(runs, rows, ticks, len(names) - len(rows))


def _end(run: FlowRun, now: datetime) -> float:
    """Return the seconds from a run's submission to the end of its last node."""
    ends = [node.finished_at or now for node in (run.nodes or {}).values() if node.started_at]
    return max((_since(run, end) for end in ends), default=0)


def _since(run: FlowRun, at: datetime) -> float:
    return (at - run.created_at).total_seconds() if run.created_at else 0.0


def _pair_row(found: FlowRuns, runs: Sequence[FlowRun], name: str, seconds: float) -> PairRow:
    nodes = [found.node(run, name) for run in runs]
    spans = [_span(run, node, seconds, found.read_at) if node else None for run, node in zip(runs, nodes, strict=True)]
    return PairRow(name, nodes, spans)


def _span(run: FlowRun, node: RunNode, seconds: float, now: datetime) -> Span | None:
    start = node.started_at or node.finished_at
    if start is None:
        return None
    x = min(99.5, max(0.0, 100 * _since(run, start) / seconds))
    width = max(0.5, 100 * _since(run, node.finished_at or now) / seconds - x)
    due = None if node.expected is None else min(100.0, x + 100 * node.expected / seconds)
    is_open = node.finished_at is None and node.outcome != "active"
    return Span(node, round(x, 2), round(min(width, 100 - x), 2), None if due is None else round(due, 2), is_open)
