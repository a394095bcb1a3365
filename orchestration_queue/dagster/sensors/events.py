"""A sensor for queues' events: listens instead of polling, so that it requests a run within about a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Unpack, overload

import dagster as dg

from orchestration_queue.client import Registration
from orchestration_queue.dagster._compat import LISTENS, RunTarget, storage_id
from orchestration_queue.dagster.checks import (
    check_function,
    check_target,
    check_text,
    check_word,
    check_words,
    checked,
)
from orchestration_queue.dagster.resources import QueueResource
from orchestration_queue.dagster.sensors.options import Listening, ListenOptions, check_queues
from orchestration_queue.dagster.sensors.ticks import (
    Answers,
    EventPage,
    Partition,
    QueueEvent,
    Reaction,
    dump_cursor,
    listen,
    load_cursor,
)
from orchestration_queue.errors import InvalidOptionError, StateError
from orchestration_queue.options import as_timedelta, seconds
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import event_log, job_records
from orchestration_queue.protocol.operations.event_log import EVENT_TYPES, Event
from orchestration_queue.server import Connection

__all__ = ["Filter", "first_cursors", "queue_event_sensor", "report_gaps"]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which events a sensor reacts to.

    Attributes:
        types: The types of events.
        job_names: The names of jobs; empty for all.
        where: Returns whether to react to an event; None for all.
    """

    types: frozenset[str]
    job_names: frozenset[str]
    where: Callable[[QueueEvent], bool] | None

    @classmethod
    def of(
        cls, types: Collection[str], job_names: Collection[str], where: Callable[[QueueEvent], bool] | None
    ) -> Filter:
        """Create a filter from a caller's arguments.

        Raises:
            InvalidOptionError: A list is missing or invalid, or no event could pass.
        """
        if not types or isinstance(types, str) or isinstance(job_names, str):
            raise InvalidOptionError(
                "`events` and `job_names` must be lists of words, and `events` must not be empty; pass lists."
            )
        words = frozenset(check_words(types, "events")), frozenset(check_words(job_names, "job_names"))
        for word in words[0]:
            check_word(word, "events[...]", EVENT_TYPES)
        return cls(*words, check_function(where, "where"))

    def select(self, connection: Connection, prefix: str, events: Sequence[QueueEvent]) -> Sequence[QueueEvent]:
        """Return the events that pass. One exchange per thousand events if job names matter, otherwise none."""
        found = [event for event in events if event.type in self.types]
        if self.job_names and found:
            wanted = [(QueueKeys(event.queue, prefix), event.job_id) for event in found]
            records = connection.follow(job_records.jobs(wanted, ("name",)))
            found = [
                replace(event, job_name=record.name if record else event.fields.get("name"))
                for event, record in zip(found, records, strict=True)
            ]
            found = [event for event in found if event.job_name in self.job_names]
        return found if self.where is None else [event for event in found if self.where(event)]


@overload
def queue_event_sensor(
    react: Reaction,
    *,
    queue: str | Sequence[str],
    job: RunTarget | None = None,
    name: str | None = None,
    events: Collection[str] = ("completed",),
    job_names: Collection[str] = (),
    where: Callable[[QueueEvent], bool] | None = None,
    partition: Partition | None = None,
    dynamic_partitions: dg.DynamicPartitionsDefinition | None = None,
    **options: Unpack[ListenOptions],
) -> dg.SensorDefinition: ...


@overload
def queue_event_sensor(
    react: None = None,
    *,
    queue: str | Sequence[str],
    job: RunTarget | None = None,
    name: str | None = None,
    events: Collection[str] = ("completed",),
    job_names: Collection[str] = (),
    where: Callable[[QueueEvent], bool] | None = None,
    partition: Partition | None = None,
    dynamic_partitions: dg.DynamicPartitionsDefinition | None = None,
    **options: Unpack[ListenOptions],
) -> Callable[[Reaction], dg.SensorDefinition]: ...


