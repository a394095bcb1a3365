"""One attempt of a step that runs a flow: submit or join the flow, and yield each node as it completes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import cast

import dagster as dg

from orchestration_queue._text import clean
from orchestration_queue.client import EventReader, Flow
from orchestration_queue.client.flow_status import FlowProgress
from orchestration_queue.client.values import ENDINGS
from orchestration_queue.dagster.assets.results import (
    check_results,
    history_metadata,
    job_metadata,
    submission_metadata,
)
from orchestration_queue.dagster.resources import QueueResource
from orchestration_queue.errors import StateError
from orchestration_queue.flows import Carrier, Dag, PlannedNode
from orchestration_queue.flows.control import survey
from orchestration_queue.flows.stored import outcome_of
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import event_log, job_records
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import Connection
from orchestration_queue.states import JobState

__all__ = ["FlowListener", "FlowStep", "NodeOutput"]

_DATA_VERSION = "dagster/data_version"

_MAX_PAUSE = timedelta(seconds=2)
"""The longest pause between two reads of the flow: events may be lost, the jobs' records are not."""


class FlowListener:
    """Yields the nodes of a flow as they finish.

    Args:
        flow: The submitted flow.
        connection: The connection to its server.

    Attributes:
        failed: The reasons of nodes that failed for good, by name.
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
        """Yield each node as it completes, with its job's record; end when no more nodes will finish."""
        # Before the nodes are read, so that no later end is missed.
        cursors = {
            keys: self._connection.run(event_log.last_event_id(keys), repeatable=True) for keys in self._queues()
        }
        with EventReader(self._connection, cursors) as events:
            while True:
                yield from self._read_nodes()
                if self._progress.is_settled:
                    return
                self._await_events(events)

    def _queues(self) -> set[QueueKeys]:
        return {step.keys for step in self._flow.plan.nodes.values()}

    def _read_nodes(self) -> Iterator[tuple[PlannedNode, JobRecord]]:
        records = self._connection.follow(survey(self._flow.graph, ()))
        for name, step in self._flow.plan.nodes.items():
            if name not in self._progress.unfinished:
                continue
            record = records[name]
            self._progress.apply_record(step, record)
            if record is None:
                self.failed[name] = "its job is gone, and nothing says that it completed"
            elif outcome_of(record) != record.state:
                self._unrun.append(name)
            elif record.state is JobState.FAILED:
                self.failed[name] = record.failed_reason or "no reason given"
            elif record.state is JobState.COMPLETED:
                yield step, record

    def _await_events(self, events: EventReader) -> None:
        """Wait until one of the open nodes may have finished, or the longest pause is over."""
        open_jobs = {self._flow.plan.nodes[name].job_id for name in self._progress.unfinished}
        deadline = time.monotonic() + _MAX_PAUSE.total_seconds()
        while (left_s := deadline - time.monotonic()) > 0:
            if any(event.job_id in open_jobs and event.type in ENDINGS for _, event in events.read(left_s)):
                return


@dataclass(frozen=True, slots=True)
class NodeOutput:
    """The asset, or partition of an asset, that a node makes.

    Attributes:
        asset: The asset.
        partition: The partition; None for the whole asset.
    """

    asset: dg.AssetKey
    partition: str | None = None


