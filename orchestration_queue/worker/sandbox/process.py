"""One sandbox process, as its worker sees it: started, given jobs one by one, ended whole."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
from collections import deque
from dataclasses import asdict
from typing import Any, TypeAlias

from orchestration_queue.errors import SandboxDiedError
from orchestration_queue.protocol.lease import Lease
from orchestration_queue.worker.interrupts import JobInterrupt
from orchestration_queue.worker.job import AsyncActiveJob
from orchestration_queue.worker.sandbox import endings
from orchestration_queue.worker.sandbox.frames import Frame, pack, receive
from orchestration_queue.worker.sandbox.handler import Sandboxed
from orchestration_queue.worker.sandbox.remote import answer

__all__ = ["SandboxProcess"]

log = logging.getLogger("orchestration_queue.worker.sandbox")

_PROGRAM = (
    "import json, sys; settings = json.loads(sys.argv[1]); "
    "sys.path[:], sys.argv[:] = settings.pop('path'), settings.pop('argv'); "
    "from orchestration_queue.worker.sandbox.child import main; main(**settings)"
)
_READY_S = 60.0
"""How long a process may take to start and to import its handler. A job's own time begins after that."""
_LAST_WAIT_S = 5.0
"""How long the kernel may take to remove what was killed, and to hand over its last words."""
_HANG_UP_S = 0.2
"""How long what a process said before its end may take to arrive."""
_STDERR = 2
_LAST_LINES = 20
_LINE_BYTES = 16_384
"""A longer line is logged in pieces, so that output without an end costs no memory."""

