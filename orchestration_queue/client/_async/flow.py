"""A submitted flow: read it, wait for it, control it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from orchestration_queue.client._async.events import AsyncEventReader
from orchestration_queue.client._async.waking import wake
from orchestration_queue.client.flow_status import (
    PROGRESS_FIELDS,
    STATUS_FIELDS,
    TREE_FIELDS,
    FlowProgress,
    FlowStatus,
    add_histories,
    critical_path,
    flow_nodes,
    flow_status,
    overdue,
)
from orchestration_queue.client.values import ENDINGS, Deadline, FlowNode
from orchestration_queue.errors import ServerError, StateError, UsageError
from orchestration_queue.flows import FlowPlan, control
from orchestration_queue.flows.elements import element_names, maps, with_elements
from orchestration_queue.flows.explanation import FlowExplanation, explain_flow
from orchestration_queue.flows.reconciler import FlowReconciler
from orchestration_queue.flows.stored import FlowJob, FlowSnapshot, FlowState, StoredFlow, is_removed, read_flow
from orchestration_queue.options import Duration
from orchestration_queue.protocol.call import all_good
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import event_log, job_records
from orchestration_queue.protocol.operations.event_log import Event
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms
from orchestration_queue.states import JobState

__all__ = ["AsyncFlow"]

_Listener: TypeAlias = Callable[[Event], None] | None


class AsyncFlow:
    """A submitted flow, as returned by flow producers and ``queue.flows``.

    Attributes:
        id: The submission's id.
        graph: Its nodes and their jobs.
        is_new: False if some of its jobs already existed, from an earlier submission with the same id.
    """

    def __init__(
        self,
        connection: AsyncConnection,
        flow: StoredFlow | FlowPlan,
        cursors: Mapping[QueueKeys, str] | None = None,
        *,
        is_new: bool = False,
    ) -> None:
        self._connection = connection
        self._cursors = cursors
        self._plan = flow if isinstance(flow, FlowPlan) else None
        self.graph = StoredFlow.planned(flow) if isinstance(flow, FlowPlan) else flow
        self._jobs = list(self.graph.jobs.values())
        self._by_job = {(job.keys, job.job_id): job for job in self._jobs}
        self.id = self.graph.id
        self.is_new = is_new

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}, {len(self._jobs)} nodes>"

    @property
    def plan(self) -> FlowPlan:
        """The plan that was submitted.

        Raises:
            UsageError: Another process submitted it; the flow's record does not contain the jobs' data.
        """
        if self._plan is None:
            raise UsageError(
                f"Flow {self.id!r} was read from the server, which stores its graph but not its plan; use `graph`."
            )
        return self._plan

    async def _read(
        self, jobs: Sequence[FlowJob], fields: Sequence[str] = ()
    ) -> list[tuple[FlowJob, JobRecord | None]]:
        wanted = [(job.keys, job.job_id) for job in jobs]
        return list(zip(jobs, await self._connection.follow(job_records.jobs(wanted, fields)), strict=True))

    async def _survey(self, fields: Sequence[str]) -> dict[str, JobRecord | None]:
        return await self._connection.follow(control.survey(self.graph, fields))

    async def _facts(self) -> FlowSnapshot:
        facts = await self._connection.look(read_flow(self.graph.keys, self.id))
        if facts is None:
            raise StateError(
                f"Queue {self.graph.keys.queue!r} has no record of flow {self.id!r}: it was removed, or submitted by a "
                "library that writes none; submit it again."
            )
        return facts

    async def records(self) -> dict[str, JobRecord]:
        """Return the records of the nodes' jobs, by node, without jobs that no longer exist."""
        return {job.name: record for job, record in await self._read(self._jobs) if record is not None}

    async def status(self) -> FlowStatus:
        """Read the status of the flow as a whole. One exchange, and one per thousand nodes.

        Raises:
            StateError: The flow's record does not exist, or no longer exists.
        """
        facts = await self._facts()
        return flow_status(facts, await self._survey(STATUS_FIELDS))

    async def explain(self) -> FlowExplanation:
        """Explain the flow's state: which nodes block it and why, or which failed. Reads the queues.

        Raises:
            StateError: The flow's record does not exist, or no longer exists.
        """
        return await self._connection.follow(explain_flow(await self._facts(), now_ms()))

    async def tree(self) -> list[FlowNode]:
        """Read the current state of all nodes, dependencies first. One exchange per thousand nodes and elements.

        One more if nodes failed: the start of the failed attempt of up to 200 is in their histories.
        """
        whole = await self._connection.follow(with_elements(self.graph))
        records = await self._connection.follow(control.survey(whole, TREE_FIELDS))
        await self._connection.follow(add_histories((whole.jobs[name].keys, records, name) for name in records))
        return flow_nodes(whole, records, self.graph.jobs)

    async def elements(self, node: str) -> list[FlowNode]:
        """Read the elements added so far for a mapped node, in order. One exchange, and one per thousand.

        Raises:
            UsageError: There is no such node, or it is not mapped.
        """
        if node not in self.graph.jobs or not maps(self.graph.jobs[node]):
            raise UsageError(f"Flow {self.id!r} has no mapped node {node!r}; see `tree` for its nodes.")
        whole = await self._connection.follow(with_elements(self.graph))
        names = element_names(whole.jobs[node])
        records = await self._read([whole.jobs[name] for name in names], TREE_FIELDS)
        return flow_nodes(whole, {job.name: record for job, record in records}, names)

    async def critical_path(self) -> list[FlowNode]:
        """Return the chain of nodes that determined the flow's duration, in order. As expensive as :meth:`tree`."""
        return critical_path(await self.tree())

    async def results(self) -> dict[str, Any]:
        """Return the results of the nodes that have completed so far, by node. One exchange per thousand nodes."""
        records = await self._survey(("state", "returnvalue"))
        return {
            name: record.result
            for name, record in records.items()
            if record is not None and record.state is JobState.COMPLETED and not is_removed(record)
        }

    async def wait(
        self,
        timeout: Duration | None = None,  # noqa: ASYNC109  both faces have it
        *,
        on_event: _Listener = None,
    ) -> dict[str, Any]:
        """Wait until every node has finished or can no longer run.

        If a node's job fails for good, the rules of its dependents decide, and this returns once everything that still
        runs has ended. Every five seconds it reconciles the flow as a worker does, so that trigger rules are applied
        and other queues notified even if only other clients' workers serve the queue.

        Args:
            timeout: A duration, or seconds; None waits forever.
            on_event: Called with each event of the flow's jobs, in the order of each queue: from the submission on if
                this object submitted the flow, otherwise from now on.

        Returns:
            The nodes' results, by node, without nodes that were skipped, or whose results were removed before they
            were read.

        Raises:
            FlowFailedError: A node failed for good, or its job is gone and nothing says that it completed; the error
                names it and the nodes that did not run.
            TimeoutError: The timeout expired. The flow continues.
        """
        deadline = Deadline(timeout)
        progress = FlowProgress(self.graph)
        reconciler = FlowReconciler(self.graph.keys)
        async with AsyncEventReader(self._connection, await self._since()) as events:
            await self._look(progress, self._jobs, events, on_event)
            turn = Deadline(deadline.left)
            while not progress.is_settled:
                if deadline.has_passed:
                    raise await self._overdue(progress, deadline)
                named = self._hear(progress, await events.read(turn.left), on_event)
                if turn.has_passed:
                    with suppress(ServerError):  # a user who may only read leaves it to others
                        await self._connection.follow(reconciler.round())
                    named = [job for job in self._jobs if job.name in progress.unfinished]
                    turn = Deadline(deadline.left)
                await self._look(progress, named, events, on_event)
            await self._catch_up(progress, events, on_event)
        return progress.results()

    async def _since(self) -> Mapping[QueueKeys, str]:
        """Return where to start listening: at the submission if this object made it, otherwise now."""
        if self._cursors is not None:
            return self._cursors
        newest = {keys: event_log.last_event_id(keys) for keys in self.graph.by_queue(self._jobs)}
        calls = [operation.call for operation in newest.values()]
        replies = all_good(await self._connection.pipeline(calls, repeatable=True))
        return {keys: operation.read(reply) for (keys, operation), reply in zip(newest.items(), replies, strict=True)}

    async def _overdue(self, progress: FlowProgress, deadline: Deadline) -> TimeoutError:
        left = await self._read([self.graph.jobs[name] for name in sorted(progress.unfinished)], ("state",))
        return overdue(self.id, left, deadline.seconds)

    async def _look(
        self, progress: FlowProgress, jobs: Sequence[FlowJob], events: AsyncEventReader, on_event: _Listener
    ) -> None:
        gone = []
        for job, record in await self._read(jobs, PROGRESS_FIELDS):
            if record is None:
                gone.append(job)
            else:
                progress.apply_record(job, record)
        if gone:
            # The result of a job that is not kept is only in its events.
            await self._catch_up(progress, events, on_event)
            left = [job.name for job in gone if job.name in progress.unfinished]
            ends = await self._connection.follow(control.find_ends(self.graph, left))
            for name in left:
                progress.apply_record(self.graph.jobs[name], ends.get(name))

    async def _catch_up(self, progress: FlowProgress, events: AsyncEventReader, on_event: _Listener) -> None:
        while happened := await events.read(0):
            self._hear(progress, happened, on_event)

    def _hear(
        self, progress: FlowProgress, happened: Sequence[tuple[QueueKeys, Event]], on_event: _Listener
    ) -> list[FlowJob]:
        """Apply events; return the nodes that must be read because of them."""
        to_read: dict[str, FlowJob] = {}
        for keys, event in happened:
            job = self._by_job.get((keys, event.job_id))
            if job is None:
                continue
            if on_event is not None:
                on_event(event)
            if event.type in ENDINGS and progress.apply_event(job, event):
                to_read[job.job_id] = job
        return list(to_read.values())

    async def cancel(self, reason: str = "cancelled") -> list[str]:
        """Cancel all nodes that have not finished.

        Ready nodes fail immediately as ``revoked``; running ones are stopped at their worker's next heartbeat; for
        nodes that wait for these, the trigger rule decides. Takes a few exchanges per thousand nodes.

        Args:
            reason: Why; stored with the flow.

        Returns:
            Names of the nodes that will not run, or not to their end.
        """
        facts = await self._connection.look(read_flow(self.graph.keys, self.id))
        is_held = facts is not None and (facts.is_held or facts.is_paused)
        return await self._connection.follow(
            control.cancel(self.graph, reason, now_ms(), is_held=is_held, is_recorded=facts is not None)
        )

    async def retry(self) -> list[str]:
        """Run failed nodes again, and all that did not run because of them.

        Returns:
            Their names; none if no node has failed.

        Raises:
            StateError: The flow's record does not exist, or no longer exists.
        """
        await self._facts()
        retried = await self._connection.follow(control.retry(self.graph, now_ms()))
        for keys in dict.fromkeys(job.keys for job in self._jobs):
            await wake(self._connection, keys)
        return retried

    async def pause(self) -> None:
        """Hold nodes that wait for others. Ready and running ones continue.

        Raises:
            StateError: The flow has ended, or its record does not exist.
        """
        if (await self._facts()).state.is_final:
            raise StateError(f"Flow {self.id!r} has ended, so there is nothing to pause; read it with `status`.")
        await self._connection.follow(control.pause(self.graph))

    async def resume(self) -> None:
        """Release held nodes. A flow that is not paused is unchanged.

        Raises:
            StateError: The flow is not completely stored yet, or its record does not exist.
        """
        if (await self._facts()).state is FlowState.SUBMITTING:
            raise StateError(f"Flow {self.id!r} is not completely stored yet; submit it again to complete it.")
        await self._connection.follow(control.release(self.graph, now_ms()))

    async def remove(self) -> None:
        """Remove the flow's jobs and its record.

        Raises:
            StateError: The flow is running, or its record does not exist.
        """
        status = await self.status()
        if status.state is FlowState.RUNNING:
            raise StateError(
                f"Flow {self.id!r} is running, so it can't be removed; cancel it first, and wait for its end."
            )
        await self._connection.follow(control.remove(self.graph, now_ms()))
