"""The reconciler of a worker's queue; what it does is in :mod:`orchestration_queue.flows.reconciling`."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import timedelta

from orchestration_queue.flows.reconciling import Reconciliation
from orchestration_queue.protocol.call import together
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.moves import finish_moves
from orchestration_queue.server import AsyncConnection

__all__ = ["FlowReconciler"]


class FlowReconciler:
    """Reconciles the flows of one queue in rounds.

    Args:
        keys: The queue's keys.
        connection: Connection for calls.
        now_ms: Returns the time, in epoch milliseconds.
        interval: The usual time between two checks of a flow.
        patience: How long a submission may take before it is abandoned.
    """

    def __init__(
        self,
        keys: QueueKeys,
        connection: AsyncConnection,
        now_ms: Callable[[], int],
        *,
        interval: timedelta,
        patience: timedelta,
    ) -> None:
        self._connection = connection
        self._keys = keys
        self._now_ms = now_ms
        self._flows = Reconciliation(keys, now_ms, interval=interval, patience=patience)

    async def round(self) -> None:
        """Reconcile the flows and moves that are due, at most 20 of each. One exchange if there are none."""
        flows = self._flows.round(secrets.token_hex(8))
        await self._connection.follow(together([flows, finish_moves(self._keys, self._now_ms())]))
