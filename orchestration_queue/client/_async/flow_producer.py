"""Submitting flows: graphs of jobs, in one transaction."""

from __future__ import annotations

import re
import secrets

from orchestration_queue.client._async.channel import AsyncChannel, AsyncClient
from orchestration_queue.client._async.flow import AsyncFlow
from orchestration_queue.client.progress import TREE_FIELDS, found_nodes
from orchestration_queue.client.values import FlowNode
from orchestration_queue.errors import FlowError, StateError
from orchestration_queue.flows import Dag, compile  # noqa: A004
from orchestration_queue.protocol.keys import DEFAULT_PREFIX, QueueKeys
from orchestration_queue.protocol.operations import adding, reading
from orchestration_queue.protocol.operations.searching import flow_dependencies
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms

__all__ = ["AsyncFlowProducer"]


class AsyncFlowProducer(AsyncClient):
    """Submits flows. Connects when first needed.

    Args:
        url: The server; default ``OQ_URL``, else the embedded server of this directory.
        connection: An open connection to use; it stays open on close.
        prefix: First part of every key.

    Raises:
        UsageError: Both ``url`` and ``connection`` are given.
    """

    def __init__(
        self,
        *,
        url: str | None = None,
        connection: AsyncConnection | AsyncChannel | None = None,
        prefix: str = DEFAULT_PREFIX,
    ) -> None:
        super().__init__(url, connection)
        self.prefix = prefix

    async def submit(self, dag: Dag, *, flow_id: str | None = None) -> AsyncFlow:
        """Submit a graph, all of it or nothing.

        Args:
            dag: The graph.
            flow_id: The submission's id, without dots; default a new one. Submitting again under the same id adds
                only what is not there (any more).

        Returns:
            The flow, under way.

        Raises:
            FlowError: The graph cannot run on this wire.
            InvalidNameError: An id or prefix is one the wire cannot carry.
            PayloadError: A node's data is not JSON, or too large.
            ServerError: The server could not create a node.
        """
        plan = compile(dag, _new_id(dag) if flow_id is None else flow_id, prefix=self.prefix)
        if not plan.is_single_slot and (await self._channel.connection()).is_cluster:
            raise FlowError(
                f"Flow {dag.name!r} has nodes in several queues, and no server of a cluster holds them all, so it "
                "cannot be submitted in one transaction; put its nodes in one queue."
            )
        queues = list(dict.fromkeys(step.keys for step in plan.steps.values()))
        newest = [reading.last_event_id(keys) for keys in queues]
        planned = list(plan.planned(now_ms()))
        # The cursors belong to the transaction, so that no event of the flow can come before them.
        replies = await self._channel.pipeline(
            [*(operation.call for operation in newest), *(each.call for each in planned)], atomic=True, repeatable=True
        )
        cursors = {keys: operation.read(reply) for keys, operation, reply in zip(queues, newest, replies, strict=False)}
        old = [
            adding.read_node_reply(each.node, each.call, reply)
            for each, reply in zip(planned, replies[len(queues) :], strict=True)
        ]
        return AsyncFlow(self._channel, plan, cursors, is_new=not any(old))

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
        graph = await self._channel.follow(flow_dependencies(keys, flow_id))
        if not graph:
            raise StateError(
                f"Queue {queue!r} has no job of a flow {flow_id!r}: it was submitted elsewhere, or its jobs have been "
                "removed since; check the flow's id and its queue."
            )
        wanted = [(QueueKeys(name, self.prefix), job_id) for name, job_id in graph]
        records = await self._channel.follow(reading.jobs(wanted, TREE_FIELDS))
        return found_nodes(flow_id, graph, dict(zip(graph, records, strict=True)))


def _new_id(dag: Dag) -> str:
    """The graph's name, as far as ids can carry it, and a random rest."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", dag.name)[:64].strip("-")
    return f"{name or 'flow'}-{secrets.token_hex(6)}"
