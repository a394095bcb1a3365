"""qless's queues in Dagster: a resource, and sensors on messages, completed, failed and stalled jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self, TypeAlias

import dagster as dg
from pydantic import Field, PrivateAttr

from orchestration_queue.dagster._compat import RunTarget
from orchestration_queue.dagster.sensors.options import default_name
from orchestration_queue.dialects.qless import QlessClient, QlessEvent, QlessEvents, QlessJob
from orchestration_queue.dialects.qless.commands import checked_count, lasts, text_word, text_words
from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options import Duration

__all__ = ["QlessResource", "qless_event_sensor", "qless_failure_sensor", "qless_stalled_sensor"]

_OURS = "orchestration_queue/"
_MAX_WAIT_S = 50
"""Dagster gives up on a sensor after 60 s."""
_PAGE = 200

EventReaction: TypeAlias = Callable[[QlessEvent], dg.RunRequest | None]
"""What a message asks for: a run, or nothing."""
JobReaction: TypeAlias = Callable[[QlessJob], dg.RunRequest | None]
"""What a failed or stalled job asks for: a run, or nothing."""


class QlessResource(dg.ConfigurableResource["QlessResource"]):
    """Clients of the qless queues on one server, closed when the step or tick ends.

    Give a URL with a password as ``dg.EnvVar("OQ_URL")``: Dagster then stores and shows the variable's name only.
    """

    url: str | None = Field(
        default=None,
        repr=False,
        description="Where the server is; default the environment's OQ_URL, else an embedded server in `.oq`.",
    )
    worker: str | None = Field(
        default=None, description="The name under which jobs are taken; default the host's name and the process's id."
    )

    _opened: list[QlessClient | QlessEvents] = PrivateAttr(default_factory=list)

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Self]:  # noqa: ARG002  Dagster's
        """Lend the resource to one step or tick, and close its clients afterwards."""
        try:
            yield self
        finally:
            self.close()

    def client(self) -> QlessClient:
        """Return a client of all queues.

        Raises:
            UsageError: The URL cannot be read, or the worker's name is empty.
        """
        client = QlessClient(url=self.url, worker=self.worker)
        self._opened.append(client)
        return client

    def events(self, *channels: str) -> QlessEvents:
        """Return the messages of some channels, by default of the log.

        Raises:
            UsageError: A channel is not text, or the URL cannot be read.
        """
        events = QlessEvents(*channels, url=self.url)
        self._opened.append(events)
        return events

    def close(self) -> None:
        """Close all clients."""
        while self._opened:
            self._opened.pop().close()


def qless_event_sensor(
    *,
    job: RunTarget,
    name: str | None = None,
    events: Collection[str] = ("completed",),
    queues: Collection[str] = (),
    react: EventReaction | None = None,
    wait: Duration = 20.0,
    limit: int = 500,
    resource_key: str = "qless",
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
) -> dg.SensorDefinition:
    """Return a sensor that requests a run for each message of the log.

    Each tick listens for up to `wait`. qless publishes its messages and keeps none: what is published while no tick
    listens asks for no run. :func:`qless_failure_sensor` and :func:`qless_stalled_sensor` miss nothing.

    Args:
        job: What its runs execute: a job, or an asset selection.
        name: The sensor's name; default ``qless_events``.
        events: The events to react to: ``put``, ``advanced``, ``completed``, ``failed``, ``lock_lost``, ``canceled``.
        queues: React to events of these queues only; default all. ``failed`` and ``lock_lost`` name no queue.
        react: What to request for a message; default a run, with tags that name the event and the job.
        wait: How long one tick listens: a duration, or seconds, at most 50.
        limit: How many messages one tick reads.
        resource_key: The :class:`QlessResource` among the definitions' resources.
        default_status: Whether the sensor runs without being switched on.

    Raises:
        InvalidOptionError: An option is out of its range.
        InvalidNameError: An event or queue is not text.
    """
    kinds, named = set(text_words(events, "events")), _words(queues, "queues")
    most, seconds = checked_count(limit, "limit"), lasts(wait, "wait", positive=True)
    if seconds > _MAX_WAIT_S:
        raise InvalidOptionError(f"`wait` must be at most {_MAX_WAIT_S} s, got {wait!r}; Dagster ends longer ticks.")

    @dg.sensor(
        name=name or "qless_events",
        target=job,
        minimum_interval_seconds=1,
        default_status=default_status,
        required_resource_keys={resource_key},
        description="Requests a run for messages of qless's log.",
    )
    def listen(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        resource: QlessResource = getattr(context.resources, resource_key)
        found = resource.events().read(seconds, most)
        wanted = [event for event in found if event.name in kinds and (not named or event.fields.get("queue") in named)]
        requests = [
            request.with_replaced_attrs(tags={_OURS + "job_id": event.jid or "", **request.tags})
            for event in wanted
            if (request := (react or _run_for_event)(event)) is not None
        ]
        quiet = None if requests else f"{len(found)} new messages ask for no run."
        return dg.SensorResult(run_requests=requests, skip_reason=quiet)

    return listen


def qless_failure_sensor(
    *,
    job: RunTarget,
    name: str | None = None,
    groups: Collection[str] = (),
    react: JobReaction | None = None,
    limit: int = 200,
    interval: Duration = 30.0,
    resource_key: str = "qless",
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
) -> dg.SensorDefinition:
    """Return a sensor that requests a run for each job that failed.

    It reads the failure groups themselves, so none is missed that is still there at the next tick. The cursor is the
    time of the last failure and the jobs of that time; the run key is the job and its time.

    Args:
        job: What its runs execute: a job, or an asset selection.
        name: The sensor's name; default ``qless_failures``, with the groups.
        groups: React to failures of these groups only; default all.
        react: What to request for a failed job; default a run, with tags that name the job and the group.
        limit: How many failures one tick asks runs for.
        interval: The time between two ticks, at least: a duration, or seconds.
        resource_key: The :class:`QlessResource` among the definitions' resources.
        default_status: Whether the sensor runs without being switched on.

    Raises:
        InvalidOptionError: An option is out of its range.
        InvalidNameError: A group is not text.
    """
    most, named = checked_count(limit, "limit"), _words(groups, "groups")

    @dg.sensor(
        name=name or default_name("qless_failures", *sorted(named)),
        target=job,
        minimum_interval_seconds=_interval(interval),
        default_status=default_status,
        required_resource_keys={resource_key},
        description="Requests a run for each failed job of qless's queues.",
    )
    def read(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        client = getattr(context.resources, resource_key).client()
        at, seen = json.loads(context.cursor) if context.cursor else (0.0, [])
        found = [
            (when, failed)
            for group in client.failures()
            if not named or group in named
            for when, failed in _failures_since(client, group, at)
            if when > at or failed.jid not in seen
        ]
        new = sorted(found, key=lambda failure: (failure[0], failure[1].jid))[:most]
        if new:
            latest = new[-1][0]
            ties = [failed.jid for when, failed in new if when == latest]
            at, seen = latest, [*seen, *ties] if latest == at else ties
        asked = [(when, failed, (react or _run_for_failure)(failed)) for when, failed in new]
        requests = [_keyed(request, failed, when) for when, failed, request in asked if request is not None]
        quiet = None if requests else f"{len(new)} new failures ask for no run."
        return dg.SensorResult(run_requests=requests, skip_reason=quiet, cursor=json.dumps([at, seen]))

    return read


def qless_stalled_sensor(
    queue: str,
    *,
    job: RunTarget,
    name: str | None = None,
    react: JobReaction | None = None,
    limit: int = 200,
    interval: Duration = 30.0,
    resource_key: str = "qless",
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
) -> dg.SensorDefinition:
    """Return a sensor that requests a run for each job of a queue whose lock has expired.

    qless does nothing when a lock expires: the next worker that asks the queue takes the job over. So a job that stays
    stalled has no worker. The run key is the job and its lock's time, so each loss asks for one run.

    Args:
        queue: The queue.
        job: What its runs execute: a job, or an asset selection.
        name: The sensor's name; default made of the queue's.
        react: What to request for a stalled job; default a run, with tags that name the job and its worker.
        limit: How many stalled jobs one tick reads.
        interval: The time between two ticks, at least: a duration, or seconds.
        resource_key: The :class:`QlessResource` among the definitions' resources.
        default_status: Whether the sensor runs without being switched on.

    Raises:
        InvalidOptionError: An option is out of its range.
        InvalidNameError: The queue's name is empty.
    """
    text_word(queue, "queue")
    most = checked_count(limit, "limit")

    @dg.sensor(
        name=name or default_name("qless_stalled_of", queue),
        target=job,
        minimum_interval_seconds=_interval(interval),
        default_status=default_status,
        required_resource_keys={resource_key},
        description=f"Requests a run for each stalled job of qless's queue {queue!r}.",
    )
    def read(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        client = getattr(context.resources, resource_key).client()
        stalled = client.get_many(client.jobs(queue, "stalled", 0, most))
        lost = [(found.expires.timestamp() if found.expires else 0.0, found) for found in stalled]
        known = set(json.loads(context.cursor)) if context.cursor else set()
        new = [(at, found) for at, found in lost if _key(found, at) not in known]
        asked = [(at, found, (react or _run_for_stalled)(found)) for at, found in new]
        requests = [_keyed(request, found, at) for at, found, request in asked if request is not None]
        quiet = None if requests else f"{len(new)} newly stalled jobs ask for no run."
        cursor = json.dumps([_key(found, at) for at, found in lost])
        return dg.SensorResult(run_requests=requests, skip_reason=quiet, cursor=cursor)

    return read


def _failures_since(client: QlessClient, group: str, at: float) -> Iterable[tuple[float, QlessJob]]:
    """Read a group's failures, the newest first, as far back as a time."""
    offset = 0
    while jids := client.failed(group, offset, _PAGE):
        for found in client.get_many(jids):
            if found.failure is None or found.failure.at is None:
                continue
            if (when := found.failure.at.timestamp()) < at:
                return
            yield when, found
        offset += len(jids)


def _words(words: Collection[str], option: str) -> Sequence[str]:
    return text_words(words, option) if words else []


def _interval(interval: Duration) -> int:
    return max(1, int(lasts(interval, "interval", positive=True)))


def _run_for_event(event: QlessEvent) -> dg.RunRequest:
    return dg.RunRequest(tags={_OURS + "event": event.name, _OURS + "queue": str(event.fields.get("queue") or "")})


def _run_for_failure(found: QlessJob) -> dg.RunRequest:
    group = found.failure.group if found.failure else ""
    return dg.RunRequest(tags={_OURS + "job_name": found.klass, _OURS + "failed_reason": group})


def _run_for_stalled(found: QlessJob) -> dg.RunRequest:
    return dg.RunRequest(tags={_OURS + "job_name": found.klass, _OURS + "worker": found.worker})


def _key(found: QlessJob, at: float) -> str:
    return f"{found.jid}:{at:.3f}"


def _keyed(request: dg.RunRequest, found: QlessJob, at: float) -> dg.RunRequest:
    tags: dict[str, Any] = {_OURS + "queue": found.queue, _OURS + "job_id": found.jid, **request.tags}
    return request.with_replaced_attrs(run_key=request.run_key or _key(found, at), tags=tags)
