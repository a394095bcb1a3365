"""``make demo-airflow``, as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(2_000)

ROOT = Path(__file__).parents[2]
LIMIT_S = 1_900.0


def test_the_demo_ends_well_though_a_worker_is_killed(tmp_path: Path) -> None:
    names = {"OQ_URL", "AIRFLOW_HOME"}
    environment = {name: value for name, value in os.environ.items() if name not in names}
    command = [sys.executable, "-m", "examples.flights.on_airflow.demo", "--directory", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " is killed on purpose (SIGKILL) while it runs flights_2013-" in done.stdout
    assert "which succeeded in try 2 on worker-" in done.stdout
    assert "All is well" in done.stdout
    assert (tmp_path / "data" / "report" / "delays.png").read_bytes().startswith(b"\x89PNG")
