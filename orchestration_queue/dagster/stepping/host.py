"""The process that does Dagster's work, or that is copied for each. A worker starts it; nobody else does.

It loads the instance's storage and the user's code first, and then forks a child within milliseconds. It has one
thread, so that a copy of it is whole, and it runs nothing of the user's but what happens at import.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import selectors
import signal
import socket
import sys
import threading
import traceback
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import NoReturn

import dagster as dg

from orchestration_queue._process import die_with_parent, memory_bytes
from orchestration_queue.dagster._compat import can_be_copied, capture_logs_directly, guard_events, warm_up
from orchestration_queue.dagster.stepping.fence import Guard
from orchestration_queue.dagster.stepping.location import CodeLocation
from orchestration_queue.dagster.work import Work, WorkKind, perform
from orchestration_queue.errors import StateError
from orchestration_queue.worker.sandbox.frames import Frame, pack, take

__all__ = ["main"]

_CHUNK = 1 << 16
_FAILED = 70
"""The exit code of a work that Dagster itself could not carry out (EX_SOFTWARE)."""
_LONGEST_REASON = 2_000
_BEGUN = frozenset({dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING})


def main(
    descriptor: int,
    parent: int,
    log_level: int,
    fence: int,
    location: dict[str, str] | None,
    *,
    is_resident: bool,
) -> None:
    """Do work until the worker hangs up.

    Args:
        descriptor: The line to the worker.
        parent: The worker's process id.
        log_level: The worker's own.
        fence: The memory that tells until when each work may write.
        location: The code to load first; None to load nothing.
        is_resident: Do the work in this very process, one after the other, instead of in copies.
    """
    # A resident process cannot tell a signal that means "the worker is gone" from one that means "cancel".
    die_with_parent(parent, signal.SIGKILL if is_resident else signal.SIGTERM)
    os.set_inheritable(descriptor, False)
    os.set_inheritable(fence, False)
    faulthandler.enable(all_threads=False)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a pipe's text wrapper has it
    logging.basicConfig(level=log_level, format="%(levelname)s %(name)s: %(message)s")
    host = _Host(socket.socket(fileno=descriptor), fence, is_resident=is_resident)
    try:
        if location is not None:
            host.load(CodeLocation(**location))
    except Exception as error:
        traceback.print_exc()
        host.send(kind="unready", reason=_reason(error))
        return
    gc.collect()
    gc.freeze()  # what is there stays shared: the collector would touch, and so copy, every page of it in every child
    host.send(kind="ready", threads=threading.active_count(), memory_bytes=memory_bytes())
    host.serve()


@dataclass(frozen=True, slots=True)
class _Child:
    number: int
    guard: Guard


class _Host:
    def __init__(self, line: socket.socket, fence: int, *, is_resident: bool) -> None:
        self._line = line
        self._fence = fence
        self._is_resident = is_resident
        self._children: dict[int, _Child] = {}
        self._received = bytearray()
        self._selector = selectors.DefaultSelector()
        self._is_over = False
        self._instance: dg.DagsterInstance | None = None

    def load(self, location: CodeLocation) -> None:
        """Import what every work needs: the storage's drivers, and the user's code."""
        instance = dg.DagsterInstance.get()
        warm_up(instance)
        location.load()
        if can_be_copied(instance) and not self._is_resident:
            self._instance = instance
        else:
            instance.dispose()

    def send(self, **frame: object) -> None:
        with suppress(OSError):  # the worker is gone, which the next read tells
            self._line.sendall(pack(frame))

    def serve(self) -> None:
        """Take requests, and tell how works ended, until the worker is gone; then end all that runs."""
        woken, waking = os.pipe()
        for end in (woken, waking):
            os.set_blocking(end, False)
        if not self._is_resident:
            signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
            signal.signal(signal.SIGCHLD, lambda *_: None)
            signal.signal(signal.SIGTERM, self._leave)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._line.setblocking(True)
        self._selector.register(self._line, selectors.EVENT_READ)
        self._selector.register(woken, selectors.EVENT_READ)
        try:
            while not self._is_over:
                ready = {key.fileobj for key, _ in self._selector.select(self._patience_s())}
                if woken in ready:
                    os.read(woken, _CHUNK)
                self._reap()
                if self._line in ready:
                    self._listen()
        finally:
            for pid in self._children:
                _kill_group(pid, signal.SIGKILL)

    def _leave(self, *_: object) -> None:
        self._is_over = True

    def _patience_s(self) -> float | None:
        """How long until one of the works may not write any more; those whose time is over are ended here."""
        left = [child.guard.left_s for child in self._children.values()]
        for pid, child in self._children.items():
            if child.guard.left_s <= 0:
                _kill_group(pid, signal.SIGKILL)
        return max(0.05, min(left)) if left else None

    def _listen(self) -> None:
        chunk = self._line.recv(_CHUNK)
        if not chunk:
            self._is_over = True
        self._received += chunk
        while (frame := take(self._received)) is not None:
            if frame["kind"] == "signal":
                self._signal(frame["number"], frame["signal"])
            elif self._is_resident:
                self._do_here(frame)
            else:
                self._fork(frame)

    def _signal(self, number: int, which: int) -> None:
        for pid, child in self._children.items():
            if child.number == number:
                _kill_group(pid, which)

    def _fork(self, frame: Frame) -> None:
        guard = Guard(self._fence, frame["slot"])
        parent = os.getpid()
        if pid := os.fork():
            with suppress(OSError):  # the child does the same, and may be first
                os.setpgid(pid, pid)
            self._children[pid] = _Child(frame["number"], guard)
            return
        self._become_child(parent, frame, guard)

    def _become_child(self, parent: int, frame: Frame, guard: Guard) -> NoReturn:
        """What a copy does, in its own process group, in which everything dies together."""
        code = _FAILED
        try:
            os.setpgid(0, 0)
            die_with_parent(parent)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self._selector.close()
            self._line.close()
            code = _do(frame, guard, self._instance)
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _do_here(self, frame: Frame) -> None:
        """Do the work in this process, and leave of it what the user's code keeps, but not its environment."""
        guard = Guard(self._fence, frame["slot"])
        before = dict(os.environ)
        try:
            with guard.watching():
                code = _do(frame, guard, self._instance)
        finally:
            os.environ.clear()
            os.environ.update(before)
        guard.close()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self.send(kind="ended", number=frame["number"], code=code, memory_bytes=memory_bytes())

    def _reap(self) -> None:
        """Tell how children ended, and end what they have left behind."""
        for pid in list(self._children):
            reaped, status = os.waitpid(pid, os.WNOHANG)
            if not reaped:
                continue
            _kill_group(pid, signal.SIGKILL)
            child = self._children.pop(pid)
            child.guard.close()
            self.send(kind="ended", number=child.number, code=os.waitstatus_to_exitcode(status))


def _do(frame: Frame, guard: Guard, opened: dg.DagsterInstance | None) -> int:
    """Do one work; the exit code of its process."""
    guard.tell(pid=str(os.getpid()))
    try:
        work = Work.from_data(frame["data"])
        capture_logs_directly(lambda path: guard.tell(stderr=path))
        with nullcontext(opened) if opened else dg.DagsterInstance.get() as instance:
            guard_events(instance, guard.check)
            if frame["is_redelivered"]:
                _refuse_to_repeat(work, instance)
            guard.tell(exit_code=str(perform(work, instance)))
    except BaseException as error:
        traceback.print_exc()
        guard.tell(reason=_reason(error))
        return _FAILED
    return 0


def _refuse_to_repeat(work: Work, instance: dg.DagsterInstance) -> None:
    """A run whose worker was lost may start again only if it had not begun."""
    run = instance.get_run_by_id(work.run_id)
    if work.kind is not WorkKind.RUN or (run is not None and run.status not in _BEGUN):
        raise StateError("its worker was lost after it had begun, and only Dagster knows how it goes on")


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:_LONGEST_REASON]


def _kill_group(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
