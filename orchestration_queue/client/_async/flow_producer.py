"""Submit flows: graphs of jobs that start once all of them are stored."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from contextlib import suppress

from orchestration_queue.client import headers
from orchestration_queue.client._async.client import AsyncClient
from orchestration_queue.client._async.flow import AsyncFlow
from orchestration_queue.client._async.waking import wake
from orchestration_queue.client.checks import check_items, check_text
from orchestration_queue.client.flow_status import TREE_FIELDS, found_nodes
from orchestration_queue.client.headers import with_headers
from orchestration_queue.client.values import FlowNode
from orchestration_queue.errors import FlowError, ServerError, StateError, TransportError, UsageError
from orchestration_queue.flows import CARRIERS, Carrier, Dag, FlowPlan, Launch, compile, control, launch  # noqa: A004
from orchestration_queue.flows.plan_calls import PlannedCall, needs_our_library
from orchestration_queue.flows.stored import StoredFlow
from orchestration_queue.flows.submit import read_submission
from orchestration_queue.protocol.call import Operation, Reply, all_good, chunks, together
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import DEFAULT_PREFIX, QueueKeys
from orchestration_queue.protocol.library import is_missing_function
from orchestration_queue.protocol.operations import additions, event_log, job_records
from orchestration_queue.protocol.operations.keyspace import flow_dependencies
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms

__all__ = ["AsyncFlowProducer"]

_FLOWS_PER_EXCHANGE = 100


class AsyncFlowProducer(AsyncClient):
    """Submits flows. It connects when first used.

    Args:
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        connection: An open connection to use instead. It stays open on close.
        prefix: First part of every key.
        carrier: How a plan's calls are sent: ``transaction`` sends them as they are in one MULTI/EXEC, ``packed`` packs
            them into calls of ``oq1_submitGraph``. By default, a graph of up to about a hundred nodes whose keys share
            one slot is sent in a transaction; larger graphs, and many at once, are packed.

    Raises:
        UsageError: Both ``url`` and ``connection`` are given, or the carrier is unknown.
    """

    def __init__(
        self,
        *,
        url: str | None = None,
        connection: AsyncConnection | None = None,
        prefix: str = DEFAULT_PREFIX,
        carrier: Carrier | None = None,
    ) -> None:
        super().__init__(url, connection)
        self.prefix = QueueKeys("q", prefix).prefix
        self._carrier = _check_carrier(carrier)
        self._has_our_library = False

    async def submit(self, dag: Dag, *, flow_id: str | None = None, carrier: Carrier | None = None) -> AsyncFlow:
        """Submit a graph. None of its jobs starts before all of them are stored.

        The plan is a list of ``glidemq_addFlow``, ``glidemq_addJob`` and ``glidemq_registerParent`` calls in Kahn's
        order. By default, a graph of moderate size whose keys share one slot is sent in one transaction. A larger
        graph, or one that spans queues, is packed into calls of ``oq1_submitGraph`` and released once it is complete.
        If this process dies meanwhile, or a reply is lost, submit again with the same id to add what is missing.
        Workers of the flow's queue remove a flow that is never completed.

        Args:
            dag: The graph.
            flow_id: The submission's id, without dots; default: a new one. Submitting again with the same id joins the
                existing flow.
            carrier: How the calls are sent, ``transaction`` or ``packed``; default: the producer's.

        Returns:
            The submitted flow.

        Raises:
            FlowError: The server has only glide-mq's library, which cannot run the graph; or a transaction cannot carry
                it, because a cluster keeps its queues on several servers.
            InvalidNameError: An id or prefix is invalid.
            PayloadError: A node's data is not JSON, or larger than 1 MiB.
            StateError: The id belongs to a flow with another graph.
            ServerError: The server refused a node; nothing has started.
        """
        if not isinstance(dag, Dag):
            raise FlowError(f"`dag` must be a Dag, got {dag!r}; pass Dag(name, nodes).")
        plan = self._compile(dag, _new_id(dag) if flow_id is None else flow_id)
        carrier = _check_carrier(carrier) or self._carrier
        (done,) = await self._launch([plan], carrier or plan.carrier, is_fresh=flow_id is None)
        return AsyncFlow(self._connection, plan, done.cursors, is_new=done.is_new)

    async def submit_bulk(self, dags: Sequence[Dag], *, flow_ids: Sequence[str] | None = None) -> list[AsyncFlow]:
        """Submit many graphs, about 100 per exchange. Each is a flow of its own, as with :meth:`submit`.

        Args:
            dags: The graphs.
            flow_ids: An id for each; default: new ones.

        Returns:
            The flows, in the same order.

        Raises:
            UsageError: The numbers of ids and graphs differ, or an id is repeated in a queue; also as for
                :meth:`submit`. Nothing was sent.
            StateError: An id belongs to a flow with another graph; other flows may have been submitted.
            ServerError: The server refused a node; other flows may have been submitted.
        """
        dags = check_items(dags, Dag, "dags")
        ids = [_new_id(dag) for dag in dags] if flow_ids is None else check_items(flow_ids, str, "flow_ids")
        if len(ids) != len(dags):
            raise UsageError(f"`flow_ids` must have an id for each of the {len(dags)} graphs, got {flow_ids!r}.")
        plans = [self._compile(dag, flow_id) for dag, flow_id in zip(dags, ids, strict=True)]
        if len({(plan.keys, plan.flow_id) for plan in plans}) < len(plans):
            raise UsageError("Two graphs have the same id, which identifies one submission; give each its own.")
        launched: list[Launch] = []
        for portion in chunks(plans, _FLOWS_PER_EXCHANGE):
            launched += await self._launch(portion, self._carrier or "packed", is_fresh=flow_ids is None)
        return [
            AsyncFlow(self._connection, plan, done.cursors, is_new=done.is_new)
            for plan, done in zip(plans, launched, strict=True)
        ]

    def _compile(self, dag: Dag, flow_id: str) -> FlowPlan:
        return compile(dag, flow_id, prefix=self.prefix, finish=with_headers if headers.sources else None)

    async def _launch(self, plans: Sequence[FlowPlan], carrier: Carrier, *, is_fresh: bool) -> list[Launch]:
        """Submit plans, then wake an idle worker of each queue in which no stream entry announces a node."""
        launched = await self._carry(plans, carrier, is_fresh=is_fresh)
        queues = {
            node.keys: None
            for plan in plans
            for node in plan.nodes.values()
            if not node.waits_for and additions.is_unannounced(node.options)
        }
        for keys in queues:
            await wake(self._connection, keys)
        return launched

    async def _carry(self, plans: Sequence[FlowPlan], carrier: Carrier, *, is_fresh: bool) -> list[Launch]:
        if carrier == "packed":
            exchanges = [launch(plan.submission(), now_ms(), is_fresh=is_fresh) for plan in plans]
            try:
                return await self._connection.follow(together(exchanges))
            except ServerError as error:
                if self._carrier == "packed" or not is_missing_function(str(error)):
                    raise
        return [await self._launch_in_transaction(plan, is_fresh=is_fresh) for plan in plans]

    async def _launch_in_transaction(self, plan: FlowPlan, *, is_fresh: bool) -> Launch:
        """Send a plan's calls as one transaction, unless the flow already exists."""
        if len(plan.queues) > 1 and self._connection.is_cluster:
            raise FlowError(
                f"Flow {plan.dag.name!r} spans several queues, and no server of a cluster holds them all, so one "
                "transaction can't carry it; put its nodes in one queue, or pass `carrier='packed'`."
            )
        if needs_our_library(plan.dag):
            await self._require_our_library(plan)
        look = read_submission(plan.keys, plan.flow_id)
        if is_fresh or (await self._connection.look(look)).record is None:
            try:
                return await self._send_transaction(plan)
            except TransportError as error:
                # Sending it again unchecked could recreate jobs that ran and were removed meanwhile.
                if not error.maybe_applied or (await self._connection.look(look)).record is None:
                    raise
        return await self._connection.follow(launch(plan.submission(), now_ms(), is_fresh=False))

    async def _send_transaction(self, plan: FlowPlan) -> Launch:
        """Send a transaction; if one of its calls is refused, remove what the others created."""
        planned, newest, replies = await self._send_calls(plan)
        try:
            return _read_launch(plan, planned, newest, replies)
        except ServerError as error:
            # This also loads the functions if the server has lost them.
            with suppress(ServerError):
                await self._connection.follow(
                    control.undo(StoredFlow.planned(plan), planned, replies[len(newest) :], now_ms())
                )
            if not is_missing_function(str(error)):
                raise
        return _read_launch(plan, *await self._send_calls(plan))

    async def _send_calls(self, plan: FlowPlan) -> tuple[list[PlannedCall], list[Operation[str]], list[Reply]]:
        planned = list(plan.transaction(now_ms()))
        newest = [event_log.last_event_id(keys) for keys in plan.queues]
        # The cursors are read in the transaction, so that no event of the flow can precede them.
        calls = [*[operation.call for operation in newest], *[each.call for each in planned]]
        return planned, newest, await self._connection.pipeline(calls, atomic=True, raises=False)

    async def _require_our_library(self, plan: FlowPlan) -> None:
        """Refuse a graph that needs our library on a server that has only glide-mq's."""
        if self._has_our_library:
            return
        (reply,) = await self._connection.pipeline([oq1.version()], repeatable=True)
        if isinstance(reply, ServerError):
            if is_missing_function(str(reply)):
                plan.planned(now_ms())  # names what that library lacks
            raise reply
        self._has_our_library = True

    async def tree(self, queue: str, flow_id: str) -> list[FlowNode]:
        """Read the current nodes of a flow, dependencies before dependents, no matter which process submitted it.

        Scans all keys of the server. The flow that :meth:`submit` returns doesn't need to.

        Args:
            queue: The flow's queue, or the queue of the nodes that no node depends on.
            flow_id: The submission's id.

        Raises:
            InvalidNameError: The queue's name is invalid.
            StateError: No job of the queue belongs to such a flow.
        """
        keys = QueueKeys(queue, self.prefix)
        check_text(flow_id, "flow_id")
        graph = await self._connection.follow(flow_dependencies(keys, flow_id))
        if not graph:
            raise StateError(
                f"Queue {queue!r} has no job of a flow {flow_id!r}: it was submitted elsewhere, or its jobs have been "
                "removed; check the flow's id and its queue."
            )
        wanted = [(QueueKeys(name, self.prefix), job_id) for name, job_id in graph]
        records = await self._connection.follow(job_records.jobs(wanted, TREE_FIELDS))
        return found_nodes(flow_id, graph, dict(zip(graph, records, strict=True)))


def _read_launch(
    plan: FlowPlan, planned: Sequence[PlannedCall], newest: Sequence[Operation[str]], replies: list[Reply]
) -> Launch:
    """Read the replies to a transaction.

    Raises:
        ServerError: A call was refused.
    """
    all_good(replies)
    cursors = {
        keys: operation.read(reply) for keys, operation, reply in zip(plan.queues, newest, replies, strict=False)
    }
    old = [
        additions.read_node_reply(each.node, each.call, reply)
        for each, reply in zip(planned, replies[len(newest) :], strict=True)
        if each.call.name in _CREATING
    ]
    return Launch(cursors, is_new=not any(old))


_CREATING = ("glidemq_addJob", "glidemq_addFlow", "glidemq_registerParent")


def _check_carrier(carrier: Carrier | None) -> Carrier | None:
    if carrier is not None and carrier not in CARRIERS:
        raise UsageError(f"`carrier` must be 'transaction' or 'packed', got {carrier!r}; or leave it out.")
    return carrier


def _new_id(dag: Dag) -> str:
    """Return a new id: the graph's name, as far as ids can contain it, and a random suffix."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", dag.name)[:64].strip("-")
    return f"{name or 'flow'}-{secrets.token_hex(6)}"
