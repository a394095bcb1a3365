"""The fork servers of a worker: one per code location, plus resident and single-use processes."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from orchestration_queue._logging import get_logger
from orchestration_queue.dagster.checks import check_number
from orchestration_queue.dagster.steps.code_location import CodeLocation
from orchestration_queue.dagster.steps.envelope import Isolation
from orchestration_queue.dagster.steps.fork_safety import decide
from orchestration_queue.dagster.steps.fork_server_process import ForkServerProcess
from orchestration_queue.dagster.steps.write_fence import WriteFences
from orchestration_queue.errors import UnrecoverableError, UsageError

__all__ = ["ForkPool", "Loan", "Recycling"]

log = get_logger("orchestration_queue.dagster")

_LEAVE_S = 1.0
"""How long an idle server may take to exit."""


@dataclass(frozen=True, slots=True)
class Loan:
    """A server lent to one work item.

    Attributes:
        server: The server.
        is_warm: Whether it has loaded the code, so that the work item starts quickly.
        notice: A message for the run's log, if the process is not the requested one.
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
            if getattr(self, name) is not None:
                check_number(getattr(self, name), name, 1)

    def is_due(self, server: ForkServerProcess) -> bool:
        """Return whether the server must be replaced."""
        return (self.max_items is not None and server.items >= self.max_items) or (
            self.max_memory_bytes is not None and server.memory_bytes > self.max_memory_bytes
        )


class ForkPool:
    """Lends fork servers to work items.

    Args:
        locations: The code locations that this worker serves.
        fence: The write fences of running work items.
        recycling: When to replace fork servers.
    """

    def __init__(self, locations: Iterable[CodeLocation], fence: WriteFences, recycling: Recycling) -> None:
        self._locations = {location.name: location for location in locations}
        self._fence = fence
        self._recycling = recycling
        self._copied: dict[str, ForkServerProcess] = {}
        self._starting: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._resident: defaultdict[str, list[ForkServerProcess]] = defaultdict(list)
        self._lent: dict[ForkServerProcess, int] = {}
        self._successors: dict[str, asyncio.Task[None]] = {}
        self._endings: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Load every code location.

        Raises:
            UsageError: A code location cannot be loaded.
        """
        await asyncio.gather(*(self._copyable(location) for location in self._locations.values()))

    @asynccontextmanager
    async def lend(self, location_name: str, isolation: Isolation) -> AsyncIterator[Loan]:
        """Lend a server to one work item.

        Raises:
            UnrecoverableError: This worker does not have the code location.
            UsageError: The code cannot be loaded.
        """
        location = self._find(location_name)
        loan = await self._lend(location, isolation)
        server = loan.server
        self._lent[server] = self._lent.get(server, 0) + 1
        try:
            yield loan
        finally:
            self._lent[server] -= 1
            if not self._lent[server]:
                del self._lent[server]
                self._take_back(server, location, isolation)

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

    def _find(self, name: str) -> CodeLocation:
        if (found := self._locations.get(name)) is not None:
            return found
        if len(self._locations) == 1:
            return next(iter(self._locations.values()))  # its name may differ elsewhere
        raise UnrecoverableError(
            f"This worker has no code location {name!r}, only {', '.join(sorted(self._locations))}; set the "
            "executor's queue to one whose workers have it, or add it to this worker."
        )

    async def _lend(self, location: CodeLocation, isolation: Isolation) -> Loan:
        match isolation:
            case Isolation.FORK:
                return Loan(await self._copyable(location))
            case Isolation.AUTO:
                server = await self._copyable(location)
                return Loan(server) if not server.hazards else await self._spawn(_explain_spawn(location, server))
            case Isolation.IN_PROCESS:
                resident = self._idle(location)
                return Loan(resident or await ForkServerProcess.start(self._fence, location, is_resident=True))
            case Isolation.SPAWN:
                return await self._spawn()

    async def _spawn(self, notice: str = "") -> Loan:
        return Loan(await ForkServerProcess.start(self._fence, None), is_warm=False, notice=notice)

    @property
    def decisions(self) -> dict[str, str]:
        """The isolation of the work items of each code location, and its reason."""
        return {name: decide(server.hazards, server.repairs) for name, server in self._copied.items()}

    @property
    def instance(self) -> str:
        """The id of this worker's Dagster instance; empty if unknown."""
        return next((server.instance for server in self._copied.values()), "")

    def distrust(self, server: ForkServerProcess, reason: str) -> None:
        """Stop forking work items from a server whose child did not start, except those with ``isolation: fork``."""
        server.hazards.append(reason)

    def _idle(self, location: CodeLocation) -> ForkServerProcess | None:
        idle = self._resident[location.name]
        while idle:
            if (server := idle.pop()).is_alive and not server.changed_files:
                return server
            self._end(server)
        return None

    async def _copyable(self, location: CodeLocation) -> ForkServerProcess:
        """Return the fork server of a code location; start a new one if it died."""
        async with self._starting[location.name]:
            server = self._copied.get(location.name)
            if server is None or not server.is_alive:
                return await self._replace(location)
            if changed := server.changed_files:
                log.info("Reloading code location %s, because %s has changed.", location.name, changed[0])
                return await self._replace(location)
        if self._recycling.is_due(server) and location.name not in self._successors:
            self._successors[location.name] = asyncio.create_task(self._succeed(location))
        return server

    async def _succeed(self, location: CodeLocation) -> None:
        """Replace a server when its successor is ready."""
        try:
            await self._replace(location)
        except UsageError as error:
            log.error("Code location %s keeps its process: %s", location.name, error)
        finally:
            del self._successors[location.name]

    async def _replace(self, location: CodeLocation) -> ForkServerProcess:
        old = self._copied.get(location.name)
        fresh = self._copied[location.name] = await ForkServerProcess.start(self._fence, location)
        log.info("Code location %r: %s", location.name, decide(fresh.hazards, fresh.repairs))
        if fresh.hazards:
            log.warning(
                "%s Create threads, connections and clients on first use, or in a resource.",
                _explain_spawn(location, fresh),
            )
        # One that is lent ends when its last work item returns it.
        if old is not None and old not in self._lent:
            self._end(old)
        return fresh

    def _take_back(self, server: ForkServerProcess, location: CodeLocation, isolation: Isolation) -> None:
        if server in self._copied.values():
            return
        if (
            isolation is Isolation.IN_PROCESS
            and server.is_alive
            and server.is_idle
            and not self._recycling.is_due(server)
        ):
            self._resident[location.name].append(server)
        else:
            self._end(server)

    def _end(self, server: ForkServerProcess) -> None:
        # A resident process would take a signal as the cancellation of its work, and report that to Dagster.
        ending = asyncio.create_task(server.end(_LEAVE_S if server.is_idle or not server.is_resident else 0))
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)


def _explain_spawn(location: CodeLocation, server: ForkServerProcess) -> str:
    return (
        f"Code location {location.name!r} cannot be forked: importing it leaves {'; '.join(server.hazards)}, which "
        "forked processes would lack or share. Its steps run in new processes, which take seconds to start."
    )
