"""Calls sent to several nodes of a cluster: their replies, and where to send the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from redis.exceptions import AskError, BusyLoadingError, ClusterDownError, MovedError, TryAgainError

from orchestration_queue.errors import TransportError, UsageError
from orchestration_queue.protocol.call import Call, Reply
from orchestration_queue.protocol.slots import Address, SlotMap, call_slot

__all__ = ["NodeBatch", "RoutedPipeline"]

_NOT_HERE = (AskError, MovedError, BusyLoadingError, ClusterDownError, TryAgainError)
"""Refusals after which the same call may be sent elsewhere, or a little later."""


@dataclass(frozen=True, slots=True)
class NodeBatch:
    """Calls for one node.

    Attributes:
        address: The node.
        asking: Whether their slot is moving to it, so that it requires ASKING first.
        places: Their places in the pipeline's calls.
        calls: The calls.
    """

    address: Address
    asking: bool
    places: Sequence[int]
    calls: Sequence[Call]

    def redirection(self, refusal: Reply) -> tuple[Address, bool] | None:
        """Return where a refusal redirects a call, and whether with ASKING; None is wherever its slot is then."""
        if not isinstance(refusal, AskError):
            return None
        # A node that does not know its own name leaves it out.
        return (refusal.host or self.address[0], refusal.port), not isinstance(refusal, MovedError)


class RoutedPipeline:
    """The state of one exchange with a cluster. Calls for one slot stay in order.

    Args:
        calls: The calls to run.
        atomic: All of them in one transaction.
        repeatable: Executing them twice is harmless.

    Raises:
        UsageError: The calls of a transaction are for several slots.
    """

    def __init__(self, calls: Sequence[Call], *, atomic: bool, repeatable: bool) -> None:
        self._calls = calls
        self._atomic = atomic
        self._repeatable = repeatable
        self._slots = [call_slot(call) for call in calls]
        if atomic:
            self._slots = [_common(self._slots)] * len(calls)
        self._todo: dict[int, tuple[Address, bool] | None] = dict.fromkeys(range(len(calls)))
        self._was_sent = False
        self._fault: TransportError | None = None
        self.replies: list[Reply] = [None] * len(calls)

    @property
    def is_over(self) -> bool:
        """Whether every call has a reply."""
        return not self._todo

    @property
    def knows_way(self) -> bool:
        """Whether the rest only needs to be sent to nodes that slots are moving to."""
        return all(told is not None and told[1] for told in self._todo.values())

    @property
    def hints(self) -> list[Address]:
        """Nodes that are reported to serve slots now."""
        return [told[0] for told in self._todo.values() if told is not None and not told[1]]

    def batches(self, slots: SlotMap) -> list[NodeBatch]:
        """Return the batches still to send; report each by one of the next two methods."""
        places: dict[tuple[Address, bool], list[int]] = {}
        for place, told in self._todo.items():
            places.setdefault(told or (slots.primary(self._slots[place]), False), []).append(place)
        self._todo, self._fault = {}, None
        return [
            NodeBatch(address, asking, here, [self._calls[place] for place in here])
            for (address, asking), here in places.items()
        ]

    def answered(self, batch: NodeBatch, answers: Sequence[Reply]) -> None:
        """Record a node's replies."""
        for place, answer in zip(batch.places, answers, strict=True):
            self.replies[place] = answer
            if isinstance(answer, _NOT_HERE):
                self._todo[place] = batch.redirection(answer)
        if self._atomic and self._todo:  # no call of a transaction was executed if one was refused
            self._todo = dict.fromkeys(batch.places, next(iter(self._todo.values())))

    def failed(self, batch: NodeBatch, error: TransportError) -> None:
        """Record that a node was unreachable, or that its connection broke.

        Raises:
            TransportError: It may have executed calls that must not be repeated.
        """
        self._was_sent |= error.maybe_applied
        if self._was_sent and not self._repeatable:
            raise error
        self._todo |= dict.fromkeys(batch.places)
        self._fault = error

    def give_up(self) -> None:
        """Stop sending: refusals are among the replies.

        Raises:
            TransportError: Some calls were not even refused.
        """
        if self._fault:
            self._fault.maybe_applied = self._was_sent or len(self._todo) < len(self._calls)
            raise self._fault
        self._todo = {}


def _common(slots: Sequence[int | None]) -> int | None:
    found = {slot for slot in slots if slot is not None}
    if len(found) > 1:
        raise UsageError(
            f"A transaction has keys in {len(found)} slots of the cluster, which may be on several servers; use keys "
            "of one queue in a transaction."
        )
    return next(iter(found), None)
