"""qless's queues in Dagster: a resource, and sensors for messages, failed and stalled jobs."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Unpack

from pydantic import Field

from orchestration_queue._extras import named_extra

with named_extra():
    import dagster as dg

    from orchestration_queue.dagster._compat import RunTarget
    from orchestration_queue.dagster.resources import ClientsResource
    from orchestration_queue.dagster.sensors.items import (
        EventReading,
        ItemReaction,
        check_interval,
        check_kinds,
        check_wait,
        item_sensor,
    )
    from orchestration_queue.dagster.sensors.options import SensorOptions
    from orchestration_queue.options import Duration
    from orchestration_queue.wires.qless import QlessClient, QlessEvent, QlessEvents, QlessJob
    from orchestration_queue.wires.qless.commands import check_count, text_word

__all__ = ["QlessResource", "qless_event_sensor", "qless_failure_sensor", "qless_stalled_sensor"]


class QlessResource(ClientsResource):
    """Clients of the qless queues on one server, closed when the step or tick ends.

    Give a URL with a password as ``dg.EnvVar("OQ_URL")``: Dagster then stores and shows the variable's name only.
    """

    worker: str | None = Field(
        default=None, description="The worker name for taking jobs; default the host's name and the process's id."
    )

    def client(self) -> QlessClient:
        """Return a client of all queues.

        Raises:
            UsageError: The worker's name is empty.
        """
        return self._keep(QlessClient(url=self.url, worker=self.worker))

    def events(self, *channels: str) -> QlessEvents:
        """Return a reader of channels, by default of the log.

        Raises:
            UsageError: A channel is not a string.
        """
        return self._keep(QlessEvents(*channels, url=self.url))


_PAGE = 200


def qless_event_sensor(
    *,
    job: RunTarget,
    name: str | None = None,
    events: Collection[str] = ("completed",),
    queues: Collection[str] = (),
    react: ItemReaction[QlessEvent] | None = None,
    wait: Duration = 20.0,
    limit: int = 500,
    **options: Unpack[SensorOptions],
) -> dg.SensorDefinition:
    """Build a sensor that requests a run for each message of the log.

    Each tick listens for up to ``wait``. qless does not store its messages, so the sensor misses messages that are
    published between ticks. :func:`qless_failure_sensor` and :func:`qless_stalled_sensor` miss nothing.

    Args:
        job: The target of its runs: a job, or an asset selection.
        name: The sensor's name; default: ``qless_events``.
        events: The events to react to: ``put``, ``advanced``, ``completed``, ``failed``, ``lock_lost``, ``canceled``.
        queues: React to events of these queues only; default: all. ``failed`` and ``lock_lost`` have no queue.
        react: What to request for a message; default: a run, with the event and the job as tags.
        wait: How long one tick listens: a duration, or seconds, at most 50.
        limit: How many messages one tick reads.
        options: ``resource_key`` (default ``qless``), ``default_status``, ``description``, see :class:`Shown`.

    Raises:
        InvalidOptionError: An option is out of range, or an event or queue is not a string.
    """
    kinds, named = check_kinds(events, "events", least=1), check_kinds(queues, "queues")
    most, seconds = check_count(limit, "limit"), check_wait(wait)

    def read(resource: QlessResource, _cursor: str | None) -> EventReading[QlessEvent]:
        found = resource.events().read(seconds, most)
        wanted = [event for event in found if event.name in kinds and (not named or event.fields.get("queue") in named)]
        return EventReading(wanted, None, len(found))

    def origin(event: QlessEvent) -> tuple[None, dict[str, str | None]]:
        return None, {"source_queue": str(event.fields.get("queue") or ""), "job_id": event.jid, "event": event.name}

    return item_sensor(
        read,
        origin,
        job=job,
        name=name,
        names=("qless_events",),
        react=react,
        what="messages",
        interval=1,
        resource_key="qless",
        description="Requests a run for messages of qless's log.",
        options=options,
    )


def qless_failure_sensor(
    *,
    job: RunTarget,
    name: str | None = None,
    groups: Collection[str] = (),
    react: ItemReaction[QlessJob] | None = None,
    limit: int = 200,
    interval: Duration = 30.0,
    **options: Unpack[SensorOptions],
) -> dg.SensorDefinition:
    """Build a sensor that requests a run for each job that failed.

    It reads the failure groups, so it misses no failure that still exists at the next tick. The cursor is the time of
    the last failure and the jobs of that time; the run key is the job and its time.

    Args:
        job: The target of its runs: a job, or an asset selection.
        name: The sensor's name; default: ``qless_failures``, with the groups.
        groups: React to failures in these groups only; default: all.
        react: What to request for a failed job; default: a run, with the job and the group as tags.
        limit: How many failures one tick handles.
        interval: Minimum time between two ticks: a duration, or seconds, at least 1.
        options: ``resource_key`` (default ``qless``), ``default_status``, ``description``, see :class:`Shown`.

    Raises:
        InvalidOptionError: An option is out of range, or a group is not a string.
    """
    most, named = check_count(limit, "limit"), check_kinds(groups, "groups")

    def read(resource: QlessResource, cursor: str | None) -> EventReading[QlessJob]:
        client = resource.client()
        at, seen = json.loads(cursor) if cursor else (0.0, [])
        found = [
            failed
            for group in client.failures()
            if not named or group in named
            for failed in _failures_since(client, group, at)
            if _failed_at(failed) > at or failed.jid not in seen
        ]
        new = sorted(found, key=lambda failed: (_failed_at(failed), failed.jid))[:most]
        if new:
            latest = _failed_at(new[-1])
            # Further jobs may fail at the same instant, so the cursor names those of the last one.
            ties = [failed.jid for failed in new if _failed_at(failed) == latest]
            at, seen = latest, [*seen, *ties] if latest == at else ties
        return EventReading(new, json.dumps([at, seen]), len(new))

    def origin(failed: QlessJob) -> tuple[str, dict[str, str | None]]:
        group = failed.failure.group if failed.failure else ""
        return _key(failed, _failed_at(failed)), {**_tags(failed), "failed_reason": group}

    return item_sensor(
        read,
        origin,
        job=job,
        name=name,
        names=("qless_failures", *sorted(named)),
        react=react,
        what="failures",
        interval=check_interval(interval),
        resource_key="qless",
        description="Requests a run for each failed job of qless's queues.",
        options=options,
    )


def qless_stalled_sensor(
    queue: str,
    *,
    job: RunTarget,
    name: str | None = None,
    react: ItemReaction[QlessJob] | None = None,
    limit: int = 200,
    interval: Duration = 30.0,
    **options: Unpack[SensorOptions],
) -> dg.SensorDefinition:
    """Build a sensor that requests a run for each job of a queue whose lock has expired.

    qless does nothing when a lock expires: the next worker that asks the queue takes over the job. So a job that stays
    stalled has no worker. The run key is the job and the time of its lock, so each loss requests one run.

    Args:
        queue: The queue.
        job: The target of its runs: a job, or an asset selection.
        name: The sensor's name; default: derived from the queue's.
        react: What to request for a stalled job; default: a run, with the job and its worker as tags.
        limit: How many stalled jobs one tick reads.
        interval: Minimum time between two ticks: a duration, or seconds, at least 1.
        options: ``resource_key`` (default ``qless``), ``default_status``, ``description``, see :class:`Shown`.

    Raises:
        InvalidOptionError: An option is out of range.
        InvalidNameError: The queue's name is empty.
    """
    text_word(queue, "queue")
    most = check_count(limit, "limit")

    def read(resource: QlessResource, cursor: str | None) -> EventReading[QlessJob]:
        client = resource.client()
        stalled = client.get_many(client.jobs(queue, "stalled", 0, most))
        known = set(json.loads(cursor)) if cursor else set()
        new = [found for found in stalled if _lost(found) not in known]
        return EventReading(new, json.dumps([_lost(found) for found in stalled]), len(new))

    def origin(found: QlessJob) -> tuple[str, dict[str, str | None]]:
        return _lost(found), {**_tags(found), "worker": found.worker}

    return item_sensor(
        read,
        origin,
        job=job,
        name=name,
        names=("qless_stalled_of", queue),
        react=react,
        what="stalled jobs",
        interval=check_interval(interval),
        resource_key="qless",
        description=f"Requests a run for each stalled job of qless's queue {queue!r}.",
        options=options,
    )


def _failures_since(client: QlessClient, group: str, at: float) -> Iterable[QlessJob]:
    """Read a group's failures since a time, the newest first."""
    offset = 0
    while jids := client.failed(group, offset, _PAGE):
        for found in client.get_many(jids):
            if found.failure is None or found.failure.at is None:
                continue
            if _failed_at(found) < at:
                return
            yield found
        offset += len(jids)


def _failed_at(failed: QlessJob) -> float:
    return failed.failure.at.timestamp() if failed.failure and failed.failure.at else 0.0


def _lost(found: QlessJob) -> str:
    return _key(found, found.expires.timestamp() if found.expires else 0.0)


def _tags(found: QlessJob) -> dict[str, str | None]:
    return {"source_queue": found.queue, "job_id": found.jid, "job_name": found.klass}


def _key(found: QlessJob, at: float) -> str:
    return f"{found.jid}:{at:.3f}"
