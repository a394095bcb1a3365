"""A sensor that requests no runs: it repairs what launchers and runs that died halfway left behind."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import dagster as dg

from orchestration_queue.dagster.checks import checked
from orchestration_queue.dagster.runs.launcher import QueueRunLauncher
from orchestration_queue.dagster.runs.sweep import GRACE, sweep
from orchestration_queue.dagster.sensors.options import checked_queues, sensor_name
from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options.durations import Duration, checked_duration

__all__ = ["EVERY", "sweep_sensor"]

EVERY = timedelta(minutes=10)
"""How often queues are swept by default."""
_EARLY = 0.9
"""The next turn comes a little before the next tick, so that the tick does not miss it by a moment."""


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

    The jobs of runs that are over or deleted are stopped; queued runs that have lost their job get one; and runs whose
    job has ended without them fail. A run that lives is left alone, and so is what changed within ``grace``. Each
    queue is swept once in an interval, however many code locations and daemons have such a sensor. It needs an
    instance with a :class:`QueueRunLauncher`, whose queue is known, and skips on any other. Jobs of other instances
    that share the queue are left to them.

    Args:
        queue: Where steps run, which the launcher does not know: one queue, or several.
        interval: How often to sweep. Default ten minutes.
        grace: How long ago a run must have changed. Default a minute.
        name: The sensor's name; default made of the queues'.
        default_status: Whether the sensor runs without being switched on; unlike others, this one does.
        description: What the UI shows.

    Raises:
        InvalidOptionError: The interval is below a second, the grace below 0, or no queue is named.
        InvalidNameError: The wire cannot carry a queue's name.
    """
    queues = checked_queues(queue)
    checked(default_status, dg.DefaultSensorStatus, "default_status", optional=False)
    interval, grace = checked_duration(interval, "interval"), checked_duration(grace, "grace")
    if interval < timedelta(seconds=1) or grace < timedelta(0):
        raise InvalidOptionError(
            f"A sweep cannot come every {interval} or spare what changed {grace} ago; "
            "let interval be a second or more, and grace 0 or more."
        )

    @dg.sensor(
        name=sensor_name(name, "sweep_of", *queues),
        minimum_interval_seconds=round(interval.total_seconds()),
        default_status=default_status,
        description=description or f"Stops and wakes what was left behind in {', '.join(map(repr, queues))}.",
    )
    def left_behind(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        launcher = context.instance.run_launcher
        if not isinstance(launcher, QueueRunLauncher):
            return dg.SkipReason(f"This instance has a {type(launcher).__name__}, which leaves nothing on queues.")
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

    return left_behind
