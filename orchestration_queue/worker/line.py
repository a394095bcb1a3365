"""The worker's line to the server: carries out what the machine decides."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from orchestration_queue.errors import ServerError
from orchestration_queue.protocol.call import Call, Reply, integer
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import working
from orchestration_queue.protocol.operations.working import Delivery, Failure, Lease, QueueSettings, Refusal, Settlement
from orchestration_queue.server import AsyncConnection

__all__ = ["Line", "now_ms"]

log = logging.getLogger("orchestration_queue.worker")


def now_ms() -> int:
    """The wall clock in epoch milliseconds, as every client of this wire counts."""
    return time.time_ns() // 1_000_000


class Line:
    """One worker's two connections: one for calls, one that may wait.

    Args:
        keys: The queue's keys.
        consumer: This worker's name in the group.
        calls: Connection for calls.
        waits: Connection for blocking reads.
    """

    def __init__(self, keys: QueueKeys, consumer: str, calls: AsyncConnection, waits: AsyncConnection) -> None:
        self.keys = keys
        self.consumer = consumer
        self.settings = QueueSettings()
        self._calls = calls
        self._waits = waits
        self._waiting_as: int | None = None

    async def join(self) -> None:
        """Make sure that the workers' group exists."""
        try:
            await self._calls.execute(working.create_group(self.keys), repeatable=True)
        except ServerError as error:
            if "BUSYGROUP" not in str(error):
                raise

    async def tell(self, settlements: Sequence[Settlement]) -> list[Settlement]:
        """Tell outcomes; returns those after which nothing more happens to the job."""
        operations = [working.settle(self.keys, settlement, now_ms()) for settlement in settlements]
        replies = await self._calls.pipeline([operation.call for operation in operations])
        final = []
        for settlement, operation, reply in zip(settlements, operations, replies, strict=True):
            if isinstance(reply, Exception):
                log.error("The outcome of job %s was refused: %s", settlement.lease.job_id, reply)
            elif operation.read(reply):
                final.append(settlement)
        return final

    async def hand_back(self, deliveries: Sequence[Delivery]) -> None:
        """Return delivered jobs to the queue unstarted."""
        await self._calls.pipeline([working.hand_back(self.keys, delivery) for delivery in deliveries])

    async def start(self, delivered: Sequence[Delivery], want: int) -> tuple[list[Lease], int]:
        """Start delivered jobs, and up to ``want`` more.

        Returns:
            The started jobs, and how many came out of the queue (also those that did not start).
        """
        taken = await self._take(want) if want else []
        return await self._start([*delivered, *taken]), len(taken)

    async def _take(self, want: int) -> list[Delivery]:
        if self.settings.global_concurrency:
            want = min(want, await self._calls.run(working.free_places(self.keys)))
            if want <= 0:
                return []
        ids = await self._calls.run(working.pop_lists(self.keys, want))
        if ids:
            await self._calls.execute(working.reserve(self.keys, len(ids)))
            return [Delivery(job_id) for job_id in ids]
        return await self._calls.run(working.read_group(self.keys, self.consumer, want))

    async def _start(self, deliveries: Sequence[Delivery]) -> list[Lease]:
        if not deliveries:
            return []
        operations = [working.activate(self.keys, delivery, now_ms()) for delivery in deliveries]
        replies = await self._calls.pipeline([operation.call for operation in operations])
        leases: list[Lease] = []
        refused: list[Call] = []
        for delivery, operation, reply in zip(deliveries, operations, replies, strict=True):
            if isinstance(reply, Exception):
                log.error("Job %s could not start: %s", delivery.job_id, reply)
                continue
            started = operation.read(reply)
            if isinstance(started, Lease):
                leases.append(started)
            else:
                refused += self._refuse(delivery, started)
        if refused:
            await self._calls.pipeline(refused)
        return leases

    def _refuse(self, delivery: Delivery, why: Refusal) -> list[Call]:
        """What remains to be done for a job that does not start."""
        if why is Refusal.REVOKED:
            lease = Lease(working.bare_record(delivery), delivery.entry_id, now_ms())
            return [working.settle(self.keys, Failure(lease, "revoked"), now_ms()).call]
        if not delivery.entry_id:
            return [working.give_back(self.keys)]
        return list(working.discard(self.keys, delivery.entry_id)) if why is Refusal.GONE else []

    async def listen(self, want: int, block_ms: int) -> list[Delivery]:
        """Wait at the server for up to ``want`` jobs; returns none when the time is up or :meth:`wake` was called."""
        self._waiting_as = self._waiting_as or integer(await self._waits.execute(Call("CLIENT", args=("ID",))))
        return await self._waits.run(working.read_group(self.keys, self.consumer, want, block_ms))

    async def wake(self) -> None:
        """End a wait at the server early, without losing what it may just have been given."""
        if self._waiting_as is not None:
            await self._calls.execute(Call("CLIENT", args=("UNBLOCK", self._waiting_as)))

    async def recover(self, held: set[str]) -> list[Delivery]:
        """After a broken connection: join again, and find jobs delivered to us in a reply that never arrived."""
        self._waiting_as = None
        await self.join()
        pending = await self._calls.run(working.read_pending(self.keys, self.consumer))
        return [delivery for delivery in pending if delivery.job_id not in held]

    async def refresh_settings(self) -> QueueSettings:
        """Read again what the queue asks of its workers."""
        self.settings = await self._calls.run(working.settings(self.keys))
        return self.settings

    async def register(self, description: dict[str, object], ttl_ms: int) -> None:
        """Tell the queue that this worker is alive."""
        await self._calls.execute(working.register(self.keys, self.consumer, description, ttl_ms))

    async def leave(self) -> None:
        """Take this worker out of the queue's books; its place in the group too, unless jobs are still with it."""
        held, remove = working.leave_group(self.keys, self.consumer)
        await self._calls.execute(working.unregister(self.keys, self.consumer))
        if not await self._calls.execute(held):
            await self._calls.execute(remove)

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        """Send calls of the worker's housekeeping in one trip."""
        return await self._calls.pipeline(calls)
