"""Fair shares: while several have waiting jobs, each gets its part of the starts."""

from __future__ import annotations

from typing import TypeAlias

from orchestration_queue.client._async.client import AsyncQueueClient
from orchestration_queue.options import checked_share, checked_share_weight
from orchestration_queue.protocol.operations import shares
from orchestration_queue.protocol.operations.shares import Share

__all__ = ["AsyncShares"]

_Shares: TypeAlias = list[Share]


class AsyncShares(AsyncQueueClient):
    """The shares of a queue. ``JobOptions(share="tenant-a")`` says from which one a job starts.

    Args:
        name: The queue's name.
        url: The server; default ``OQ_URL``, else the embedded server of this directory.
        connection: An open connection to use; it stays open on close.
        prefix: First part of every key.

    Raises:
        InvalidNameError: The wire cannot carry the queue's name.
        UsageError: Both ``url`` and ``connection`` are given.
    """

    async def list(self) -> _Shares:
        """List the shares that have a weight or waiting jobs, by name. Two exchanges for 1,000 shares."""
        return await self._connection.follow(shares.states(self.keys))

    async def set(self, name: str, weight: int) -> None:
        """Set the weight of a share, from its next job on. A share without one has the weight 1.

        Args:
            name: The share: up to 100 characters, without ``:`` ``{`` ``}``.
            weight: Its part of the starts beside other shares that have waiting jobs, 1 to 1,000.

        Raises:
            UsageError: It is no name of a share, or no such number.
        """
        call = shares.set_weight(self.keys, checked_share(name), checked_share_weight(weight))
        await self._connection.execute(call, repeatable=True)

    async def remove(self, name: str) -> bool:
        """Remove the weight of a share, so that it has 1 again; False if none was set. Its jobs stay.

        Raises:
            UsageError: It is no name of a share.
        """
        return await self._connection.run(shares.unset_weight(self.keys, checked_share(name)), repeatable=True)
