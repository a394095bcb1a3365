"""A child process: its request, its reply, its lines, and its end. No Spark needed for any of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestration_queue.spark import process as module
from orchestration_queue.spark.process import ProcessOutcome, run_child
from tests.waiting import wait_until_sync

PREAMBLE = """
import os, signal, subprocess, sys, time
parent, channel = map(int, sys.argv[-2:])
os.set_inheritable(channel, False)
def reply(text):
    os.write(channel, text.encode())
    os.close(channel)
"""

SLEEPER = f"[{sys.executable!r}, '-c', 'import time; time.sleep(600)']"


def run(
    program: str,
    request: bytes = b"",
    *,
    log: Callable[[str], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
    timeout_s: float | None = None,
    grace_s: float = 60,
) -> ProcessOutcome:
    return run_child(
        [sys.executable, "-c", PREAMBLE + program],
        request,
        env=os.environ,
        log=log,
        should_stop=should_stop,
        timeout=timedelta(seconds=timeout_s) if timeout_s else None,
        grace=timedelta(seconds=grace_s),
    )


def is_alive(process: int) -> bool:
    """Whether it still runs; one that ended and is a zombie does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_request_and_reply_pass_whole_and_apart_from_what_is_printed() -> None:
    request, lines = os.urandom(500_000).hex().encode(), list[str]()
    outcome = run("print('hello'); text = sys.stdin.read(); print(len(text)); reply(text)", request, log=lines.append)
    assert outcome == ProcessOutcome(request, 0, None)
    assert lines == ["hello", "1000000"]


def test_a_request_nobody_reads_holds_nobody_up() -> None:
    assert run("reply('done')", b"x" * 1_000_000).reply == b"done"


def test_lines_are_split_wherever_they_come_from() -> None:
    lines: list[str] = []
    run(r"sys.stdout.buffer.write(b'10%\r20%\r\n\n\xff'); sys.stdout.flush(); os.write(2, b'last')", log=lines.append)
    assert lines == ["10%", "20%", "\ufffdlast"]


def test_a_line_without_end_is_cut_in_pieces() -> None:
    lines: list[str] = []
    run("sys.stdout.write('x' * 100_000)", log=lines.append)
    assert "".join(lines) == "x" * 100_000
    assert max(map(len, lines)) <= 16_384


def test_exit_codes_and_signals_are_told() -> None:
    assert run("sys.exit(3)") == ProcessOutcome(b"", 3, None)
    assert run("os.kill(os.getpid(), signal.SIGKILL)") == ProcessOutcome(b"", -signal.SIGKILL, None)


def test_what_stays_behind_after_the_reply_is_ended() -> None:
    pids: list[str] = []
    outcome = run(f"print(subprocess.Popen({SLEEPER}).pid, flush=True); reply('ok')", log=pids.append, grace_s=0.3)
    assert (outcome.reply, outcome.stopped) == (b"ok", None)
    assert not is_alive(int(pids[0]))


def test_over_its_time_the_whole_group_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    pids: list[str] = []
    # Its time is over when there is a process to end, however long a busy machine takes to start them.
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + (3600 if pids else 0), sleep=time.sleep)
    monkeypatch.setattr(module, "time", clock)
    program = f"print(subprocess.Popen({SLEEPER}).pid, flush=True); time.sleep(600)"
    outcome = run(program, log=pids.append, timeout_s=1800)
    assert outcome == ProcessOutcome(b"", -signal.SIGTERM, "timeout")
    assert not is_alive(int(pids[0]))


def test_who_ignores_the_request_to_leave_is_killed() -> None:
    lines: list[str] = []
    program = "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    started = time.monotonic()
    outcome = run(program, log=lines.append, should_stop=lambda: bool(lines), grace_s=0.3)
    assert outcome == ProcessOutcome(b"", -signal.SIGKILL, "cancelled")
    assert time.monotonic() - started < 60


def test_an_error_of_the_log_ends_the_child_too() -> None:
    pids: list[int] = []

    def refuse(line: str) -> None:
        pids.append(int(line))
        raise ConnectionError("the server is unreachable")

    with pytest.raises(ConnectionError, match="the server is unreachable"):
        run("print(os.getpid(), flush=True); time.sleep(600)", log=refuse)
    assert not is_alive(pids[0])


def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    sign = tmp_path / "pid"
    child = (
        "import os, sys, time; from orchestration_queue._process import die_with_parent;"
        f"die_with_parent(int(sys.argv[1])); open({str(sign)!r}, 'w').write(f'{{os.getpid()}}.'); time.sleep(600)"
    )
    program = f"import os, subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}, str(os.getpid())])"
    parent = subprocess.Popen([sys.executable, "-c", program])
    try:
        wait_until_sync(lambda: sign.exists() and sign.read_text().endswith("."), "the child to be at work")
    finally:
        parent.kill()
        parent.wait()
    pid = int(sign.read_text().rstrip("."))
    wait_until_sync(lambda: not is_alive(pid), "the child to follow")


def test_a_child_whose_parent_is_gone_already_ends_at_once() -> None:
    program = "from orchestration_queue._process import die_with_parent; die_with_parent(1 << 22)"
    assert subprocess.run([sys.executable, "-c", program], timeout=100).returncode == 128 + signal.SIGKILL
