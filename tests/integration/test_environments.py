"""Containers and their like: a user id without a name, read-only files, few descriptors, PID 1, prefork servers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from orchestration_queue.server import parse_url
from tests.processes import OQ
from tests.waiting import wait_until_sync

UNNAMED: Final = [
    "env", "-u", "HOME", "setpriv", "--reuid", "12345", "--regid", "0", "--clear-groups",
    "--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search",  # to enter the interpreter's directory
]  # fmt: skip
READ_ONLY: Final = [
    "unshare", "-m", "sh", "-c",
    "mount --make-rprivate / && for m in / $(awk '$2 ~ /^.(tmp|work|dev.shm|home|root)/ {print $2}' /proc/mounts);"
    " do mount -o remount,bind,ro $m; done; ! touch /tmp/x 2>/dev/null && exec \"$@\"", "sh",
]  # fmt: skip
NO_SHARED_MEMORY: Final = [
    "unshare", "-m", "sh", "-c",
    'mount --make-rprivate / && mount -t tmpfs -o ro,mode=000 none /dev/shm && exec "$@"', "sh",
]  # fmt: skip
ENVIRONMENTS: Final = {
    "unnamed user": UNNAMED,
    "read-only files": READ_ONLY,
    "no shared memory": NO_SHARED_MEMORY,
    "64 open files": ["sh", "-c", 'ulimit -n 64 && exec "$@"', "sh"],
    "PID 1": ["unshare", "-p", "-f", "--mount-proc", "--kill-child"],
    "python -O": ["env", "PYTHONOPTIMIZE=1"],
}
TASKS: Final = """
from orchestration_queue import Tasks
tasks = Tasks(queue="q")
@tasks.task
def thread(n: int) -> int: return n
@tasks.task
async def coroutine(n: int) -> int: return n
@tasks.task(isolation="process")
def process(n: int) -> int: return n
"""


def entering(name: str) -> list[str]:
    """The command that starts another in an environment."""
    command = ENVIRONMENTS[name]
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, timeout=100, check=False)
    if tried.returncode:
        pytest.skip(f"this machine forbids it: {tried.stderr.strip()[:100]}")
    return command


@contextmanager
def started(command: list[str], url: str, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    own = os.environ | {"OQ_URL": url, "PYTHONDONTWRITEBYTECODE": "1"}
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=directory, env=own, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_worker_runs_jobs_of_every_kind(name: str, server_url: str, tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(TASKS)
    command = entering(name)
    own = os.environ | {"OQ_URL": server_url}
    if socket := parse_url(server_url).path:
        socket.chmod(0o777)  # the server of the tests is their user's own
    with started([*command, OQ, "worker", "work:tasks", "--concurrency", "3"], server_url, tmp_path):
        for task in ("thread", "coroutine", "process"):
            add = [*command, OQ, "job", "add", "q", task, "--data", '{"n": 7}', "--wait", "60"]
            ended = subprocess.run(add, cwd=tmp_path, env=own, capture_output=True, text=True, timeout=100, check=False)
            assert ended.stdout.strip() == "7", (ended.stderr, (tmp_path / "log").read_text())


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_console_is_served(name: str, server_url: str, tmp_path: Path) -> None:
    command = [*entering(name), OQ, "ui", "--port", "0"]
    with started(command, server_url, tmp_path) as process:
        wait_until_sync(
            lambda: process.poll() is not None or "running on http" in (tmp_path / "log").read_text(), "it to serve", 60
        )
        assert process.poll() is None, (tmp_path / "log").read_text()


@pytest.mark.parametrize("name", [name for name in ENVIRONMENTS if name not in ("read-only files", "PID 1")])
def test_the_embedded_server_serves(name: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    for parent in tmp_path.parents[:2]:
        parent.chmod(0o755)
    added = subprocess.run(
        [*entering(name), OQ, "job", "add", "q", "n", "--url", f"embedded://{tmp_path}/data"],
        cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert added.stdout == "Added job 1 to queue q.\n", added.stderr


def test_an_embedded_server_without_a_writable_directory_says_so(tmp_path: Path) -> None:
    ended = subprocess.run(
        [*entering("read-only files"), OQ, "queue", "ls", "--url", "embedded://"],
        cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "can't store its data in" in ended.stderr
    assert "or set OQ_URL to a server" in ended.stderr


CACHE: Final = "from orchestration_queue.spark.java import cache_directory; print(cache_directory())"
YARN: Final = """
from orchestration_queue.spark import SparkSubmit
from orchestration_queue.spark.submit.trackers import find_tracker
find_tracker(SparkSubmit(master="yarn", deploy_mode="cluster", rest_url="http://127.0.0.1:9"))
"""


@pytest.mark.parametrize("home", [[], ["env", "HOME=/"]], ids=["no HOME", "HOME=/"])
def test_spark_finds_a_directory_of_its_own(home: list[str], tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    own = {name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"} | {"TMPDIR": str(tmp_path)}
    command = [*entering("unnamed user"), *home, sys.executable, "-c", CACHE]
    ended = subprocess.run(command, env=own, capture_output=True, text=True, timeout=100, check=False)
    assert ended.stdout.strip() == str(tmp_path / "oq-cache-12345"), ended.stderr


def test_spark_says_which_directory_it_needs() -> None:
    own = {name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"}
    command = [*entering("read-only files"), *entering("unnamed user"), sys.executable, "-c", CACHE]
    ended = subprocess.run(command, env=own, capture_output=True, text=True, timeout=100, check=False)
    assert "set XDG_CACHE_HOME to a writable one" in ended.stderr.splitlines()[-1]


def test_dagster_steps_need_a_directory_for_temporary_files(server_url: str, tmp_path: Path) -> None:
    (tmp_path / "defs.py").write_text("import dagster\ndefs = dagster.Definitions()\n")
    own = os.environ | {"OQ_URL": server_url, "DAGSTER_HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    command = [*entering("read-only files"), OQ, "dagster", "worker", "-m", "defs"]
    ended = subprocess.run(command, cwd="/", env=own, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 2
    assert "No directory for temporary files can be written; mount one at /tmp" in ended.stderr.splitlines()[-1]


def test_yarn_needs_a_name() -> None:
    own = {name: value for name, value in os.environ.items() if name not in ("USER", "LOGNAME", "HADOOP_USER_NAME")}
    command = [*entering("unnamed user"), sys.executable, "-c", YARN]
    ended = subprocess.run(command, env=own, capture_output=True, text=True, timeout=100, check=False)
    assert "The user id 12345 has no name" in ended.stderr.splitlines()[-1]


PREFORK: Final = """
import asyncio, os, sys
from orchestration_queue import AsyncQueue, Queue
used, queue, unused = Queue("q"), Queue("q"), AsyncQueue("q")
used.add("before", {})
async def add():
    return (await unused.add("n", {})).id
for _ in range(3):
    if os.fork() == 0:
        ids = [used.add("n", {}).id, queue.add("n", {}).id, asyncio.run(add())]
        os._exit(0 if len(set(ids)) == 3 else 1)
codes = [os.wait()[1] for _ in range(3)]
used.add("after", {})
sys.exit(0 if codes == [0, 0, 0] and used.counts().waiting == 11 else f"{codes} {used.counts()}")
"""


def test_clients_made_before_a_fork_are_used_in_the_children(server_url: str, tmp_path: Path) -> None:
    own = os.environ | {"OQ_URL": server_url}
    ended = subprocess.run(
        [sys.executable, "-c", PREFORK], cwd=tmp_path, env=own, capture_output=True, text=True, timeout=100, check=False
    )
    assert ended.returncode == 0, ended.stderr
