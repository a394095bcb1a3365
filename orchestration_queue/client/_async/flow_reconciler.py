"""Reconcile flows from a client that waits for one: its queue may have no worker that does."""

from __future__ import annotations

import secrets
from datetime import timedelta

from orchestration_queue.flows.reconciling import Reconciliation
from orchestration_queue.protocol.call import Call, Operation, Reply, together
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.moves import finish_moves
from orchestration_queue.server import AsyncConnection

__all__ = ["AsyncFlowReconciler"]

_INTERVAL, _PATIENCE = timedelta(seconds=5), timedelta(minutes=5)
"""The same as a worker's defaults for ``flow_interval`` and ``abandon_flows_after``."""


class AsyncFlowReconciler:
    """Reconciles the flows of one queue in rounds, by the server's clock.

    Args:
        keys: The queue's keys.
        connection: The connection to use.
    """

    def __init__(self, keys: QueueKeys, connection: AsyncConnection) -> None:
        self._connection = connection
        self._keys = keys
        self._server_ms = 0
        self._flows = Reconciliation(keys, lambda: self._server_ms, interval=_INTERVAL, patience=_PATIENCE)

    async def round(self) -> None:
        """Reconcile the flows and moves that are due. Three commands if there are none."""
        self._server_ms = await self._connection.look(_SERVER_MS)
        flows = self._flows.round(secrets.token_hex(8))
        await self._connection.follow(together([flows, finish_moves(self._keys, self._server_ms)]))


def _milliseconds(reply: Reply) -> int:
    seconds, microseconds = reply
    return int(seconds) * 1000 + int(microseconds) // 1000


_SERVER_MS = Operation(Call("TIME"), _milliseconds)
