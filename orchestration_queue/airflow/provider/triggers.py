"""Triggers that fire when a job or a flow has ended: woken by the queue's events, on one connection for all."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from airflow.sdk.configuration import conf
from airflow.triggers.base import BaseTrigger, TriggerEvent

from orchestration_queue._logging import get_logger
from orchestration_queue.airflow.provider.connections import shared_connection
from orchestration_queue.airflow.provider.hook import DEFAULT_CONNECTION, QueueHook
from orchestration_queue.airflow.provider.outcomes import describe_error, describe_result
from orchestration_queue.client import AsyncQueue
from orchestration_queue.errors import NotFoundError, OrchestrationQueueError, TransportError

__all__ = ["FlowTrigger", "JobTrigger", "earliest_event", "hold_event", "open_queue", "pause_for"]

_log = get_logger(__name__)
_PAUSE_S = 1.0
"""How long to pause before an unreachable server is tried again; each try has its own timeout."""


@asynccontextmanager
async def open_queue(name: str, queue_conn_id: str) -> AsyncIterator[AsyncQueue]:
    """Open a queue on the connection that all triggers of its server share."""
    server = await QueueHook(queue_conn_id).aread_server()
    async with shared_connection(server.url) as connection:
        yield AsyncQueue(name, connection=connection, prefix=server.prefix)


def earliest_event() -> float:
    """Return before when the trigger of a task that is deferred now must not fire, in seconds since 1970.

    Airflow may notice the end of the process that has deferred the task only after ``min_heartbeat_interval``. It then
    fails the task if that has been resumed meanwhile.
    """
    return time.time() + float(conf.getint("workers", "min_heartbeat_interval")) + 1


async def hold_event(not_before: float) -> None:
    """Wait until a trigger may fire."""
    await asyncio.sleep(max(0.0, not_before - time.time()))


async def pause_for(outage: TransportError) -> None:
    """Pause before an unreachable server is tried again."""
    _log.warning("%s Trying again.", outage)
    await asyncio.sleep(_PAUSE_S)


class _EndTrigger(BaseTrigger):
    """Fires once, when its work has ended.

    It begins with the state of the work and then follows its events. So a trigger that starts again, in this or another
    triggerer, has missed nothing, and fires the same event. It outlasts an unreachable server.
    """

    def __init__(self, queue_name: str, queue_conn_id: str, not_before: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.queue_name = queue_name
        self.queue_conn_id = queue_conn_id
        self.not_before = not_before

    @abstractmethod
    def _identify(self) -> dict[str, Any]:
        """Return the argument that names the work."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and its arguments."""
        where = {"queue_name": self.queue_name, "queue_conn_id": self.queue_conn_id, "not_before": self.not_before}
        return f"{__name__}.{type(self).__name__}", {**self._identify(), **where}

    @abstractmethod
    async def _wait(self, queue: AsyncQueue) -> Any:
        """Wait for the end of the work, and return its result."""

    @abstractmethod
    async def _cancel(self, queue: AsyncQueue) -> None:
        """Cancel the work."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield the outcome of the work when it has ended."""
        payload = None
        while payload is None:
            try:
                async with open_queue(self.queue_name, self.queue_conn_id) as queue:
                    payload = describe_result(await self._wait(queue))
            except TransportError as error:
                await pause_for(error)
            except OrchestrationQueueError as error:
                payload = describe_error(error)
        await hold_event(self.not_before)
        yield TriggerEvent(payload)

    async def on_kill(self) -> None:
        """Cancel the work, since a user has cleared the task, or marked it as succeeded or failed."""
        async with open_queue(self.queue_name, self.queue_conn_id) as queue:
            with suppress(NotFoundError):
                await self._cancel(queue)


class JobTrigger(_EndTrigger):
    """Fires when a job has ended, with its result or its failure.

    Args:
        queue_name: The job's queue.
        job_id: The job's id.
        queue_conn_id: The connection's id.
        not_before: When it fires at the earliest, in seconds since 1970; see :func:`earliest_event`.
    """

    def __init__(
        self, queue_name: str, job_id: str, queue_conn_id: str = DEFAULT_CONNECTION, not_before: float = 0
    ) -> None:
        super().__init__(queue_name, queue_conn_id, not_before)
        self.job_id = job_id

    def _identify(self) -> dict[str, Any]:
        return {"job_id": self.job_id}

    async def _wait(self, queue: AsyncQueue) -> Any:
        return await (await queue.get(self.job_id)).wait(None)

    async def _cancel(self, queue: AsyncQueue) -> None:
        await (await queue.get(self.job_id)).cancel()


class FlowTrigger(_EndTrigger):
    """Fires when a flow has ended, with the results of its nodes or the failure of one.

    Args:
        queue_name: The flow's queue.
        flow_id: The flow's id.
        queue_conn_id: The connection's id.
        not_before: When it fires at the earliest, in seconds since 1970; see :func:`earliest_event`.
    """

    def __init__(
        self, queue_name: str, flow_id: str, queue_conn_id: str = DEFAULT_CONNECTION, not_before: float = 0
    ) -> None:
        super().__init__(queue_name, queue_conn_id, not_before)
        self.flow_id = flow_id

    def _identify(self) -> dict[str, Any]:
        return {"flow_id": self.flow_id}

    async def _wait(self, queue: AsyncQueue) -> Any:
        return await (await queue.flows.get(self.flow_id)).wait(None)

    async def _cancel(self, queue: AsyncQueue) -> None:
        await (await queue.flows.get(self.flow_id)).cancel("its Airflow task was ended by a user")
