"""The check of wording finds banned phrases where prose is, and leaves code alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "tools"))

import check_voice


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("a.py", '"""Somebody waits."""\n', [1]),
        ("a.py", 'x = 1\n# This is\n# to be mended\ny = f"there is {x} and nobody"\n', [3, 4]),
        ("a.py", "somebody = None\nfor ever in (1,): print(somebody is None, ever)\n", []),
        ("a.py", "lock_duration = 3\n", [1]),
        ("a.md", "It runs at even distances,\nby the clock of a place.\nThe server hangs up.\n", [1, 2, 3]),
        ("a.lua", "local nobody = 1 -- who shall wait\n", [1]),
        (
            "a.md",
            "The key stands here.\n\n```python\nnobody = 1\n```\n\n`nobody` is a name, and anew\nis none.\n",
            [1, 7, 8],
        ),
        ("a.md", "This stands for that, and X is None.\n", []),
        ("a.md", "A trip here,\na round trip there; it goes on,\nthat is not so any more.\n", [1, 2, 3]),
    ],
)
def test_banned_phrases_are_found_in_prose_only(tmp_path: Path, name: str, text: str, lines: list[int]) -> None:
    path = tmp_path / name
    path.write_text(text)
    found = [int(message.split(":")[1]) for message in check_voice.check(path)]
    assert found == lines