def queue_event_sensor(
    react: Reaction | None = None,
    *,
    queue: str | Sequence[str],
    job: RunTarget | None = None,
    name: str | None = None,
    events: Collection[str] = ("completed",),
    job_names: Collection[str] = (),
    where: Callable[[QueueEvent], bool] | None = None,
    partition: Partition | None = None,
    dynamic_partitions: dg.DynamicPartitionsDefinition | None = None,
    **options: Unpack[ListenOptions],
) -> dg.SensorDefinition | Callable[[Reaction], dg.SensorDefinition]:
    """Build a sensor that requests runs, or reports assets, for events of queues. A decorator without ``react``.

    Each tick listens for up to ``wait``, so the sensor reacts to an event when it happens, not at the next poll. The
    cursor is the id of the last event read from each queue, so events that happen while the daemon is down are read
    later. A queue keeps all that the sensor has not read, up to a million events or 256 MiB, until 2 days after its
    last tick. If events were dropped nevertheless, ``on_gap`` says what happens.

    A run without a run key gets the event's id, so that no event requests two runs. Asset events are written at least
    once: again, if Dagster is killed before it saves the cursor. Their metadata ``orchestration_queue/event_id`` are
    unique.

    If the function raises, the tick fails, and the next one starts with the same event. The requests for earlier events
    are made.

    In ``dagster.yaml`` set ``sensors: {use_threads: true}``; otherwise the other sensors wait while this one listens.

    Args:
        react: Called for each event that passes the filters; returns what to do, see :data:`Reaction`.
        queue: The queue to listen to, or several.
        job: The target of its runs: a job, or an asset selection; None for a sensor that only reports assets.
        name: The sensor's name; default: the function's.
        events: The types of events to react to, such as ``completed``, ``failed``, ``stalled`` or ``progress``.
        job_names: React only to events of jobs with these names; default: all. Takes one exchange per thousand events.
            The end of a job that is not kept is skipped, because its name is no longer known.
        where: React only to events for which this returns true.
        partition: Returns the partition for an event's requests that have none.
        dynamic_partitions: Add new partitions here.
        options: ``start``, ``wait``, ``linger``, ``limit``, ``tick_limit``, ``on_gap``, ``gap_asset``, see
            :class:`Listening`; ``resource_key``, ``default_status``, ``description``, see :class:`Shown`.

    Raises:
        InvalidOptionError: An option is out of range, no queue has events of such a type, neither job nor asset is
            given, or no queue is named.
        InvalidNameError: A queue's name is invalid.
    """
    queues = check_queues(queue)
    listening = Listening(**options)
    chosen = Filter.of(events, job_names, where)
    check_target(job, optional=True)
    _check_partitions(partition, dynamic_partitions)
    if name is not None:
        check_text(name, "name")

    def define(function: Reaction) -> dg.SensorDefinition:
        check_function(function, "react")
        called: str = name or str(getattr(function, "__name__", "?"))
        if not called.isidentifier():
            raise InvalidOptionError(f"The name of the function, {called!r}, can't be the sensor's name; pass name=...")

        @dg.sensor(
            name=called,
            target=job,
            # Dagster takes 0 for unset, which means 30.
            minimum_interval_seconds=1,
            tags=LISTENS,
            default_status=listening.default_status,
            required_resource_keys={listening.resource_key},
            description=listening.description
            or f"Listens to {', '.join(sorted(chosen.types))} in {', '.join(map(repr, queues))}.",
        )
        def queue_events(context: dg.SensorEvaluationContext) -> dg.SensorResult:
            resource: QueueResource = getattr(context.resources, listening.resource_key)
            answers = Answers(called, is_alone=len(queues) == 1, partition=partition, dynamic=dynamic_partitions)
            return _tick(context, resource, queues, listening, chosen, function, answers)

        return queue_events

    return define if react is None else define(react)


def _check_partitions(partition: Partition | None, dynamic: dg.DynamicPartitionsDefinition | None) -> None:
    check_function(partition, "partition")
    checked(dynamic, dg.DynamicPartitionsDefinition, "dynamic_partitions")
    if dynamic is not None and (partition is None or dynamic.name is None):
        raise InvalidOptionError(
            "`dynamic_partitions` requires `partition`, which returns the partitions, and a name; pass partition=... "
            "and a named DynamicPartitionsDefinition."
        )


def _tick(
    context: dg.SensorEvaluationContext,
    resource: QueueResource,
    queues: Sequence[str],
    listening: Listening,
    chosen: Filter,
    react: Reaction,
    answers: Answers,
) -> dg.SensorResult:
    ends_at = time.monotonic() + seconds(listening.tick_limit)
    known = load_cursor(context.cursor, queues)
    read = listen(
        resource.connection,
        first_cursors(context, resource, queues, known, listening, answers.sensor),
        select=lambda events: chosen.select(resource.connection, resource.prefix, events),
        wait=min(as_timedelta(listening.wait), as_timedelta(listening.tick_limit)),
        limit=listening.limit,
        linger=as_timedelta(listening.linger),
    )
    answers.asset_events += report_gaps(context, known, read, listening)
    until = _react(context, read, react, resource, answers, ends_at)
    where = ", ".join(queues)
    quiet = f"Read {read.passed} events of queue {where}, and none of them requested a run."
    return answers.result(dump_cursor(read.cursors(until)), quiet)


