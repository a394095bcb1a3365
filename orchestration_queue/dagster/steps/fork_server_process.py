"""A fork server as its worker sees it: start it, run work items in it, stop them, end it."""

from __future__ import annotations

import asyncio
import itertools
import logging
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import cast

from orchestration_queue.dagster.steps.code_location import CodeLocation
from orchestration_queue.dagster.steps.fork_safety import changed_files
from orchestration_queue.dagster.steps.write_fence import FenceSlot, WriteFences
from orchestration_queue.errors import SandboxDiedError, UsageError
from orchestration_queue.worker.sandbox.frames import pack, receive
from orchestration_queue.worker.sandbox.supervised import KILL_WAIT_S, ChildOutput, ChildProcess, Streams, describe_exit

__all__ = ["ForkServerProcess", "Running"]

log = logging.getLogger("orchestration_queue.dagster")

_PROGRAM = "orchestration_queue.dagster.steps.fork_server"
_BY_ITSELF = -signal.SIGKILL


class ForkServerProcess(ChildProcess):
    """The process of a fork server.

    Attributes:
        items: How many work items it was given.
        memory_bytes: The memory it held at its last report.
        is_resident: Whether work items run in the server itself, one at a time.
        hazards: Why forks of it are unsafe, in words; none when they are safe.
        repairs: What is repaired before or after a fork, in words.
        instance: The id of the Dagster instance that it belongs to; empty when that has none.
        sources: The files of the code it has loaded, with the times at which they were changed.
    """

    def __init__(self, transport: asyncio.SubprocessTransport, output: ChildOutput, line: Streams) -> None:
        super().__init__(transport, output, line)
        self.items = 0
        self.memory_bytes = 0
        self.hazards: list[str] = []
        self.repairs: list[str] = []
        self.sources: dict[str, int] = {}
        self.instance = ""
        self.is_resident = False
        self._numbers = itertools.count()
        self._running: dict[int, Running] = {}
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(
        cls, fence: WriteFences, location: CodeLocation | None, *, is_resident: bool = False
    ) -> ForkServerProcess:
        """Start a server and wait until it has loaded the code.

        Raises:
            UsageError: The code cannot be loaded, or the process died of it.
        """
        settings = {
            "fence": fence.descriptor,
            "location": location and location.settings(),
            "is_resident": is_resident,
        }
        server = await cls.launch(_PROGRAM, settings, (fence.descriptor,))
        server.is_resident = is_resident
        server._output.begin(f"Code location {location.name}" if location else "A spawned process")
        try:
            await server._ready
        except BaseException as error:
            await asyncio.shield(server.end(0))
            if isinstance(error, SandboxDiedError):
                name = location.name if location else "of the work"
                raise UsageError(f"The code location {name!r} cannot be loaded: {error}") from None
            raise
        return server

    @property
    def changed_files(self) -> list[str]:
        """Return the files of its code that were changed after it had loaded them."""
        return changed_files(self.sources)

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs here."""
        return not self._running

    def begin(
        self, data: object, slot: FenceSlot, *, is_redelivered: bool, notice: str = "", crash: str = ""
    ) -> Running:
        """Start a work item.

        Args:
            data: The work item as its job carries it.
            slot: Its write fence.
            is_redelivered: Whether another worker had the job before and was lost.
            notice: A message to write to the run's log first.
            crash: Why the process of a run ended. The run is reported as failed, and not executed.
        """
        self.items += 1
        number = next(self._numbers)
        running = self._running[number] = Running(self, number)
        frame = {"number": number, "data": data, "slot": slot.index, "is_redelivered": is_redelivered}
        frame |= {"notice": notice, "crash": crash}
        self._writer.write(pack({"kind": "run", **frame}))
        if not self.is_alive:
            running.died(None)
        return running

    def signal_work(self, number: int, which: signal.Signals) -> None:
        """Signal a work item and every process that it started."""
        if self.is_resident:
            self.signal(which)
        elif self.is_alive:
            self._writer.write(pack({"kind": "signal", "number": number, "signal": int(which)}))

    async def _read(self) -> None:
        """Read how work items ended until the server is gone; then its work items are gone, too."""
        with suppress(asyncio.IncompleteReadError, OSError, SandboxDiedError, LookupError):
            while True:
                self._heed(await receive(self._reader))
        await asyncio.wait({self._output.exited}, timeout=KILL_WAIT_S)
        if not self._ready.done():
            words = await self.last_output()
            self._ready.set_exception(
                SandboxDiedError(f"its process {describe_exit(self.exit_code)}; its last words:\n{words}")
            )
        for running in self._running.values():
            running.died(self.exit_code)
        self._running.clear()

    def _heed(self, frame: Mapping[str, object]) -> None:
        match frame["kind"]:
            case "ready":
                self._remember(frame)
                self.hazards = cast("list[str]", frame["hazards"])
                self.repairs = cast("list[str]", frame["repairs"])
                self.sources = cast("dict[str, int]", frame["sources"])
                self.instance = str(frame["instance"])
                self._ready.set_result(None)
            case "unready":
                self._ready.set_exception(SandboxDiedError(str(frame["reason"])))
            case _:
                self._remember(frame)
                running = self._running.pop(int(str(frame["number"])))
                running.ended.set_result(int(str(frame["code"])))

    def _remember(self, frame: Mapping[str, object]) -> None:
        self.memory_bytes = int(str(frame.get("memory_bytes", self.memory_bytes)))


class Running:
    """A work item that runs in a server.

    Attributes:
        ended: Its exit code, minus the signal's number when one killed it.
        is_lost: Whether it ended with its fork server, through no fault of its own.
        has_begun: Whether it wrote an event, or ended, before its worker gave up on it.
    """

    def __init__(self, server: ForkServerProcess, number: int) -> None:
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._server = server
        self._number = number
        self.is_lost = False
        self.has_begun = True

    def died(self, host_code: int | None) -> None:
        """End this, because the server is gone: the kernel killed it."""
        if not self.ended.done():
            self.is_lost = not self._server.is_resident
            self.ended.set_result(_BY_ITSELF if host_code is None else host_code or _BY_ITSELF)

    async def stop(self, grace_s: float) -> None:
        """End it: ask once, ask again, kill; with no grace, kill. Returns when it is gone."""
        asked = ((signal.SIGINT, grace_s / 2), (signal.SIGTERM, grace_s / 2)) if grace_s else ()
        for which, patience_s in (*asked, (signal.SIGKILL, KILL_WAIT_S)):
            if self.ended.done():
                return
            self._server.signal_work(self._number, which)
            await asyncio.wait({self.ended}, timeout=patience_s)
        if not self.ended.done():  # the server itself hangs
            await self._server.end(0)
