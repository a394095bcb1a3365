"""A submitted flow: look at it, wait for it, cancel it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

from orchestration_queue.client._async.channel import AsyncChannel
from orchestration_queue.client._async.events import AsyncEventReader
from orchestration_queue.client.progress import PROGRESS_FIELDS, TREE_FIELDS, FlowProgress, flow_node
from orchestration_queue.client.values import ENDINGS, Deadline, FlowNode
from orchestration_queue.flows import FlowPlan, Step
from orchestration_queue.protocol.events import Event
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import control, reading
from orchestration_queue.protocol.operations.control import Revocation
from orchestration_queue.protocol.operations.steps import all_good
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server.clock import now_ms
from orchestration_queue.states import JobState

__all__ = ["AsyncFlow"]

_Listener: TypeAlias = Callable[[Event], None] | None


class AsyncFlow:
    """A flow that was submitted. Flow producers make these; there is no need to.

    Attributes:
        id: The submission's id.
        plan: What was submitted.
        is_new: False when some of its jobs were there already, from an earlier submission under the same id.
    """

    def __init__(
        self, channel: AsyncChannel, plan: FlowPlan, cursors: Mapping[QueueKeys, str], *, is_new: bool
    ) -> None:
        self._channel = channel
        self._cursors = cursors
        self._steps = list(plan.steps.values())
        self._by_job = {(step.keys, step.job_id): step for step in self._steps}
        self.id = plan.flow_id
        self.plan = plan
        self.is_new = is_new

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}, {len(self._steps)} nodes>"

    async def _read(self, steps: Sequence[Step], fields: Sequence[str] = ()) -> list[tuple[Step, JobRecord | None]]:
        wanted = [(step.keys, step.job_id) for step in steps]
        return list(zip(steps, await self._channel.follow(reading.jobs(wanted, fields)), strict=True))

    async def records(self) -> dict[str, JobRecord]:
        """The records of the nodes' jobs, by node; nodes whose job is not there any more are left out."""
        return {step.node.name: record for step, record in await self._read(self._steps) if record is not None}

    async def tree(self) -> list[FlowNode]:
        """The nodes as they stand, dependencies before dependents."""
        return [flow_node(step, record) for step, record in await self._read(self._steps, TREE_FIELDS)]

    async def wait(
        self,
        timeout: timedelta | float | None = None,  # noqa: ASYNC109  both faces have it
        *,
        on_event: _Listener = None,
    ) -> dict[str, Any]:
        """Wait until every node has finished, or those that have not never will.

        A node whose job fails for good keeps its dependents from running; the rest of the flow still runs to its
        end before this returns.

        Args:
            timeout: A duration, or seconds; None waits for ever.
            on_event: Called with each event of the flow's jobs, in the order of each queue, from the submission on.

        Returns:
            What the nodes' handlers returned, by node.

        Raises:
            FlowFailedError: A node failed for good; the error names it and the nodes that will not run.
            TimeoutError: The time is up. The flow goes on.
        """
        deadline = Deadline(timeout)
        progress = FlowProgress(self.plan)
        async with AsyncEventReader(self._channel, self._cursors) as events:
            await self._look(progress, self._steps, events, on_event)
            turn = Deadline(deadline.left)
            while not progress.is_settled:
                if deadline.has_passed:
                    raise self._overdue(progress, deadline)
                named = self._hear(progress, await events.read(turn.left), on_event)
                if turn.has_passed:
                    named = [step for step in self._steps if step.node.name in progress.unfinished]
                    turn = Deadline(deadline.left)
                await self._look(progress, named, events, on_event)
            await self._catch_up(progress, events, on_event)
        return progress.results()

    def _overdue(self, progress: FlowProgress, deadline: Deadline) -> TimeoutError:
        left = sorted(progress.unfinished)
        named = ", ".join(left[:5]) + (", ..." if len(left) > 5 else "")
        return TimeoutError(
            f"Flow {self.id!r} has {len(left)} unfinished nodes after {deadline.seconds:g} s ({named}); "
            "wait longer, or check that workers serve its queues."
        )

    async def _look(
        self, progress: FlowProgress, steps: Sequence[Step], events: AsyncEventReader, on_event: _Listener
    ) -> None:
        gone = []
        for step, record in await self._read(steps, PROGRESS_FIELDS):
            if record is None:
                gone.append(step)
            else:
                progress.looked(step, record)
        if gone:
            # Of a job that is not kept, only its events tell how it ended.
            await self._catch_up(progress, events, on_event)
        for step in gone:
            progress.looked(step, None)

    async def _catch_up(self, progress: FlowProgress, events: AsyncEventReader, on_event: _Listener) -> None:
        while happened := await events.read(0):
            self._hear(progress, happened, on_event)

    def _hear(
        self, progress: FlowProgress, happened: Sequence[tuple[QueueKeys, Event]], on_event: _Listener
    ) -> list[Step]:
        """Learn from events; returns the nodes to look at because of them."""
        to_look_at: dict[str, Step] = {}
        for keys, event in happened:
            step = self._by_job.get((keys, event.job_id))
            if step is None:
                continue
            if on_event is not None:
                on_event(event)
            if event.type in ENDINGS and progress.told(step, event):
                to_look_at[step.job_id] = step
        return list(to_look_at.values())

    async def cancel(self) -> list[str]:
        """Withdraw every node that has not started. Nodes that run end by themselves.

        Returns:
            Names of the nodes that will not run.
        """
        # Dependents first, and marked before they are removed: a node released meanwhile is refused by its worker.
        unfinished = [
            step
            for step, record in reversed(await self._read(self._steps, PROGRESS_FIELDS))
            if record is not None and not record.is_finished
        ]
        operations = [control.revoke(step.keys, step.job_id, now_ms()) for step in unfinished]
        replies = await self._channel.pipeline([operation.call for operation in operations])
        outcomes = [operation.read(reply) for operation, reply in zip(operations, all_good(replies), strict=True)]
        flagged = [step for step, done in zip(unfinished, outcomes, strict=True) if done is Revocation.FLAGGED]
        waiting = {
            step.node.name: step
            for step, record in await self._read(flagged, PROGRESS_FIELDS)
            if record is not None and record.state is JobState.WAITING_CHILDREN
        }
        removals = [control.remove(step.keys, step.job_id).call for step in waiting.values()]
        all_good(await self._channel.pipeline(removals))
        return [
            step.node.name
            for step, done in zip(unfinished, outcomes, strict=True)
            if done is Revocation.REVOKED or step.node.name in waiting
        ]
