"""Pages that a reader types in do what they say: the tutorial, and those for users of other queues."""

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
from types import ModuleType

import dagster as dg
import pytest

from tests.docs.page import Page


def type_in(page: str, directory: Path) -> list[str]:
    """Do what a page says, in an empty directory, on the embedded server there.

    A Python block begins with ``# name.py`` and is written; a console block's commands are run. A command that ends in
    ``&`` runs beside the rest, and must end well when it is told to.

    Args:
        page: Its path below ``docs/``.
        directory: Where to do it.

    Returns:
        The commands' first words, in order.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if name not in ("OQ_URL", "DAGSTER_HOME")}
    environment |= {"PATH": path, "COLUMNS": "200"}
    ran = []
    with ExitStack() as running:
        for kind, text in Page(page).found(r"```(python|console)\n(.*?)```"):
            if kind == "python":
                name, _, source = text.removeprefix("# ").partition("\n")
                (directory / name).write_text(source)
                continue
            for command, shown in _commands(text):
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
        command, shell=True, cwd=directory, env=environment, capture_output=True, text=True, timeout=100, check=False
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


@pytest.mark.parametrize("origin", ["celery", "airflow", "bullmq"])
def test_the_page_does_what_it_says(origin: str, tmp_path: Path) -> None:
    assert type_in(f"how-to/from-{origin}.md", tmp_path) == ["oq", "python"]


@pytest.mark.dagster
@pytest.mark.parametrize("name", ["from-dagster-celery", "from-multiprocess-executor"])
def test_what_replaces_an_executor_loads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page(f"how-to/{name}.md")
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    (block,) = page.blocks()
    page.run_in(module.__dict__, block)
    dg.Definitions.validate_loadable(module.defs)
    assert module.defs.resolve_implicit_global_asset_job_def().executor_def.name == "queue"


@pytest.mark.dagster
@pytest.mark.timeout(300)
def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    assert type_in("tutorial/first-pipeline.md", tmp_path) == ["oq", "python", "python", "oq", "oq", "oq", "dagster"]
