"""Dagster's own tests of its multiprocess executor, with ours in its place.

They are in Dagster's source distribution, which pip downloads when this runs, into the user's cache.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import dagster as dg
import pytest

pytestmark = [pytest.mark.dagster, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "orchestration-queue"
FOLDER = "dagster_tests/execution_tests"
MODULES = (
    f"{FOLDER}/engine_tests/test_multiprocessing.py",
    f"{FOLDER}/engine_tests/test_op_concurrency.py",
    f"{FOLDER}/misc_execution_tests/test_retries.py",
    f"{FOLDER}/dynamic_tests/test_dynamic_execution.py",
)
WITH_EXECUTOR = "test_multiprocessing or environment1 or multiprocess or run_config1 or recon_job1 or not_inprocess0"
"""Those of their tests, or their parameters, that do not run in one process."""
EXCLUDED = {
    "test_crash_multiprocessing": "asks for the class ChildProcessCrashException; ours names the signal",
    "test_crash_hard_multiprocessing": "the same",
    "test_step_retry_fixed_wait[environment1]": "its run has no origin, which executors on other machines need",
    "test_multiprocess_simple_job_has_blocked_message": "launches by the default launcher, which is not put in here",
}
LEAST = 30
"""The number that must pass, lest a renamed test drops out unnoticed."""


def unpack() -> Path:
    """Return the directory that has Dagster's tests of this version."""
    target = CACHE / f"dagster-{dg.__version__}"
    if not (target / FOLDER).is_dir():
        download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "dagster"]
        got = subprocess.run(
            [*download, "--dest", str(CACHE), f"dagster=={dg.__version__}"],
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        if got.returncode:
            pytest.skip(f"pip cannot download Dagster's tests: {got.stderr[-300:]}")
        with tarfile.open(CACHE / f"{target.name}.tar.gz") as archive:
            wanted = (f"{target.name}/dagster_tests/__init__.py", f"{target.name}/{FOLDER}/")
            members = [member for member in archive if member.name.startswith(wanted)]
            archive.extractall(CACHE, members, filter="data")
    return target


def test_dagsters_tests_of_its_executor_pass_with_ours(tmp_path: Path) -> None:
    tests = unpack()
    command = [sys.executable, "-m", "pytest", "-q", "--noconftest", "-p", "tests.dagster.borrowed"]
    command += ["-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(tests), "--import-mode=importlib"]
    command += ["--basetemp", str(tmp_path / "theirs"), "--timeout", "100", "-k", WITH_EXECUTOR, "--tb=short"]
    for name in EXCLUDED:
        (module,) = [path for path in MODULES if f"def {name.partition('[')[0]}(" in (tests / path).read_text()]
        command += ["--deselect", f"{module}::{name}"]
    run = subprocess.run(
        [*command, *(str(tests / path) for path in MODULES)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{tests}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-20_000:]
    (passed,) = re.findall(r"(\d+) passed", run.stdout)
    assert int(passed) >= LEAST
