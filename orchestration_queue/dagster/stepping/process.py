"""One host as its worker sees it: started, given works, told to stop some of them, ended whole."""

from __future__ import annotations

import asyncio
import itertools
import logging
import signal
from collections.abc import Mapping
from contextlib import suppress

from orchestration_queue.dagster.stepping.fence import Fence, Slot
from orchestration_queue.dagster.stepping.location import CodeLocation
from orchestration_queue.errors import SandboxDiedError, UsageError
from orchestration_queue.worker.sandbox.frames import pack, receive
from orchestration_queue.worker.sandbox.supervised import LAST_WAIT_S, ChildProcess, Line, Output, manner

__all__ = ["HostProcess", "Running"]

log = logging.getLogger("orchestration_queue.dagster")

_PROGRAM = "orchestration_queue.dagster.stepping.host"
_BY_ITSELF = -signal.SIGKILL


class HostProcess(ChildProcess):
    """A host.

    Attributes:
        works: How many it has been given.
        memory_bytes: What it held when it last told.
        is_resident: Whether works run in the host itself, one after the other.
        threads: How many threads it had after loading the code; with more than one, no copy of it is whole.
    """

    def __init__(self, transport: asyncio.SubprocessTransport, output: Output, line: Line) -> None:
        super().__init__(transport, output, line)
        self.works = 0
        self.memory_bytes = 0
        self.threads = 1
        self.is_resident = False
        self._numbers = itertools.count()
        self._running: dict[int, Running] = {}
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, fence: Fence, location: CodeLocation | None, *, is_resident: bool = False) -> HostProcess:
        """Start one, and wait until it has loaded the code.

        Raises:
            UsageError: The code cannot be loaded, or the process died of it.
        """
        settings = {
            "fence": fence.descriptor,
            "location": location and location.settings(),
            "is_resident": is_resident,
        }
        host = await cls.launch(_PROGRAM, settings, (fence.descriptor,))
        host.is_resident = is_resident
        host._output.begin(f"Code location {location.name}" if location else "A spawned process")
        try:
            await host._ready
        except BaseException as error:
            await asyncio.shield(host.end(0))
            if isinstance(error, SandboxDiedError):
                name = location.name if location else "of the work"
                raise UsageError(f"The code location {name!r} cannot be loaded: {error}") from None
            raise
        return host

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs here."""
        return not self._running

    def begin(self, data: object, slot: Slot, *, is_redelivered: bool) -> Running:
        """Start a work.

        Args:
            data: The work, as its job has it.
            slot: Until when it may write.
            is_redelivered: Another worker has had the job before, and was lost.
        """
        self.works += 1
        number = next(self._numbers)
        running = self._running[number] = Running(self, number)
        frame = {"number": number, "data": data, "slot": slot.index, "is_redelivered": is_redelivered}
        self._writer.write(pack({"kind": "run", **frame}))
        if not self.is_alive:
            running.died(None)
        return running

    def signal_work(self, number: int, which: signal.Signals) -> None:
        """Signal a work and all that it has started."""
        if self.is_resident:
            self.signal(which)
        elif self.is_alive:
            self._writer.write(pack({"kind": "signal", "number": number, "signal": int(which)}))

    async def _read(self) -> None:
        """Hear how works ended, until the host is gone; then its works are, too."""
        with suppress(asyncio.IncompleteReadError, OSError, SandboxDiedError, LookupError):
            while True:
                self._heed(await receive(self._reader))
        await asyncio.wait({self._output.exited}, timeout=LAST_WAIT_S)
        if not self._ready.done():
            words = await self.last_words()
            self._ready.set_exception(
                SandboxDiedError(f"its process {manner(self.exit_code)}; its last words:\n{words}")
            )
        for running in self._running.values():
            running.died(self.exit_code)
        self._running.clear()

    def _heed(self, frame: Mapping[str, object]) -> None:
        match frame["kind"]:
            case "ready":
                self._remember(frame)
                self.threads = int(str(frame["threads"]))
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
    """A work that runs in a host.

    Attributes:
        ended: Its exit code, minus the signal's number when one killed it.
    """

    def __init__(self, host: HostProcess, number: int) -> None:
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._host = host
        self._number = number

    def died(self, host_code: int | None) -> None:
        """The host is gone, and this with it: the kernel saw to that."""
        if not self.ended.done():
            self.ended.set_result(_BY_ITSELF if host_code is None else host_code or _BY_ITSELF)

    async def stop(self, grace_s: float) -> None:
        """End it: ask once, ask again, kill; with no grace, kill. Returns when it is gone."""
        asked = ((signal.SIGINT, grace_s / 2), (signal.SIGTERM, grace_s / 2)) if grace_s else ()
        for which, patience_s in (*asked, (signal.SIGKILL, LAST_WAIT_S)):
            if self.ended.done():
                return
            self._host.signal_work(self._number, which)
            await asyncio.wait({self.ended}, timeout=patience_s)
        if not self.ended.done():  # the host itself hangs
            await self._host.end(0)
