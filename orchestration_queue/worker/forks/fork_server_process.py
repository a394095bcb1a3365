"""The worker's side of a fork server: start it, run and stop work items in it, end it."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import cast

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import SandboxDiedError, UsageError
from orchestration_queue.worker.forks.code import Code
from orchestration_queue.worker.forks.fork_safety import changed_files
from orchestration_queue.worker.forks.write_fence import FenceSlot, WriteFences
from orchestration_queue.worker.sandbox.frames import FrameChannel
from orchestration_queue.worker.sandbox.supervised import KILL_WAIT_S, ChildOutput, ChildProcess, describe_exit

__all__ = ["ForkServerProcess", "Running"]

log = get_logger("orchestration_queue.worker.forks")

_BY_ITSELF = -signal.SIGKILL
_ASKING = (signal.SIGINT, signal.SIGTERM)


class ForkServerProcess(ChildProcess):
    """The process of a fork server.

    Attributes:
        items: The number of work items that it has run.
        memory_bytes: Its memory at its last report.
        is_resident: Whether work items run in the server itself, one at a time.
        hazards: The reasons why forks of it are unsafe; empty if they are safe.
        repairs: The repairs before or after a fork.
        sources: The files of its code, with their times of modification.
        facts: All that the program last reported about the code.
    """

    def __init__(self, transport: asyncio.SubprocessTransport, output: ChildOutput, channel: FrameChannel) -> None:
        super().__init__(transport, output, channel)
        self.items = 0
        self.memory_bytes = 0
        self.hazards: list[str] = []
        self.repairs: list[str] = []
        self.sources: dict[str, int] = {}
        self.facts: Mapping[str, object] = {}
        self.is_resident = False
        self._numbers = itertools.count()
        self._running: dict[int, Running] = {}
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(
        cls, program: str, fence: WriteFences, code: Code | None, *, is_resident: bool = False
    ) -> ForkServerProcess:
        """Start a server and wait until it has loaded the code.

        Args:
            program: The module of its program, which starts a :class:`ForkServer`.
            fence: The write fences of running work items.
            code: What it loads; None for nothing, as the work item loads it.
            is_resident: Whether work items run in the server itself, one at a time.

        Raises:
            UsageError: The code cannot be loaded, or the process died while loading it.
        """
        settings = {
            "fence": fence.descriptor,
            "location": code and code.settings(),
            "is_resident": is_resident,
        }
        server = await cls.launch(program, settings, (fence.descriptor,))
        server.is_resident = is_resident
        server._output.begin(code.label if code else "A spawned process")
        try:
            await server._ready
        except BaseException as error:
            # Shielded: a start that is cancelled once more must not leave the process behind.
            await asyncio.shield(server.end(0))
            if isinstance(error, SandboxDiedError):
                raise UsageError(f"{code.label if code else 'A new process'} cannot be loaded: {error}") from None
            raise
        return server

    @property
    def changed_files(self) -> list[str]:
        """The files of its code that have changed since it loaded them."""
        return changed_files(self.sources)

    @property
    def is_idle(self) -> bool:
        """Whether no work item runs."""
        return not self._running

    def begin(self, data: object, slot: FenceSlot, **details: object) -> Running:
        """Start a work item.

        Args:
            data: The data of its job.
            slot: Its write fence.
            details: What else its program needs of it, as JSON.
        """
        self.items += 1
        number = next(self._numbers)
        running = self._running[number] = Running(self, number)
        self._channel.send({"kind": "run", "number": number, "data": data, "slot": slot.index, **details})
        if not self.is_alive:
            running.died(None)
        return running

    def relabel(self, label: str) -> None:
        """Attribute later output to other code."""
        self._output.begin(label)

    def tell(self, kind: str, **details: object) -> None:
        """Send the program a message of its own. After it has loaded more, it reports ``examined``, with new facts."""
        if self.is_alive:
            self._channel.send({"kind": kind, **details})

    def signal_work(self, number: int, which: signal.Signals) -> None:
        """Signal a work item and every process that it started."""
        if self.is_resident:
            self.signal(which)
        elif self.is_alive:
            self._channel.send({"kind": "signal", "number": number, "signal": int(which)})

    async def _read(self) -> None:
        """Handle the server's reports until it is gone; then end its work items."""
        with suppress(EOFError, OSError, SandboxDiedError, LookupError):
            while True:
                self._handle(await self._channel.receive())
        await asyncio.wait({self._output.exited}, timeout=KILL_WAIT_S)
        if not self._ready.done():
            words = await self.last_output()
            self._ready.set_exception(
                SandboxDiedError(f"its process {describe_exit(self.exit_code)}; its last words:\n{words}")
            )
        for running in self._running.values():
            running.died(self.exit_code)
        self._running.clear()

    def _handle(self, frame: Mapping[str, object]) -> None:
        match frame["kind"]:
            case "ready":
                self._store_facts(frame)
                self._ready.set_result(None)
            case "examined":
                self._store_facts(frame)
            case "unready":
                self._ready.set_exception(SandboxDiedError(str(frame["reason"])))
            case _:
                self._store_memory(frame)
                running = self._running.pop(int(str(frame["number"])))
                running.ended.set_result(int(str(frame["code"])))

    def _store_facts(self, frame: Mapping[str, object]) -> None:
        self._store_memory(frame)
        self.hazards = cast("list[str]", frame["hazards"])
        self.repairs = cast("list[str]", frame["repairs"])
        self.sources = cast("dict[str, int]", frame["sources"])
        self.facts = frame

    def _store_memory(self, frame: Mapping[str, object]) -> None:
        self.memory_bytes = int(str(frame.get("memory_bytes", self.memory_bytes)))


class Running:
    """A work item that runs in a server.

    Attributes:
        ended: Its exit code; the negative number of the signal that killed it, if any.
        is_lost: Whether it ended because its fork server died.
        has_begun: Whether it wrote an event, or ended, within the time for its first event.
    """

    def __init__(self, server: ForkServerProcess, number: int) -> None:
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._server = server
        self._number = number
        self.is_lost = False
        self.has_begun = True

    def died(self, host_code: int | None) -> None:
        """Mark the work item as ended, because the server is gone and the kernel has killed it."""
        if not self.ended.done():
            self.is_lost = not self._server.is_resident
            self.ended.set_result(_BY_ITSELF if host_code is None else host_code or _BY_ITSELF)

    async def stop(self, grace_s: float, asking: Sequence[signal.Signals] = _ASKING) -> None:
        """Stop the work item; return when it has ended.

        Args:
            grace_s: How long it may take to end after the signals that ask for it; 0 kills it at once.
            asking: These signals.
        """
        requests = [(which, grace_s / len(asking)) for which in asking] if grace_s else []
        for which, timeout_s in (*requests, (signal.SIGKILL, KILL_WAIT_S)):
            if self.ended.done():
                return
            self._server.signal_work(self._number, which)
            await asyncio.wait({self.ended}, timeout=timeout_s)
        if not self.ended.done():  # the server itself hangs
            await self._server.end(0)
