"""A sensor for a queue's dead letters: replays them within its budget, and requests a run for each of the others."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias, Unpack

import dagster as dg

from orchestration_queue._text import clean
from orchestration_queue.client import DeadLetter, DeadLetters
from orchestration_queue.dagster._compat import RunTarget
from orchestration_queue.dagster.checks import check_asset, check_function, check_number, check_target, checked
from orchestration_queue.dagster.resources import QueueResource
from orchestration_queue.dagster.sensors.options import SensorOptions, Shown, Start, sensor_name
from orchestration_queue.dagster.sensors.ticks import Answer, AssetEvent, read_object
from orchestration_queue.errors import InvalidOptionError, JobNotFoundError
from orchestration_queue.options import Duration, milliseconds, seconds
from orchestration_queue.options.durations import check_duration
from orchestration_queue.protocol.call import integer
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import dead_letters, queue_settings
from orchestration_queue.protocol.operations.job_output import is_position
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server.clock import now_ms

__all__ = ["DeadLetterReaction", "ReplayBudget", "dead_letter_sensor"]

DeadLetterReaction: TypeAlias = Callable[[DeadLetter, QueueResource], Answer | None]
"""A function that answers a dead letter with a run request, an asset event, or nothing."""

_BEGINNING = "0"
_OURS = "orchestration_queue/"


@dataclass(frozen=True, slots=True)
class ReplayBudget:
    """How many dead letters a sensor may replay.

    Attributes:
        most: Maximum replays within each ``window``; all others become alerts.
        window: Any period of this length.
        where: Replay only dead letters for which this returns true; default: all.

    Raises:
        InvalidOptionError: ``most`` is below 1, or the window is not above 0.
    """

    most: int
    window: Duration = timedelta(hours=1)
    where: Callable[[DeadLetter], bool] | None = None

    def __post_init__(self) -> None:
        check_number(self.most, "most")
        check_function(self.where, "where")
        if self.most < 1 or check_duration(self.window, "window") <= timedelta(0):
            raise InvalidOptionError(
                f"`most` and `window` must be > 0, got {self.most} and {seconds(self.window):g} s; pass replay=None "
                "for no replays."
            )


def _load(cursor: str | None) -> str | None:
    """Return the position of the last dead letter read; None before the first read."""
    after = read_object(cursor).get("after") if cursor else None
    return after if isinstance(after, str) and is_position(after) else None


def dead_letter_sensor(
    queue: str,
    *,
    job: RunTarget | None = None,
    asset: dg.AssetKey | str | None = None,
    name: str | None = None,
    react: DeadLetterReaction | None = None,
    replay: ReplayBudget | None = None,
    dead_letter_queue: str | None = None,
    start: Start = "oldest",
    interval: Duration = timedelta(seconds=30),
    **options: Unpack[SensorOptions],
) -> dg.SensorDefinition:
    """Build a sensor that requests one run for each job that failed for good and left a dead letter.

    It reads the dead letters, not events, so it misses none, no matter how long the daemon is down. Its cursor, which
    is also the run key, is the last dead letter's position. Each tick reads up to 200 dead letters, and takes two
    exchanges if there are none.

    With a ``replay`` budget, it replays dead letters instead while the budget lasts, and reports those that it can't
    replay. So a job that always fails is replayed until the budget is used up, and then reported. The queue's server
    stores the count by the sensor's name, and counts a dead letter before it is replayed: even if a tick is killed, no
    replay is missed, and no dead letter is replayed twice. A replay takes three exchanges and the count one.

    Args:
        queue: The queue in which jobs fail.
        job: The target of its runs: a job, or an asset selection.
        asset: The asset that gets an observation for each dead letter, instead of a run; pass this or ``job``.
        name: The sensor's name; default: derived from the queue's.
        react: What to do for a dead letter; default: a run with its name and reason as tags, or the observation.
        replay: How many dead letters may be replayed; None for none.
        dead_letter_queue: The queue of dead letters; default: the one that the workers configured.
        start: Where to begin without a cursor: at the ``oldest`` dead letter, or at those that arrive from ``now`` on.
        interval: Minimum time between two ticks.
        options: ``resource_key``, ``default_status``, ``description``, see :class:`Shown`.

    Raises:
        InvalidOptionError: An option is out of range, both queues are the same, or not exactly one of ``job`` and
            ``asset`` is given.
        InvalidNameError: A queue's name is invalid.
    """
    shown = Shown(**options)
    check_target(job, optional=True)
    check_function(react, "react")
    checked(replay, ReplayBudget, "replay")
    interval = check_duration(interval, "interval")
    QueueKeys(queue)
    if dead_letter_queue is not None:
        QueueKeys(dead_letter_queue)
    if dead_letter_queue == queue or start not in ("now", "oldest") or interval < timedelta(seconds=1):
        raise InvalidOptionError(
            f"`dead_letter_queue` must differ from {queue!r}, `start` be 'now' or 'oldest' and `interval` >= 1 s, got "
            f"{dead_letter_queue!r}, {start!r} and {interval}."
        )

    if (job is None) == (asset is None):
        raise InvalidOptionError("Exactly one of `job` and `asset` must be given; pass one.")
    default_react = _request_run if asset is None else _observation_of(check_asset(asset))
    called = sensor_name(name, "dead_letters_of", queue)

    @dg.sensor(
        name=called,
        target=job,
        minimum_interval_seconds=round(interval.total_seconds()),
        default_status=shown.default_status,
        required_resource_keys={shown.resource_key},
        description=shown.description or f"Requests a run for each dead letter of queue {queue!r}.",
    )
    def letters(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        resource: QueueResource = getattr(context.resources, shown.resource_key)
        reader = _LetterReader(resource, queue, dead_letter_queue, replay, called)
        return _tick(context, reader, start, react or default_react)

    return letters


def _request_run(letter: DeadLetter, _resource: QueueResource) -> dg.RunRequest:
    return dg.RunRequest(tags={_OURS + "job_name": letter.name, _OURS + "failed_reason": letter.failed_reason[:200]})


def _observation_of(asset: dg.AssetKey) -> DeadLetterReaction:
    def observe(letter: DeadLetter, _resource: QueueResource) -> dg.AssetObservation:
        metadata = {_OURS + "job_name": letter.name, _OURS + "failed_reason": letter.failed_reason}
        what = f"Job {letter.original_job_id} of queue {letter.original_queue} failed for good: {letter.failed_reason}"
        return dg.AssetObservation(asset_key=asset, description=what, metadata=metadata)

    return observe


class _LetterReader:
    """The dead letters of one queue, and their replays within the budget.

    Attributes:
        replayed: The number of replays in this tick.
    """

    def __init__(
        self, resource: QueueResource, queue: str, letters_queue: str | None, budget: ReplayBudget | None, sensor: str
    ) -> None:
        self.resource = resource
        self.queue = queue
        self._owner = QueueKeys(queue, resource.prefix)
        self._letters_queue = letters_queue
        self._budget = budget
        self._counted = dead_letters.replay_count(self._owner, sensor)
        self._is_spent = False
        self.replayed = 0

    def place(self) -> QueueKeys | None:
        """Find the dead-letter queue; None until it is configured."""
        stored = self._letters_queue or self.resource.connection.run(
            queue_settings.stored_dead_letter_queue(self._owner), repeatable=True
        )
        return QueueKeys(stored, self.resource.prefix) if stored else None

    def replay(self, keys: QueueKeys, letter: DeadLetter, record: JobRecord) -> bool:
        """Replay a dead letter if the budget allows it; return whether this or another process has replayed it."""
        budget = self._budget
        if budget is None or self._is_spent or (budget.where and not budget.where(letter)):
            return False
        if not self._may_replay(budget, dead_letters.replay_id(keys.queue, record)):
            self._is_spent = True
            return False
        found = DeadLetters(
            self.queue, self._letters_queue, connection=self.resource.connection, prefix=self.resource.prefix
        )
        try:
            found.replay(letter.id)
        except JobNotFoundError:
            return True
        self.replayed += 1
        return True

    def _may_replay(self, budget: ReplayBudget, letter: str) -> bool:
        """Count a replay before it happens, so that a crash cannot skip it. One exchange; two if it is rejected."""
        calls = dead_letters.count_replay(self._counted, letter, milliseconds(budget.window), now_ms())
        *_, count = self.resource.connection.pipeline(calls, atomic=True, repeatable=True)
        if integer(count) <= budget.most:
            return True
        self.resource.connection.execute(dead_letters.uncount_replay(self._counted, letter), repeatable=True)
        return False


def _tick(
    context: dg.SensorEvaluationContext, reader: _LetterReader, start: Start, react: DeadLetterReaction
) -> dg.SensorResult:
    after, keys = _load(context.cursor), reader.place()
    if keys is None:
        return dg.SensorResult(skip_reason=f"No worker of queue {reader.queue} has configured a dead-letter queue.")
    if after is None and start == "now":
        after = reader.resource.connection.follow(dead_letters.last_entry(keys))
    page = reader.resource.connection.follow(dead_letters.dead_letter_page(keys, reader.queue, after or _BEGINNING))
    requests: list[dg.RunRequest] = []
    events: list[AssetEvent] = []
    for letter, record, entry in zip(page.letters, page.records, page.entries, strict=True):
        if reader.replay(keys, letter, record):
            why = clean(letter.failed_reason)
            context.log.info(f"Replayed job {clean(letter.original_job_id)} of queue {reader.queue}: {why}")
        elif isinstance(answer := react(letter, reader.resource), dg.RunRequest):
            requests.append(_complete_request(answer, letter, entry))
        elif answer is not None:
            events.append(answer.with_metadata({**_origin(letter), **answer.metadata}))
    last = page.after or (page.entries[-1] if page.entries else after)
    quiet = f"Replayed {reader.replayed} of {len(page.letters)} new dead letters; no run is needed."
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else quiet,
        cursor=json.dumps({"after": last}),
        asset_events=events,
    )


def _complete_request(request: dg.RunRequest, letter: DeadLetter, entry: str) -> dg.RunRequest:
    return request.with_replaced_attrs(run_key=request.run_key or entry, tags={**_origin(letter), **request.tags})


def _origin(letter: DeadLetter) -> dict[str, str]:
    return {
        _OURS + "source_queue": letter.original_queue,
        _OURS + "job_id": letter.original_job_id,
        _OURS + "dead_letter": letter.id,
    }
