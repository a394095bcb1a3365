"""What jobs share: slots of pools, and a queue's starts."""

from __future__ import annotations

from typing import TypeAlias

from orchestration_queue.client._async.client import AsyncClient, AsyncQueueClient
from orchestration_queue.options import check_pool, check_pool_slots, check_share, check_share_weight
from orchestration_queue.protocol.keys import DEFAULT_PREFIX, QueueKeys
from orchestration_queue.protocol.operations import pools, shares
from orchestration_queue.protocol.operations.pools import Pool
from orchestration_queue.protocol.operations.shares import Share
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms

__all__ = ["AsyncPools", "AsyncShares"]

_Pools: TypeAlias = list[Pool]


class AsyncPools(AsyncClient):
    """The pools of a server. ``JobOptions(pools={"warehouse": 2})`` says which slots a job holds while it runs.

    Args:
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        connection: An open connection to use instead. It stays open on close.
        prefix: First part of every key. Queues with the same prefix share pools.

    Raises:
        InvalidNameError: The prefix is invalid.
        UsageError: Both ``url`` and ``connection`` are given.
    """

    def __init__(
        self, *, url: str | None = None, connection: AsyncConnection | None = None, prefix: str = DEFAULT_PREFIX
    ) -> None:
        super().__init__(url, connection)
        self._keys = QueueKeys("pools", prefix)

    async def list(self) -> _Pools:
        """List all pools by name, with the jobs that hold their slots. Two exchanges."""
        return await self._connection.follow(pools.states(self._keys, now_ms()))

    async def find(self, name: str) -> Pool | None:
        """Return a pool with the jobs that hold its slots; None if it is not defined.

        Raises:
            UsageError: The name is invalid.
        """
        found = await self._connection.follow(pools.states(self._keys, now_ms(), [check_pool(name)]))
        return found[0] if found else None

    async def set(self, name: str, slots: int) -> None:
        """Define a pool, or change its number of slots. Waiting jobs for which slots become free start immediately.

        If the number decreases, running jobs keep their slots until they end.

        Args:
            name: The pool: up to 100 characters, without ``:`` ``{`` ``}``.
            slots: How many slots it has, 0 to 1,000. With 0, no job starts.

        Raises:
            UsageError: The name or the number is invalid.
        """
        define = pools.define(self._keys, check_pool(name), check_pool_slots(slots), now_ms())
        woken = await self._connection.run(define, repeatable=True)
        await self._connection.follow(pools.start_woken(self._keys, woken, now_ms(), is_last=True))

    async def remove(self, name: str) -> bool:
        """Remove a pool; return False if it is not defined. Later jobs that name it fail until it is defined again.

        Raises:
            UsageError: The name is invalid.
            StateError: Jobs hold or wait for its slots.
        """
        return await self._connection.run(pools.remove(self._keys, check_pool(name), now_ms()))


_Shares: TypeAlias = list[Share]


class AsyncShares(AsyncQueueClient):
    """The shares of a queue. ``JobOptions(share="tenant-a")`` assigns a job to one.

    Args:
        name: The queue's name.
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        connection: An open connection to use instead. It stays open on close.
        prefix: First part of every key.

    Raises:
        InvalidNameError: The queue's name is invalid.
        UsageError: Both ``url`` and ``connection`` are given.
    """

    async def list(self) -> _Shares:
        """List the shares that have a weight or waiting jobs, by name. Two exchanges per 1,000 shares."""
        return await self._connection.follow(shares.states(self.keys))

    async def set(self, name: str, weight: int) -> None:
        """Set the weight of a share, from its next job on. A share without one has weight 1.

        Args:
            name: The share: up to 100 characters, without ``:`` ``{`` ``}``.
            weight: Its proportion of the starts among shares with waiting jobs, 1 to 1,000.

        Raises:
            UsageError: The name or the weight is invalid.
        """
        call = shares.set_weight(self.keys, check_share(name), check_share_weight(weight))
        await self._connection.execute(call, repeatable=True)

    async def remove(self, name: str) -> bool:
        """Reset the weight of a share to 1; return False if none was set. Its jobs remain.

        Raises:
            UsageError: The name is invalid.
        """
        return await self._connection.run(shares.unset_weight(self.keys, check_share(name)), repeatable=True)
