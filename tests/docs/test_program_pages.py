"""The programs of the how-tos print what the pages show."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from orchestration_queue.client import Queue
from tests.docs.page import Page
from tests.processes import OQ

WRITE_TASKS = Page("how-to/write-tasks.md")
STEP_JOBS = Page("how-to/durable-steps.md")
BROADCAST = Page("how-to/broadcast.md")
ISOLATE_HANDLERS = Page("how-to/isolate-handlers.md")


@contextmanager
def worker(command: str, directory: Path, url: str | None = None) -> Iterator[None]:
    """Run a page's worker in the directory of its programs, on the embedded server of the directory by default."""
    running = subprocess.Popen(
        [OQ, *command.removeprefix("oq ").split()], cwd=directory, env=environment(url), start_new_session=True
    )
    try:
        yield
    finally:
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0


def print_of(program: str, directory: Path, url: str | None = None) -> str:
    """Return what a page's program prints."""
    command = [sys.executable, program]
    return subprocess.check_output(command, cwd=directory, env=environment(url), text=True, timeout=60)


def environment(url: str | None) -> dict[str, str]:
    others = {name: value for name, value in os.environ.items() if name != "OQ_URL"}
    return others if url is None else {**others, "OQ_URL": url}


def test_the_programs_on_tasks_print_what_their_page_shows(tmp_path: Path) -> None:
    WRITE_TASKS.write_programs(tmp_path)
    shown = WRITE_TASKS.shown()
    assert [name for name, _ in shown] == ["add.py", "add_async.py"]
    command = "oq worker reports:tasks --queue reports --concurrency 4"
    assert command in WRITE_TASKS.text
    with worker(command, tmp_path):
        for name, text in shown:
            assert print_of(name, tmp_path) == text


def test_the_other_programs_on_tasks_run(tmp_path: Path) -> None:
    programs = WRITE_TASKS.write_programs(tmp_path)
    assert set(programs) == {"reports.py", "add.py", "add_async.py", "test_reports.py", "timing.py"}
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."], cwd=tmp_path, check=True, timeout=280
    )
    subprocess.run([sys.executable, "timing.py"], cwd=tmp_path, check=True, timeout=280)


def test_the_programs_on_step_jobs_print_what_their_page_shows(tmp_path: Path) -> None:
    assert list(STEP_JOBS.write_programs(tmp_path)) == [
        "orders.py",
        "add.py",
        "lookup.py",
        "media.py",
        "inspect_job.py",
        "repeat.py",
        "ledger.py",
    ]
    (shown,) = STEP_JOBS.found(r"\$ python add\.py\n(.*?)```")
    command = "oq worker orders:tasks --queue orders"
    assert command in STEP_JOBS.text
    with worker(command, tmp_path):
        assert print_of("add.py", tmp_path) == shown


def test_the_program_on_broadcasts_prints_what_its_page_shows(tmp_path: Path, server_url: str, raw: object) -> None:
    BROADCAST.write_programs(tmp_path)
    (shown,) = BROADCAST.found(r"```\n(mailer: .*?)```")
    printed = print_of("broadcasting.py", tmp_path, server_url)
    assert sorted(printed.splitlines()) == sorted(shown.splitlines())


def test_the_isolated_handler_runs_as_its_page_starts_it(tmp_path: Path, server_url: str, raw: object) -> None:
    assert list(ISOLATE_HANDLERS.write_programs(tmp_path)) == ["images.py", "thumbnails.py"]
    (command,) = ISOLATE_HANDLERS.found(r"```\n(oq worker .*?)\n```")
    with worker(command, tmp_path, server_url), Queue("images", url=server_url) as queue:
        job = queue.add("resize", {"width": 640})
        assert job.wait(timedelta(seconds=60)) == {"width": 320}
        assert job.logs() == ["resizing"]
