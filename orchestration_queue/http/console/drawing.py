"""The geometry of a flow: its graph in columns by depth, and its run as bars over time."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from orchestration_queue.client import FlowNode
from orchestration_queue.server.clock import now

__all__ = ["MOST_NODES", "Bar", "Box", "Chart", "DrawnGraph", "draw_graph", "draw_run"]

MOST_NODES = 1000
"""Larger flows are drawn by group: the nodes of a level whose names differ only in a number."""
_MOST_GROUPS = 300
"""If a flow has more groups, each level is drawn as one."""
_PRESSING = (
    "failed",
    "upstream_failed",
    "active",
    "suspended",
    "delayed",
    "waiting",
    "group-waiting",
    "waiting-children",
)
"""States by priority: a group with several states has the color of the first."""
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y = 152, 34, 44, 12
_CHART = 720
_ROW = 22
_LETTERS = 19
_NUMBER = re.compile(r"[-_.:#/\[]*\d+\]?$")


@dataclass(frozen=True, slots=True)
class Box:
    """A node, or a group of nodes, in its place.

    Attributes:
        label: Its text.
        title: Its whole name.
        state: The state that determines its color.
        x: Left.
        y: Top.
        node: The node; None for a group.
        parts: For a group: each state, with the left and the width of its share of the nodes.
    """

    label: str
    title: str
    state: str
    x: int
    y: int
    node: FlowNode | None = None
    parts: Sequence[tuple[str, int, int]] = ()


@dataclass(frozen=True, slots=True)
class DrawnGraph:
    """A drawn graph.

    Attributes:
        boxes: The nodes.
        edges: SVG paths from dependencies to dependents.
        width: Total width.
        height: Total height.
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
        x: Its start.
        width: Its duration.
        y: Its row.
        state: The state that determines its color.
        is_open: Whether it has ended without an end of the node, as while that waits for a retry.
    """

    node: FlowNode
    x: float
    width: float
    y: int
    state: str
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """A run over time.

    Attributes:
        bars: The nodes that have started, by start.
        seconds: The time span of the chart.
        width: Total width.
        height: Total height.
    """

    bars: Sequence[Bar]
    seconds: float
    width: int
    height: int


def state_of(node: FlowNode) -> str:
    """Return the state that determines a node's color."""
    return node.outcome or (str(node.state) if node.state else "gone")


def draw_graph(nodes: Sequence[FlowNode]) -> DrawnGraph:
    """Place the nodes in columns by depth, each near its dependencies."""
    if len(nodes) > MOST_NODES:
        return _draw_groups(nodes)
    boxes = {node.name: _Item(node.depth, node.deps) for node in nodes}
    by_name = {node.name: node for node in nodes}
    return _draw(boxes, lambda name, x, y: _node_box(by_name[name], x, y))


@dataclass(frozen=True, slots=True)
class _Item:
    """A box before it is placed: its column, and its dependencies."""

    depth: int
    deps: Collection[str]


def _draw(items: Mapping[str, _Item], box: Callable[[str, int, int], Box]) -> DrawnGraph:
    columns: dict[int, list[str]] = defaultdict(list)
    for name, item in items.items():
        columns[item.depth].append(name)
    row: dict[str, float] = {}
    for depth in sorted(columns):
        columns[depth].sort(key=lambda name: (_center(items[name], row), name))
        row |= {name: place for place, name in enumerate(columns[depth])}
    tallest = max((len(column) for column in columns.values()), default=0)
    boxes: dict[str, Box] = {}
    for depth, column in columns.items():
        shift = (tallest - len(column)) * (_HEIGHT + _GAP_Y) // 2
        for place, name in enumerate(column):
            boxes[name] = box(name, depth * (_WIDTH + _GAP_X), shift + place * (_HEIGHT + _GAP_Y))
    edges = [_edge(boxes[dep], boxes[name]) for name, item in items.items() for dep in item.deps if dep in boxes]
    return DrawnGraph(list(boxes.values()), edges, *_size(len(columns), tallest))


