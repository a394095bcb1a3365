"""A stop signal drains every kind of worker process, whatever it was started with."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestration_queue.client import Queue
from orchestration_queue.wires.chasquimq import ChasquiQueue
from orchestration_queue.wires.qless import QlessClient
from tests.processes import OQ, running_process
from tests.waiting import wait_until_sync

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

CODE = """\
import time
from pathlib import Path

def handle(job):
    word = job.data["word"]
    Path(f"{word}.started").touch()
    while not Path(f"{word}.may_end").exists():
        time.sleep(0.01)
    return word
"""
PROGRAM = """\
import sys
from handlers import handle
from orchestration_queue import Worker, run_workers
if __name__ == "__main__":
    sys.exit(run_workers(Worker(sys.argv[1], handle), processes=int(sys.argv[2])))
"""
STARTER = """\
import os, signal, sys
for name in sys.argv[1].split():
    signal.signal(signal.Signals[name], signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.Signals[name] for name in sys.argv[2].split()])
os.execv(sys.argv[3], sys.argv[3:])
"""
WORKER = (OQ, "worker", "handlers:handle", "--queue", "{queue}")
KINDS: dict[str, Sequence[str]] = {
    "worker": WORKER,
    "processes": (*WORKER, "--processes", "2"),
    "reload": (*WORKER, "--reload"),
    "chasqui": (OQ, "chasqui", "worker", "{queue}", "handlers:handle", "--store-results"),
    "qless": (OQ, "qless", "worker", "{queue}", "--handler", "handlers:handle"),
    "program": (sys.executable, "program.py", "{queue}", "1"),
    "program of processes": (sys.executable, "program.py", "{queue}", "2"),
}
OWNERS = [kind for kind in KINDS if kind != "program"]
"""Those that take SIGTERM even if it was ignored at the start."""
WAYS: dict[str, Sequence[str]] = {
    "background of a script": ("bash", "-c", '"$@" & echo $! > pid; wait $!', "bash"),
    "nohup": ("nohup",),
    "exec of a shell": ("sh", "-c", 'exec "$@"', "sh"),
    "timeout": ("timeout", "600"),
    "process 1": ("unshare", "--pid", "--fork", "--mount-proc"),
}


@dataclass(frozen=True)
class _Work:
    """Jobs of a queue, each of which ends when it may.

    Attributes:
        directory: Where their handlers find out.
        add: Adds a job by its word, and returns what is asked for it.
        is_completed: Whether the server has its result.
    """

    directory: Path
    add: Callable[[str], Any]
    is_completed: Callable[[Any], bool]

    def start(self, word: str) -> Any:
        """Add a job, and wait until its handler runs."""
        job = self.add(word)
        wait_until_sync((self.directory / f"{word}.started").exists, f"job {word} to start")
        return job

    def let_end(self, word: str) -> None:
        (self.directory / f"{word}.may_end").touch()

    def complete(self, word: str) -> None:
        """Run a job to its end."""
        job = self.start(word)
        self.let_end(word)
        wait_until_sync(lambda: self.is_completed(job), f"job {word} to complete")


@contextmanager
def working(kind: str, queue: str, url: str, directory: Path) -> Iterator[_Work]:
    """The queue of a kind of worker."""
    (directory / "handlers.py").write_text(CODE)
    (directory / "program.py").write_text(PROGRAM)
    with ExitStack() as stack:
        if kind == "chasqui":
            chasqui = stack.enter_context(ChasquiQueue(queue, url=url))
            yield _Work(
                directory,
                lambda word: chasqui.add("job", {"word": word}),
                lambda job: chasqui.find_results([job.id]) != [None],
            )
        elif kind == "qless":
            client = stack.enter_context(QlessClient(url=url))

            def has_completed(jid: str) -> bool:
                job = client.get(jid)
                return job is not None and job.state == "complete"

            yield _Work(directory, lambda word: client.put(queue, "Job", {"word": word}), has_completed)
        else:
            own = stack.enter_context(Queue(queue, url=url))
            yield _Work(
                directory,
                lambda word: own.add("job", {"word": word}),
                lambda job: job.refresh().state == "completed",
            )


def command_of(kind: str, queue: str, *, ignored: str = "", blocked: str = "") -> list[str]:
    """The command of a worker that starts with these signals ignored or blocked."""
    command = [word.format(queue=queue) for word in KINDS[kind]]
    return [sys.executable, "-c", STARTER, ignored, blocked, *command] if ignored or blocked else command


def drains(work: _Work, process: subprocess.Popen[bytes], number: signal.Signals, pid: int | None = None) -> None:
    """Check that a running handler gets its time after the signal, and its outcome is reported."""
    job = work.start("drained")
    os.kill(pid or process.pid, number)
    work.let_end("drained")
    assert process.wait(60) == 0
    assert work.is_completed(job)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("kind", KINDS)
def test_a_signal_drains(kind: str, number: signal.Signals, server_url: str, queue_name: str, tmp_path: Path) -> None:
    with (
        working(kind, queue_name, server_url, tmp_path) as work,
        running_process(command_of(kind, queue_name), server_url, directory=tmp_path) as process,
    ):
        drains(work, process, number)


@pytest.mark.parametrize("kind", KINDS)
def test_an_ignored_signal_stays_ignored_and_sigterm_drains(
    kind: str, server_url: str, queue_name: str, tmp_path: Path
) -> None:
    command = command_of(kind, queue_name, ignored="SIGINT SIGQUIT SIGHUP")
    with (
        working(kind, queue_name, server_url, tmp_path) as work,
        running_process(command, server_url, directory=tmp_path) as process,
    ):
        work.complete("before")
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
            process.send_signal(number)
        work.complete("after")
        drains(work, process, signal.SIGTERM)


@pytest.mark.parametrize("start", [{"ignored": "SIGTERM SIGINT"}, {"blocked": "SIGTERM"}], ids=["ignored", "blocked"])
@pytest.mark.parametrize("kind", OWNERS)
def test_sigterm_drains_though_it_was_ignored_or_blocked_at_the_start(
    kind: str, start: dict[str, str], server_url: str, queue_name: str, tmp_path: Path
) -> None:
    with (
        working(kind, queue_name, server_url, tmp_path) as work,
        running_process(command_of(kind, queue_name, **start), server_url, directory=tmp_path) as process,
    ):
        drains(work, process, signal.SIGTERM)


@pytest.mark.parametrize("way", WAYS)
def test_sigterm_drains_a_worker_however_it_was_started(
    way: str, server_url: str, queue_name: str, tmp_path: Path
) -> None:
    command = [*WAYS[way], *command_of("worker", queue_name)]
    if way == "process 1":
        skip_without_namespaces()
    with (
        working("worker", queue_name, server_url, tmp_path) as work,
        running_process(command, server_url, directory=tmp_path) as process,
    ):
        work.complete("before")
        if way == "background of a script":
            drains(work, process, signal.SIGTERM, int((tmp_path / "pid").read_text()))
        elif way == "process 1":
            drains(work, process, signal.SIGTERM, child_of(process))
        else:
            drains(work, process, signal.SIGTERM)


def test_sigterm_ends_process_1_while_it_still_imports(server_url: str, queue_name: str, tmp_path: Path) -> None:
    skip_without_namespaces()
    wait = "import time\nfrom pathlib import Path\nPath('importing').touch()\ntime.sleep(600)\n"
    (tmp_path / "handlers.py").write_text(wait)
    command = [*WAYS["process 1"], *command_of("worker", queue_name)]
    with running_process(command, server_url, directory=tmp_path) as process:
        wait_until_sync((tmp_path / "importing").exists, "the import to begin")
        os.kill(child_of(process), signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM


def test_a_module_that_replaces_handlers_does_not_keep_signals_from_the_worker(
    server_url: str, queue_name: str, tmp_path: Path
) -> None:
    with working("worker", queue_name, server_url, tmp_path) as work:
        (tmp_path / "handlers.py").write_text(f"import signal\nsignal.signal(15, signal.default_int_handler)\n{CODE}")
        with running_process(command_of("worker", queue_name), server_url, directory=tmp_path) as process:
            drains(work, process, signal.SIGTERM)


def child_of(process: subprocess.Popen[bytes]) -> int:
    """The only process that it started."""
    (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(child)


def skip_without_namespaces() -> None:
    """Skip a test where this user may not create process namespaces."""
    trial = [*WAYS["process 1"], "true"]
    if shutil.which("unshare") is None or subprocess.run(trial, capture_output=True, timeout=60).returncode:
        pytest.skip("process namespaces are not allowed here")
