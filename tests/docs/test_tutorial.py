"""The tutorial, typed in from top to bottom: its files, its commands, and what they print."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatch
from pathlib import Path

import pytest

pytestmark = pytest.mark.dagster

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial" / "first-pipeline.md").read_text()
BLOCKS = re.findall(r"```(python|console)\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.timeout(300)
def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if name not in ("OQ_URL", "DAGSTER_HOME")}
    environment |= {"PATH": path, "COLUMNS": "200"}
    ran = []
    with ExitStack() as running:
        for kind, text in BLOCKS:
            if kind == "python":
                name, _, source = text.removeprefix("# ").partition("\n")
                (tmp_path / name).write_text(source)
                continue
            for command, expected in commands(text):
                ran.append(command.split()[0])
                if command.endswith(" &"):
                    running.enter_context(in_background(command.removesuffix(" &"), tmp_path, environment))
                    continue
                done = subprocess.run(  # noqa: S602  as a shell reads the page
                    command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100
                )
                assert done.returncode == 0, done.stderr
                printed = [line.rstrip() for line in done.stdout.splitlines()]
                assert matches(printed, expected), done.stdout
    assert ran == ["oq", "python", "python", "oq", "oq", "oq", "dagster"]


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """A console's commands, and the lines that follow each."""
    for block in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, *lines = block.splitlines()
        yield command, lines


def matches(printed: list[str], expected: list[str]) -> bool:
    """Whether all was printed as shown, where `...` stands for anything."""
    pattern = "\n".join(expected).replace("...", "*").replace("[", "[[]")
    return fnmatch("\n".join(printed), pattern)


@contextmanager
def in_background(command: str, directory: Path, environment: dict[str, str]) -> Iterator[None]:
    """What runs beside the rest, and is asked to end."""
    process = subprocess.Popen(command.split(), cwd=directory, env=environment, start_new_session=True)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
