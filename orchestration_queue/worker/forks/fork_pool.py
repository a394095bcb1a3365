"""The fork servers of a worker: one for each code, plus resident and single-use processes."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from weakref import WeakValueDictionary

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import InvalidOptionError, UsageError
from orchestration_queue.options.isolation import Isolation
from orchestration_queue.worker.forks.code import Code
from orchestration_queue.worker.forks.fork_safety import decide
from orchestration_queue.worker.forks.fork_server_process import ForkServerProcess
from orchestration_queue.worker.forks.write_fence import WriteFences

__all__ = ["ForkPool", "Loan", "Recycling"]

log = get_logger("orchestration_queue.worker.forks")

_LEAVE_S = 1.0
"""How long an idle server may take to exit."""


@dataclass(frozen=True, slots=True)
class Loan:
    """A server lent to one work item.

    Attributes:
        server: The server.
        is_warm: Whether it has loaded the code, so that the work item starts quickly.
        notice: A message for the work item's log, if the process is not the requested one.
    """

    server: ForkServerProcess
    is_warm: bool = True
    notice: str = ""


@dataclass(frozen=True, slots=True)
class Recycling:
    """When a fork server is replaced by a new one.

    Attributes:
        max_items: Replace it after this many work items; None for never.
        max_memory_bytes: Replace it when it uses more memory than this; None for never.
    """

    max_items: int | None = None
    max_memory_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_items", "max_memory_bytes"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise InvalidOptionError(f"`{name}` must be a whole number >= 1, got {value!r}.")

    def is_due(self, server: ForkServerProcess) -> bool:
        """Return whether the server must be replaced."""
        return (self.max_items is not None and server.items >= self.max_items) or (
            self.max_memory_bytes is not None and server.memory_bytes > self.max_memory_bytes
        )


class ForkPool:
    """Lends fork servers to work items.

    Args:
        program: The module of the servers' program.
        fence: The write fences of running work items.
        recycling: When to replace fork servers.
        most: Maximum fork servers; the one that was least recently used ends first, once it is idle.
    """

    def __init__(self, program: str, fence: WriteFences, recycling: Recycling, *, most: int | None = None) -> None:
        self._program = program
        self._fence = fence
        self._recycling = recycling
        self._most = most
        self._copied: dict[str, ForkServerProcess] = {}
        # Only who holds or awaits a lock keeps it: an Airflow worker sees a new code with each version of a bundle.
        self._starting: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._resident: defaultdict[str, list[ForkServerProcess]] = defaultdict(list)
        self._lent: dict[ForkServerProcess, int] = {}
        self._successors: dict[str, asyncio.Task[None]] = {}
        self._endings: set[asyncio.Task[None]] = set()

    async def start(self, codes: Iterable[Code]) -> None:
        """Load code before its first work item.

        Raises:
            UsageError: Code cannot be loaded.
        """
        await asyncio.gather(*map(self._copyable, codes))

    @asynccontextmanager
    async def lend(self, code: Code, isolation: Isolation) -> AsyncIterator[Loan]:
        """Lend a server to one work item.

        Raises:
            UsageError: The code cannot be loaded.
        """
        loan = await self._lend(code, isolation)
        server = loan.server
        self._lent[server] = self._lent.get(server, 0) + 1
        try:
            yield loan
        finally:
            self._lent[server] -= 1
            if not self._lent[server]:
                del self._lent[server]
                self._take_back(server, code, isolation)

    async def aclose(self) -> None:
        """End all servers, and kill their work items."""
        for successor in list(self._successors.values()):
            successor.cancel()
            with suppress(asyncio.CancelledError):
                await successor
        for server in {*self._copied.values(), *self._lent, *(one for idle in self._resident.values() for one in idle)}:
            self._end(server)
        self._copied.clear()
        self._resident.clear()
        while self._endings:
            await asyncio.wait(self._endings)

    async def _lend(self, code: Code, isolation: Isolation) -> Loan:
        match isolation:
            case Isolation.FORK:
                return Loan(await self._copyable(code))
            case Isolation.AUTO:
                server = await self._copyable(code)
                return Loan(server) if not server.hazards else await self._spawn(_explain_spawn(code, server))
            case Isolation.IN_PROCESS:
                resident = self._idle(code)
                return Loan(
                    resident or await ForkServerProcess.start(self._program, self._fence, code, is_resident=True)
                )
            case Isolation.SPAWN:
                return await self._spawn()

    async def _spawn(self, notice: str = "") -> Loan:
        return Loan(await self._start(None), is_warm=False, notice=notice)

    async def _start(self, code: Code | None, *, is_resident: bool = False) -> ForkServerProcess:
        return await ForkServerProcess.start(self._program, self._fence, code, is_resident=is_resident)

    @property
    def decisions(self) -> dict[str, str]:
        """The isolation of the work items of each code, and its reason."""
        return {name: decide(server.hazards, server.repairs) for name, server in self._copied.items()}

    @property
    def servers(self) -> dict[str, ForkServerProcess]:
        """The fork servers to which new work items go, by the name of their code."""
        return dict(self._copied)

    def assign(self, spare: str, code: Code) -> None:
        """Use the server of one code for another, which has no server yet, and needs nothing else at first."""
        if code.name not in self._copied and code.name not in self._starting and spare in self._copied:
            server = self._copied[code.name] = self._copied.pop(spare)
            server.relabel(code.label)

    def retire(self, name: str) -> None:
        """Have the next work item of this code start a new server; the old one ends with its last work item."""
        if (server := self._copied.pop(name, None)) is not None and server not in self._lent:
            self._end(server)

    def distrust(self, server: ForkServerProcess, reason: str) -> None:
        """Stop forking work items from a server whose child did not start, except those with ``isolation: fork``."""
        server.hazards.append(reason)

    def _idle(self, code: Code) -> ForkServerProcess | None:
        idle = self._resident[code.name]
        while idle:
            if (server := idle.pop()).is_alive and not server.changed_files:
                return server
            self._end(server)
        return None

    async def _copyable(self, code: Code) -> ForkServerProcess:
        """Return the fork server of code; start a new one if it died."""
        async with self._starting.setdefault(code.name, asyncio.Lock()):
            server = self._copied.get(code.name)
            if server is None or not server.is_alive:
                return await self._replace(code)
            if changed := server.changed_files:
                log.info("%s is loaded again, because %s has changed.", code.label, changed[0])
                return await self._replace(code)
            self._copied[code.name] = self._copied.pop(code.name)  # the most recently used one is the last
        if self._recycling.is_due(server) and code.name not in self._successors:
            self._successors[code.name] = asyncio.create_task(self._succeed(code))
        return server

    async def _succeed(self, code: Code) -> None:
        """Replace a server when its successor is ready."""
        try:
            await self._replace(code)
        except UsageError as error:
            log.error("%s keeps its process: %s", code.label, error)
        finally:
            del self._successors[code.name]

    async def _replace(self, code: Code) -> ForkServerProcess:
        old = self._copied.get(code.name)
        fresh = await self._start(code)
        self._copied.pop(code.name, None)
        self._copied[code.name] = fresh
        log.info("%s: %s", code.label, decide(fresh.hazards, fresh.repairs))
        if fresh.hazards:
            log.warning(
                "%s Create threads, connections and clients on first use, or in a resource.",
                _explain_spawn(code, fresh),
            )
        # One that is lent ends when its last work item returns it.
        if old is not None and old not in self._lent:
            self._end(old)
        while self._most is not None and len(self._copied) > self._most:
            self.retire(next(iter(self._copied)))
        return fresh

    def _take_back(self, server: ForkServerProcess, code: Code, isolation: Isolation) -> None:
        if server in self._copied.values():
            return
        if (
            isolation is Isolation.IN_PROCESS
            and server.is_alive
            and server.is_idle
            and not self._recycling.is_due(server)
        ):
            self._resident[code.name].append(server)
        else:
            self._end(server)

    def _end(self, server: ForkServerProcess) -> None:
        # A resident process would take a signal as the cancellation of its work, and report that.
        ending = asyncio.create_task(server.end(_LEAVE_S if server.is_idle or not server.is_resident else 0))
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)


def _explain_spawn(code: Code, server: ForkServerProcess) -> str:
    return (
        f"{code.label} cannot be forked: importing it leaves {'; '.join(server.hazards)}, which "
        "forked processes would lack or share. Its work runs in new processes, which take seconds to start."
    )
