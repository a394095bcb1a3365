"""The program of a fork server: load the user's code once, then fork a child for each work item.

Workers start it. It runs none of the user's code except what runs at import.
"""

from __future__ import annotations

import gc
import logging
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NoReturn

from orchestration_queue._process import die_with_parent, memory_bytes, report_crashes
from orchestration_queue.worker.forks.fork_child import ForkChild, await_item
from orchestration_queue.worker.forks.fork_safety import reseed
from orchestration_queue.worker.forks.huge_pages import use_huge_pages
from orchestration_queue.worker.forks.write_fence import WriteFence
from orchestration_queue.worker.sandbox.frames import Frame, pack, take

__all__ = ["FAILED", "ForkServer", "explain"]

_CHUNK = 1 << 16
FAILED = 70
"""The exit code of a work item that could not be run (EX_SOFTWARE)."""
_LONGEST_REASON = 2_000
_IDLE_S = 60.0
"""How long a fork waits for another work item. It holds a copy of what it has written to, mostly some 20 MB."""


class ForkServer:
    """Serves work items until the worker disconnects.

    Args:
        descriptor: The socket to the worker.
        parent: The worker's process id.
        log_level: The worker's log level.
        fence: The shared memory of the write fences.
        is_resident: Run work items in this process, one at a time, instead of in forks.

    Attributes:
        most_items: How many work items a fork may run, one after another.
        is_reusable: Whether this fork may run another one. :meth:`run` sets it if its work item has left nothing.
    """

    most_items = 1

    def __init__(self, descriptor: int, parent: int, log_level: int, fence: int, *, is_resident: bool = False) -> None:
        # A resident process cannot distinguish a signal that means "the worker is gone" from one that means "cancel".
        die_with_parent(parent, signal.SIGKILL if is_resident else signal.SIGTERM)
        # Programs that the user's code starts must not keep the worker's connection open after this process.
        os.set_inheritable(descriptor, False)
        os.set_inheritable(fence, False)
        report_crashes()
        # Python buffers a pipe in blocks, of which a killed process would lose the last one.
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a pipe's text wrapper has it
        logging.basicConfig(level=log_level, format="%(levelname)s %(name)s: %(message)s")
        self.is_resident = is_resident
        self.is_reusable = False
        self._line = socket.socket(fileno=descriptor)
        self._fence = fence
        self._children: dict[int, ForkChild] = {}
        self._idle: list[ForkChild] = []
        self._received = bytearray()
        self._selector = selectors.DefaultSelector()
        self._is_over = False

    def run(self, frame: Frame, fence: WriteFence) -> int:
        """Run a work item in this process, a fork unless it is resident; return the exit code."""
        raise NotImplementedError

    def finish(self) -> None:
        """Release in a fork what its work item has used."""

    def receive(self, frame: Frame) -> None:
        """Handle another message of the worker."""

    def main(self, load: Callable[[], None], examine: Callable[[], Mapping[str, object]]) -> None:
        """Load the code and serve.

        Args:
            load: Imports the code.
            examine: Returns facts about the loaded code: its hazards, repairs, and sources.
        """
        gc.disable()  # until all code is loaded
        try:
            load()
        except Exception as error:
            traceback.print_exc()
            self.send(kind="unready", reason=explain(error))
            return
        facts = examine()
        self.freeze()
        gc.enable()
        self.send(kind="ready", memory_bytes=memory_bytes(), **facts)
        self._serve()

    @staticmethod
    def freeze() -> None:
        """Make forks cheap. The collector would write to, and so copy, the pages of all objects in every child."""
        gc.collect()
        gc.freeze()
        use_huge_pages()

    def send(self, **frame: object) -> None:
        """Send a message to the worker."""
        with suppress(OSError):  # the worker is gone, which the next read detects
            self._line.sendall(pack(frame))

    def _serve(self) -> None:
        """Serve requests and report how work items ended, until the worker is gone; then kill the running ones."""
        woken, waking = os.pipe()
        for end in (woken, waking):
            os.set_blocking(end, False)
        if not self.is_resident:
            signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
            # A signal without a handler does not reach the descriptor, and SIGCHLD has none by default.
            signal.signal(signal.SIGCHLD, lambda *_: None)
            signal.signal(signal.SIGTERM, self._leave)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._line.setblocking(True)
        self._selector.register(self._line, selectors.EVENT_READ)
        self._selector.register(woken, selectors.EVENT_READ)
        try:
            while not self._is_over:
                ready = {key.fileobj for key, _ in self._selector.select(self._timeout_s())}
                if woken in ready:
                    os.read(woken, _CHUNK)
                for child in [child for child in self._children.values() if child.line in ready]:
                    self._hear(child)
                self._reap()
                if self._line in ready:
                    self._listen()
        finally:
            for pid in self._children:
                _kill_group(pid, signal.SIGKILL)

    def _leave(self, *_: object) -> None:
        self._is_over = True

    def _timeout_s(self) -> float | None:
        """Return the time until the next fence closes. Kills work items whose fence is closed, and ends idle forks."""
        left = []
        for child in list(self._children.values()):
            if child.fence is not None:
                left.append(child.fence.left_s)
                if left[-1] <= 0:
                    _kill_group(child.pid, signal.SIGKILL)
            elif child.line is not None:
                left.append(child.idle_until - time.monotonic())
                if left[-1] <= 0:
                    self._dismiss(child)
        return max(0.05, min(left)) if left else None

    def _listen(self) -> None:
        chunk = self._line.recv(_CHUNK)
        if not chunk:
            self._is_over = True
        self._received += chunk
        while (frame := take(self._received)) is not None:
            match frame["kind"]:
                case "signal":
                    self._signal(frame["number"], frame["signal"])
                case "run" if self.is_resident:
                    self._run_here(frame)
                case "run":
                    self._begin(frame)
                case _:
                    self.receive(frame)

    def _signal(self, number: int, which: int) -> None:
        for pid, child in self._children.items():
            if child.number == number:
                _kill_group(pid, which)

    def _begin(self, frame: Frame) -> None:
        """Run a work item in the fork that has become idle last, or else in a new one."""
        fence = WriteFence(self._fence, frame["slot"])
        while self._idle:
            child = self._idle.pop()
            if child.begin(frame, fence):
                return
            self._dismiss(child)
        self._fork(frame, fence)

    def _fork(self, frame: Frame, fence: WriteFence) -> None:
        parent = os.getpid()
        ours, theirs = socket.socketpair() if self.most_items > 1 else (None, None)
        try:
            pid = os.fork()
        except OSError as error:  # the machine has too many processes: those that run here must not end, too
            for end in (ours, theirs):
                if end is not None:
                    end.close()
            fence.report(reason=explain(error))
            fence.close()
            self.send(kind="ended", number=frame["number"], code=FAILED)
            return
        if not pid:
            if ours is not None:
                ours.close()
            self._become_child(parent, frame, fence, theirs)
        with suppress(OSError):  # the child may have done the same before
            os.setpgid(pid, pid)
        self._children[pid] = ForkChild(pid, frame["number"], fence, ours)
        if ours is not None and theirs is not None:
            theirs.close()
            ours.setblocking(False)
            self._selector.register(ours, selectors.EVENT_READ)

    def _become_child(self, parent: int, frame: Frame, fence: WriteFence, line: socket.socket | None) -> NoReturn:
        """Run a work item in this fork, in its own process group, which is killed as a whole."""
        code = FAILED
        try:
            # The parent does the same: a signal to the group may precede either of the two.
            os.setpgid(0, 0)
            die_with_parent(parent)
            # The descriptor leads to the parent's pipe, which this process's signals must not wake.
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            # Parent and child share the epoll set: closing it here is safe, unregistering from it is not.
            self._selector.close()
            for other in (self._line, *(child.line for child in self._children.values())):
                if other is not None:
                    other.close()
            if line is not None:
                os.register_at_fork(after_in_child=line.close)
            code = self._run_items(frame, fence, line)
            self.finish()
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            # os._exit() skips the exit hooks of the server, of which this process has copies.
            os._exit(code)

    def _run_items(self, frame: Frame, fence: WriteFence, line: socket.socket | None) -> int:
        """Run a work item in this fork, and then others, as long as all end well; return the last one's exit code."""
        left = self.most_items
        while True:
            reseed()
            self.is_reusable = False
            code = self._run_guarded(frame, fence)
            left -= 1
            if code or not left or not self.is_reusable or line is None or (following := await_item(line)) is None:
                return code
            fence.close()
            frame, fence = following, WriteFence(self._fence, following["slot"])

    def _run_guarded(self, frame: Frame, fence: WriteFence) -> int:
        fence.report(pid=str(os.getpid()))
        try:
            return self.run(frame, fence)
        except BaseException as error:
            traceback.print_exc()
            fence.report(reason=explain(error))
            return FAILED

    def _run_here(self, frame: Frame) -> None:
        """Run a work item in this process, which keeps the state of the user's code, and restore its environment."""
        fence = WriteFence(self._fence, frame["slot"])
        before = dict(os.environ)
        try:
            with fence.watching():
                code = self._run_guarded(frame, fence)
        finally:
            os.environ.clear()
            os.environ.update(before)
        fence.close()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self.send(kind="ended", number=frame["number"], code=code, memory_bytes=memory_bytes())

    def _reap(self) -> None:
        """Report how children ended, and kill the processes that they left."""
        for pid, child in list(self._children.items()):
            reaped, status = os.waitpid(pid, os.WNOHANG)
            if not reaped:
                continue
            _kill_group(pid, signal.SIGKILL)
            self._report_end(child, 0 if child.is_done() else os.waitstatus_to_exitcode(status))
            self._dismiss(child)
            del self._children[pid]

    def _hear(self, child: ForkChild) -> None:
        """Report the end of a work item whose fork waits for another one."""
        if not child.is_done():  # it ends
            self._dismiss(child)
            return
        self._report_end(child, 0)
        child.idle_until = time.monotonic() + _IDLE_S
        self._idle.append(child)

    def _report_end(self, child: ForkChild, code: int) -> None:
        if child.number is not None and child.fence is not None:
            child.fence.close()
            self.send(kind="ended", number=child.number, code=code)
        child.number = child.fence = None

    def _dismiss(self, child: ForkChild) -> None:
        """Have a fork end: now if it is idle, or else with its work item."""
        if child.line is not None:
            self._selector.unregister(child.line)
            child.line.close()
            child.line = None
        if child in self._idle:
            self._idle.remove(child)

    def dismiss_forks(self) -> None:
        """Have all forks end with their work items, since this process has changed."""
        for child in self._children.values():
            self._dismiss(child)

    @property
    def descriptors(self) -> set[int]:
        """The descriptors of this process that lead to its forks."""
        return {child.line.fileno() for child in self._children.values() if child.line is not None}


def explain(error: BaseException) -> str:
    """Return an error as one text of bounded length."""
    return f"{type(error).__name__}: {error}"[:_LONGEST_REASON]


def _kill_group(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
