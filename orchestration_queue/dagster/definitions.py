"""Build all definitions of one queue for a code location in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import dagster as dg

from orchestration_queue.dagster._compat import RunTarget
from orchestration_queue.dagster.assets.task_assets import AssetTask, queue_flow_assets
from orchestration_queue.dagster.checks import check_mapping
from orchestration_queue.dagster.resources import FlowResource, JobSchedulerResource, QueueResource
from orchestration_queue.dagster.schedules import Scheduled, queue_schedules, scheduler_sensor
from orchestration_queue.dagster.sensors import (
    Limits,
    ReplayBudget,
    backlog_sensor,
    dead_letter_sensor,
    flow_sensor,
    queue_event_sensor,
    request_run,
    sweep_sensor,
)
from orchestration_queue.dagster.sensors.options import default_name
from orchestration_queue.dagster.sensors.sweeps import EVERY
from orchestration_queue.errors import InvalidNameError, InvalidOptionError, UsageError
from orchestration_queue.options import Duration
from orchestration_queue.protocol.keys import DEFAULT_PREFIX, QueueKeys

__all__ = ["build_queue_definitions"]


def build_queue_definitions(
    queue: str,
    *,
    url: str | None = None,
    prefix: str = DEFAULT_PREFIX,
    flows: Mapping[str, Sequence[AssetTask]] | None = None,
    schedules: Mapping[str, Scheduled] | None = None,
    on_events: Mapping[str, RunTarget] | None = None,
    on_flows: Mapping[str, RunTarget] | None = None,
    on_schedulers: Mapping[str, RunTarget] | None = None,
    on_dead_letter: RunTarget | None = None,
    replay: ReplayBudget | None = None,
    on_backlog: tuple[Limits, RunTarget] | None = None,
    sweep: Duration | None = EVERY,
    running: bool = False,
) -> dg.Definitions:
    """Build the definitions for one queue: its resources, assets that its workers make, schedules, and sensors.

    Merge them with the definitions of the jobs and assets that the sensors run. For other options than the default
    ones, add :func:`queue_event_sensor` and other sensors yourself.

    Args:
        queue: The queue.
        url: The server; default ``dagster.EnvVar("OQ_URL")``. Pass a URL with a password as an ``EnvVar``, too.
        prefix: First part of every key.
        flows: Assets that are made together, by the name of their flow. Each also gets a job ``<name>_job``.
        schedules: Repeatable jobs of the queue that Dagster's daemon runs, see :func:`queue_schedules`.
        on_events: What to run for each event of a type, such as ``failed``.
        on_flows: What to run when a flow with that name has completed or failed.
        on_schedulers: What to run when one of the queue's own schedulers with that name runs.
        on_dead_letter: What to run for each job that failed for good.
        replay: How many dead letters to replay instead; needs ``on_dead_letter``.
        on_backlog: When the backlog is too long, and what to run then.
        sweep: How often to clean up after steps and runs whose workers died, see :func:`sweep_sensor`, which runs
            without being switched on; None for never. Default: ten minutes.
        running: Whether all other sensors and schedules run without being switched on.

    Returns:
        Definitions with the resources ``queue``, ``flows`` and ``schedulers``.

    Raises:
        UsageError: ``replay`` is given without ``on_dead_letter``, or an argument is invalid; see each part.
    """
    QueueKeys(queue)
    if replay is not None and on_dead_letter is None:
        raise UsageError(
            "`replay` needs `on_dead_letter`, which says what to run for dead letters that are not replayed; pass both."
        )
    for given, what in ((flows, "flows"), (schedules, "schedules")):
        check_mapping(given, what)
    for targets, what in ((on_events, "on_events"), (on_flows, "on_flows"), (on_schedulers, "on_schedulers")):
        check_mapping(targets, what)
    server = {"url": dg.EnvVar("OQ_URL") if url is None else url, "prefix": prefix}
    sensor_status = dg.DefaultSensorStatus.RUNNING if running else dg.DefaultSensorStatus.STOPPED
    sensors = [
        *(
            queue_event_sensor(
                request_run,
                queue=queue,
                job=job,
                name=default_name("events_of", queue, event),
                events=[event],
                default_status=sensor_status,
            )
            for event, job in (on_events or {}).items()
        ),
        *(
            flow_sensor(flow, queue=queue, job=job, default_status=sensor_status)
            for flow, job in (on_flows or {}).items()
        ),
        *(
            scheduler_sensor(queue, scheduler, job=job, default_status=sensor_status)
            for scheduler, job in (on_schedulers or {}).items()
        ),
    ]
    if on_dead_letter is not None:
        sensors.append(dead_letter_sensor(queue, job=on_dead_letter, replay=replay, default_status=sensor_status))
    if on_backlog is not None:
        limits, job = _pair(on_backlog)
        sensors.append(backlog_sensor(queue, job=job, limits=limits, default_status=sensor_status))
    if sweep is not None:
        sensors.append(sweep_sensor(queue, interval=sweep))
    own = dg.Definitions(
        sensors=sensors,
        resources={
            "queue": QueueResource(**server),
            "flows": FlowResource(**server),
            "schedulers": JobSchedulerResource(**server),
        },
    )
    parts = [own, *(_flow_definitions(name, queue, tasks) for name, tasks in (flows or {}).items())]
    if schedules:
        status = dg.DefaultScheduleStatus.RUNNING if running else dg.DefaultScheduleStatus.STOPPED
        parts.append(queue_schedules(queue, schedules, default_status=status))
    return dg.Definitions.merge(*parts)


def _pair(on_backlog: tuple[Limits, RunTarget]) -> tuple[Limits, RunTarget]:
    if isinstance(on_backlog, tuple) and len(on_backlog) == 2:
        return on_backlog
    raise InvalidOptionError(
        f"`on_backlog` must be a tuple of Limits and what to run, got {on_backlog!r}; "
        "pass `on_backlog=(Limits(depth=1000), job)`."
    )


def _flow_definitions(name: str, queue: str, tasks: Sequence[AssetTask]) -> dg.Definitions:
    """Build a flow's assets, and a job for all of them that runs in one process: the workers do the work."""
    if not (name.isascii() and name.isidentifier()):
        raise InvalidNameError(f"{name!r} is not a valid name for a flow of Dagster assets; use letters, digits and _.")
    assets = queue_flow_assets(tasks, name=name, queue=queue)
    job = dg.define_asset_job(f"{name}_job", dg.AssetSelection.assets(assets), executor_def=dg.in_process_executor)
    return dg.Definitions(assets=[assets], jobs=[job])
