"""What a sensor's function asks for, gathered into what Dagster takes from one tick."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import dagster as dg

from orchestration_queue.dagster.resources import QueueResource
from orchestration_queue.dagster.sensors.listening import QueueEvent
from orchestration_queue.errors import UsageError

__all__ = ["Answer", "Answers", "AssetEvent", "Partition", "Reaction", "request_run"]

AssetEvent: TypeAlias = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation
"""What a sensor tells of an asset, without a run."""
Answer: TypeAlias = dg.RunRequest | AssetEvent
Reaction: TypeAlias = Callable[[QueueEvent, QueueResource], Answer | Iterable[Answer] | None]
"""What to do for one event: a run request, an asset event, several of them, or nothing."""
Partition: TypeAlias = Callable[[QueueEvent], str | None]
"""The partition that an event is about; None for none."""

_SINGLES = (dg.RunRequest, dg.AssetMaterialization, dg.AssetObservation, dg.AssetCheckEvaluation)
_OURS = "orchestration_queue/"


def request_run(event: QueueEvent, _resource: QueueResource) -> dg.RunRequest:
    """Request a run for each event, with the event's type, queue and job as tags."""
    return dg.RunRequest(
        tags={_OURS + "event": event.type, _OURS + "source_queue": event.queue, _OURS + "job_id": event.job_id}
    )


class Answers:
    """What the events of one tick ask for.

    Args:
        sensor: The sensor's name, for what goes wrong.
        is_alone: Whether there is one queue only, so that an event's id says it all.
        partition: The partition of an event.
        dynamic: The partitions to which new ones are added.
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
        """Note what an event asks for.

        Raises:
            UsageError: Dagster knows no such answer.
        """
        answers = [self._checked(one, event) for one in _listed(answer)]
        key = self._partition(event) if self._partition else None
        if key is not None and answers and self._dynamic is not None:
            self._partitions[key] = None
        keyless = 0
        for one in answers:
            if isinstance(one, dg.RunRequest):
                keyless += not one.run_key
                self._request(one, self._run_key(event, keyless), key)
            else:
                self.asset_events.append(_told(one, event, key))

    def _checked(self, answer: object, event: QueueEvent) -> Answer:
        if isinstance(answer, _SINGLES):
            return answer
        raise UsageError(
            f"Sensor {self._sensor!r} returned {type(answer).__name__} for event {event.id}; return run "
            "requests, asset materializations, observations or check evaluations, or None."
        )

    def _run_key(self, event: QueueEvent, number: int) -> str:
        """Return the event's place, so that no event fires twice; a second run of one event has its own key."""
        base = event.id if self._is_alone else f"{event.queue}:{event.id}"
        return base if number <= 1 else f"{base}:{number}"

    def _request(self, request: dg.RunRequest, run_key: str, partition: str | None) -> None:
        keyed = request if request.run_key else request.with_replaced_attrs(run_key=run_key)
        if partition is not None and keyed.partition_key is None:
            keyed = keyed.with_replaced_attrs(partition_key=partition)
        self._requests.setdefault(keyed.run_key or "", keyed)

    def result(self, cursor: str, quiet: str) -> dg.SensorResult:
        """Return all requests, and the next cursor; without runs, Dagster requires a reason."""
        requests = list(self._requests.values())
        if self.asset_events:
            quiet = f"{len(self.asset_events)} asset events were reported, and no event asks for a run."
        add = self._dynamic.build_add_request(list(self._partitions)) if self._dynamic and self._partitions else None
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if requests else quiet,
            cursor=cursor,
            dynamic_partitions_requests=[add] if add else None,
            asset_events=self.asset_events,
        )


def _listed(answer: object) -> Iterable[object]:
    """One answer or many, as many; some of Dagster's are tuples."""
    if answer is None:
        return ()
    if isinstance(answer, Iterable) and not isinstance(answer, (*_SINGLES, str)):
        return answer
    return (answer,)


def _told(told: AssetEvent, event: QueueEvent, partition: str | None) -> AssetEvent:
    """Add its origin to an asset event: it comes again if Dagster is killed before it saves the cursor."""
    origin = {_OURS + "event_id": event.id, _OURS + "queue": event.queue, _OURS + "job_id": event.job_id}
    if isinstance(told, dg.AssetCheckEvaluation):
        return told.with_metadata({**told.metadata, **origin})
    marked = told.with_metadata({**told.metadata, **origin})
    if partition is not None and marked.partition is None:
        marked = marked._replace(partition=partition)
    return marked
