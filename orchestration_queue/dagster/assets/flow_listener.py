"""Following a submitted flow to its end, node by node, from the thread of a Dagster step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

from orchestration_queue.client import EventReader, Flow
from orchestration_queue.client.progress import FlowProgress
from orchestration_queue.client.values import ENDINGS
from orchestration_queue.flows import PlannedNode
from orchestration_queue.flows.stored import outcome_of
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import event_log
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import Connection
from orchestration_queue.states import JobState

__all__ = ["FlowListener"]

_LOOK_AGAIN = timedelta(seconds=2)
"""The longest pause between two reads of the flow: events may be lost, the jobs' records are not."""


class FlowListener:
    """Yields the nodes of a flow as they finish.

    Args:
        flow: The submitted flow.
        connection: Where to listen.

    Attributes:
        failed: By node, why it failed for good.
    """

    def __init__(self, flow: Flow, connection: Connection) -> None:
        self._flow = flow
        self._connection = connection
        self._progress = FlowProgress(flow.graph)
        self.failed: dict[str, str] = {}
        self._unrun: list[str] = []

    @property
    def blocked(self) -> list[str]:
        """The nodes that did not run or will not, because they waited, near or far, for a failed one."""
        return [*self._unrun, *self._progress.blocked]

    def completed(self) -> Iterator[tuple[PlannedNode, JobRecord]]:
        """Yield each node as it completes, with its job's record; ends when no node will finish any more."""
        cursors = {
            keys: self._connection.run(event_log.last_event_id(keys), repeatable=True) for keys in self._queues()
        }
        with EventReader(self._connection, cursors) as events:
            while True:
                yield from self._look()
                if self._progress.is_settled:
                    return
                self._await_news(events)

    def _queues(self) -> set[QueueKeys]:
        return {step.keys for step in self._flow.plan.nodes.values()}

    def _look(self) -> Iterator[tuple[PlannedNode, JobRecord]]:
        records = self._flow.records()
        for name, step in self._flow.plan.nodes.items():
            if name not in self._progress.unfinished:
                continue
            record = records.get(name)
            self._progress.looked(step, record)
            if record is None:
                self.failed[name] = "its job was removed before it finished"
            elif outcome_of(record) != record.state:
                self._unrun.append(name)
            elif record.state is JobState.FAILED:
                self.failed[name] = record.failed_reason or "it left no reason"
            elif record.state is JobState.COMPLETED:
                yield step, record

    def _await_news(self, events: EventReader) -> None:
        """Wait until one of the open nodes may have finished, or it is time to look anyway."""
        open_jobs = {self._flow.plan.nodes[name].job_id for name in self._progress.unfinished}
        deadline = time.monotonic() + _LOOK_AGAIN.total_seconds()
        while (left_s := deadline - time.monotonic()) > 0:
            if any(event.job_id in open_jobs and event.type in ENDINGS for _, event in events.read(left_s)):
                return
