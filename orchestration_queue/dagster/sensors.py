"""Sensors on a queue's events: they listen instead of polling, so that a run is requested within a second or so."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import timedelta
from typing import Literal, TypeAlias

import dagster as dg

from orchestration_queue.dagster._compat import RunTarget
from orchestration_queue.dagster.listening import BEGINNING, Heard, listen
from orchestration_queue.dagster.resources import QueueResource
from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.flows import job_id_of, split_job_id
from orchestration_queue.protocol.events import Event
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import reading
from orchestration_queue.states import JobState

__all__ = ["Reaction", "flow_completed_sensor", "queue_event_sensor"]

Reaction: TypeAlias = Callable[[Event, QueueResource], dg.RunRequest | None]
"""What one event asks for: a run, or nothing."""

Start: TypeAlias = Literal["now", "oldest"]

_LONGEST_WAIT = timedelta(seconds=50)
"""Dagster gives up on a sensor after 60 s."""


def queue_event_sensor(
    react: Reaction,
    *,
    name: str,
    queue: str,
    job: RunTarget,
    events: Collection[str] = ("completed",),
    start: Start = "now",
    wait: timedelta = timedelta(seconds=20),
    limit: int = 500,
    resource_key: str = "queue",
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
    description: str | None = None,
) -> dg.SensorDefinition:
    """A sensor that requests runs as a queue's events ask for them.

    Each tick listens for up to ``wait``, so an event is met as it happens and not at the next poll. The cursor is the
    id of the last event heard: what happens while the daemon is down is met when it is back, as long as the
    server still has the event (about the last thousand). When it has not, the tick's log says so.

    A run without a run key gets the event's id, so that no event fires twice.

    In ``dagster.yaml`` set ``sensors: {use_threads: true}``; without it the other sensors wait while this one listens.

    Args:
        react: Called for each event of the wanted types; returns the run to request, or None.
        name: The sensor's name.
        queue: The queue to listen to.
        job: What its runs execute: a job, or an asset selection.
        events: The types of events to react to.
        start: Where to begin when the sensor has no cursor: ``now``, or with the ``oldest`` event the server has.
        wait: How long one tick listens, at most 50 s.
        limit: Most events that one tick reads at once.
        resource_key: The :class:`QueueResource` among the definitions' resources.
        default_status: Whether the sensor runs without being switched on.
        description: What the UI shows.

    Raises:
        InvalidOptionError: ``wait`` is not above 0 and at most 50 s.
        InvalidNameError: The wire cannot carry the queue's name.
    """
    _check_wait(wait)
    QueueKeys(queue)
    wanted = frozenset(events)

    @dg.sensor(
        name=name,
        target=job,
        minimum_interval_seconds=1,
        default_status=default_status,
        required_resource_keys={resource_key},
        description=description or f"Listens to {', '.join(sorted(wanted))} in queue {queue!r}.",
    )
    def queue_events(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        resource: QueueResource = getattr(context.resources, resource_key)
        keys = QueueKeys(queue, resource.prefix)
        cursor = context.cursor or _first_cursor(resource, keys, start)
        heard = listen(
            resource.connection, keys, cursor, interesting=lambda event: event.type in wanted, wait=wait, limit=limit
        )
        if heard.lost_after is not None and context.cursor:
            context.log.warning(_loss(queue, heard))
        requests = list(_requests(heard.events, react, resource))
        skipped = f"{heard.passed} events went by in queue {queue}, and none of them asks for a run."
        return dg.SensorResult(run_requests=requests, skip_reason=None if requests else skipped, cursor=heard.cursor)

    return queue_events


def flow_completed_sensor(
    flow: str,
    *,
    last_nodes: Iterable[str],
    name: str,
    queue: str,
    job: RunTarget,
    start: Start = "now",
    wait: timedelta = timedelta(seconds=20),
    resource_key: str = "queue",
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
) -> dg.SensorDefinition:
    """A sensor that requests one run for each completed flow of :func:`queue_flow_assets`.

    A flow is complete when all of ``last_nodes`` are. Its id is the run key, so it fires once, whatever happens.
    The run carries the flow's id as tag ``orchestration_queue/flow_id``.

    Args:
        flow: The flow's name, as given to :func:`queue_flow_assets`.
        last_nodes: The assets (nodes) that nothing else in the flow waits for.
        name: The sensor's name.
        queue: The queue the flow's last nodes run in.
        job: What its runs execute: a job, or an asset selection.
        start: Where to begin when the sensor has no cursor: ``now``, or with the ``oldest`` event the server has.
        wait: How long one tick listens, at most 50 s.
        resource_key: The :class:`QueueResource` among the definitions' resources.
        default_status: Whether the sensor runs without being switched on.

    Raises:
        InvalidOptionError: ``wait`` is not above 0 and at most 50 s, or there is no last node.
        InvalidNameError: The wire cannot carry the queue's name.
    """
    last = frozenset(last_nodes)
    if not last:
        raise InvalidOptionError(
            f"Sensor {name!r} has no last_nodes, so no flow would ever be complete; name the flow's last assets."
        )

    def react(event: Event, resource: QueueResource) -> dg.RunRequest | None:
        flow_id, node = split_job_id(event.job_id) or ("", "")
        if node not in last or not flow_id.startswith(f"{flow}-"):
            return None
        keys = QueueKeys(queue, resource.prefix)
        for other in last - {node}:
            record = resource.connection.run(reading.job(keys, job_id_of(flow_id, other)), repeatable=True)
            if record is None or record.state is not JobState.COMPLETED:
                return None
        return dg.RunRequest(run_key=flow_id, tags={"orchestration_queue/flow_id": flow_id})

    return queue_event_sensor(
        react,
        name=name,
        queue=queue,
        job=job,
        start=start,
        wait=wait,
        resource_key=resource_key,
        default_status=default_status,
        description=f"Requests a run when {', '.join(sorted(last))} of a flow {flow!r} are complete.",
    )


def _check_wait(wait: timedelta) -> None:
    if not timedelta(0) < wait <= _LONGEST_WAIT:
        raise InvalidOptionError(
            f"The sensor's wait of {wait.total_seconds():g} s is not above 0 and at most "
            f"{_LONGEST_WAIT.total_seconds():g} s, and Dagster gives up on a tick after 60 s; choose one between."
        )


def _first_cursor(resource: QueueResource, keys: QueueKeys, start: Start) -> str:
    return BEGINNING if start == "oldest" else resource.connection.run(reading.last_event_id(keys), repeatable=True)


def _requests(events: Iterable[Event], react: Reaction, resource: QueueResource) -> Iterable[dg.RunRequest]:
    """The runs the events ask for, each run key once."""
    seen: set[str] = set()
    for event in events:
        request = react(event, resource)
        if request is None:
            continue
        keyed = request if request.run_key else request.with_replaced_attrs(run_key=event.id)
        if keyed.run_key not in seen:
            seen.add(keyed.run_key or "")
            yield keyed


def _loss(queue: str, heard: Heard) -> str:
    return (
        f"Queue {queue!r} has dropped events after {heard.lost_after} before this sensor heard them, because it was "
        "off for too long; look whether a run is missing and request it by hand."
    )
