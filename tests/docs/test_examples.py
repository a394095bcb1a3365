"""Each numbered example prints what it says it prints."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from orchestration_queue.spark import SparkOptions
from orchestration_queue.spark.environment import spark_environment

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("[0-9]*.py"))


def test_there_is_one_for_each_number() -> None:
    assert [path.name[:2] for path in EXAMPLES] == [f"{number:02}" for number in range(1, len(EXAMPLES) + 1)]
    readme = (EXAMPLES[0].parent / "README.md").read_text()
    assert all(f"({path.name})" in readme for path in EXAMPLES)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[getattr(pytest.mark, kind) for kind in ("spark", "dagster") if kind in path.name])
        for path in EXAMPLES
    ],
    ids=lambda path: path.stem,
)
@pytest.mark.timeout(300)  # seconds of processor time, on however busy a machine
def test_an_example_prints_what_it_says(path: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    said = ast.get_docstring(ast.parse(path.read_text()))
    assert said
    shown = textwrap.dedent(said.partition("Prints::\n\n")[2])
    environment = {name: text for name, text in os.environ.items() if name not in ("OQ_URL", "SPARK_REMOTE")}
    if "spark" in path.name:  # one starts a Spark of its own, which takes Spark's classes from their archive, too
        scratch = tmp_path_factory.mktemp("spark")
        environment["SPARK_SUBMIT_OPTS"] = spark_environment(SparkOptions(), scratch)["SPARK_SUBMIT_OPTS"]
    done = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == shown.strip(), done.stderr
