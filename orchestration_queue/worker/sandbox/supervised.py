"""A supervised child process: a connection to it, its output in the log, and an end that leaves nothing behind."""

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
from collections.abc import Mapping
from typing import Self

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import SandboxDiedError
from orchestration_queue.worker.sandbox.frames import FrameChannel

__all__ = ["KILL_WAIT_S", "ChildOutput", "ChildProcess", "describe_exit"]

log = get_logger("orchestration_queue.worker.sandbox")

_PROGRAM = (
    "import gc, json, sys; from importlib import import_module; settings = json.loads(sys.argv[1]); "
    "sys.path[:], sys.argv[:] = settings.pop('path'), settings.pop('argv'); "
    "gc.disable(); main = import_module(settings.pop('program')).main; gc.enable(); main(**settings)"
)
"""Without the garbage collector, importing Dagster takes three quarters of the time."""
KILL_WAIT_S = 5.0
"""How long the kernel may take to remove a killed process, and to deliver its last output."""
_HANG_UP_S = 0.2
"""How long a process's last output may take to arrive."""
_STDERR = 2
_LAST_LINES = 20
_LINE_BYTES = 16_384
"""A longer line is logged in pieces, so that endless output does not use up memory."""


class ChildProcess:
    """A child process and the process group that it leads."""

    def __init__(self, transport: asyncio.SubprocessTransport, output: ChildOutput, channel: FrameChannel) -> None:
        self._transport = transport
        self._output = output
        self._channel = channel
        output.exited.add_done_callback(lambda _: self._kill_children())

    @classmethod
    async def launch(cls, program: str, settings: Mapping[str, object], descriptors: tuple[int, ...] = ()) -> Self:
        """Start one. It is bound to the calling thread: Linux ends the process when that thread ends, for any reason.

        Args:
            program: A module, whose ``main`` runs there with this process's import path and arguments.
            settings: The JSON-serializable arguments of ``main``, beside ``descriptor``, its end of the connection,
                ``parent``, this process, and ``log_level``.
            descriptors: Open files that it inherits.
        """
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as undo:
            undo.callback(ours.close)
            arguments = {
                "program": program,
                "path": [str(path) for path in sys.path],
                "argv": sys.argv,
                "descriptor": theirs.fileno(),
                "parent": os.getpid(),
                "log_level": logging.getLogger().level,
                **settings,
            }
            transport, output = await loop.subprocess_exec(
                ChildOutput,
                *(sys.executable, "-c", _PROGRAM, json.dumps(arguments)),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), *descriptors),
                # It leads its own process group, which can be killed as a whole, and no Ctrl-C of a terminal reaches
                # it.
                start_new_session=True,
            )
            undo.callback(transport.close)
            _, channel = await loop.create_connection(FrameChannel, sock=ours)
            undo.pop_all()
        return cls(transport, output, channel)

    @property
    def pid(self) -> int:
        """Its process id, and that of its group."""
        return self._transport.get_pid()

    @property
    def is_alive(self) -> bool:
        """Whether it is running and connected."""
        return self._transport.get_returncode() is None and not self._channel.is_closed

    @property
    def exit_code(self) -> int | None:
        """Its exit code; minus the signal's number if a signal killed it, None while it runs."""
        return self._transport.get_returncode()

    async def death(self) -> SandboxDiedError:
        """Return the error for a process that has ended, or has closed its connection."""
        await asyncio.wait({self._output.exited}, timeout=KILL_WAIT_S)
        code = self.exit_code
        await self.end(0)
        output = await self.last_output()
        return SandboxDiedError(
            f"The sandbox process {describe_exit(code)} while it ran the job"
            + (f"; its last output:\n{output}" if output else "."),
            exit_code=code,
        )

    async def last_output(self) -> str:
        """Return the last lines of its standard error, once it has ended."""
        await asyncio.wait({self._output.quiet}, timeout=KILL_WAIT_S)
        return "\n".join(self._output.tail)

    async def end(self, grace_s: float) -> None:
        """End it and everything it has started: ask, wait, kill. Returns once it is gone."""
        if grace_s and not self._output.exited.done():
            self.signal(signal.SIGTERM)
            await asyncio.wait({self._output.exited}, timeout=grace_s)
        if not self._output.exited.done():
            self.signal(signal.SIGKILL)
            await asyncio.wait({self._output.exited}, timeout=KILL_WAIT_S)
        self._channel.close()
        self._transport.close()

    def signal(self, number: int) -> None:
        """Signal the whole group, which can outlive its leader."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _kill_children(self) -> None:
        """Kill the children of the ended process immediately, before its process id can be reused."""
        self.signal(signal.SIGKILL)
        # They may have inherited the connection, and keep it open.
        asyncio.get_running_loop().call_later(_HANG_UP_S, self._channel.abort)


class ChildOutput(asyncio.SubprocessProtocol):
    """Writes a process's output to the worker's log, line by line.

    Attributes:
        exited: Done when the process has ended.
        quiet: Done when nothing more can be printed.
        speaker: Whose output it is.
        tail: The last lines of its standard error.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[None] = loop.create_future()
        self.quiet: asyncio.Future[None] = loop.create_future()
        self.speaker = "A child process"
        self.tail: deque[str] = deque(maxlen=_LAST_LINES)
        self._begun = {1: b"", 2: b""}

    def begin(self, speaker: str) -> None:
        """Attribute later output to no job."""
        self.speaker = speaker
        self.tail.clear()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Log the complete lines."""
        *lines, rest = (self._begun[fd] + data).split(b"\n")
        while len(rest) > _LINE_BYTES:
            lines.append(rest[:_LINE_BYTES])
            rest = rest[_LINE_BYTES:]
        self._begun[fd] = rest
        for line in lines:
            self._emit(fd, line)

    def pipe_connection_lost(self, fd: int, _error: Exception | None) -> None:
        """Log an incomplete last line."""
        self._emit(fd, self._begun[fd])
        if fd == _STDERR:
            self.quiet.set_result(None)

    def process_exited(self) -> None:
        """Report that the process has ended."""
        self.exited.set_result(None)

    def _emit(self, fd: int, line: bytes) -> None:
        if not line:
            return
        text = line.decode("utf-8", "replace")
        if fd == _STDERR:
            self.tail.append(text)
        log.info("%s: %s", self.speaker, text)


def describe_exit(code: int | None) -> str:
    """Describe how a process ended."""
    if code is None:
        return "closed its connection to the worker"
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was killed by {name}" + (", perhaps because memory ran out," if -code == signal.SIGKILL else "")