def _react(
    context: dg.SensorEvaluationContext,
    read: EventPage,
    react: Reaction,
    resource: QueueResource,
    answers: Answers,
    ends_at: float,
) -> QueueEvent | None:
    """React to at least one event; return the first event that is left to the next tick."""
    for number, event in enumerate(read.wanted):
        if number and time.monotonic() >= ends_at:
            context.log.info(f"The tick ends after {number} events; the next one continues with {event.id}.")
            return _in_page(read, event)
        try:
            answers.take(event, react(event, resource))
        except Exception:
            # The first event has nothing before it to store, so the tick fails and Dagster shows why.
            if not number:
                raise
            context.log.exception(f"Handling event {event.id} failed; the next tick starts with it.")
            return _in_page(read, event)
    return None


def _in_page(read: EventPage, event: QueueEvent) -> QueueEvent:
    return next(found for found in read.page if (found.queue, found.id) == (event.queue, event.id))


_WORDS = {"now": event_log.NEW_ONLY, "oldest": event_log.FIRST_EVENT}


def first_cursors(
    context: dg.SensorEvaluationContext,
    resource: QueueResource,
    queues: Sequence[str],
    known: Mapping[str, str],
    listening: Listening,
    sensor: str,
) -> dict[QueueKeys, str]:
    """Return the cursor in each queue, and make the queues keep what comes after it. One exchange.

    What a tick reads is kept until the next one, because Dagster stores the cursor only after the tick.
    """
    places = {queue: known.get(queue, listening.start) for queue in queues}
    cursors = {QueueKeys(queue, resource.prefix): _WORDS.get(at, at) for queue, at in places.items()}
    reader = f"{sensor} {context.repository_name} {_find_instance(context)}"
    return Registration(resource.connection, reader, event_log.STORED_READER_LEASE_S).start(cursors)


_instances: dict[str, str] = {}


def _find_instance(context: dg.SensorEvaluationContext) -> str:
    """Return what tells this Dagster instance's sensors from those of others; its storage is asked once per process."""
    if context.instance_ref is None:
        return ""
    settings = repr(context.instance_ref)
    if settings not in _instances:
        _instances[settings] = storage_id(context.instance)
    return _instances[settings]


def report_gaps(
    context: dg.SensorEvaluationContext, known: Mapping[str, str], read: EventPage, listening: Listening
) -> list[dg.AssetObservation]:
    """Report events that were dropped unread in queues with a known cursor, as ``on_gap`` requires.

    Raises:
        StateError: There are such events, and ``on_gap`` is ``fail``.
    """
    gaps = {queue: gap for queue, gap in read.gaps.items() if known.get(queue, "oldest") not in ("oldest", "now")}
    if gaps and listening.on_gap == "fail":
        queue, gap = next(iter(gaps.items()))
        go_on = dump_cursor({**known, **dict.fromkeys(gaps, "oldest")})
        raise StateError(f"{_loss(queue, gap)} To continue, set the sensor's cursor to {go_on}")
    for queue, gap in gaps.items():
        context.log.warning(_loss(queue, gap))
    if listening.on_gap != "observe" or listening.gap_asset is None:
        return []
    asset = dg.AssetKey.from_user_string(listening.gap_asset)
    return [_observe(asset, queue, gap) for queue, gap in gaps.items()]


def _observe(asset: dg.AssetKey, queue: str, gap: Event) -> dg.AssetObservation:
    metadata = {
        "orchestration_queue/queue": queue,
        "orchestration_queue/lost_after": gap.id,
        "orchestration_queue/oldest_kept": gap.fields["oldest"],
    }
    return dg.AssetObservation(asset_key=asset, description=_loss(queue, gap), metadata=metadata)


def _loss(queue: str, gap: Event) -> str:
    return (
        f"Queue {queue!r} dropped events after {gap.id} before this sensor read them: it was off for more than 2 days, "
        "fell a million events or 256 MiB behind, or another library than this package's trims the events; check "
        "whether a run is missing, and request it manually."
    )
