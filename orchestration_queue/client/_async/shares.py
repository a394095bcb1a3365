"""Fair shares: shares with waiting jobs start them in proportion to their weights."""

from __future__ import annotations

from typing import TypeAlias

from orchestration_queue.client._async.client import AsyncQueueClient
from orchestration_queue.options import checked_share, checked_share_weight
from orchestration_queue.protocol.operations import shares
from orchestration_queue.protocol.operations.shares import Share

__all__ = ["AsyncShares"]

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
        call = shares.set_weight(self.keys, checked_share(name), checked_share_weight(weight))
        await self._connection.execute(call, repeatable=True)

    async def remove(self, name: str) -> bool:
        """Reset the weight of a share to 1; return False if none was set. Its jobs remain.

        Raises:
            UsageError: The name is invalid.
        """
        return await self._connection.run(shares.unset_weight(self.keys, checked_share(name)), repeatable=True)
