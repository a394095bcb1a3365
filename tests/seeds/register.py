"""The documents that this package implements, sentence by sentence: what each states, what happens, and the test of it.

A module beside this one holds the statements of a document, as `SEED`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

__all__ = ["ROOT", "Seed", "Statement", "defects", "seeds"]

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Statement:
    """One statement of a document."""

    place: str
    """The heading under which it is."""
    says: str
    """The statement, shortened."""
    does: str
    """What happens, in one line. Of a contradiction: which side decides. Of a difference: why."""
    test: str
    """The test of it, as `path::function`."""
    contradicts: str = ""
    """What else says otherwise: another place of the document, or of the same project."""
    page: str = ""
    """Where users read that this is not followed."""

    @property
    def kind(self) -> str:
        """`contradictory`, `different` (deliberately), or `shown`."""
        if self.contradicts:
            return "contradictory"
        return "different" if self.page else "shown"


@dataclass(frozen=True)
class Seed:
    """A document."""

    title: str
    source: str
    """What it is, and which version of it was read."""
    statements: tuple[Statement, ...]

    def count(self, kind: str) -> int:
        """Return how many of its statements are of a kind."""
        return sum(statement.kind == kind for statement in self.statements)


def seeds() -> Iterator[Seed]:
    """Return every document of the register."""
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.stem not in ("__init__", "register") and not path.stem.startswith("test_"):
            yield import_module(f"tests.seeds.{path.stem}").SEED


def defects(statement: Statement) -> Iterator[str]:
    """Return what a row lacks: words, a test that exists, a page that exists."""
    words = (statement.place, statement.says, statement.does)
    if not all(word and word == word.strip() for word in words):
        yield "a place, a statement, and a behavior are required"
    path, _, name = statement.test.partition("::")
    if not name:
        yield "it names no test, as `path::function`"
    elif name not in _tests(path):
        yield f"{statement.test} does not exist"
    if statement.page and not (ROOT / "docs" / statement.page.partition("#")[0]).is_file():
        yield f"docs/{statement.page} does not exist"


@cache
def _tests(path: str) -> frozenset[str]:
    """Return the tests that a file defines, those of a class as `Class::test`."""
    file = ROOT / path
    if not file.is_file() or not file.name.startswith("test_"):
        return frozenset()
    tree = ast.parse(file.read_text())
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name.startswith("Test")]
    return frozenset(
        prefix + node.name
        for prefix, body in (("", tree.body), *((f"{each.name}::", each.body) for each in classes))
        for node in body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")
    )
