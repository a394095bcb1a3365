"""Graphs and plans as text tables, Mermaid flowcharts and Graphviz digraphs."""

from __future__ import annotations

from collections.abc import Sequence

from orchestration_queue.flows.dag import Dag
from orchestration_queue.flows.node import Node, TriggerRule

__all__ = ["dot", "mermaid", "node_table", "table"]

_LONGEST_CELL = 60


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return columns as text; the first, a number, is right-aligned, and long cells are truncated."""
    lines = [header, *([_cut(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    padded = [
        [line[0].rjust(widths[0]), *(cell.ljust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        for line in lines
    ]
    return "\n".join("  ".join(cells).rstrip() for cells in padded)


def _cut(cell: str) -> str:
    return cell if len(cell) <= _LONGEST_CELL else f"{cell[: _LONGEST_CELL - 3]}..."


def node_table(dag: Dag) -> str:
    """Return each node with its level, its rule and its dependencies, dependents first."""
    rows = [
        (str(level), node.name, dag.queue_of(node), node.trigger_rule if node.deps else "", _edges(node))
        for level, nodes in reversed([*enumerate(dag.levels)])
        for node in nodes
    ]
    return table(("level", "node", "queue", "rule", "waits for"), rows)


def _edges(node: Node) -> str:
    return ", ".join([*node.deps, *(f"{name} (optional)" for name in node.optional_deps)])


def _label(node: Node) -> str:
    """Return the node's trigger rule, if it is not the default."""
    return "" if node.trigger_rule is TriggerRule.ALL_SUCCESS else f" ({node.trigger_rule})"


def mermaid(dag: Dag) -> str:
    """Return a Mermaid flowchart, from left to right."""
    nodes = dag.all_nodes
    short = {node.name: f"n{index}" for index, node in enumerate(nodes)}
    boxes = [f'    {short[node.name]}["{_mermaid_text(node.name)}{_label(node)}"]' for node in nodes]
    arrows = [
        f"    {short[dep]} {arrow} {short[node.name]}"
        for node in nodes
        for arrow, deps in (("-->", node.deps), ("-.->", node.optional_deps))
        for dep in deps
    ]
    return "\n".join(["flowchart LR", *boxes, *arrows]) + "\n"


def _mermaid_text(text: str) -> str:
    """Escape names that Mermaid would read as markup."""
    return "".join(c if c.isalnum() or c in " .-_/" else f"#{ord(c)};" for c in text)


def dot(dag: Dag) -> str:
    """Return a Graphviz digraph, from left to right."""
    nodes = dag.all_nodes
    boxes = [f"    {_quote(node.name)}{_dot_label(node)};" for node in nodes]
    arrows = [
        f"    {_quote(dep)} -> {_quote(node.name)}{style};"
        for node in nodes
        for style, deps in (("", node.deps), (" [style=dashed]", node.optional_deps))
        for dep in deps
    ]
    lines = [f"digraph {_quote(dag.name)} {{", "    rankdir=LR;", "    node [shape=box];", *boxes, *arrows, "}"]
    return "\n".join(lines) + "\n"


def _dot_label(node: Node) -> str:
    label = _label(node)
    return f" [label={_quote(node.name + label)}]" if label else ""


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
