"""The package without its use: it loads no Airflow, and what is installed fits together."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

from packaging.specifiers import SpecifierSet
from packaging.version import Version


def test_importing_the_package_imports_no_airflow() -> None:
    code = "import sys, orchestration_queue.airflow; assert not {'airflow', 'dagster', 'pyspark'} & {*sys.modules}"
    assert subprocess.run([sys.executable, "-c", code], timeout=120, check=False).returncode == 0


def test_the_installed_airflow_is_one_that_is_declared() -> None:
    assert Version(version("apache-airflow")) in SpecifierSet(">=3.3.2,<3.4")
