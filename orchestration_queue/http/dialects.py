"""The queues of other wires that an app shows. They are named when the app is made, and connected on first use."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestration_queue.errors import NotFoundError, UsageError
from orchestration_queue.server import AsyncConnection

if TYPE_CHECKING:  # they need optional packages
    from orchestration_queue.dialects.chasquimq import AsyncChasquiQueue, ChasquiCounts
    from orchestration_queue.dialects.qless import AsyncQlessClient, QlessCounts, QlessJob, QlessWorkerCounts

__all__ = ["Dialects", "QlessOverview"]


@dataclass(frozen=True, slots=True)
class QlessOverview:
    """The state of a qless server.

    Attributes:
        queues: The named queues with their counts.
        failures: Number of failed jobs of all queues, by group.
        workers: The workers of the last day.
        tracked: The tracked jobs of the named queues.
    """

    queues: Sequence[QlessCounts] = ()
    failures: Mapping[str, int] = field(default_factory=dict)
    workers: Sequence[QlessWorkerCounts] = ()
    tracked: Sequence[QlessJob] = ()


class Dialects:
    """Clients of ChasquiMQ's and qless's queues on the app's server.

    Args:
        connection: The connection to their server.
        chasqui: Names of ChasquiMQ's queues.
        qless: Names of qless's queues.

    Raises:
        UsageError: A name is empty, or the names are not a list.

    Attributes:
        chasqui: Names of ChasquiMQ's queues.
        qless: Names of qless's queues.
    """

    def __init__(self, connection: AsyncConnection, chasqui: Sequence[str], qless: Sequence[str]) -> None:
        for option, names in (("chasqui", chasqui), ("qless", qless)):
            if isinstance(names, str) or not all(isinstance(name, str) and name for name in names):
                raise UsageError(f'`{option}` must be a list of names of queues, got {names!r}; pass ["emails"].')
        self._connection = connection
        self.chasqui, self.qless = tuple(dict.fromkeys(chasqui)), tuple(dict.fromkeys(qless))
        self._chasqui: dict[str, AsyncChasquiQueue] = {}
        self._qless: AsyncQlessClient | None = None

    @property
    def are_any(self) -> bool:
        """Whether a queue of another wire is shown."""
        return bool(self.chasqui or self.qless)

    def chasqui_queue(self, name: str) -> AsyncChasquiQueue:
        """Return the client of a ChasquiMQ queue.

        Raises:
            NotFoundError: The app does not serve it.
        """
        from orchestration_queue.dialects.chasquimq import AsyncChasquiQueue

        if name not in self.chasqui:
            raise NotFoundError(f"ChasquiMQ's queue {name!r} is not served; start with `--chasqui` and its name.")
        if name not in self._chasqui:
            self._chasqui[name] = AsyncChasquiQueue(name, url=self._connection.url)
        return self._chasqui[name]

    def qless_client(self, *names: str) -> AsyncQlessClient:
        """Return the client of qless's queues.

        Raises:
            NotFoundError: The app does not serve one of the queues, or any.
        """
        from orchestration_queue.dialects.qless import AsyncQlessClient

        unknown = next((name for name in names if name not in self.qless), None)
        if unknown is not None:
            raise NotFoundError(f"qless's queue {unknown!r} is not served; start with `--qless` and its name.")
        if self._qless is None:
            self._qless = AsyncQlessClient(url=self._connection.url, worker="console")
        return self._qless

    async def chasqui_counts(self) -> list[tuple[str, ChasquiCounts]]:
        """Count the jobs of ChasquiMQ's queues."""
        found = await asyncio.gather(*(self.chasqui_queue(name).counts() for name in self.chasqui))
        return list(zip(self.chasqui, found, strict=True))

    async def qless_overview(self) -> QlessOverview:
        """Read the state of qless; empty when no queue is named."""
        if not self.qless:
            return QlessOverview()
        client = self.qless_client()
        queues, failures, workers, tracked = await asyncio.gather(
            asyncio.gather(*(client.counts(name) for name in self.qless)),
            client.failures(), client.workers(), client.tracked(),
        )  # fmt: skip
        return QlessOverview(queues, failures, workers, [job for job in tracked if job.queue in self.qless])

    async def aclose(self) -> None:
        """Disconnect."""
        for queue in self._chasqui.values():
            await queue.aclose()
        if self._qless is not None:
            await self._qless.aclose()
