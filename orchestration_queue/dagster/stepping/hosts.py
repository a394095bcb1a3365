"""All hosts of a worker: one for each code location that is copied, and those that keep or spend themselves."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from orchestration_queue.dagster.envelope import Isolation
from orchestration_queue.dagster.stepping.fence import Fence
from orchestration_queue.dagster.stepping.location import CodeLocation
from orchestration_queue.dagster.stepping.process import HostProcess
from orchestration_queue.errors import UnrecoverableError, UsageError

__all__ = ["Hosts", "Recycling"]

log = logging.getLogger("orchestration_queue.dagster")

_LEAVE_S = 1.0
"""How long a host that has nothing to do may take to leave."""


@dataclass(frozen=True, slots=True)
class Recycling:
    """When a host is replaced by a new one, once it is idle or has a successor.

    Attributes:
        max_works: After so many works; None for never.
        max_memory_bytes: Once it holds more than this; None for never.
    """

    max_works: int | None = None
    max_memory_bytes: int | None = None

    def is_due(self, host: HostProcess) -> bool:
        """Whether the host has served."""
        return (self.max_works is not None and host.works >= self.max_works) or (
            self.max_memory_bytes is not None and host.memory_bytes > self.max_memory_bytes
        )


class Hosts:
    """Lends hosts to works.

    Args:
        locations: The code locations whose works come.
        fence: Until when each work may write.
        recycling: When hosts are replaced.
    """

    def __init__(self, locations: Iterable[CodeLocation], fence: Fence, recycling: Recycling) -> None:
        self._locations = {location.name: location for location in locations}
        self._fence = fence
        self._recycling = recycling
        self._copied: dict[str, HostProcess] = {}
        self._starting: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._resident: defaultdict[str, list[HostProcess]] = defaultdict(list)
        self._lent: dict[HostProcess, int] = {}
        self._successors: dict[str, asyncio.Task[None]] = {}
        self._endings: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Load every code location.

        Raises:
            UsageError: One cannot be loaded.
        """
        await asyncio.gather(*(self._copyable(location) for location in self._locations.values()))

    @asynccontextmanager
    async def lend(self, location_name: str, isolation: Isolation) -> AsyncIterator[HostProcess]:
        """A host for one work.

        Raises:
            UnrecoverableError: This worker has no such code location.
            UsageError: Its code cannot be loaded.
        """
        location = self._find(location_name)
        host = await self._host(location, isolation)
        self._lent[host] = self._lent.get(host, 0) + 1
        try:
            yield host
        finally:
            self._lent[host] -= 1
            if not self._lent[host]:
                del self._lent[host]
                self._returned(host, location, isolation)

    async def aclose(self) -> None:
        """End them all; what runs there is killed."""
        for successor in list(self._successors.values()):
            successor.cancel()
            with suppress(asyncio.CancelledError):
                await successor
        for host in {*self._copied.values(), *self._lent, *(one for idle in self._resident.values() for one in idle)}:
            self._end(host)
        self._copied.clear()
        self._resident.clear()
        while self._endings:
            await asyncio.wait(self._endings)

    def _find(self, name: str) -> CodeLocation:
        if (found := self._locations.get(name)) is not None:
            return found
        if len(self._locations) == 1:
            return next(iter(self._locations.values()))  # whatever it is called elsewhere
        raise UnrecoverableError(
            f"This worker has no code location {name!r}, but {', '.join(sorted(self._locations))}; "
            "give the executor a queue whose workers have it, or this worker that location."
        )

    async def _host(self, location: CodeLocation, isolation: Isolation) -> HostProcess:
        match isolation:
            case Isolation.FORK:
                host = await self._copyable(location)
                return host if host.threads == 1 else await HostProcess.start(self._fence, None)
            case Isolation.IN_PROCESS:
                return self._idle(location) or await HostProcess.start(self._fence, location, is_resident=True)
            case Isolation.SPAWN:
                return await HostProcess.start(self._fence, None)

    def _idle(self, location: CodeLocation) -> HostProcess | None:
        idle = self._resident[location.name]
        while idle:
            if (host := idle.pop()).is_alive:
                return host
            self._end(host)
        return None

    async def _copyable(self, location: CodeLocation) -> HostProcess:
        """The host of a code location that is copied; a new one when it died. One that has served goes on meanwhile."""
        async with self._starting[location.name]:
            host = self._copied.get(location.name)
            if host is None or not host.is_alive:
                return await self._renewed(location)
        if self._recycling.is_due(host) and location.name not in self._successors:
            self._successors[location.name] = asyncio.create_task(self._succeed(location))
        return host

    async def _succeed(self, location: CodeLocation) -> None:
        """Replace a host that has served, as soon as there is another."""
        try:
            await self._renewed(location)
        except UsageError as error:
            log.error("The process of code location %s stays as it is: %s", location.name, error)
        finally:
            del self._successors[location.name]

    async def _renewed(self, location: CodeLocation) -> HostProcess:
        old = self._copied.get(location.name)
        fresh = self._copied[location.name] = await HostProcess.start(self._fence, location)
        if fresh.threads > 1:
            log.warning(
                "The code of location %s starts %d threads while it is imported, so that no copy of its process "
                "would be whole: each work gets a new process, which takes seconds to start. Start them later.",
                location.name,
                fresh.threads - 1,
            )
        if old is not None and old not in self._lent:
            self._end(old)
        return fresh

    def _returned(self, host: HostProcess, location: CodeLocation, isolation: Isolation) -> None:
        if host in self._copied.values():
            return
        if isolation is Isolation.IN_PROCESS and host.is_alive and host.is_idle and not self._recycling.is_due(host):
            self._resident[location.name].append(host)
        else:
            self._end(host)

    def _end(self, host: HostProcess) -> None:
        # A resident one that is asked to end would take that as the end of its work, and tell Dagster so.
        ending = asyncio.create_task(host.end(_LEAVE_S if host.is_idle or not host.is_resident else 0))
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)
