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
import traceback
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import NoReturn

import dagster as dg

from orchestration_queue._process import die_with_parent, memory_bytes, report_crashes
from orchestration_queue.dagster._compat import (
    can_be_copied,
    capture_logs_directly,
    guard_events,
    rehearse,
    storage_id,
    warm_up,
)
from orchestration_queue.dagster.steps.code_location import CodeLocation
from orchestration_queue.dagster.steps.database import (
    await_database,
    keep_connection,
    outlast_outages,
    sqlite_engines,
    sync_at_end,
)
from orchestration_queue.dagster.steps.fork_safety import (
    close_idle_connections,
    decide,
    find_hazards,
    find_repairs,
    open_descriptors,
    reseed,
    source_files,
)
from orchestration_queue.dagster.steps.work_item import WorkItem, WorkKind, perform
from orchestration_queue.dagster.steps.write_fence import WriteFence
from orchestration_queue.errors import StateError
from orchestration_queue.worker.sandbox.frames import Frame, pack, take

__all__ = ["main"]

_CHUNK = 1 << 16
_FAILED = 70
"""The exit code of a work item that Dagster could not run (EX_SOFTWARE)."""
_LONGEST_REASON = 2_000
_ATTEMPTS = frozenset({dg.DagsterEventType.STEP_WORKER_STARTED, dg.DagsterEventType.STEP_UP_FOR_RETRY})
"""The first event of an attempt, and the one before the next attempt."""
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
    """Serve work items until the worker disconnects.

    Args:
        descriptor: The socket to the worker.
        parent: The worker's process id.
        log_level: The worker's log level.
        fence: The shared memory of the write fences.
        location: The code to load first; None to load nothing.
        is_resident: Run work items in this process, one at a time, instead of in forks.
    """
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
    logging.getLogger("alembic").setLevel(max(log_level, logging.WARNING))  # it writes two lines per connection
    server = _ForkServer(socket.socket(fileno=descriptor), fence, is_resident=is_resident)
    gc.disable()  # until all code is loaded
    try:
        if location is not None:
            server.load(CodeLocation(**location))
    except Exception as error:
        traceback.print_exc()
        server.send(kind="unready", reason=_reason(error))
        return
    facts = server.examine(location)
    gc.collect()
    gc.freeze()  # keep these objects shared: the collector would write to, and so copy, their pages in every child
    gc.enable()
    server.send(kind="ready", memory_bytes=memory_bytes(), **facts)
    server.serve()


@dataclass(frozen=True, slots=True)
class _Child:
    number: int
    fence: WriteFence


class _ForkServer:
    def __init__(self, line: socket.socket, fence: int, *, is_resident: bool) -> None:
        self._line = line
        self._fence = fence
        self._is_resident = is_resident
        self._children: dict[int, _Child] = {}
        self._received = bytearray()
        self._selector = selectors.DefaultSelector()
        self._is_over = False
        self._instance: dg.DagsterInstance | None = None
        self._instance_id = ""
        self._known: frozenset[int] = frozenset()
        self._isolation = ""

    def load(self, location: CodeLocation) -> None:
        """Import the code that every work item needs: the storage's drivers, and the user's code."""
        # Before the instance opens its files: an engine that exists already is not replaced.
        sqlite_engines.share()
        instance = await_database(dg.DagsterInstance.get)
        await_database(lambda: warm_up(instance))
        if not self._is_resident:
            rehearse(sqlite_engines.adopt)
        self._instance_id = storage_id(instance)
        self._known = open_descriptors()
        sys.argv[:] = [location.file or location.module or location.name]  # user code may parse it
        location.load()
        if can_be_copied(instance) and not self._is_resident:
            self._instance = instance
        else:
            instance.dispose()

    def examine(self, location: dict[str, str] | None) -> dict[str, object]:
        """Return facts about the loaded code for the worker: its files, and whether it can be forked."""
        if location is None:
            self._isolation = "spawn"
            return {"hazards": [], "repairs": [], "sources": {}, "instance": ""}
        repairs = [] if self._is_resident else [*close_idle_connections(), *find_repairs()]
        hazards = [] if self._is_resident else find_hazards(self._known)
        self._isolation = "in_process" if self._is_resident else decide(hazards, repairs, is_forked=True)
        return {
            "hazards": hazards,
            "repairs": repairs,
            "sources": source_files([location["file"]] if location["file"] else []),
            "instance": self._instance_id,
        }

    def send(self, **frame: object) -> None:
        with suppress(OSError):  # the worker is gone, which the next read detects
            self._line.sendall(pack(frame))

    def serve(self) -> None:
        """Serve requests and report how work items ended, until the worker is gone; then kill the running ones."""
        woken, waking = os.pipe()
        for end in (woken, waking):
            os.set_blocking(end, False)
        if not self._is_resident:
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
                self._reap()
                if self._line in ready:
                    self._listen()
        finally:
            for pid in self._children:
                _kill_group(pid, signal.SIGKILL)

    def _leave(self, *_: object) -> None:
        self._is_over = True

    def _timeout_s(self) -> float | None:
        """Return the time until the next fence closes. Kills work items whose fence is closed."""
        left = [child.fence.left_s for child in self._children.values()]
        for pid, child in self._children.items():
            if child.fence.left_s <= 0:
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
                self._run_here(frame)
            else:
                self._fork(frame)

    def _signal(self, number: int, which: int) -> None:
        for pid, child in self._children.items():
            if child.number == number:
                _kill_group(pid, which)

    def _fork(self, frame: Frame) -> None:
        fence = WriteFence(self._fence, frame["slot"])
        parent = os.getpid()
        if pid := os.fork():
            with suppress(OSError):  # the child may have done the same before
                os.setpgid(pid, pid)
            self._children[pid] = _Child(frame["number"], fence)
            return
        self._become_child(parent, frame, fence)

    def _become_child(self, parent: int, frame: Frame, fence: WriteFence) -> NoReturn:
        """Run a work item in this fork, in its own process group, which is killed as a whole."""
        code = _FAILED
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
            self._line.close()
            reseed()
            code = _run(frame, fence, self._isolation, self._instance, is_alone=True)
            sqlite_engines.close()
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            # os._exit() skips the exit hooks of the server, of which this process has copies.
            os._exit(code)

    def _run_here(self, frame: Frame) -> None:
        """Run a work item in this process, which keeps the state of the user's code, and restore its environment."""
        fence = WriteFence(self._fence, frame["slot"])
        before = dict(os.environ)
        try:
            with fence.watching():
                code = _run(frame, fence, self._isolation, self._instance)
        finally:
            os.environ.clear()
            os.environ.update(before)
        fence.close()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self.send(kind="ended", number=frame["number"], code=code, memory_bytes=memory_bytes())

    def _reap(self) -> None:
        """Report how children ended, and kill the processes that they left."""
        for pid in list(self._children):
            reaped, status = os.waitpid(pid, os.WNOHANG)
            if not reaped:
                continue
            _kill_group(pid, signal.SIGKILL)
            child = self._children.pop(pid)
            child.fence.close()
            self.send(kind="ended", number=child.number, code=os.waitstatus_to_exitcode(status))