def _center(item: _Item, row: dict[str, float]) -> float:
    known = [row[dep] for dep in item.deps if dep in row]
    return sum(known) / len(known) if known else 0.0


def _node_box(node: FlowNode, x: int, y: int) -> Box:
    return Box(_short(node.name), node.name, state_of(node), x, y, node)


def _draw_groups(nodes: Sequence[FlowNode]) -> DrawnGraph:
    """Draw one box for all nodes of a group, and one edge for all edges between two groups."""
    stems = {node.name: _NUMBER.sub("", node.name) or node.name for node in nodes}
    if len({(node.depth, stems[node.name]) for node in nodes}) > _MOST_GROUPS:
        stems = {node.name: f"level {node.depth}" for node in nodes}
    groups = {node.name: f"{stems[node.name]}\n{node.depth}" for node in nodes}
    states: dict[str, Counter[str]] = defaultdict(Counter)
    deps: dict[str, dict[str, None]] = defaultdict(dict)
    for node in nodes:
        group = groups[node.name]
        states[group][state_of(node)] += 1
        deps[group] |= {groups[dep]: None for dep in node.deps if dep in groups and groups[dep] != group}
    items = {group: _Item(int(group.rpartition("\n")[2]), deps[group]) for group in states}
    return _draw(items, lambda group, x, y: _group_box(group.rpartition("\n")[0], states[group], x, y))


def _group_box(stem: str, states: Counter[str], x: int, y: int) -> Box:
    total = states.total()
    ordered = sorted(states, key=lambda state: (_PRESSING.index(state) if state in _PRESSING else 99, state))
    parts, begin = [], 0
    for state in reversed(ordered):  # finished states first
        begin += states[state]
        left = (begin - states[state]) * _WIDTH // total
        parts.append((state, left, max(1, begin * _WIDTH // total - left)))
    count = f" \N{MULTIPLICATION SIGN}{total:,}" if total > 1 else ""
    title = f"{stem}{count}: " + ", ".join(f"{states[state]:,} {state}" for state in ordered)
    return Box(_short(stem, _LETTERS - len(count)) + count, title, ordered[0], x, y, parts=parts)


def _size(columns: int, rows: int) -> tuple[int, int]:
    return max(1, columns * (_WIDTH + _GAP_X) - _GAP_X), max(1, rows * (_HEIGHT + _GAP_Y) - _GAP_Y)


def _edge(source: Box, target: Box) -> str:
    x1, y1 = source.x + _WIDTH, source.y + _HEIGHT // 2
    x2, y2 = target.x, target.y + _HEIGHT // 2
    bend = _GAP_X // 2 if target.x > source.x else -_GAP_X // 2
    return f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"


def _short(name: str, letters: int = _LETTERS) -> str:
    return name if len(name) <= letters else f"{name[: letters - 1]}…"


def _is_open(node: FlowNode) -> bool:
    return node.finished_at is None and state_of(node) != "active"


def draw_run(nodes: Sequence[FlowNode]) -> Chart:
    """Place the attempts over time, the first to start on top."""
    started = sorted((node for node in nodes if node.started_at), key=lambda node: (node.started_at, node.name))
    started = started[:MOST_NODES]
    if not started or started[0].started_at is None:
        return Chart((), 0, _CHART, 0)
    current = now()
    start = started[0].started_at
    end = max(node.finished_at or current for node in started)
    seconds = max((end - start).total_seconds(), 0.001)
    bars = []
    for place, node in enumerate(started):
        at = ((node.started_at or start) - start).total_seconds()
        took = ((node.finished_at or current) - (node.started_at or start)).total_seconds()
        width = max(2.0, took / seconds * _CHART)
        x, is_open = round(min(at / seconds * _CHART, _CHART - 2), 1), _is_open(node)
        bars.append(Bar(node, x, round(width, 1), place * _ROW, state_of(node), is_open))
    return Chart(bars, seconds, _CHART, len(bars) * _ROW)