@dataclass(frozen=True, slots=True)
class FlowStep:
    """One attempt of a step: submits or joins the flow, and waits until it ends.

    Attributes:
        context: The step's context.
        resource: The server's resource.
        dag: The flow to run.
        outputs: The output of each node.
        checks: The selected checks, by asset.
    """

    context: dg.AssetExecutionContext
    resource: QueueResource
    dag: Dag
    outputs: Mapping[str, NodeOutput]
    checks: Mapping[dg.AssetKey, Sequence[dg.AssetCheckSpec]]

    def run(self) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
        """Yield each asset as its node completes, and the checks of a partitioned asset after its last partition.

        Raises:
            dagster.Failure: A node failed for good.
        """
        flow_id = f"{self.dag.name}-{self.context.run.run_id}"
        flow: Flow | None = None
        partitions: dict[dg.AssetKey, dict[str, list[dg.AssetCheckResult]]] = {}
        try:
            flow = self.resource.flow_producer().submit(self.dag, flow_id=flow_id)
            listener = FlowListener(flow, self.resource.connection)
            self._join_or_retry(flow)
            for step, record in listener.completed():
                output, result = self.outputs[step.node.name], self._materialize(flow, step, record)
                if output.partition is None:
                    yield result
                    continue
                # Dagster takes one result for all partitions of a step's output, but these differ.
                self._log_partition(output, result)
                done = partitions.setdefault(output.asset, {})
                done[output.partition] = list(result.check_results or ())
                if len(done) == sum(one.asset == output.asset for one in self.outputs.values()):
                    yield from _merge_checks(done)
        except (dg.DagsterExecutionInterruptedError, GeneratorExit):
            self.context.log.info(f"Cancelling flow {flow_id}")
            self._cancel(flow, flow_id)
            raise
        if listener.failed:
            raise _failure(flow, listener.failed, listener.blocked)

    def _cancel(self, flow: Flow | None, flow_id: str) -> None:
        """Cancel the flow. It may exist even if the interrupt came before the reply to its submission."""
        with suppress(StateError):
            (flow or self.resource.queue(self.dag.queue).flows.get(flow_id)).cancel()

    def _join_or_retry(self, flow: Flow) -> None:
        """Log the flow; in a later attempt of the step, retry the nodes that failed."""
        queues = ", ".join(sorted({step.keys.queue for step in flow.plan.nodes.values()}))
        verb = "Submitted" if flow.is_new else "Joined"
        self.context.log.info(f"{verb} flow {flow.id}: {len(flow.plan.nodes)} nodes in {queues}")
        if flow.is_new:
            return
        records = flow.records()
        for name in flow.retry():
            reason = records[name].failed_reason if name in records else None
            self.context.log.info(f"Retrying node {name}, which failed before: {clean(str(reason))}")

    def _materialize(self, flow: Flow, step: PlannedNode, record: JobRecord) -> dg.MaterializeResult[None]:
        logs = self.resource.connection.run(job_records.logs(step.keys, record.id), repeatable=True)
        for line in logs:
            self.context.log.info(f"{step.node.name}: {clean(line, lines=True)}")
        asset = self.outputs[step.node.name].asset
        return dg.MaterializeResult(
            asset_key=asset,
            metadata={
                **job_metadata(record, queue=step.keys.queue, flow_id=flow.id, logs=logs),
                **submission_metadata(flow.plan, step.node.name, cast("Carrier | None", self.resource.carrier)),
            },
            check_results=check_results(self.checks[asset], record.result),
            data_version=_data_version(record.result),
        )

    def _log_partition(self, output: NodeOutput, result: dg.MaterializeResult[None]) -> None:
        tags = {_DATA_VERSION: result.data_version.value} if result.data_version else None
        self.context.log_event(
            dg.AssetMaterialization(output.asset, metadata=result.metadata, partition=output.partition, tags=tags)
        )


def _merge_checks(partitions: Mapping[str, Sequence[dg.AssetCheckResult]]) -> Iterator[dg.AssetCheckResult]:
    """Merge the checks of an asset's partitions: each passed if it did for all, and shows the metadata of all."""
    for results in zip(*partitions.values(), strict=True):
        of_each = dict(zip(partitions, results, strict=True))
        failed = {name: result.severity for name, result in of_each.items() if not result.passed}
        is_error = not failed or dg.AssetCheckSeverity.ERROR in failed.values()
        facts = {name: {key: value.value for key, value in result.metadata.items()} for name, result in of_each.items()}
        yield dg.AssetCheckResult(
            passed=not failed,
            asset_key=results[0].asset_key,
            check_name=results[0].check_name,
            severity=dg.AssetCheckSeverity.ERROR if is_error else dg.AssetCheckSeverity.WARN,
            description=f"Failed for {', '.join(failed)}." if failed else None,
            metadata={name: dg.MetadataValue.json(fact) for name, fact in facts.items()},
        )


def _data_version(result: object) -> dg.DataVersion | None:
    version = result.get("data_version") if isinstance(result, Mapping) else None
    return dg.DataVersion(version) if isinstance(version, str) else None


def _failure(flow: Flow, failed: Mapping[str, str], blocked: Sequence[str]) -> dg.Failure:
    """Build the flow's failure from the nodes that failed, their reasons, and the nodes that could not run."""
    records = flow.records()
    reasons = "; ".join(f"node {name!r} failed: {reason}" for name, reason in failed.items())
    rest = f" Not run, because they depend on it: {', '.join(blocked)}." if blocked else ""
    return dg.Failure(
        f"Flow {flow.id}: {reasons.rstrip('.')}.{rest}",
        metadata={
            "orchestration_queue/flow_id": flow.id,
            "orchestration_queue/failed": dg.MetadataValue.json(dict(failed)),
            **history_metadata({name: records[name] for name in failed if name in records}),
            "orchestration_queue/not_run": dg.MetadataValue.json(list(blocked)),
        },
    )
