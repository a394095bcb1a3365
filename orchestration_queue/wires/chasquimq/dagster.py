"""ChasquiMQ's queues in Dagster: a resource, and sensors for their events and dead letters."""

from __future__ import annotations

from collections.abc import Collection
from typing import Unpack

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
    from orchestration_queue.wires.chasquimq import ChasquiDeadLetter, ChasquiEvent, ChasquiEvents, ChasquiQueue
    from orchestration_queue.wires.chasquimq.checks import check_count, check_cursor
    from orchestration_queue.wires.chasquimq.keys import ChasquiKeys

__all__ = ["ChasquiResource", "chasqui_dead_letter_sensor", "chasqui_event_sensor"]


class ChasquiResource(ClientsResource):
    """Clients of ChasquiMQ's queues on one server, closed when the step or tick ends.

    Give a URL with a password as ``dg.EnvVar("OQ_URL")``: Dagster then stores and shows the variable's name only.
    """

    def queue(self, name: str) -> ChasquiQueue:
        """Return a client of one queue.

        Raises:
            InvalidNameError: The name is empty.
        """
        return self._keep(ChasquiQueue(name, url=self.url))

    def events(self, name: str, after: str = "$") -> ChasquiEvents:
        """Return a reader of one queue's events after an id.

        Raises:
            UsageError: The name is empty, or ``after`` is not an event id.
        """
        return self._keep(ChasquiEvents(name, url=self.url, after=after))


def chasqui_event_sensor(
    queue: str,
    *,
    job: RunTarget,
    name: str | None = None,
    events: Collection[str] = ("completed",),
    job_names: Collection[str] = (),
    react: ItemReaction[ChasquiEvent] | None = None,
    start: str = "$",
    wait: Duration = 20.0,
    limit: int = 500,
    **options: Unpack[SensorOptions],
) -> dg.SensorDefinition:
    """Build a sensor that requests a run for each event of a queue.

    Each tick listens for up to ``wait``. The cursor is the last event's id, which is also the run key: no event is
    missed while the daemon is down, as long as the queue keeps it (about its last 100,000), and none requests two runs.

    Args:
        queue: The queue to listen to.
        job: The target of its runs: a job, or an asset selection.
        name: The sensor's name; default: derived from the queue's.
        events: The types of events to react to.
        job_names: React to events of jobs with these names only; default: all.
        react: What to request for an event; default: a run, with the event and the job as tags.
        start: Where to start without a cursor: ``$`` for events from now on, ``0`` for all, or an event's id.
        wait: How long one tick listens: a duration, or seconds, at most 50.
        limit: How many events one tick reads.
        options: ``resource_key`` (default ``chasqui``), ``default_status``, ``description``, see :class:`Shown`.

    Raises:
        InvalidOptionError: An option is out of range.
        UsageError: The queue's name is empty, or ``start`` is not an event id.
    """
    ChasquiKeys(queue)
    first, most, seconds = check_cursor(start), check_count(limit, "limit"), check_wait(wait)
    types, names = check_kinds(events, "events", least=1), check_kinds(job_names, "job_names")

    def read(resource: ChasquiResource, cursor: str | None) -> EventReading[ChasquiEvent]:
        listener = resource.events(queue, cursor or first)
        listener.start()
        found = listener.read(seconds, most)
        wanted = [event for event in found if event.type in types and (not names or event.job_name in names)]
        return EventReading(wanted, listener.cursor, len(found))

    def origin(event: ChasquiEvent) -> tuple[str, dict[str, str | None]]:
        tags = {"source_queue": queue, "job_id": event.job_id, "event": event.type, "job_name": event.job_name}
        return f"{queue}:{event.id}", tags

    return item_sensor(
        read,
        origin,
        job=job,
        name=name,
        names=("events_of", queue),
        react=react,
        what="events",
        interval=1,
        resource_key="chasqui",
        description=f"Requests a run for events of ChasquiMQ's queue {queue!r}.",
        options=options,
    )


def chasqui_dead_letter_sensor(
    queue: str,
    *,
    job: RunTarget,
    name: str | None = None,
    reasons: Collection[str] = (),
    react: ItemReaction[ChasquiDeadLetter] | None = None,
    limit: int = 200,
    interval: Duration = 30.0,
    **options: Unpack[SensorOptions],
) -> dg.SensorDefinition:
    """Build a sensor that requests a run for each job that failed for good.

    It reads the dead letters, not events, so it misses none, no matter how long the daemon is down. The cursor, which
    is also the run key, is the last dead letter's id.

    Args:
        queue: The queue in which jobs fail.
        job: The target of its runs: a job, or an asset selection.
        name: The sensor's name; default: derived from the queue's.
        reasons: React to dead letters with these reasons only; default: all.
        react: What to request for a dead letter; default: a run, with the job and the reason as tags.
        limit: How many dead letters one tick reads.
        interval: Minimum time between two ticks: a duration, or seconds, at least 1.
        options: ``resource_key`` (default ``chasqui``), ``default_status``, ``description``, see :class:`Shown`.

    Raises:
        InvalidOptionError: An option is out of range.
        InvalidNameError: The queue's name is empty.
    """
    ChasquiKeys(queue)
    most, kinds = check_count(limit, "limit"), check_kinds(reasons, "reasons")

    def read(resource: ChasquiResource, cursor: str | None) -> EventReading[ChasquiDeadLetter]:
        letters = resource.queue(queue).dead_letters(most, after=cursor or None)
        wanted = [letter for letter in letters if not kinds or letter.reason in kinds]
        return EventReading(wanted, letters[-1].id if letters else cursor, len(letters))

    def origin(letter: ChasquiDeadLetter) -> tuple[str, dict[str, str | None]]:
        tags = {"source_queue": queue, "job_id": letter.job_id, "job_name": letter.name, "failed_reason": letter.reason}
        return f"{queue}:{letter.id}", tags

    return item_sensor(
        read,
        origin,
        job=job,
        name=name,
        names=("dead_letters_of", queue),
        react=react,
        what="dead letters",
        interval=check_interval(interval),
        resource_key="chasqui",
        description=f"Requests a run for each dead letter of ChasquiMQ's queue {queue!r}.",
        options=options,
    )
