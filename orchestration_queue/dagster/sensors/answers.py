"""Collect the answers of a sensor's function into the result of one tick."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import dagster as dg

from orchestration_queue.dagster.resources import QueueResource
from orchestration_queue.dagster.sensors.listening import QueueEvent
from orchestration_queue.errors import UsageError

__all__ = ["Answer", "Answers", "AssetEvent", "Partition", "Reaction", "request_run"]

AssetEvent: TypeAlias = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation
"""An event about an asset that a sensor reports without a run."""
Answer: TypeAlias = dg.RunRequest | AssetEvent
Reaction: TypeAlias = Callable[[QueueEvent, QueueResource], Answer | Iterable[Answer] | None]
"""A function that answers an event with a run request, an asset event, several of them, or nothing."""
Partition: TypeAlias = Callable[[QueueEvent], str | None]
"""A function that returns the partition of an event; None for none."""

_SINGLES = (dg.RunRequest, dg.AssetMaterialization, dg.AssetObservation, dg.AssetCheckEvaluation)
_OURS = "orchestration_queue/"


def request_run(event: QueueEvent, _resource: QueueResource) -> dg.RunRequest:
    """Request a run for each event, with the event's type, queue and job as tags."""
    return dg.RunRequest(
        tags={_OURS + "event": event.type, _OURS + "source_queue": event.queue, _OURS + "job_id": event.job_id}
    )


class Answers:
    """The answers to the events of one tick.

    Args:
        sensor: The sensor's name, for errors.
        is_alone: Whether there is only one queue, so that an event's id is unique.
        partition: Returns the partition of an event.
        dynamic: The definition to add new partitions to.
    """

    def __init__(
        self,
        sensor: str,
        *,
        is_alone: bool = True,
        partition: Partition | None = None,
        dynamic: dg.DynamicPartitionsDefinition | None = None,
    ) -> None:
        self._sensor = sensor
        self._is_alone = is_alone
        self._partition = partition
        self._dynamic = dynamic
        self._requests: dict[str, dg.RunRequest] = {}
        self._partitions: dict[str, None] = {}
        self.asset_events: list[AssetEvent] = []

    def take(self, event: QueueEvent, answer: object) -> None:
        """Add the answer to an event.

        Raises:
            UsageError: The answer has an unknown type.
        """
        answers = [self._check(one, event) for one in _as_list(answer)]
        key = self._partition(event) if self._partition else None
        if key is not None and answers and self._dynamic is not None:
            self._partitions[key] = None
        keyless = 0
        for one in answers:
            if isinstance(one, dg.RunRequest):
                keyless += not one.run_key
                self._request(one, self._run_key(event, keyless), key)
            else:
                self.asset_events.append(_with_origin(one, event, key))

    def _check(self, answer: object, event: QueueEvent) -> Answer:
        if isinstance(answer, _SINGLES):
            return answer
        raise UsageError(
            f"Sensor {self._sensor!r} returned {type(answer).__name__} for event {event.id}; return run "
            "requests, asset materializations, observations or check evaluations, or None."
        )

    def _run_key(self, event: QueueEvent, number: int) -> str:
        """Return a key from the event's queue and id, so that no event requests a run twice."""
        base = event.id if self._is_alone else f"{event.queue}:{event.id}"
        return base if number <= 1 else f"{base}:{number}"

    def _request(self, request: dg.RunRequest, run_key: str, partition: str | None) -> None:
        if not request.run_key:
            request = request.with_replaced_attrs(run_key=run_key)
        if partition is not None and request.partition_key is None:
            request = request.with_replaced_attrs(partition_key=partition)
        self._requests.setdefault(request.run_key or "", request)

    def result(self, cursor: str, quiet: str) -> dg.SensorResult:
        """Build the tick's result with the next cursor; Dagster requires a reason if there are no requests."""
        requests = list(self._requests.values())
        if self.asset_events:
            quiet = f"Reported {len(self.asset_events)} asset events, and no event requested a run."
        add = self._dynamic.build_add_request(list(self._partitions)) if self._dynamic and self._partitions else None
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if requests else quiet,
            cursor=cursor,
            dynamic_partitions_requests=[add] if add else None,
            asset_events=self.asset_events,
        )


def _as_list(answer: object) -> Iterable[object]:
    """Return the answers; a single one may be a tuple, as some of Dagster's types are."""
    if answer is None:
        return ()
    if isinstance(answer, Iterable) and not isinstance(answer, (*_SINGLES, str)):
        return answer
    return (answer,)


def _with_origin(answer: AssetEvent, event: QueueEvent, partition: str | None) -> AssetEvent:
    """Add the event's id and job to an asset event, which repeats if Dagster is killed before it saves the cursor."""
    origin = {_OURS + "event_id": event.id, _OURS + "queue": event.queue, _OURS + "job_id": event.job_id}
    if isinstance(answer, dg.AssetCheckEvaluation):
        return answer.with_metadata({**answer.metadata, **origin})
    marked = answer.with_metadata({**answer.metadata, **origin})
    if partition is not None and marked.partition is None:
        marked = marked._replace(partition=partition)
    return marked
