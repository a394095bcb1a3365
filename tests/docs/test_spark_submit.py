"""What the page on spark-submit shows is what happens."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from orchestration_queue.spark import SparkSubmit

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "spark-submit.md"


def test_the_programs_of_the_page_print_what_it_shows(tmp_path: Path) -> None:
    text = PAGE.read_text()
    programs = {name: program for program, name in re.findall(r"```python\n(# (\w+\.py)\n.*?)```", text, re.DOTALL)}
    assert set(programs) == {"nightly.py", "applications.py", "on_the_cluster.py", "elsewhere.py", "alone.py"}
    for name, program in programs.items():
        (tmp_path / name).write_text(program)
    flights = tmp_path / "flights"
    flights.mkdir()
    pd.DataFrame({"distance": [1400, 1089, 0, 762]}).to_parquet(flights / "part.parquet")
    environment = {name: value for name, value in os.environ.items() if name not in ("OQ_URL", "SPARK_REMOTE")}
    named = {"applications": ["nightly"], "on_the_cluster": ["nightly"], "elsewhere": ["nightly", "hourly", "weekly"]}
    for module, names in named.items():
        check = f"from {module} import tasks; assert [*tasks] == {names}"
        subprocess.run([sys.executable, "-c", check], cwd=tmp_path, env=environment, check=True, timeout=280)
    ((name, shown),) = re.findall(r"^\$ python (\w+\.py) /data/flights\n((?:(?!\$|```).*\n)+)", text, re.MULTILINE)
    words = [sys.executable, name, str(flights)]
    assert subprocess.check_output(words, cwd=tmp_path, env=environment, text=True, timeout=200) == shown


def test_the_options_of_the_page_exist() -> None:
    table = PAGE.read_text().partition("## Options")[2].partition("## How")[0]
    named = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE))))
    assert named == set(SparkSubmit.model_fields) - set(SparkSubmit.__mro__[1].model_fields)  # type: ignore[attr-defined]
