"""The slots of Dagster's pools that a run's steps hold and wait for."""

from __future__ import annotations

import time

import dagster as dg

from orchestration_queue.dagster._compat import InstanceConcurrencyContext, SqlEventLogStorage

__all__ = ["PoolSlots"]

_PATIENCE_S = 5.0
"""How long a free slot may be left to Dagster's own assignment; a pool is checked as often."""


class PoolSlots(InstanceConcurrencyContext):
    """Dagster's claims, which also find a slot that nothing else would assign.

    Dagster assigns a slot when a step asks for it and when another step ends. A step that asks while the other ends can
    be stored just after the latter has looked for waiting steps, and would wait until yet another step of the pool ends
    (seen with 1.13).
    """

    def __init__(self, instance: dg.DagsterInstance, dagster_run: dg.DagsterRun) -> None:
        super().__init__(instance, dagster_run)
        self._check_at: dict[str, float] = {}

    def claim(self, concurrency_key: str, step_key: str, step_priority: int = 0) -> bool:
        """Return whether the step has a slot of the pool now."""
        has_slot = super().claim(concurrency_key, step_key, step_priority)
        if not has_slot:
            self._assign(concurrency_key)
        return has_slot

    def _assign(self, pool: str) -> None:
        now = time.monotonic()
        if now < self._check_at.setdefault(pool, now + _PATIENCE_S):
            return
        self._check_at[pool] = now + _PATIENCE_S
        storage = self._instance.event_log_storage
        # Assigned twice by two runs at once, a slot is still claimed by one step.
        if isinstance(storage, SqlEventLogStorage) and storage.has_unassigned_slots(pool):
            storage.assign_pending_steps([pool])
