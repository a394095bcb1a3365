"""The geometry of a flow: its graph in columns by depth, and its run as bars over time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from orchestration_queue.client import FlowNode

__all__ = ["MOST_NODES", "Bar", "Box", "Chart", "DrawnGraph", "draw_graph", "draw_run"]

MOST_NODES = 1000
"""Larger flows are drawn by level."""
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y = 152, 34, 44, 12
_CHART = 720
_ROW = 22
_LETTERS = 19


@dataclass(frozen=True, slots=True)
class Box:
    """A node, or a group of nodes, in its place.

    Attributes:
        label: What is written in it.
        title: Its whole name.
        state: What colors it.
        x: Left.
        y: Top.
        node: The node; None for a group.
    """

    label: str
    title: str
    state: str
    x: int
    y: int
    node: FlowNode | None = None


@dataclass(frozen=True, slots=True)
class DrawnGraph:
    """A drawn graph.

    Attributes:
        boxes: The nodes.
        edges: SVG paths from what is waited for to what waits.
        width: Of the whole.
        height: Of the whole.
    """

    boxes: Sequence[Box]
    edges: Sequence[str]
    width: int
    height: int
    box_width: int = field(default=_WIDTH)
    box_height: int = field(default=_HEIGHT)


@dataclass(frozen=True, slots=True)
class Bar:
    """A node's latest attempt.

    Attributes:
        node: The node.
        x: Where it starts.
        width: How long it took.
        y: Its row.
        state: What colors it.
    """

    node: FlowNode
    x: float
    width: float
    y: int
    state: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A run over time.

    Attributes:
        bars: The nodes that have started, by start.
        seconds: How much time the chart spans.
        width: Of the whole.
        height: Of the whole.
    """

    bars: Sequence[Bar]
    seconds: float
    width: int
    height: int


def state_of(node: FlowNode) -> str:
    """Return what a node's color says."""
    return node.outcome or (str(node.state) if node.state else "gone")


def draw_graph(nodes: Sequence[FlowNode]) -> DrawnGraph:
    """Place the nodes in columns by depth, each near those that it waits for."""
    if len(nodes) > MOST_NODES:
        return _draw_levels(nodes)
    columns: dict[int, list[FlowNode]] = defaultdict(list)
    for node in nodes:
        columns[node.depth].append(node)
    row: dict[str, float] = {}
    for depth in sorted(columns):
        columns[depth].sort(key=lambda node: (_center(node, row), node.name))
        for place, node in enumerate(columns[depth]):
            row[node.name] = place
    tallest = max((len(column) for column in columns.values()), default=0)
    boxes: dict[str, Box] = {}
    for depth, column in columns.items():
        shift = (tallest - len(column)) * (_HEIGHT + _GAP_Y) // 2
        for place, node in enumerate(column):
            x, y = depth * (_WIDTH + _GAP_X), shift + place * (_HEIGHT + _GAP_Y)
            boxes[node.name] = Box(_short(node.name), node.name, state_of(node), x, y, node)
    edges = [_edge(boxes[dep], boxes[node.name]) for node in nodes for dep in node.deps if dep in boxes]
    return DrawnGraph(list(boxes.values()), edges, *_size(len(columns), tallest))


def _center(node: FlowNode, row: dict[str, float]) -> float:
    known = [row[dep] for dep in node.deps if dep in row]
    return sum(known) / len(known) if known else 0.0


def _draw_levels(nodes: Sequence[FlowNode]) -> DrawnGraph:
    """Draw one box for all nodes of a level that are in one state."""
    levels: dict[int, Counter[str]] = defaultdict(Counter)
    for node in nodes:
        levels[node.depth][state_of(node)] += 1
    boxes = []
    for column, depth in enumerate(sorted(levels)):
        for place, (state, count) in enumerate(sorted(levels[depth].items())):
            x, y = column * (_WIDTH + _GAP_X), place * (_HEIGHT + _GAP_Y)
            boxes.append(Box(f"{count:,} {state}", f"level {depth}: {count:,} {state}", state, x, y))
    return DrawnGraph(boxes, (), *_size(len(levels), max(map(len, levels.values()), default=0)))


def _size(columns: int, rows: int) -> tuple[int, int]:
    return max(1, columns * (_WIDTH + _GAP_X) - _GAP_X), max(1, rows * (_HEIGHT + _GAP_Y) - _GAP_Y)


def _edge(source: Box, target: Box) -> str:
    x1, y1 = source.x + _WIDTH, source.y + _HEIGHT // 2
    x2, y2 = target.x, target.y + _HEIGHT // 2
    bend = _GAP_X // 2 if target.x > source.x else -_GAP_X // 2
    return f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"


def _short(name: str) -> str:
    return name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…"


def draw_run(nodes: Sequence[FlowNode]) -> Chart:
    """Place the attempts over time, the first to start on top."""
    started = sorted((node for node in nodes if node.started_at), key=lambda node: (node.started_at, node.name))
    started = started[:MOST_NODES]
    if not started or started[0].started_at is None:
        return Chart((), 0, _CHART, 0)
    now = datetime.now(UTC)
    start = started[0].started_at
    end = max(node.finished_at or now for node in started)
    seconds = max((end - start).total_seconds(), 0.001)
    bars = []
    for place, node in enumerate(started):
        at = ((node.started_at or start) - start).total_seconds()
        took = ((node.finished_at or now) - (node.started_at or start)).total_seconds()
        width = max(2.0, took / seconds * _CHART)
        bars.append(
            Bar(node, round(min(at / seconds * _CHART, _CHART - 2), 1), round(width, 1), place * _ROW, state_of(node))
        )
    return Chart(bars, seconds, _CHART, len(bars) * _ROW)
