"""``make demo-airflow``, as a user runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(2_200)

ROOT = Path(__file__).parents[2]
LIMIT_S = 1_900.0


def test_the_demo_ends_well_though_a_worker_is_killed(tmp_path: Path) -> None:
    names = {"OQ_URL", "AIRFLOW_HOME"}
    environment = {name: value for name, value in os.environ.items() if name not in names}
    command = [sys.executable, "-m", "examples.flights.on_airflow.demo", "--directory", str(tmp_path)]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        said, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.terminate()  # so that it stops what it started
        said, _ = process.communicate(timeout=180)
        pytest.fail(f"The demo took longer than {LIMIT_S:.0f} s and had said:\n{said}")
    assert process.returncode == 0, said
    assert " is killed on purpose (SIGKILL) while it runs flights_2013-" in said
    assert re.search(r"which succeeded in try [23] on ", said), said
    assert "All is well" in said
    assert (tmp_path / "data" / "report" / "delays.png").read_bytes().startswith(b"\x89PNG")
