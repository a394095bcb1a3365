"""ChasquiMQ's queues in Dagster: a resource, and sensors on their events and dead letters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Self, TypeAlias

import dagster as dg
from pydantic import Field, PrivateAttr

from orchestration_queue.dagster._compat import RunTarget
from orchestration_queue.dagster.sensors.options import default_name
from orchestration_queue.dialects.chasquimq import ChasquiDeadLetter, ChasquiEvent, ChasquiEvents, ChasquiQueue
from orchestration_queue.dialects.chasquimq.checks import checked_count, checked_cursor, duration_ms
from orchestration_queue.dialects.chasquimq.keys import ChasquiKeys
from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options import Duration

__all__ = ["ChasquiResource", "chasqui_dead_letter_sensor", "chasqui_event_sensor"]

_OURS = "orchestration_queue/"
_MAX_WAIT_MS = 50_000
"""Dagster gives up on a sensor after 60 s."""

EventReaction: TypeAlias = Callable[[ChasquiEvent], dg.RunRequest | None]
"""What an event asks for: a run, or nothing."""
DeadLetterReaction: TypeAlias = Callable[[ChasquiDeadLetter], dg.RunRequest | None]
"""What a dead letter asks for: a run, or nothing."""


class ChasquiResource(dg.ConfigurableResource["ChasquiResource"]):
    """Clients of ChasquiMQ's queues on one server, closed when the step or tick ends.

    Give a URL with a password as ``dg.EnvVar("OQ_URL")``: Dagster then stores and shows the variable's name only.
    """

    url: str | None = Field(
        default=None,
        repr=False,
        description="Where the server is; default the environment's OQ_URL, else an embedded server in `.oq`.",
    )

    _opened: list[ChasquiQueue | ChasquiEvents] = PrivateAttr(default_factory=list)

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Self]:  # noqa: ARG002  Dagster's
        """Lend the resource to one step or tick, and close its clients afterwards."""
        try:
            yield self
        finally:
            self.close()

    def queue(self, name: str) -> ChasquiQueue:
        """Return a client of one queue.

        Raises:
            InvalidNameError: The name is empty.
        """
        client = ChasquiQueue(name, url=self.url)
        self._opened.append(client)
        return client

    def events(self, name: str, after: str = "$") -> ChasquiEvents:
        """Return the events of one queue that follow `after`.

        Raises:
            UsageError: The name is empty, or `after` is not an event id.
        """
        events = ChasquiEvents(name, url=self.url, after=after)
        self._opened.append(events)
        return events

    def close(self) -> None:
        """Close all clients."""
        while self._opened:
            self._opened.pop().close()


def chasqui_event_sensor(
    queue: str,
    *,
    job: RunTarget,
    name: str | None = None,
    events: Collection[str] = ("completed",),
    job_names: Collection[str] = (),
    react: EventReaction | None = None,
    start: str = "$",
    wait: Duration = 20.0,
    limit: int = 500,
    resource_key: str = "chasqui",
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
) -> dg.SensorDefinition:
    """Return a sensor that requests a run for each event of a queue.

    Each tick listens for up to `wait`. The cursor is the last event's id, which is the run key, too: no event is
    missed while the daemon is down, as long as the queue keeps it (about its last 100,000), and none fires twice.

    Args:
        queue: The queue to listen to.
        job: What its runs execute: a job, or an asset selection.
        name: The sensor's name; default made of the queue's.
        events: The types of events to react to.
        job_names: React to events of jobs of these names only; default all.
        react: What to request for an event; default a run, with tags that name the event and the job.
        start: Where to begin without a cursor: ``$`` for events from now on, ``0`` for all, or an event's id.
        wait: How long one tick listens: a duration, or seconds, at most 50.
        limit: How many events one tick reads.
        resource_key: The :class:`ChasquiResource` among the definitions' resources.
        default_status: Whether the sensor runs without being switched on.

    Raises:
        InvalidOptionError: An option is out of its range.
        UsageError: The queue's name is empty, or `start` is not an event id.
    """
    ChasquiKeys(queue)
    first, most = checked_cursor(start), checked_count(limit, "limit")
    wait_ms = duration_ms(wait, "wait", 1)
    if wait_ms > _MAX_WAIT_MS:
        raise InvalidOptionError(
            f"`wait` must be at most {_MAX_WAIT_MS // 1000} s, got {wait!r}; Dagster ends longer ticks."
        )
    types, names = _words(events, "events"), _words(job_names, "job_names")
    if not types:
        raise InvalidOptionError("`events` must name one type of event at least; pass `events=['completed']`.")

    @dg.sensor(
        name=name or default_name("events_of", queue),
        target=job,
        minimum_interval_seconds=1,
        default_status=default_status,
        required_resource_keys={resource_key},
        description=f"Requests a run for events of ChasquiMQ's queue {queue!r}.",
    )
    def listen(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        resource: ChasquiResource = getattr(context.resources, resource_key)
        listener = resource.events(queue, context.cursor or first)
        listener.start()
        found = listener.read(wait_ms / 1000, most)
        wanted = [event for event in found if event.type in types and (not names or event.job_name in names)]
        asked = [(event, request) for event in wanted if (request := (react or _run_for_event)(event)) is not None]
        requests = [_keyed(request, event.id, queue, event.job_id) for event, request in asked]
        quiet = None if requests else f"{len(found)} new events ask for no run."
        return dg.SensorResult(run_requests=requests, skip_reason=quiet, cursor=listener.cursor)

    return listen


def chasqui_dead_letter_sensor(
    queue: str,
    *,
    job: RunTarget,
    name: str | None = None,
    reasons: Collection[str] = (),
    react: DeadLetterReaction | None = None,
    limit: int = 200,
    interval: Duration = 30.0,
    resource_key: str = "chasqui",
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
) -> dg.SensorDefinition:
    """Return a sensor that requests a run for each job that failed for good.

    It reads the dead letters themselves: none is missed, however long the daemon is down. The cursor is the last dead
    letter's id, which is the run key, too.

    Args:
        queue: The queue in which jobs fail.
        job: What its runs execute: a job, or an asset selection.
        name: The sensor's name; default made of the queue's.
        reasons: React to dead letters of these reasons only; default all.
        react: What to request for a dead letter; default a run, with tags that name the job and the reason.
        limit: How many dead letters one tick reads.
        interval: The time between two ticks, at least: a duration, or seconds.
        resource_key: The :class:`ChasquiResource` among the definitions' resources.
        default_status: Whether the sensor runs without being switched on.

    Raises:
        InvalidOptionError: An option is out of its range.
        InvalidNameError: The queue's name is empty.
    """
    ChasquiKeys(queue)
    most, wanted = checked_count(limit, "limit"), _words(reasons, "reasons")

    @dg.sensor(
        name=name or default_name("dead_letters_of", queue),
        target=job,
        minimum_interval_seconds=duration_ms(interval, "interval", 1000) // 1000,
        default_status=default_status,
        required_resource_keys={resource_key},
        description=f"Requests a run for each dead letter of ChasquiMQ's queue {queue!r}.",
    )
    def read(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        resource: ChasquiResource = getattr(context.resources, resource_key)
        letters = resource.queue(queue).dead_letters(most, after=context.cursor or None)
        found = [letter for letter in letters if not wanted or letter.reason in wanted]
        asked = [(letter, request) for letter in found if (request := (react or _run_for_letter)(letter)) is not None]
        requests = [_keyed(request, letter.id, queue, letter.job_id) for letter, request in asked]
        quiet = None if requests else f"{len(letters)} new dead letters ask for no run."
        cursor = letters[-1].id if letters else context.cursor
        return dg.SensorResult(run_requests=requests, skip_reason=quiet, cursor=cursor)

    return read


def _words(words: Collection[str], option: str) -> frozenset[str]:
    if isinstance(words, str) or not all(isinstance(word, str) for word in words):
        raise InvalidOptionError(f"`{option}` must be a list of strings, got {words!r}.")
    return frozenset(words)


def _run_for_event(event: ChasquiEvent) -> dg.RunRequest:
    return dg.RunRequest(tags={_OURS + "event": event.type, _OURS + "job_name": event.job_name})


def _run_for_letter(letter: ChasquiDeadLetter) -> dg.RunRequest:
    return dg.RunRequest(tags={_OURS + "job_name": letter.name, _OURS + "failed_reason": letter.reason})


def _keyed(request: dg.RunRequest, entry_id: str, queue: str, job_id: str | None) -> dg.RunRequest:
    ours = {_OURS + "queue": queue, _OURS + "job_id": job_id or ""}
    return request.with_replaced_attrs(run_key=request.run_key or f"{queue}:{entry_id}", tags={**ours, **request.tags})
