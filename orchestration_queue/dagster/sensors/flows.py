"""Sensors for flows: request a run when a flow has ended."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TypeAlias, Unpack

import dagster as dg

from orchestration_queue.client import FlowStatus, Queue
from orchestration_queue.client.values import ENDINGS
from orchestration_queue.dagster._compat import LISTENS, RunTarget
from orchestration_queue.dagster.checks import (
    check_flow_name,
    check_function,
    check_items,
    check_target,
    check_text,
    check_words,
)
from orchestration_queue.dagster.resources import QueueResource
from orchestration_queue.dagster.sensors.events import first_cursors, queue_event_sensor, report_gaps
from orchestration_queue.dagster.sensors.options import Listening, ListenOptions, check_queues, sensor_name
from orchestration_queue.dagster.sensors.ticks import QueueEvent, dump_cursor, listen, load_cursor, read_object
from orchestration_queue.errors import InvalidOptionError, StateError
from orchestration_queue.flows import job_id_of, split_job_id
from orchestration_queue.flows.control import noted_end
from orchestration_queue.flows.stored import FlowSnapshot, FlowState, read_flow
from orchestration_queue.options import as_timedelta
from orchestration_queue.options.base import suggestion
from orchestration_queue.protocol.call import all_good, chunks
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import job_records
from orchestration_queue.states import JobState

__all__ = ["FlowReaction", "flow_completed_sensor", "flow_sensor"]

FlowReaction: TypeAlias = Callable[[FlowStatus, QueueResource], dg.RunRequest | None]
"""A function that answers the end of a flow with a run request, or nothing."""

_FLOW_TAG = "orchestration_queue/flow_id"
_AT_ONCE = timedelta(milliseconds=1)
_AGAIN = timedelta(seconds=5)
"""How long to listen at most while there are unfinished flows, whose end may not be an event of these queues."""
_FLOWS_PER_EXCHANGE = 50


def flow_completed_sensor(
    flow: str,
    *,
    last_nodes: Iterable[str],
    name: str,
    queue: str,
    job: RunTarget,
    **options: Unpack[ListenOptions],
) -> dg.SensorDefinition:
    """Build a sensor that requests one run for each completed flow of :func:`queue_flow_assets`.

    A flow is complete when all of ``last_nodes`` are, even if others failed. Its id is the run key, so there is one run
    per flow. The run has the tag ``orchestration_queue/flow_id``. To react to the end of whole flows, whatever their
    outcome, use :func:`flow_sensor`.

    Args:
        flow: The flow's name, as passed to :func:`queue_flow_assets`.
        last_nodes: The assets (nodes) that no other node of the flow waits for.
        name: The sensor's name.
        queue: The queue of the flow's last nodes.
        job: The target of its runs: a job, or an asset selection.
        options: As for :func:`queue_event_sensor`.

    Raises:
        InvalidOptionError: An option is out of range, or there is no last node.
        InvalidNameError: The queue's name is invalid.
    """
    check_flow_name(check_text(flow, "flow"))
    check_target(job)
    last = frozenset(check_words(last_nodes, "last_nodes"))
    if not last:
        raise InvalidOptionError(
            f"`last_nodes` of sensor {name!r} must not be empty, or no flow would be complete; pass the flow's last "
            "assets."
        )

    def react(event: QueueEvent, resource: QueueResource) -> dg.RunRequest | None:
        flow_id, node = split_job_id(event.job_id) or ("", "")
        if node not in last or not flow_id.startswith(f"{flow}-"):
            return None
        keys = QueueKeys(queue, resource.prefix)
        for other in last - {node}:
            job_id = job_id_of(flow_id, other)
            record = resource.connection.run(job_records.job(keys, job_id), repeatable=True)
            if record is None:
                # Jobs can be removed as soon as they end; the flow then keeps only how they ended.
                record = resource.connection.run(noted_end(keys, flow_id, job_id), repeatable=True)
            if record is None or record.state is not JobState.COMPLETED:
                return None
        return dg.RunRequest(run_key=flow_id, tags={_FLOW_TAG: flow_id})

    if not options.get("description"):
        options["description"] = f"Requests a run when {', '.join(sorted(last))} of a flow {flow!r} are complete."
    return queue_event_sensor(react, name=name, queue=queue, job=job, **options)


def flow_sensor(
    flow: str | None = None,
    *,
    queue: str,
    job: RunTarget,
    name: str | None = None,
    on: Collection[FlowState | str] = (FlowState.COMPLETED, FlowState.FAILED),
    react: FlowReaction | None = None,
    node_queues: Sequence[str] = (),
    **options: Unpack[ListenOptions],
) -> dg.SensorDefinition:
    """Build a sensor that requests one run for each flow that has ended, from any submitter.

    The run key is the flow's id and outcome, so each end requests one run; a flow that is retried and then completes
    has two. The run has the tags ``orchestration_queue/flow_id`` and ``orchestration_queue/flow_state``.

    Args:
        flow: The name of the flows' graph; None for all flows of the queue.
        queue: The flows' own queue, which stores their records.
        job: The target of its runs: a job, or an asset selection.
        name: The sensor's name; default: derived from queue and flow.
        on: Which outcomes to react to: ``completed``, ``failed``, ``cancelled``.
        react: What to request for a flow that ended; default: a run. A run without a run key gets the usual one.
        node_queues: Other queues of nodes. Without them, the end of a node there is detected some seconds later.
        options: As for :func:`queue_event_sensor`.

    Raises:
        InvalidOptionError: An option is out of range, or ``on`` names no outcome.
        InvalidNameError: A queue's name is invalid.
    """
    check_flow_name(flow)
    check_target(job)
    check_function(react, "react")
    queues = check_queues([queue, *check_words(node_queues, "node_queues")])
    listening = Listening(**options)
    ends = frozenset(map(str, check_items(on, str, "on")))
    known_ends = {str(state) for state in FlowState if state.is_final}
    if not ends or not ends <= known_ends:
        hint = next((near for word in ends - known_ends if (near := suggestion(word, known_ends))), "")
        advice = hint or f"; use {', '.join(sorted(known_ends))}."
        raise InvalidOptionError(f"`on` must list outcomes of flows, got {list(on)}{advice}")

    called = sensor_name(name, "flows_of", queue, *([flow] if flow else []))

    @dg.sensor(
        name=called,
        target=job,
        minimum_interval_seconds=1,
        tags=LISTENS,
        default_status=listening.default_status,
        required_resource_keys={listening.resource_key},
        description=listening.description or f"Requests a run when a flow {flow or ''} of queue {queue!r} has ended.",
    )
    def flow_ends(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        resource: QueueResource = getattr(context.resources, listening.resource_key)
        tracker = _FlowTracker(resource, queue, flow, ends)
        return _tick(context, tracker, queues, listening, react or _request_run, called)

    return flow_ends


def _request_run(_flow: FlowStatus, _resource: QueueResource) -> dg.RunRequest:
    return dg.RunRequest()


class _FlowTracker:
    """The flows that one tick reads.

    Attributes:
        open: Ids of flows with nodes that have ended, and that have not ended themselves.
        ended: Snapshots of flows that have ended with a wanted outcome.
    """

    def __init__(self, resource: QueueResource, queue: str, flow: str | None, ends: frozenset[str]) -> None:
        self.resource = resource
        self._keys = QueueKeys(queue, resource.prefix)
        self._flow = flow
        self._ends = ends
        self._foreign: set[str] = set()
        self.open: set[str] = set()
        self.ended: dict[str, FlowStatus] = {}

    def update(self, flow_ids: Collection[str], *, read_nodes: bool) -> None:
        """Check which flows have ended, by their records, or also by their nodes, which is earlier."""
        with Queue(self._keys.queue, connection=self.resource.connection, prefix=self._keys.prefix) as queue:
            for flow_id, facts in self._facts(sorted(set(flow_ids) - self._foreign - self.ended.keys())):
                if facts is None or (self._flow is not None and facts.flow.record.name != self._flow):
                    self._foreign.add(flow_id)
                    self.open.discard(flow_id)
                    continue
                self.open.add(flow_id)
                if not (read_nodes or facts.state.is_final):
                    continue
                try:
                    status = queue.flows.get(flow_id).status()
                except StateError:  # it was removed
                    self.open.discard(flow_id)
                    continue
                if status.state.is_final:
                    self.open.discard(flow_id)
                    if status.state in self._ends:
                        self.ended[flow_id] = status

    def _facts(self, flow_ids: Sequence[str]) -> Iterable[tuple[str, FlowSnapshot | None]]:
        for piece in chunks(flow_ids, _FLOWS_PER_EXCHANGE):
            reads = [read_flow(self._keys, flow_id) for flow_id in piece]
            replies = all_good(self.resource.connection.pipeline([read.call for read in reads], repeatable=True))
            yield from ((flow_id, read.read(reply)) for flow_id, read, reply in zip(piece, reads, replies, strict=True))

    def select(self, events: Sequence[QueueEvent]) -> Sequence[QueueEvent]:
        """Return the events if a flow has ended with them."""
        flow_ids = {split[0] for event in events if event.type in ENDINGS and (split := split_job_id(event.job_id))}
        self.update(flow_ids, read_nodes=True)
        return events if self.ended else ()


def _tick(
    context: dg.SensorEvaluationContext,
    tracker: _FlowTracker,
    queues: Sequence[str],
    listening: Listening,
    react: FlowReaction,
    sensor: str,
) -> dg.SensorResult:
    known, still_open = _load(context.cursor, queues)
    tracker.update(still_open, read_nodes=False)
    longest = min(as_timedelta(listening.wait), as_timedelta(listening.tick_limit))
    # An end that is known already must not wait for the next event.
    wait = _AT_ONCE if tracker.ended else min(longest, _AGAIN) if tracker.open else longest
    read = listen(
        tracker.resource.connection,
        first_cursors(context, tracker.resource, queues, known, listening, sensor),
        select=tracker.select,
        wait=wait,
        limit=listening.limit,
        linger=as_timedelta(listening.linger),
    )
    gaps = report_gaps(context, known, read, listening)
    requests = [_complete_request(react(status, tracker.resource), status) for status in tracker.ended.values()]
    wanted = [request for request in requests if request is not None]
    quiet = f"Read {read.passed} events of queue {', '.join(queues)}, and no flow that ended requested a run."
    return dg.SensorResult(
        run_requests=wanted,
        skip_reason=None if wanted else quiet,
        cursor=json.dumps({"heard": read.cursors(), "open": sorted(tracker.open)}),
        asset_events=gaps,
    )


def _complete_request(request: dg.RunRequest | None, status: FlowStatus) -> dg.RunRequest | None:
    if request is None:
        return None
    tags = {_FLOW_TAG: status.id, "orchestration_queue/flow_state": str(status.state), **request.tags}
    return request.with_replaced_attrs(run_key=request.run_key or f"{status.id}:{status.state}", tags=tags)


def _load(cursor: str | None, queues: Sequence[str]) -> tuple[Mapping[str, str], Sequence[str]]:
    """Read the position in each queue and the ids of open flows; a cursor that was set manually has no ids."""
    if not cursor:
        return {}, ()
    state = read_object(cursor)
    heard, still_open = state.get("heard"), state.get("open")
    if not isinstance(heard, dict) or not isinstance(still_open, list):
        return load_cursor(cursor, queues), ()
    return load_cursor(dump_cursor(heard), queues), [str(flow_id) for flow_id in still_open]
