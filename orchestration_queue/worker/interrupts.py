"""How a handler ends its run without an outcome: the job goes on later, by a step of its own.

A handler does not raise these itself; methods of its job do. They are no :class:`Exception`, so that a handler's
own ``except Exception`` does not catch them.
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
        settle: Builds, from the job's lease, the settlement to send.
    """

    def __init__(self, settle: _Settle) -> None:
        super().__init__("The handler ended its run before the job was done; let this exception pass.")
        self.settle = settle
