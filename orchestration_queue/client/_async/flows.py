"""The flows of a queue, no matter who submitted them."""

from __future__ import annotations

from orchestration_queue.client._async.client import AsyncQueueClient
from orchestration_queue.client._async.flow import AsyncFlow
from orchestration_queue.client.checks import check_one_of, check_page, check_text
from orchestration_queue.client.flow_runs import FlowRuns, RunsOf, lay_side_by_side
from orchestration_queue.client.flow_status import FlowSummary, summary
from orchestration_queue.client.run_reading import MOST_RUNS, find_runs
from orchestration_queue.errors import FlowNotFoundError, UsageError
from orchestration_queue.flows.reconciler import FlowReconciler
from orchestration_queue.flows.stored import FlowState, flow_ids, read_flow
from orchestration_queue.protocol.call import all_good, chunks
from orchestration_queue.server.clock import now

__all__ = ["AsyncFlows"]

_RECORDS_PER_EXCHANGE = 50
"""A record contains the whole graph and can be large."""


class AsyncFlows(AsyncQueueClient):
    """The flows whose record is in one queue, available as ``queue.flows``.

    Args:
        name: The queue's name.
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        connection: An open connection to use instead. It stays open on close.
        prefix: First part of every key.

    Raises:
        InvalidNameError: The queue's name is invalid.
        UsageError: Both ``url`` and ``connection`` are given.
    """

    _reconciler: FlowReconciler | None = None

    async def find(self, flow_id: str) -> AsyncFlow | None:
        """Return a flow by its id; None if the queue keeps no record of it. One exchange."""
        snapshot = await self._connection.look(read_flow(self.keys, check_text(flow_id, "flow_id")))
        return None if snapshot is None else AsyncFlow(self._connection, snapshot.flow)

    async def get(self, flow_id: str) -> AsyncFlow:
        """Return a flow by its id. One exchange.

        Args:
            flow_id: The submission's id.

        Raises:
            FlowNotFoundError: The queue keeps no record of it.
        """
        flow = await self.find(flow_id)
        if flow is None:
            raise FlowNotFoundError(self.name, flow_id)
        return flow

    async def list(
        self, state: FlowState | None = None, *, limit: int | None = 50, offset: int = 0
    ) -> list[FlowSummary]:
        """List flows, newest first, as their records describe them, which can be a few seconds old.

        One exchange, and one per 50 flows.

        Args:
            state: Only flows in this state, among those of the page.
            limit: At most this many; None for all.
            offset: How many of the newest to skip.

        Raises:
            UsageError: The state does not exist, or ``limit`` or ``offset`` is invalid.
        """
        if state is not None and state not in list(FlowState):
            raise UsageError(f"`state` must be one of {', '.join(FlowState)}, or None for all; got {state!r}.")
        start, end = check_page(limit, offset)
        found = []
        for piece in chunks(await self._connection.look(flow_ids(self.keys, start, end)), _RECORDS_PER_EXCHANGE):
            reads = [read_flow(self.keys, flow_id) for flow_id in piece]
            replies = all_good(await self._connection.pipeline([read.call for read in reads], repeatable=True))
            found += [facts for read, reply in zip(reads, replies, strict=True) if (facts := read.read(reply))]
        return [summary(facts) for facts in found if state is None or facts.state == state]

    async def runs(
        self,
        name: str | None = None,
        *,
        scheduler: str | None = None,
        dagster_job: str | None = None,
        limit: int = MOST_RUNS,
    ) -> FlowRuns:
        """Lay the last runs of a flow side by side: their nodes, what to expect, and what is different about each.

        A flow's runs are the submitted graphs with its name, among the newest 1,000 flows of the queue. A scheduler's
        are those in its history, at most 20: the flows, or jobs, that it added. A Dagster job's are those that the
        headers of the queue's steps name, among the 5,000 that completed and the 5,000 that failed last.

        However many jobs the queue has, at most 1,000 flows and 10,000 nodes and dependencies are read, up to 1,000
        per exchange; the oldest runs beyond that have no nodes. Nodes whose jobs were removed count as they ended, as
        far as that is recorded, and otherwise as ``gone``.

        Args:
            name: The name of the flow.
            scheduler: The scheduler, instead of a flow.
            dagster_job: The Dagster job, instead of a flow.
            limit: At most this many runs, 1 to 50.

        Raises:
            UsageError: Not exactly one of the names is given, or ``limit`` is invalid.
        """
        given = {RunsOf.FLOW: name, RunsOf.SCHEDULER: scheduler, RunsOf.DAGSTER_JOB: dagster_job}
        of, wanted = check_one_of(given, "the name of a flow, `scheduler` and `dagster_job`")
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_RUNS:
            raise UsageError(f"`limit` must be a whole number from 1 to {MOST_RUNS}, got {limit!r}.")
        found, has_more = await self._connection.follow(find_runs(self.keys, of, wanted, limit))
        return lay_side_by_side(self.name, of, wanted, found, now(), has_more=has_more)

    async def reconcile(self) -> None:
        """Reconcile the queue's flows once, as workers do: re-send lost notifications and apply timeouts.

        Call it every few seconds for a queue that only other clients' workers serve. Three commands if nothing is due.
        """
        self._reconciler = self._reconciler or FlowReconciler(self.keys)
        await self._connection.follow(self._reconciler.round())