_Line: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class SandboxProcess:
    """A child process that runs sandboxed handlers.

    Attributes:
        jobs: How many it has run.
        memory_bytes: What it held after the last one.
    """

    def __init__(self, transport: asyncio.SubprocessTransport, output: _Output, line: _Line) -> None:
        self.jobs = 0
        self.memory_bytes = 0
        self._transport = transport
        self._output = output
        self._reader, self._writer = line
        self._current: tuple[Lease, AsyncActiveJob] | None = None
        self._calls: set[asyncio.Task[None]] = set()
        output.exited.add_done_callback(lambda _: self._bury())

    @classmethod
    async def start(cls) -> SandboxProcess:
        """Start one. It belongs to the thread that calls: Linux ends it when that thread ends, however that is."""
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as undo:
            undo.callback(ours.close)
            settings = {
                "path": [str(path) for path in sys.path],
                "argv": sys.argv,
                "descriptor": theirs.fileno(),
                "parent": os.getpid(),
                "log_level": logging.getLogger().level,
            }
            transport, output = await loop.subprocess_exec(
                _Output,
                *(sys.executable, "-c", _PROGRAM, json.dumps(settings)),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
            undo.callback(transport.close)
            line = await asyncio.open_connection(sock=ours)
            undo.pop_all()
        return cls(transport, output, line)

    @property
    def pid(self) -> int:
        """Its process id, and that of its group."""
        return self._transport.get_pid()

    @property
    def is_alive(self) -> bool:
        """Whether it can take a job."""
        return self._transport.get_returncode() is None and not self._reader.at_eof()

    async def run(self, handler: Sandboxed, lease: Lease, job: AsyncActiveJob, timeout_s: float | None) -> Any:
        """Run a job.

        Returns:
            How it ended, as :mod:`~orchestration_queue.worker.sandbox.child` tells it.

        Raises:
            TimeoutError: Its time is over.
            SandboxDiedError: The process died, or spoke nonsense.
            asyncio.CancelledError: The worker gave the job up.
        """
        self.jobs += 1
        self._output.begin(job.id)
        self._current = lease, job
        is_started = False
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_READY_S) as limit:
                self._writer.write(pack(self._request(handler, lease, job)))
                while (frame := await receive(self._reader))["kind"] != "ended":
                    if frame["kind"] == "started":
                        is_started = True
                        limit.reschedule(None if timeout_s is None else loop.time() + timeout_s)
                    else:
                        self._heed(frame, lease, job)
                self.memory_bytes = int(frame["memory_bytes"])
                self._over()
                return frame
        except TimeoutError:
            if is_started:
                raise TimeoutError("Job timeout exceeded") from None
            raise SandboxDiedError(
                f"The sandbox process was not ready after {_READY_S:.0f} s; see what importing its handler does."
            ) from None
        except (asyncio.IncompleteReadError, OSError):
            raise await self._death() from None
        except (KeyError, TypeError, ValueError) as error:
            raise SandboxDiedError(f"The sandbox process sent no message of ours ({error!r}), and was ended.") from None

    def _request(self, handler: Sandboxed, lease: Lease, job: AsyncActiveJob) -> Frame:
        return {
            "kind": "run",
            "run": self.jobs,
            "address": asdict(handler.address),
            "id": lease.job_id,
            "fields": dict(lease.record.fields),
            "entry_id": lease.entry_id,
            "queue": job.queue,
            "prefix": job.ref.keys.prefix,
        }

    def _heed(self, frame: Frame, lease: Lease, job: AsyncActiveJob) -> None:
        """Do what a running handler wants."""
        if frame["run"] != self.jobs:
            return  # from a thread that an earlier handler has left behind
        if frame["kind"] == "discard":
            job.discard()
            return
        task = asyncio.create_task(self._answer(frame, lease, job))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _heed_to_the_end(self) -> None:
        """A handler that was asked to end may still log what it cleans up."""
        with contextlib.suppress(asyncio.IncompleteReadError, OSError, SandboxDiedError, LookupError, TypeError):
            while self._current is not None:
                self._heed(await receive(self._reader), *self._current)

    def _over(self) -> None:
        """Nobody waits for answers any more."""
        self._current = None
        for call in self._calls:
            call.cancel()

    async def _answer(self, call: Frame, lease: Lease, job: AsyncActiveJob) -> None:
        """Do what the handler asked of its job."""
        reply: Frame = {"kind": "reply", "number": call.get("number")}
        before = job.record
        try:
            reply["result"] = await answer(job, call["method"], call["args"], call["kwargs"])
            if job.record is not before:
                reply["fields"] = dict(job.record.fields)
            packed = pack(reply)
        except (Exception, JobInterrupt) as error:
            packed = pack({**reply, "error": endings.dump(error, lease)})
        self._writer.write(packed)

    async def _death(self) -> SandboxDiedError:
        """What to say of a process that is gone, or has closed its line."""
        await asyncio.wait({self._output.exited}, timeout=_LAST_WAIT_S)
        code = self._transport.get_returncode()
        await self.end(0)
        await asyncio.wait({self._output.quiet}, timeout=_LAST_WAIT_S)
        words = "\n".join(self._output.tail)
        return SandboxDiedError(
            f"The sandbox process {_manner(code)} while it ran the job"
            + (f"; its last words:\n{words}" if words else "."),
            exit_code=code,
        )

    async def end(self, grace_s: float) -> None:
        """End it and all it has started: ask, wait, kill. Returns when it is gone."""
        if grace_s and not self._output.exited.done():
            heeding = asyncio.create_task(self._heed_to_the_end())
            self._signal(signal.SIGTERM)
            await asyncio.wait({self._output.exited}, timeout=grace_s)
            heeding.cancel()
        self._over()
        if not self._output.exited.done():
            self._signal(signal.SIGKILL)
            await asyncio.wait({self._output.exited}, timeout=_LAST_WAIT_S)
        self._writer.close()
        self._transport.close()

    def _bury(self) -> None:
        """The process has ended: so shall those it has started, at once, for its number will be another's some day."""
        self._signal(signal.SIGKILL)
        # They may have inherited the line, and keep it open.
        asyncio.get_running_loop().call_later(_HANG_UP_S, self._writer.transport.abort)

    def _signal(self, number: int) -> None:
        """Signal the whole group, which outlives the process that it is named after."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


class _Output(asyncio.SubprocessProtocol):
    """Passes what a process prints to the worker's log, line by line.

    Attributes:
        exited: Done when the process has ended.
        quiet: Done when nothing can be printed any more.
        job_id: The job that runs.
        tail: The last lines of its standard error.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[None] = loop.create_future()
        self.quiet: asyncio.Future[None] = loop.create_future()
        self.job_id = ""
        self.tail: deque[str] = deque(maxlen=_LAST_LINES)
        self._begun = {1: b"", 2: b""}

    def begin(self, job_id: str) -> None:
        """What is printed from now on belongs to this job."""
        self.job_id = job_id
        self.tail.clear()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        *lines, rest = (self._begun[fd] + data).split(b"\n")
        while len(rest) > _LINE_BYTES:
            lines.append(rest[:_LINE_BYTES])
            rest = rest[_LINE_BYTES:]
        self._begun[fd] = rest
        for line in lines:
            self._emit(fd, line)

    def pipe_connection_lost(self, fd: int, _error: Exception | None) -> None:
        self._emit(fd, self._begun[fd])
        if fd == _STDERR:
            self.quiet.set_result(None)

    def process_exited(self) -> None:
        self.exited.set_result(None)

    def _emit(self, fd: int, line: bytes) -> None:
        if not line:
            return
        text = line.decode("utf-8", "replace")
        if fd == _STDERR:
            self.tail.append(text)
        log.info("Job %s: %s", self.job_id, text)


def _manner(code: int | None) -> str:
    """How a process ended, in words."""
    if code is None:
        return "closed its line to the worker"
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was killed by {name}" + (", perhaps for want of memory," if -code == signal.SIGKILL else "")
