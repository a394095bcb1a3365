"""mypy --strict and pyright accept every Python block of README.md and docs/."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
_BLOCK = re.compile(r"^ *```(?:python|py)\b[^\n]*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"# ((?:\w+/)*\w+\.py)\b")


def pages() -> list[Path]:
    """Return README.md and the pages of docs/ that contain Python, without those that tests/airflow checks."""
    found = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
    texts = {page: page.read_text(encoding="utf-8") for page in found}
    return [page for page, text in texts.items() if _BLOCK.search(text) and "from airflow." not in text]


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


_TIME_LIMIT_S = 280
_MYPY = ["--strict", "--config-file=", "--explicit-package-bases", "--namespace-packages", "--follow-imports=silent"]


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write all blocks below one directory."""
    directory = tmp_path_factory.mktemp("blocks")
    count = sum(write_page(page, directory) for page in pages())
    assert count > 100, "the pages' blocks are not found"
    return directory


def run(command: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a type checker of this environment."""
    program = [sys.executable, "-m", *command]
    return subprocess.run(program, cwd=directory, capture_output=True, text=True, timeout=_TIME_LIMIT_S, check=False)


@pytest.mark.timeout(300)
def test_mypy_accepts_every_block(blocks: Path) -> None:
    cache = REPOSITORY / ".mypy_cache" / "blocks"
    done = run(["mypy", *_MYPY, "--cache-dir", str(cache), "."], blocks)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(300)
def test_pyright_accepts_every_block(blocks: Path) -> None:
    settings = {"typeCheckingMode": "standard", "pythonVersion": "3.11", "include": ["."]}
    (blocks / "pyrightconfig.json").write_text(json.dumps(settings))
    done = run(["basedpyright", "--project", ".", "--pythonpath", sys.executable], blocks)
    assert done.returncode == 0, done.stdout + done.stderr


def test_blocks_of_a_page_become_files_that_know_each_other(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python\n# work.py\nx = 1\n```\n\n```python\nfrom work import x\n```\n```python\nprint(x)\n```\n"
    )
    assert write_page(page, tmp_path / "written") == 3
    files = {file.name: file.read_text() for file in (tmp_path / "written").rglob("*.py")}
    assert files == {"work.py": "\n# work.py\nx = 1\n", "page.py": "\n" * 6 + "from .work import x\n\n\nprint(x)\n"}
