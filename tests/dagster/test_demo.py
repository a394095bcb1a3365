"""The demo, as a user runs it, with a worker killed on the way."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import httpx
import pandas as pd
import pytest

from tests.waiting import wait_until_sync

pytestmark = [pytest.mark.dagster, pytest.mark.spark, pytest.mark.chaos, pytest.mark.timeout(800)]

ROOT = Path(__file__).parents[2]


def start(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "examples.flights.demo", "--directory", str(directory), *arguments]
    environment = {name: value for name, value in os.environ.items() if name not in {"OQ_URL", "DAGSTER_HOME"}}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def demo(directory: Path, *arguments: str) -> tuple[int, str]:
    """Run it to its end; exit code and output."""
    process = start(directory, *arguments)
    try:
        output, _ = process.communicate(timeout=660)
    except subprocess.TimeoutExpired:
        process.terminate()  # so that it stops what it started
        output, _ = process.communicate(timeout=60)
        pytest.fail(f"The demo took longer than 660 s and had said:\n{output}")
    return process.returncode, output


def test_the_demo_ends_well_though_a_worker_is_killed(tmp_path: Path) -> None:
    directory = tmp_path / "demo"
    code, said = demo(directory, "--kill-worker")
    assert code == 0, said
    assert " is killed on purpose (SIGKILL) while it is at flights_2013-" in said
    assert " leads the schedules now" in said
    assert "registerParent, in Kahn's order" in said
    assert "taken over from a lost worker" in said
    assert said.count("flights_2013-") >= 12
    assert "336,776 rows" in said
    assert "requested by sensor flights_prepared" in said
    assert "All is well" in said
    assert (directory / "data" / "report" / "delays.png").read_bytes().startswith(b"\x89PNG")
    assert "<html" in (directory / "data" / "report" / "index.html").read_text()
    hours = pd.read_parquet(directory / "data" / "delays" / "by_origin_hour")
    assert hours["flights"].sum() == 336_776
    clean = (directory / "data" / "clean" / "flights").glob("*.clean_flights/table/month=*")
    assert sorted(int(month.name.removeprefix("month=")) for month in clean) == list(range(1, 13))


def test_two_demos_in_one_directory_do_not_get_in_each_others_way(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    with (tmp_path / "demo" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, said = demo(tmp_path / "demo")
    assert code == 1
    assert "Another demo is running in" in said


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    directory = tmp_path / "demo"
    process = start(directory)
    logs = directory / "logs"
    wait_until_sync(lambda: (logs / "daemon.log").exists(), "the demo to start its last", seconds=120)
    all_there = "two workers, a keeper and its server, a daemon, a launch"
    wait_until_sync(lambda: len(processes_of(directory)) >= 4, all_there, seconds=120)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=120)
    # Python ends by the signal itself, which shells see as 130, if it met code made from text, as imports do.
    assert process.returncode in (130, -signal.SIGINT), said
    assert said.endswith("Stopped.\n")
    assert processes_of(directory) == []


def test_dagster_and_the_console_are_shown_side_by_side(tmp_path: Path) -> None:
    directory = tmp_path / "demo"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = start(directory, "--ui", "--port", str(taken.getsockname()[1]))
        wait_until_sync(lambda: (directory / "logs" / "console.log").exists(), "the console to start", seconds=120)
    assert process.stdout is not None
    try:
        said = ""
        while "Ctrl-C ends" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        dagster, console = re.findall(r"http://127\.0\.0\.1:\d+", said)
        with httpx.Client() as client:
            assert client.get(f"{dagster}/server_info").json()["dagster_version"]
            assert "Queues" in client.get(f"{console}/ui").text
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    assert process.returncode == 0
    assert processes_of(directory) == []


def processes_of(directory: Path) -> list[str]:
    """Return the processes with the directory in their environment, except the demo itself."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"FLIGHTS_DATA={directory}".encode() in environment.read_bytes():
                found.append((environment.parent / "cmdline").read_text().replace("\0", " "))
    return found
