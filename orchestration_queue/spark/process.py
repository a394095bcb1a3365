"""Run a command in its own process group, which ends with the call and with the calling process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO, Literal

__all__ = ["ProcessOutcome", "run_child", "scratch_directory"]

_LOOK_S = 0.2
"""Seconds between two calls of ``should_stop``."""
_LAST_WAIT_S = 5.0
"""How long the kernel may take to remove killed processes."""
_LINE_BYTES = 16_384
"""A longer line is logged in pieces, so that output without line breaks does not fill the memory."""


@dataclass(frozen=True, slots=True)
class ProcessOutcome:
    """How a child ended.

    Attributes:
        reply: What it wrote to its reply channel.
        exit_code: Its exit code; negative for a signal.
        stopped: Why it was stopped; None when it exited on its own.
    """

    reply: bytes
    exit_code: int
    stopped: Literal["timeout", "cancelled"] | None


def run_child(
    words: Sequence[str],
    request: bytes,
    *,
    env: Mapping[str, str],
    log: Callable[[str], None],
    should_stop: Callable[[], bool],
    timeout: timedelta | None,
    grace: timedelta,
) -> ProcessOutcome:
    """Run a command to its end, and leave none of its processes behind.

    The command receives two more arguments, this process's id (for
    :func:`~orchestration_queue._process.die_with_parent`) and the descriptor of a pipe for its reply. Linux ends the
    child with the thread that started it, so the calling thread must live as long as the child, as it does here.

    Args:
        words: The command.
        request: Its standard input.
        env: Its whole environment.
        log: Called with every line that a process of its group prints.
        should_stop: Called a few times a second; true stops it.
        timeout: Stops it after this long.
        grace: How long its processes may take to exit before they are killed.
    """
    read_end, write_end = os.pipe()
    # A file rather than a pipe, so that a child that never reads its request cannot block this process.
    with tempfile.TemporaryFile() as stdin, os.fdopen(read_end, "rb", buffering=0) as reply:
        try:
            stdin.write(request)
            stdin.seek(0)
            process = subprocess.Popen(
                [*words, str(os.getpid()), str(write_end)],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                # Unbuffered, so that everything that has arrived is what select() reports.
                bufsize=0,
                env=dict(env),
                pass_fds=(write_end,),
                start_new_session=True,
            )
        finally:
            os.close(write_end)
        assert process.stdout is not None  # noqa: S101 (it is a pipe, as asked for above)
        with process.stdout as output:
            pipes = _PipeReader(output, reply, log)
            try:
                stopped = pipes.until_done(should_stop, timeout, grace)
            finally:
                _end_group(process, grace)
            pipes.drain()
    return ProcessOutcome(bytes(pipes.received), process.returncode, stopped)


class _PipeReader:
    """Reads a child's two pipes as they fill."""

    def __init__(self, output: IO[bytes], reply: IO[bytes], log: Callable[[str], None]) -> None:
        self.received = bytearray()
        self._line = bytearray()
        self._log = log
        self._output, self._reply = output, reply
        self._selector = selectors.DefaultSelector()
        self._selector.register(output, selectors.EVENT_READ)
        self._selector.register(reply, selectors.EVENT_READ)

    def until_done(
        self, should_stop: Callable[[], bool], timeout: timedelta | None, grace: timedelta
    ) -> Literal["timeout", "cancelled"] | None:
        """Read until every process has closed its output, or the grace period after the reply is over."""
        deadline = time.monotonic() + timeout.total_seconds() if timeout else None
        leave_by: float | None = None
        while self._selector.get_map():
            now = time.monotonic()
            if leave_by is None and self._reply not in self._open():
                leave_by = now + grace.total_seconds()
            if leave_by is not None and now >= leave_by:
                return None
            if leave_by is None and deadline is not None and now >= deadline:
                return "timeout"
            if leave_by is None and should_stop():
                return "cancelled"
            self._read(_LOOK_S)
        return None

    def drain(self) -> None:
        """Read what is left, without waiting."""
        while self._selector.get_map() and self._read(0):
            pass
        self._emit(self._line)
        self._selector.close()

    def _open(self) -> set[object]:
        return {key.fileobj for key in self._selector.get_map().values()}

    def _read(self, wait_s: float) -> bool:
        ready = self._selector.select(wait_s)
        for key, _ in ready:
            chunk = os.read(key.fd, 65_536)
            if not chunk:
                self._selector.unregister(key.fileobj)
            elif key.fileobj is self._reply:
                self.received += chunk
            else:
                self._split(chunk)
        return bool(ready)

    def _split(self, chunk: bytes) -> None:
        *lines, rest = (self._line + chunk).replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            self._emit(line)
        while len(rest) > _LINE_BYTES:
            self._emit(rest[:_LINE_BYTES])
            rest = rest[_LINE_BYTES:]
        self._line = rest

    def _emit(self, line: bytes | bytearray) -> None:
        if line:
            self._log(line.decode("utf-8", "replace"))


def _end_group(process: subprocess.Popen[bytes], grace: timedelta) -> None:
    """End what is left of the child's group: terminate, wait, kill."""
    for number, wait_s in ((signal.SIGTERM, grace.total_seconds()), (signal.SIGKILL, _LAST_WAIT_S)):
        if _is_gone(process):
            break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        give_up = time.monotonic() + wait_s
        while not _is_gone(process) and time.monotonic() < give_up:
            time.sleep(0.02)
    process.wait()


def _is_gone(process: subprocess.Popen[bytes]) -> bool:
    if process.poll() is None:
        return False
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return True
    return not _has_living_members(process.pid)


def _has_living_members(group: int) -> bool:
    """Return whether a process of the group still runs; an orphan that exited stays in it until process 1 reaps it."""
    if not (proc := Path("/proc")).is_dir():
        return True
    for entry in proc.iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                # After the command, in brackets, which may hold any text: state, parent, group.
                state, _, its_group = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[:3]
                if int(its_group) == group and state not in "ZX":
                    return True
    return False


_PREFIX = "oq-spark-"
_LOCK = ".lock"


@contextlib.contextmanager
def scratch_directory() -> Iterator[Path]:
    """Create a directory for as long as the context lasts.

    Its owner holds a lock in it, which the kernel releases when the owner dies for any reason. Later processes remove
    directories whose lock is free.
    """
    parent = Path(tempfile.gettempdir())
    _remove_abandoned(parent)
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    try:
        unseen = directory / f"{_LOCK}.new"
        with unseen.open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            unseen.rename(directory / _LOCK)  # only once locked, or another process might remove the directory
            yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _remove_abandoned(parent: Path) -> None:
    for lock_file in parent.glob(f"{_PREFIX}*/{_LOCK}"):
        with contextlib.suppress(OSError):  # it is in use, another user's, or was removed just now
            if lock_file.stat().st_uid != os.getuid():
                continue
            with lock_file.open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock_file.parent, ignore_errors=True)
