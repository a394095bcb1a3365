"""Draws which packages import which, as Mermaid's text: ``python tools/import_graph.py [CHECKOUT]``.

What follows from other arrows is left out. An import within a function counts, one for type checkers alone does not.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

__all__ = ["ROOT", "draw", "imports", "modules", "page"]

ROOT: Final = Path(__file__).resolve().parent.parent
_PACKAGE: Final = "orchestration_queue"
_FOLDERS: Final = ("wires", "dialects")
"""Packages each of whose folders is drawn as a package: a wire. They had the second name before."""


@cache
def modules(root: Path = ROOT) -> Mapping[str, Path]:
    """Return the file of each module, such as ``orchestration_queue.client``."""
    found = {}
    for path in sorted((root / _PACKAGE).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports(module: str, root: Path = ROOT) -> frozenset[str]:
    """Return the package's modules that one imports, wherever in its text."""
    known = modules(root)
    found: set[str] = set()
    for node in _walk(ast.parse(known[module].read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else node.module for name in whole}
    return frozenset(found & known.keys() - {module})


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from _walk(child)


def _package_of(module: str, root: Path) -> str:
    """Return what a module is drawn as; empty for a private module and the package itself."""
    _, *parts = module.split(".")
    if not parts or parts[0].startswith("_"):
        return ""
    if parts[0] in _FOLDERS and len(parts) > 1 and (root / _PACKAGE / parts[0] / parts[1]).is_dir():
        return "/".join(parts[:2])
    return parts[0]


def _arrows(root: Path) -> dict[str, set[str]]:
    """Return which packages each package imports."""
    found: dict[str, set[str]] = {}
    for module in modules(root):
        targets = {_package_of(name, root) for name in imports(module, root)}
        if package := _package_of(module, root):
            found.setdefault(package, set()).update(targets - {package, ""})
    return found


def _below(package: str, arrows: Mapping[str, set[str]]) -> set[str]:
    return arrows[package].union(*(_below(target, arrows) for target in arrows[package]))


def draw(root: Path = ROOT) -> str:
    """Return the diagram: an arrow from each package to those that it needs and reaches over no other.

    Args:
        root: The checkout.
    """
    arrows = _arrows(root)
    lines = ["flowchart TB"]
    for package, targets in sorted(arrows.items()):
        indirect = set[str]().union(*(_below(target, arrows) for target in targets))
        lines += [f"    {_node(package)} --> {_node(target)}" for target in sorted(targets - indirect)]
    return "".join(f"{line}\n" for line in lines)


def page() -> str:
    """Return docs/explanation/architecture.md with the diagram of this checkout."""
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text("utf-8")
    head, layers, rest = text.partition("## Layers\n")
    before, fence, block = rest.partition("```mermaid\n")
    return head + layers + before + fence + draw() + "```" + block.partition("```")[2]


def _node(package: str) -> str:
    return f'{package.replace("/", "_")}["{package}"]' if "/" in package else package


if __name__ == "__main__":
    print(draw(Path(sys.argv[1]).resolve() if sys.argv[1:] else ROOT), end="")
