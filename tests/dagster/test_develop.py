"""`oq dagster dev`: one command for Dagster, a worker and a server."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.reconstruct import ReconstructableJob

from orchestration_queue.dagster.develop import find_home
from tests.dagster.step_workers import READY, home_is
from tests.processes import OQ
from tests.waiting import wait_until_sync

DEFINITIONS = """
import os
import dagster as dg
from orchestration_queue.dagster import queue_executor

@dg.op
def number(context):
    context.log.info(f"done by {os.getppid()}")

@dg.job(executor_def=queue_executor)
def number_job():
    number()
"""


def test_a_project_without_a_home_gets_one(tmp_path: Path) -> None:
    assert find_home(tmp_path) == tmp_path / ".oq" / "dagster"
    assert (tmp_path / ".oq" / "dagster").is_dir()
    (tmp_path / "dagster.yaml").touch()
    assert find_home(tmp_path) == tmp_path


def test_without_code_it_says_what_to_pass() -> None:
    ended = subprocess.run([OQ, "dagster", "dev"], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert ended.stderr == "No code to load; name a module with -m, a file with -f, or a workspace with -w.\n"


@pytest.mark.dagster
@pytest.mark.timeout(300)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_steps_run_without_any_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DAGSTER_HOME", "OQ_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    Path("definitions.py").write_text(DEFINITIONS)
    log = tmp_path / "log"
    with log.open("wb") as output:
        dev = subprocess.Popen(
            [OQ, "dagster", "dev", "-f", "definitions.py", "-p", "0"],
            stderr=output,
            stdout=output,
            start_new_session=True,
        )
    try:
        wait_until_sync(lambda: READY in log.read_text(), "the worker to be ready", 150)
        job = ReconstructableJob.for_file("definitions.py", "number_job")
        with home_is(str(tmp_path / ".oq" / "dagster")), dg.DagsterInstance.get() as instance:
            result = dg.execute_job(job, instance)
            told = [entry.user_message for entry in instance.all_logs(result.run_id)]
        (server,) = (int(found[1]) for message in told if (found := re.fullmatch(r"done by (\d+)", message)))
        assert result.success
        assert Path(f"/proc/{server}").exists(), "the step ran beside this process"
        dev.send_signal(signal.SIGTERM)
        assert dev.wait(60) == 0
        wait_until_sync(lambda: not Path(f"/proc/{server}").exists(), "the worker to end", 60)
    finally:
        dev.terminate()
        dev.wait(60)
