"""A submitted flow: look at it, wait for it, cancel it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from orchestration_queue.client._async.channel import AsyncChannel
from orchestration_queue.client._async.events import AsyncEventReader
from orchestration_queue.client.progress import PROGRESS_FIELDS, TREE_FIELDS, FlowProgress, flow_node
from orchestration_queue.client.values import ENDINGS, Deadline, FlowNode, now_ms
from orchestration_queue.flows import FlowPlan, Step
from orchestration_queue.protocol.events import Event
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import control, reading
from orchestration_queue.protocol.operations.control import Revocation
from orchestration_queue.protocol.operations.steps import all_good
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.states import JobState

__all__ = ["AsyncFlow"]


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
        on_event: Callable[[Event], None] | None = None,
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
            await self._look(progress, self._steps)
            turn = Deadline(deadline.left)
            while not progress.is_settled:
                if deadline.has_passed:
                    left = sorted(progress.unfinished)
                    raise TimeoutError(
                        f"Flow {self.id!r} has {len(left)} unfinished nodes after {deadline.seconds:g} s "
                        f"({', '.join(left[:5])}{', ...' if len(left) > 5 else ''}); wait longer, or check that "
                        "workers serve its queues."
                    )
                named = await self._listen(progress, events, turn, on_event)
                if turn.has_passed:
                    named = [step for step in self._steps if step.node.name in progress.unfinished]
                    turn = Deadline(deadline.left)
                await self._look(progress, named)
        return progress.results()

    async def _look(self, progress: FlowProgress, steps: Iterable[Step]) -> None:
        for step, record in await self._read(list(steps), PROGRESS_FIELDS):
            progress.looked(step, record)

    async def _listen(
        self,
        progress: FlowProgress,
        events: AsyncEventReader,
        turn: Deadline,
        on_event: Callable[[Event], None] | None,
    ) -> list[Step]:
        """Wait for events; returns the nodes to look at because of them."""
        by_job = {(step.keys, step.job_id): step for step in self._steps}
        to_look_at: dict[str, Step] = {}
        for keys, event in await events.read(turn.left):
            step = by_job.get((keys, event.job_id))
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
