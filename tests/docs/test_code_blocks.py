"""mypy --strict and pyright accept every Python block of README.md and docs/."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.code_blocks import REPOSITORY, pages, write_page

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
