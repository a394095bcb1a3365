"""What the tests of Airflow may use. `make airflow` runs them; without Airflow, this folder is not collected."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

collect_ignore_glob = [] if find_spec("airflow") else ["*"]

# Airflow reads its configuration where it is first imported, and writes a file there.
_HOME = TemporaryDirectory(prefix="oq-airflow-")
os.environ["AIRFLOW_HOME"] = _HOME.name
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
os.environ["AIRFLOW__CORE__UNIT_TEST_MODE"] = "False"


@pytest.fixture
def airflow_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty AIRFLOW_HOME for programs that a test starts."""
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    return tmp_path
