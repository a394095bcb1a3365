"""The Python code of the documentation as files that a type checker reads.

A block whose first line names a file (``# work.py``) is that file. The other blocks of a page continue each other, as
``page.py``. Line numbers are those of the page.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["REPOSITORY", "pages", "write_page"]

REPOSITORY = Path(__file__).parents[2]
_BLOCK = re.compile(r"^ *```(?:python|py)\b[^\n]*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"# ((?:\w+/)*\w+\.py)\b")


def pages() -> list[Path]:
    """Return README.md and the pages of docs/ that contain Python."""
    found = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
    return [page for page in found if _BLOCK.search(page.read_text(encoding="utf-8"))]


def write_page(page: Path, directory: Path) -> int:
    """Write the blocks of a page below a directory as a package of their own; return how many there are."""
    text = page.read_text(encoding="utf-8")
    blocks = list(_BLOCK.finditer(text))
    files: dict[str, str] = {}
    for block in blocks:
        named = _FILE.match(block[1])
        name = named[1] if named else "page.py"
        if named and name in files:
            raise ValueError(f"{page} shows {name} twice; name the second block otherwise.")
        before = files.get(name, "")
        files[name] = before + "\n" * (text.count("\n", 0, block.start(1)) - before.count("\n")) + block[1]
    package = directory / re.sub(r"\W", "_", os.path.relpath(page.with_suffix(""), REPOSITORY))
    for name, code in files.items():
        file = package / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_import_relatively(code, list(files), depth=name.count("/") + 1), encoding="utf-8")
    return len(blocks)


def _import_relatively(code: str, files: list[str], depth: int) -> str:
    """Return code that imports the other files of its page from their package: several pages have a ``work.py``."""
    modules = "|".join(re.escape(name.removesuffix(".py").replace("/", ".")) for name in files)
    dots = "." * depth
    code = re.sub(rf"^( *)from ({modules}) import", rf"\1from {dots}\2 import", code, flags=re.MULTILINE)
    return re.sub(rf"^( *)import ({modules})$", rf"\1from {dots} import \2", code, flags=re.MULTILINE)
