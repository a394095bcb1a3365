"""The flows of a queue, submitted by whomever."""

from __future__ import annotations

from orchestration_queue.client._async.flow import AsyncFlow
from orchestration_queue.client._async.queue_client import AsyncQueueClient
from orchestration_queue.client.flow_status import FlowSummary, summary
from orchestration_queue.errors import StateError, UsageError
from orchestration_queue.flows.stored import FlowState, flow_ids, read_flow
from orchestration_queue.protocol.operations.conversation import all_good, chunks

__all__ = ["AsyncFlows"]

_RECORDS_A_TRIP = 50
"""Records tell whole graphs, and may be large."""


class AsyncFlows(AsyncQueueClient):
    """The flows whose record is in one queue. Every queue has it as ``queue.flows``.

    Args:
        name: The queue's name.
        url: The server; default ``OQ_URL``, else the embedded server of this directory.
        connection: An open connection to use; it stays open on close.
        prefix: First part of every key.

    Raises:
        InvalidNameError: The wire cannot carry the queue's name.
        UsageError: Both ``url`` and ``connection`` are given.
    """

    async def get(self, flow_id: str) -> AsyncFlow:
        """A flow by its id. One trip.

        Args:
            flow_id: The submission's id.

        Raises:
            StateError: The queue keeps no record of it.
        """
        facts = await self._channel.look(read_flow(self.keys, flow_id))
        if facts is None:
            raise StateError(
                f"Queue {self.name!r} has no record of a flow {flow_id!r}: it was submitted elsewhere, or removed "
                f"since; see those that are there with `oq flow ls {self.name}`."
            )
        return AsyncFlow(self._channel, facts.flow)

    async def list(self, state: FlowState | None = None, start: int = 0, end: int = 49) -> list[FlowSummary]:
        """The newest flows first, as their records tell them: a few seconds behind. A trip, and one per 50 flows.

        Args:
            state: Only those in this state, of the range.
            start: The first, from 0.
            end: The last, included; -1 for the oldest of all.

        Raises:
            UsageError: There is no such state, or the range is none.
        """
        if state is not None and state not in list(FlowState):
            raise UsageError(f"No flow is {state!r}; ask for one of {', '.join(FlowState)}.")
        if start < 0 or end < -1:
            raise UsageError(f"The range {start} to {end} is none; count from 0, and let -1 stand for the oldest flow.")
        found = []
        for piece in chunks(await self._channel.look(flow_ids(self.keys, start, end)), _RECORDS_A_TRIP):
            reads = [read_flow(self.keys, flow_id) for flow_id in piece]
            replies = all_good(await self._channel.pipeline([read.call for read in reads], repeatable=True))
            found += [facts for read, reply in zip(reads, replies, strict=True) if (facts := read.read(reply))]
        return [summary(facts) for facts in found if state is None or facts.state == state]
