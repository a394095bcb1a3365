"""Draw a flow in a terminal: its levels from top to bottom, each node with its state and times."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from orchestration_queue.cli.common import STATE_COLORS, state_text
from orchestration_queue.cli.text import clean, styled
from orchestration_queue.client import FlowNode

__all__ = ["SIGNS", "graph", "mermaid", "span_text", "spark"]

SIGNS = {
    "completed": "✔",
    "failed": "✘",
    "cancelled": "✘",
    "upstream_failed": "⊘",
    "skipped": "↷",
    "missed": "↷",
    "overlap": "↷",
    "active": "▶",
    "running": "▶",
    "waiting": "◔",
    "delayed": "◔",
    "prioritized": "◔",
}
_BAR = 8


def span_text(seconds: float | None) -> str:
    """Format a duration briefly."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours < 48 else f"{hours // 24} d {hours % 24:02} h"


def spark(values: Sequence[float | None], most: float) -> str:
    """Return one character per value: a bar by its part of ``most``, a dot for 0 and a space for None."""
    bars = "▁▂▃▄▅▆▇█"
    return "".join(
        " " if value is None else bars[min(int(value / most * len(bars)), len(bars) - 1)] if value else "·"
        for value in values
    )


def graph(nodes: Sequence[FlowNode], critical: Collection[str]) -> RenderableType:
    """Return the nodes by level, with the critical path marked and a bar for each duration."""
    longest = max((node.seconds or 0 for node in nodes), default=0)
    levels = groupby(sorted(nodes, key=lambda node: node.depth), key=lambda node: node.depth)
    parts: list[RenderableType] = []
    table = Table(box=None, pad_edge=False, show_header=True, header_style="dim")
    for column in ("level", "node", "state", "waited", "took", "", "after"):
        table.add_column(column, justify="right" if column in ("waited", "took") else "left", no_wrap=column != "after")
    for depth, level in levels:
        for place, node in enumerate(level):
            table.add_row(*_row(node, str(depth) if place == 0 else "", node.name in critical, longest))
    parts.append(table)
    if reasons := [node for node in nodes if node.outcome == "failed" and node.failed_reason]:
        parts.append(Text())
        parts += [Text.assemble(styled(f"✘ {n.name}", "red"), "  ", clean(n.failed_reason or "")) for n in reasons]
    return Group(*parts)


def _row(node: FlowNode, level: str, is_critical: bool, longest: float) -> list[RenderableType]:
    outcome = node.outcome or "gone"
    color = STATE_COLORS.get(outcome, "magenta")
    tries = f" ({node.attempts} tries)" if node.attempts > 1 else ""
    name = styled(f"┃ {node.name}", "bold yellow") if is_critical else styled(f"  {node.name}")
    rule = "" if node.rule == "all_success" or not node.deps else f" ({node.rule})"
    return [
        styled(level, "dim"),
        Text.assemble(name, styled(_elements(node), "dim")),
        state_text(outcome, f"{SIGNS.get(outcome, '·')} {outcome.replace('_', ' ')}{tries}"),
        styled(span_text(node.waited), "dim"),
        span_text(node.seconds),
        styled(_bar(node.seconds, longest), "yellow" if is_critical else color),
        Text.assemble(styled(_some(node.deps), "dim"), styled(rule, "dim italic")),
    ]


def _elements(node: FlowNode) -> str:
    """Return how many elements of a mapped node have ended, and the total."""
    if node.elements is None:
        return ""
    ended = sum(count for state, count in node.elements.items() if state in ("completed", "failed"))
    return f" {ended}/{sum(node.elements.values())}"


def _bar(seconds: float | None, longest: float) -> str:
    return "━" * max(1, round(_BAR * seconds / longest)) if seconds is not None and longest else ""


def _some(names: Sequence[str], most: int = 4) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


_FILLS = {
    "completed": "#d5f5d5",
    "failed": "#f8d0d0",
    "upstream_failed": "#f3e3d3",
    "skipped": "#eeeeee",
    "active": "#d0ecf8",
}


def mermaid(nodes: Sequence[FlowNode]) -> str:
    """Return the flow as a Mermaid flowchart, each node in the color of its state."""
    ids = {node.name: f"n{place}" for place, node in enumerate(nodes)}
    lines = ["flowchart TD"]
    for node in nodes:
        words = f"{_quote(node.name)}<br/>{node.outcome or 'gone'}" + (
            f" {span_text(node.seconds)}" if node.seconds else ""
        )
        lines.append(f'  {ids[node.name]}["{words}"]')
        lines += [f"  {ids[dep]} --> {ids[node.name]}" for dep in node.deps if dep in ids]
    for outcome, fill in _FILLS.items():
        if named := [ids[node.name] for node in nodes if node.outcome == outcome]:
            lines += [f"  classDef {outcome} fill:{fill}", f"  class {','.join(named)} {outcome}"]
    return "\n".join(lines)


def _quote(name: str) -> str:
    """Return a name as Mermaid's text: without quotes, tags or line breaks."""
    name = clean(name).replace("#", "#35;").replace("&", "#amp;")
    return name.replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")
