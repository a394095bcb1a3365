"""Submitting flows: graphs of jobs that start when all of them are there."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence

from orchestration_queue.client._async.channel import AsyncChannel, AsyncClient
from orchestration_queue.client._async.flow import AsyncFlow
from orchestration_queue.client.checks import checked_items, checked_text
from orchestration_queue.client.headers import with_headers
from orchestration_queue.client.progress import TREE_FIELDS, found_nodes
from orchestration_queue.client.values import FlowNode
from orchestration_queue.errors import FlowError, ServerError, StateError, UsageError
from orchestration_queue.flows import Dag, FlowPlan, Launch, LibraryName, compile, launch  # noqa: A004
from orchestration_queue.protocol.keys import DEFAULT_PREFIX, QueueKeys
from orchestration_queue.protocol.library import is_missing_function
from orchestration_queue.protocol.operations import additions, event_log, job_records
from orchestration_queue.protocol.operations.conversation import chunks, together
from orchestration_queue.protocol.operations.keyspace import flow_dependencies
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms

__all__ = ["AsyncFlowProducer"]

_FLOWS_PER_TRIP = 100


class AsyncFlowProducer(AsyncClient):
    """Submits flows. Connects when first needed.

    Args:
        url: The server; default ``OQ_URL``, else the embedded server of this directory.
        connection: An open connection to use; it stays open on close.
        prefix: First part of every key.
        library: Whose functions submit: ``oq1`` for ours, or ``glidemq`` for those of every glide-mq server, which know
            less and take longer. Default ours, where the server has them.

    Raises:
        UsageError: Both ``url`` and ``connection`` are given, or there is no such library.
    """

    def __init__(
        self,
        *,
        url: str | None = None,
        connection: AsyncConnection | AsyncChannel | None = None,
        prefix: str = DEFAULT_PREFIX,
        library: LibraryName | None = None,
    ) -> None:
        super().__init__(url, connection)
        if library not in (None, "oq1", "glidemq"):
            raise UsageError(f"No library {library!r} submits flows; pass 'oq1' or 'glidemq', or leave it out.")
        self.prefix = QueueKeys("q", prefix).prefix
        self._library = library

    async def submit(self, dag: Dag, *, flow_id: str | None = None) -> AsyncFlow:
        """Submit a graph: nothing of it starts before all of it is there.

        One queue's graph of up to some thousand nodes is written in one call; a larger one, or one of several queues,
        in several, and is released then. When this process dies in between, or a reply is lost, submit again under the
        same id: that completes what is missing. What nobody completes is swept by the workers of the flow's queue.

        Args:
            dag: The graph.
            flow_id: The submission's id, without dots; default a new one. Submitting again under the same id joins
                the flow that is there.

        Returns:
            The flow, under way.

        Raises:
            FlowError: The server only has glide-mq's library, which cannot run the graph.
            InvalidNameError: An id or prefix is one the wire cannot carry.
            PayloadError: A node's data is not JSON, or too large.
            StateError: The id stands for a flow with another graph.
            ServerError: The server refused a node; nothing has started.
        """
        if not isinstance(dag, Dag):
            raise FlowError(f"`dag` must be a Dag, got {dag!r}; pass Dag(name, nodes).")
        (flow,) = await self.submit_bulk([dag], flow_ids=None if flow_id is None else [flow_id])
        return flow

    async def submit_bulk(self, dags: Sequence[Dag], *, flow_ids: Sequence[str] | None = None) -> list[AsyncFlow]:
        """Submit many graphs, about 100 to a trip. Each is a flow of its own, as :meth:`submit` describes it.

        Args:
            dags: The graphs.
            flow_ids: An id for each; default new ones.

        Returns:
            The flows, in the same order.

        Raises:
            UsageError: There are not as many ids as graphs, or one comes twice in a queue; and as for :meth:`submit`.
                Nothing was sent.
            StateError: An id stands for a flow with another graph; others may have been submitted.
            ServerError: The server refused a node; likewise.
        """
        dags = checked_items(dags, Dag, "dags")
        ids = [_new_id(dag) for dag in dags] if flow_ids is None else checked_items(flow_ids, str, "flow_ids")
        if len(ids) != len(dags):
            raise UsageError(f"`flow_ids` must have an id for each of the {len(dags)} graphs, got {flow_ids!r}.")
        named = zip(dags, ids, strict=True)
        plans = [compile(dag, flow_id, prefix=self.prefix, finish=with_headers) for dag, flow_id in named]
        if len({(plan.keys, plan.flow_id) for plan in plans}) < len(plans):
            raise UsageError("Two graphs are given one id, which stands for one submission; give each its own.")
        launched: list[Launch] = []
        for portion in chunks(plans, _FLOWS_PER_TRIP):
            launched += await self._launch(portion, is_fresh=flow_ids is None)
        return [
            AsyncFlow(self._channel, plan, done.cursors, is_new=done.is_new)
            for plan, done in zip(plans, launched, strict=True)
        ]

    async def _launch(self, plans: Sequence[FlowPlan], *, is_fresh: bool) -> list[Launch]:
        if self._library != "glidemq":
            exchanges = [launch(plan, now_ms(), is_fresh=is_fresh) for plan in plans]
            try:
                return await self._channel.follow(together(exchanges))
            except ServerError as error:
                if self._library is not None or not is_missing_function(str(error)):
                    raise
        return [await self._launch_frozen(plan) for plan in plans]

    async def _launch_frozen(self, plan: FlowPlan) -> Launch:
        """Submit by glide-mq's library: all in one transaction."""
        planned = list(plan.planned(now_ms()))
        if not plan.is_single_slot and (await self._channel.connection()).is_cluster:
            raise FlowError(
                f"Flow {plan.dag.name!r} has nodes in several queues, and no server of a cluster holds them all, so "
                "glide-mq's library cannot submit it in one transaction; put its nodes in one queue."
            )
        newest = [event_log.last_event_id(keys) for keys in plan.queues]
        # The cursors belong to the transaction, so that no event of the flow can come before them.
        replies = await self._channel.pipeline(
            [*(operation.call for operation in newest), *(each.call for each in planned)], atomic=True, repeatable=True
        )
        cursors = {
            keys: operation.read(reply) for keys, operation, reply in zip(plan.queues, newest, replies, strict=False)
        }
        old = [
            additions.read_node_reply(each.node, each.call, reply)
            for each, reply in zip(planned, replies[len(newest) :], strict=True)
        ]
        return Launch(cursors, is_new=not any(old))

    async def tree(self, queue: str, flow_id: str) -> list[FlowNode]:
        """The nodes of a flow as they stand, dependencies before dependents; of any submission, by anybody.

        Walks all keys of the server. The flow that :meth:`submit` returned tells the same by itself.

        Args:
            queue: The queue of the flow, or of the nodes that nothing waits for.
            flow_id: The submission's id.

        Raises:
            InvalidNameError: The wire cannot carry the queue's name.
            StateError: No job of the queue belongs to such a flow.
        """
        keys = QueueKeys(queue, self.prefix)
        checked_text(flow_id, "flow_id")
        graph = await self._channel.follow(flow_dependencies(keys, flow_id))
        if not graph:
            raise StateError(
                f"Queue {queue!r} has no job of a flow {flow_id!r}: it was submitted elsewhere, or its jobs have been "
                "removed since; check the flow's id and its queue."
            )
        wanted = [(QueueKeys(name, self.prefix), job_id) for name, job_id in graph]
        records = await self._channel.follow(job_records.jobs(wanted, TREE_FIELDS))
        return found_nodes(flow_id, graph, dict(zip(graph, records, strict=True)))


def _new_id(dag: Dag) -> str:
    """The graph's name, as far as ids can carry it, and a random rest."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", dag.name)[:64].strip("-")
    return f"{name or 'flow'}-{secrets.token_hex(6)}"
