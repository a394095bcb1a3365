"""A sensor that cleans up after launchers and runs that died, and requests no runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import dagster as dg

from orchestration_queue.dagster.checks import checked
from orchestration_queue.dagster.runs.launcher import QueueRunLauncher
from orchestration_queue.dagster.runs.sweep import GRACE, sweep
from orchestration_queue.dagster.sensors.options import check_queues, sensor_name
from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options.durations import Duration, check_duration

__all__ = ["EVERY", "sweep_sensor"]

EVERY = timedelta(minutes=10)
"""How often queues are swept by default."""
_EARLY = 0.9
"""The fraction of the interval after which a queue may be swept again, so that no tick is slightly too early."""


def sweep_sensor(
    queue: str | Sequence[str] = "dagster",
    *,
    interval: Duration = EVERY,
    grace: Duration = GRACE,
    name: str | None = None,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.RUNNING,
    description: str | None = None,
) -> dg.SensorDefinition:
    """Build a sensor that does what ``oq dagster sweep`` does.

    It stops the jobs of runs that have ended or were deleted, adds a job for queued runs that have lost theirs, and
    fails runs whose job has ended without them. Running runs are left alone, and so are runs that changed within
    ``grace``. Each queue is swept once per interval, no matter how many code locations and daemons have such a sensor.
    It needs an instance with a :class:`QueueRunLauncher`, whose queue it knows, and skips on any other. Jobs of other
    instances that share the queue are left alone.

    Args:
        queue: The queues of steps, which the launcher doesn't know: one queue, or several.
        interval: How often to sweep. Default: ten minutes.
        grace: Minimum time since a run's last change. Default: one minute.
        name: The sensor's name; default: derived from the queues'.
        default_status: Whether the sensor runs without being switched on; unlike others, this one does.
        description: Text for the UI.

    Raises:
        InvalidOptionError: The interval is below a second, the grace below 0, or no queue is named.
        InvalidNameError: A queue's name is invalid.
    """
    queues = check_queues(queue)
    checked(default_status, dg.DefaultSensorStatus, "default_status", optional=False)
    interval, grace = check_duration(interval, "interval"), check_duration(grace, "grace")
    if interval < timedelta(seconds=1) or grace < timedelta(0):
        raise InvalidOptionError(f"`interval` must be >= 1 s and `grace` >= 0, got {interval} and {grace}.")

    @dg.sensor(
        name=sensor_name(name, "sweep_of", *queues),
        minimum_interval_seconds=round(interval.total_seconds()),
        default_status=default_status,
        description=description or f"Cleans up lost jobs and runs of {', '.join(map(repr, queues))}.",
    )
    def clean_up(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        launcher = context.instance.run_launcher
        if not isinstance(launcher, QueueRunLauncher):
            return dg.SkipReason(f"This instance has a {type(launcher).__name__}, which doesn't use queues.")
        if not context.instance.run_monitoring_enabled:
            context.log.warning(
                "Run monitoring is off, so a run whose worker is lost stays STARTED; "
                "add `run_monitoring: {enabled: true}` to dagster.yaml."
            )
        swept = sweep(context.instance, queues, grace, every=interval * _EARLY, patience=timedelta(0))
        for what, ids in (("Stopped", swept.stopped), ("Queued again", swept.queued), ("Failed", swept.failed)):
            for found in ids:
                context.log.info(f"{what}: {found}")
        return dg.SkipReason(str(swept))

    return clean_up
