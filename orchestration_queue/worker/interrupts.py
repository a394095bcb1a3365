"""Interrupts: how a handler ends its run without an outcome, so that the job runs again later.

Methods of the job raise these, not handlers. They are not :class:`Exception`, so a handler's own ``except Exception``
doesn't catch them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from orchestration_queue.protocol.lease import Lease, Settlement

__all__ = ["JobInterrupt"]

_Settle: TypeAlias = Callable[[Lease], Settlement]


class JobInterrupt(BaseException):
    """Ends this run of the job.

    Args:
        settle: Builds the settlement to send from the job's lease.
    """

    def __init__(self, settle: _Settle) -> None:
        super().__init__("The handler ended its run before the job was done; let this exception pass.")
        self.settle = settle
