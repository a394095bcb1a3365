"""A page of the documentation, as a test meets it: its blocks, its programs, and what running them leaves."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

__all__ = ["DOCS", "Page"]

DOCS = Path(__file__).parents[2] / "docs"


class Page:
    """A page.

    Args:
        name: Its path below ``docs/``.
    """

    def __init__(self, name: str) -> None:
        self.path = DOCS / name
        self.text = self.path.read_text()

    def blocks(self, language: str = "python") -> list[str]:
        """The text of its blocks of a language, in order."""
        return self.found(rf"```{language}\n(.*?)```")

    def found(self, pattern: str) -> list[Any]:
        """What a pattern finds, whose dots stand for line ends, too."""
        return re.findall(pattern, self.text, re.DOTALL)

    def shown(self) -> list[tuple[str, str]]:
        """The words after ``$ python`` in its consoles, and what the page shows them to print."""
        return re.findall(r"^\$ python (.+)\n((?:(?!\$|```).*\n)+)", self.text, re.MULTILINE)

    def run(self, *blocks: str) -> dict[str, Any]:
        """Run blocks, or all of the page's, one after the other; the names that they leave."""
        names: dict[str, Any] = {}
        for block in blocks or self.blocks():
            self.run_in(names, block)
        return names

    def run_in(self, names: dict[str, Any], block: str) -> None:
        """Run one more block with the names that others left."""
        exec(compile(block, str(self.path), "exec"), names)  # noqa: S102  the page is ours

    async def run_in_thread(self, *blocks: str) -> dict[str, Any]:
        """Run it as :meth:`run` does, while the test's event loop runs."""
        return await asyncio.to_thread(self.run, *blocks)

    def write_programs(self, directory: Path) -> dict[str, str]:
        """Write those blocks that begin with a file's name; their texts by name."""
        programs = {name: text for text, name in self.found(r"```python\n(# (\w+\.py)\n.*?)```")}
        for name, text in programs.items():
            (directory / name).write_text(text)
        return programs
