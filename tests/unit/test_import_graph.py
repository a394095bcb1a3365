"""The package's imports: no circle, also not over imports within functions, and no look into private halves."""

from __future__ import annotations

import ast
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Final

sys.path.append(str(Path(__file__).parents[2] / "tools"))
import_graph = import_module("import_graph")
MODULES: Final = import_graph.modules()


def imports(module: str) -> frozenset[str]:
    """The package's modules that one imports, wherever in its text."""
    return frozenset(import_graph.imports(module))


def reachable(start: str) -> set[str]:
    """All modules that one needs, itself only when it is in a circle."""
    seen: set[str] = set()
    ahead = set(imports(start))
    while ahead:
        seen |= ahead
        ahead = {found for module in ahead for found in imports(module)} - seen
    return seen


def test_no_module_needs_itself() -> None:
    needs = {module: reachable(module) for module in MODULES}
    circles = {
        frozenset(other for other in needs[module] if module in needs[other])
        for module in MODULES
        if module in needs[module]
    }
    assert not circles


def test_private_halves_are_imported_by_their_own_package_only() -> None:
    guests = {
        f"{module} imports {name}"
        for module in MODULES
        for name in imports(module)
        if (parts := re.split(r"\._a?sync\b", name))[1:] and not f"{module}.".startswith(f"{parts[0]}.")
    }
    assert not guests


def test_a_class_name_has_one_meaning() -> None:
    """Other wires name what plays the same part on their wire as the native one does."""
    homes: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        if any(word in module for word in ("._sync.", ".functions.", ".wires.")):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(module)
    # Airflow and Dagster each have an executor, which no program uses both of.
    assert len(homes.pop("QueueExecutor")) == 2
    assert not {name: modules for name, modules in homes.items() if len(modules) > 1}
