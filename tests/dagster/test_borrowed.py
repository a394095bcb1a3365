"""Dagster's own tests of its executor, launcher, coordinator and compute logs, with ours in their place.

They are in Dagster's source distribution, which pip downloads when this runs, into the user's cache.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest

pytestmark = [pytest.mark.dagster, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "orchestration-queue"
FOLDERS = ("execution_tests", "launcher_tests", "api_tests", "core_tests/run_coordinator_tests", "storage_tests/utils")
"""Of ``dagster_tests``: those with the tests, and what they import."""
EXECUTION = "dagster_tests/execution_tests"


@dataclass(frozen=True)
class Borrowed:
    """Tests of Dagster's, and how they are run with one of our parts.

    Attributes:
        plugin: Our module that puts the part in; none where our tests inherit theirs.
        modules: Where they are.
        chosen: Those of them, or of their parameters, that the part is used in, as ``pytest -k`` has it.
        excluded: Those that cannot pass, each with the reason.
        least: The number that must pass, lest a renamed test drops out unnoticed.
    """

    plugin: str
    modules: tuple[str, ...]
    chosen: str
    excluded: Mapping[str, str]
    least: int


EXECUTOR = Borrowed(
    "tests.dagster.borrowed",
    (
        f"{EXECUTION}/engine_tests/test_multiprocessing.py",
        f"{EXECUTION}/engine_tests/test_op_concurrency.py",
        f"{EXECUTION}/misc_execution_tests/test_retries.py",
        f"{EXECUTION}/dynamic_tests/test_dynamic_execution.py",
    ),
    # Those that do not run in one process.
    "test_multiprocessing or environment1 or multiprocess or run_config1 or recon_job1 or not_inprocess0",
    {
        "test_dynamic_failure_retry[get_dynamic_op_failure_job-<lambda>]": "its steps count in one file at once, "
        "without a lock",
        "test_crash_multiprocessing": "asks for the class ChildProcessCrashException; ours names the signal",
        "test_crash_hard_multiprocessing": "the same",
        "test_step_retry_fixed_wait[environment1]": "its run has no origin, which executors on other machines need",
        "test_multiprocess_simple_job_has_blocked_message": "launches by the default launcher, not put in here",
    },
    30,
)
LAUNCHER = Borrowed(
    "tests.dagster.borrowed_launches",
    ("dagster_tests/launcher_tests/test_default_run_launcher.py",),
    "run_config1 or test_job_that_fails_run_worker",  # those whose steps run in the run's process: they take seconds
    {
        "test_crashy_run[run_config1]": "asks for the default launcher's words; ours names the exit code",
        "test_engine_events[run_config1]": "counts the events; ours has one more, which names the run's job",
        "test_cleanup_after_force_terminate[run_config1]": "cancels past the launcher, by the run's gRPC server",
    },
    6,
)
PARTS = Borrowed(
    "",
    (str(Path(__file__).parent / "borrowed_parts.py"),),
    "not test_config",  # which configure Dagster's own coordinator
    {},
    9,
)


def unpack() -> Path:
    """Return the directory that has Dagster's tests of this version."""
    target = CACHE / f"dagster-{dg.__version__}"
    folders = tuple(f"{target.name}/dagster_tests/{folder}/" for folder in FOLDERS)
    if not all((CACHE / folder).is_dir() for folder in folders):
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
            tests = [member for member in archive if member.name.startswith(f"{target.name}/dagster_tests/")]
            members = [
                member for member in tests if member.name.startswith(folders) or member.name.endswith("/__init__.py")
            ]
            archive.extractall(CACHE, members, filter="data")
    return target


@pytest.mark.parametrize("borrowed", [EXECUTOR, LAUNCHER, PARTS], ids=["executor", "launcher", "coordinator_and_logs"])
def test_dagsters_tests_of_its_own_parts_pass_with_ours(borrowed: Borrowed, tmp_path: Path) -> None:
    tests = unpack()
    command = [sys.executable, "-m", "pytest", "-q", "--noconftest"]
    command += ["-p", borrowed.plugin] if borrowed.plugin else []
    command += ["-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(tests), "--import-mode=importlib"]
    command += ["--basetemp", str(tmp_path / "theirs"), "--timeout", "100", "-k", borrowed.chosen, "--tb=short"]
    for name in borrowed.excluded:
        defined = f"def {name.partition('[')[0]}("
        (module,) = [path for path in borrowed.modules if defined in (tests / path).read_text()]
        command += ["--deselect", f"{module}::{name}"]
    run = subprocess.run(
        [*command, *(str(tests / path) for path in borrowed.modules)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{tests}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-20_000:]
    (passed,) = re.findall(r"(\d+) passed", run.stdout)
    assert int(passed) >= borrowed.least
