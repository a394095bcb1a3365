"""The checks of ``oq doctor`` as Dagster asset checks, and a sensor that requests one run for each new problem."""

# No `from __future__ import annotations` here: Dagster reads the annotation of `context`, and a string fails.

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Unpack

import dagster as dg

from orchestration_queue.dagster._compat import RunTarget
from orchestration_queue.dagster.checks import check_asset, check_target, check_text
from orchestration_queue.dagster.resources import QueueResource
from orchestration_queue.dagster.sensors.options import SensorOptions, Shown, check_queues, default_name, sensor_name
from orchestration_queue.dagster.sensors.ticks import read_object
from orchestration_queue.doctor import Finding, Severity
from orchestration_queue.doctor.queue import QUEUE_CHECKS, InspectedQueue
from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options import Duration
from orchestration_queue.options.durations import check_duration
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.server.clock import now_ms

__all__ = ["health_sensor", "queue_health_checks"]

_OURS = "orchestration_queue/"
_CHECKS = {check.__name__: check for check in QUEUE_CHECKS}
_LONGEST_TAG = 200


def queue_health_checks(
    queue: str, *, asset: dg.AssetKey | str, resource_key: str = "queue"
) -> dg.AssetChecksDefinition:
    """Build asset checks for a queue's health, from the findings of ``oq doctor``.

    The checks are ``<queue>_workers``, ``<queue>_consumers``, ``<queue>_jobs``, ``<queue>_letters``,
    ``<queue>_schedules`` and ``<queue>_growth``, with characters other than letters and digits replaced by ``_``. A
    problem fails its check with severity ERROR, a hint with WARN. They run with the asset's jobs, from the UI, or in
    their own job; :func:`health_sensor` reports them without runs.

    Args:
        queue: The queue.
        asset: The asset that the checks belong to, as a key or as ``part/part``.
        resource_key: The :class:`QueueResource` among the definitions' resources.

    Raises:
        InvalidNameError: The queue's name is invalid.
    """
    QueueKeys(queue)
    key = check_asset(asset)
    check_text(resource_key, "resource_key")

    @dg.multi_asset_check(
        name=default_name("health_of", queue),
        specs=[
            dg.AssetCheckSpec(_check_name(queue, name), asset=key, description=check.__doc__)
            for name, check in _CHECKS.items()
        ],
        required_resource_keys={resource_key},
    )
    def health(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        for name, findings in _inspect(getattr(context.resources, resource_key), queue).items():
            yield dg.AssetCheckResult(
                passed=not findings,
                asset_key=key,
                check_name=_check_name(queue, name),
                severity=_severity(findings),
                description=_describe(findings),
            )

    return health


def health_sensor(
    queue: str | Sequence[str],
    *,
    job: RunTarget | None = None,
    asset: dg.AssetKey | str | None = None,
    name: str | None = None,
    interval: Duration = timedelta(minutes=1),
    **options: Unpack[SensorOptions],
) -> dg.SensorDefinition:
    """Build a sensor that checks queues as ``oq doctor`` does, to alert the person on call.

    It requests a run of ``job`` when a check of a queue finds a problem, and the next run for this check only after it
    has passed. Hints request no run. The run has the tags ``orchestration_queue/source_queue``,
    ``orchestration_queue/check``, ``orchestration_queue/finding`` and ``orchestration_queue/action``; a job that fails
    on purpose triggers Dagster's own alerts. With ``asset``, each tick also reports the checks of
    :func:`queue_health_checks`. An unreachable server fails the tick. A tick reads up to 10,000 jobs of each queue, in
    about 30 exchanges.

    Args:
        queue: The queue, or several.
        job: The target of its runs: a job, or an asset selection; None requests no runs.
        asset: The asset whose checks are reported; None reports none.
        name: The sensor's name; default: derived from the queues'.
        interval: Minimum time between two ticks.
        options: ``resource_key``, ``default_status``, ``description``, see :class:`Shown`.

    Raises:
        InvalidOptionError: An option is out of range, or neither ``job`` nor ``asset`` is given.
        InvalidNameError: A queue's name is invalid.
    """
    shown, queues = Shown(**options), check_queues(queue)
    check_target(job, optional=True)
    interval = check_duration(interval, "interval")
    if interval < timedelta(seconds=1):
        raise InvalidOptionError(f"`interval` must be at least 1 s, got {interval}; pass `interval=60`.")
    if job is None and asset is None:
        raise InvalidOptionError("`job` or `asset` is required, or problems would not be reported; pass one, or both.")
    key = None if asset is None else check_asset(asset)

    @dg.sensor(
        name=sensor_name(name, "health_of", *queues),
        target=job,
        minimum_interval_seconds=round(interval.total_seconds()),
        default_status=shown.default_status,
        required_resource_keys={shown.resource_key},
        description=shown.description or f"Reports findings of `oq doctor` for {', '.join(map(repr, queues))}.",
    )
    def health(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        resource: QueueResource = getattr(context.resources, shown.resource_key)
        raised = _load(context.cursor)
        found = {(one, name): findings for one in queues for name, findings in _inspect(resource, one).items()}
        open_ = {place: _problems(findings) for place, findings in found.items() if _problems(findings)}
        alarms = {_alarm(*place): raised.get(_alarm(*place), now_ms()) for place in open_}
        new = {place: problems for place, problems in open_.items() if _alarm(*place) not in raised}
        requests = [_request(*place, problems, alarms[_alarm(*place)]) for place, problems in new.items() if job]
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if requests else f"{len(open_)} checks find problems, {len(new)} of them new.",
            cursor=json.dumps(alarms),
            asset_events=[_evaluation(key, *place, findings) for place, findings in found.items()] if key else [],
        )

    return health


def _inspect(resource: QueueResource, queue: str) -> Mapping[str, Sequence[Finding]]:
    inspected = InspectedQueue(resource.queue(queue), resource.connection)
    return {name: tuple(check(inspected)) for name, check in _CHECKS.items()}


def _problems(findings: Sequence[Finding]) -> Sequence[Finding]:
    return [finding for finding in findings if finding.severity is Severity.PROBLEM]


def _alarm(queue: str, check: str) -> str:
    return f"{queue}/{check}"


def _load(cursor: str | None) -> Mapping[str, int]:
    """Return when each open alarm was raised, epoch ms."""
    stored = read_object(cursor) if cursor else {}
    return {alarm: since for alarm, since in stored.items() if isinstance(since, int)}


def _request(queue: str, check: str, problems: Sequence[Finding], since_ms: int) -> dg.RunRequest:
    tags = {"source_queue": queue, "check": check, "finding": problems[0].what, "action": problems[0].action}
    return dg.RunRequest(
        run_key=f"{_alarm(queue, check)}:{since_ms}",
        tags={_OURS + name: value[:_LONGEST_TAG] for name, value in tags.items()},
    )


def _evaluation(asset: dg.AssetKey, queue: str, check: str, findings: Sequence[Finding]) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=asset,
        check_name=_check_name(queue, check),
        passed=not findings,
        metadata={},
        severity=_severity(findings),
        description=_describe(findings),
    )


def _check_name(queue: str, check: str) -> str:
    return default_name("", queue, check).removeprefix("_")


def _severity(findings: Sequence[Finding]) -> dg.AssetCheckSeverity:
    return dg.AssetCheckSeverity.ERROR if _problems(findings) else dg.AssetCheckSeverity.WARN


def _describe(findings: Sequence[Finding]) -> str | None:
    return "\n".join(f"{one.what}: {one.why}. {one.action}" for one in findings) or None
