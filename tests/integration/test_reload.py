"""`oq worker --reload`: changed code runs, what ran is finished first, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from orchestration_queue.client import Queue
from tests.processes import worker_process
from tests.waiting import wait_until_sync

CODE = """\
import time
from pathlib import Path
from orchestration_queue import Tasks

tasks = Tasks()

@tasks.task
def say() -> str:
    return "{word}"

@tasks.task
def slow() -> str:
    Path("started").touch()
    while not Path("may_end").exists():
        time.sleep(0.01)
    return "{word}"
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with code."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reloaded.py").write_text(CODE.format(word="old"))
    return tmp_path


def children(process: subprocess.Popen[bytes]) -> list[int]:
    """The processes that it started."""
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def is_watching(process: subprocess.Popen[bytes]) -> bool:
    """Whether it will notice changes; it starts beside the worker that it has started."""
    watched = False
    for descriptor in Path(f"/proc/{process.pid}/fdinfo").iterdir():
        with suppress(OSError):  # closed meanwhile
            watched = watched or "inotify wd:" in descriptor.read_text()
    return watched


def test_a_change_starts_the_worker_anew_once_its_jobs_are_done(
    project: Path, server_url: str, queue_name: str
) -> None:
    with (
        worker_process("reloaded:tasks", queue_name, server_url, "--reload", log=project / "log") as process,
        Queue(queue_name, url=server_url) as queue,
    ):
        assert queue.add("say").wait(60) == "old"
        wait_until_sync(lambda: is_watching(process), "changes to be watched for")
        running = queue.add("slow")
        wait_until_sync((project / "started").exists, "the slow job to start")
        (project / "reloaded.py").write_text(CODE.format(word="new"))
        wait_until_sync(lambda: "is draining" in (project / "log").read_text(), "the worker to be told to stop")
        (project / "may_end").touch()
        assert running.wait(60) == "old", "it was finished first"
        assert queue.add("say").wait(60) == "new"
        assert queue.get(running.id).record.attempts_made == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_code_that_does_not_load_is_tried_again_after_the_next_change(
    project: Path, server_url: str, queue_name: str
) -> None:
    (project / "reloaded.py").write_text("import nothing_of_that_name")
    with (
        worker_process("reloaded:tasks", queue_name, server_url, "--reload", log=project / "log") as process,
        Queue(queue_name, url=server_url) as queue,
    ):
        wait_until_sync(lambda: "cannot be imported" in (project / "log").read_text(), "the error to be told")
        wait_until_sync(lambda: is_watching(process), "changes to be watched for")
        (project / "reloaded.py").write_text(CODE.format(word="repeated"))
        assert queue.add("say").wait(60) == "repeated"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_a_killed_watcher_takes_the_worker_along(project: Path, server_url: str, queue_name: str) -> None:
    with (
        worker_process("reloaded:tasks", queue_name, server_url, "--reload") as process,
        Queue(queue_name, url=server_url) as queue,
    ):
        assert queue.add("say").wait(60) == "old"
        (worker,) = children(process)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(60)
        wait_until_sync(lambda: not Path(f"/proc/{worker}").exists(), "the worker to end")
        assert queue.workers() == []
