"""Do what a page says, as its reader does: write its files, type in its commands, and compare what they print."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatch
from pathlib import Path

from tests.spark.conftest import processes_in
from tests.waiting import wait_until_sync

__all__ = ["own_connect_server", "type_in"]


def type_in(text: str, directory: Path, variables: Mapping[str, str] | None = None) -> list[str]:
    """Do what a page, or a part of one, says, in an empty directory, on the embedded server there.

    A Python block begins with ``# name.py`` and is written; a console block's commands are run. A command that ends in
    ``&`` runs beside the rest, and must end well when it is told to.

    Args:
        text: The page's Markdown.
        directory: Where to do it.
        variables: Further variables of the environment.

    Returns:
        The commands' first words, in order.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {
        name: value for name, value in os.environ.items() if name not in ("OQ_URL", "DAGSTER_HOME", "SPARK_REMOTE")
    }
    environment |= {"PATH": path, "COLUMNS": "200", **(variables or {})}
    ran = []
    with ExitStack() as running:
        for kind, block in re.findall(r"```(python|console)\n(.*?)```", text, re.DOTALL):
            if kind == "python":
                name, _, source = block.removeprefix("# ").partition("\n")
                (directory / name).write_text(source)
                continue
            for command, shown in _commands(block):
                ran.append(command.split()[0])
                if command.endswith(" &"):
                    running.enter_context(_beside(command.removesuffix(" &"), directory, environment))
                else:
                    _compare(command, shown, directory, environment)
    return ran


def _commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """A console's commands, and the lines that follow each."""
    for block in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, *lines = block.splitlines()
        yield command, lines


def _compare(command: str, shown: list[str], directory: Path, environment: dict[str, str]) -> None:
    """Run a command; it must print what is shown, where `...` stands for anything."""
    done = subprocess.run(  # noqa: S602  as a shell reads the page
        command, shell=True, cwd=directory, env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    printed = "\n".join(line.rstrip() for line in done.stdout.splitlines())
    assert fnmatch(printed, "\n".join(shown).replace("[", "[[]").replace("...", "*")), f"{command}\n{printed}"


@contextmanager
def _beside(command: str, directory: Path, environment: dict[str, str]) -> Iterator[None]:
    """What runs beside the rest, and is asked to end."""
    process = subprocess.Popen(command.split(), cwd=directory, env=environment, start_new_session=True)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@contextmanager
def own_connect_server(directory: Path) -> Iterator[dict[str, str]]:
    """Variables of programs that share a Connect server of their own; it is gone when the block ends."""
    kept = directory / "temporary"
    kept.mkdir()
    yield {"TMPDIR": str(kept), "OQ_SPARK_RESULTS": str(directory / "results")}
    for process in processes_in(kept):
        os.kill(process, signal.SIGTERM)
    wait_until_sync(lambda: not processes_in(kept), "the Connect server to leave", 60)
