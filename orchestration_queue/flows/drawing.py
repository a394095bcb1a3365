"""Graphs and plans as text that people read, or that Mermaid and Graphviz draw."""

from __future__ import annotations

from collections.abc import Sequence

from orchestration_queue.flows.dag import Dag

__all__ = ["dot", "mermaid", "table"]

_LONGEST_CELL = 60


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns in text; the first, a number, stands to the right, and long cells are cut."""
    lines = [header, *([_cut(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    padded = [
        [line[0].rjust(widths[0]), *(cell.ljust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        for line in lines
    ]
    return "\n".join("  ".join(cells).rstrip() for cells in padded)


def _cut(cell: str) -> str:
    return cell if len(cell) <= _LONGEST_CELL else f"{cell[: _LONGEST_CELL - 3]}..."


def mermaid(dag: Dag) -> str:
    """A Mermaid flowchart, from left to right."""
    short = {node.name: f"n{index}" for index, node in enumerate(dag.nodes)}
    boxes = [f'    {short[node.name]}["{_mermaid_text(node.name)}"]' for node in dag.nodes]
    arrows = [f"    {short[dep]} --> {short[node.name]}" for node in dag.nodes for dep in node.deps]
    return "\n".join(["flowchart LR", *boxes, *arrows]) + "\n"


def _mermaid_text(text: str) -> str:
    """Names that Mermaid would take for markup, as character codes."""
    return "".join(c if c.isalnum() or c in " .-_/" else f"#{ord(c)};" for c in text)


def dot(dag: Dag) -> str:
    """A Graphviz digraph, from left to right."""
    boxes = [f"    {_quoted(node.name)};" for node in dag.nodes]
    arrows = [f"    {_quoted(dep)} -> {_quoted(node.name)};" for node in dag.nodes for dep in node.deps]
    lines = [f"digraph {_quoted(dag.name)} {{", "    rankdir=LR;", "    node [shape=box];", *boxes, *arrows, "}"]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