def _run(
    frame: Frame, fence: WriteFence, isolation: str, opened: dg.DagsterInstance | None, *, is_alone: bool = False
) -> int:
    """Run one work item, alone in its process or one of many; return the exit code."""
    fence.report(pid=str(os.getpid()))
    try:
        work = WorkItem.from_data(frame["data"])
        capture_logs_directly(lambda path: fence.report(stderr=path))
        with nullcontext(opened) if opened else await_database(dg.DagsterInstance.get) as instance:
            if is_alone:
                keep_connection(instance)
                if work.kind is WorkKind.STEP:
                    sync_at_end(instance, work.run_id)
            guard_events(instance, fence.admit)
            outlast_outages(instance)
            if crash := frame["crash"]:
                _fail_run(crash, work, instance)
                return 0
            if notice := frame["notice"]:
                _log_notice(notice, work, instance)
            if frame["is_redelivered"]:
                _refuse_to_repeat(work, instance)
            fence.report(exit_code=str(perform(work, instance, isolation)))
    except _LostError as error:
        fence.report(lost=str(error))
        return _FAILED
    except BaseException as error:
        traceback.print_exc()
        fence.report(reason=_reason(error))
        return _FAILED
    return 0


def _fail_run(reason: str, work: WorkItem, instance: dg.DagsterInstance) -> None:
    """Fail a run whose process cannot report its end, unless Dagster's run monitoring does so, or resumes it."""
    run = instance.get_run_by_id(work.run_id)
    if run is not None and not run.is_finished and not instance.run_monitoring_enabled:
        instance.report_run_failed(run, f"The run can't continue: {reason}")


def _log_notice(notice: str, work: WorkItem, instance: dg.DagsterInstance) -> None:
    """Write a message of the worker to the run's log."""
    if run := instance.get_run_by_id(work.run_id):
        instance.report_engine_event(notice, run, step_key=work.step_key or None)


class _LostError(Exception):
    """Another worker was lost while it ran the step, whose events may be incomplete."""


def _refuse_to_repeat(work: WorkItem, instance: dg.DagsterInstance) -> None:
    """Raise if a run or step whose worker was lost had begun.

    Dagster counts the attempts of a step, and its executor starts the next one as another job.

    Raises:
        StateError: A run had begun.
        _LostError: The attempt of a step had begun.
    """
    if work.kind is WorkKind.STEP:
        entries = instance.all_logs(work.run_id, of_type=set(_ATTEMPTS))
        kinds = [entry.dagster_event_type for entry in entries if entry.step_key == work.step_key]
        if kinds and kinds[-1] is dg.DagsterEventType.STEP_WORKER_STARTED:
            raise _LostError("the worker that had begun it did not renew its lease.")
        return
    run = instance.get_run_by_id(work.run_id)
    if work.kind is not WorkKind.RUN or (run is not None and run.status not in _BEGUN):
        raise StateError("its worker was lost after it had begun, and only Dagster can resume it")


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:_LONGEST_REASON]


def _kill_group(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
