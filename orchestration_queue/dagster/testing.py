"""Tools for testing definitions on a queue: a real instance, the queue as a resource, and ticks of sensors.

In a ``conftest.py``, ``pytest_plugins = ["orchestration_queue.dagster.testing"]`` adds the fixtures
``oq_dagster_instance`` and ``oq_resource`` to those of the package: ``oq_server``, ``oq_queue`` and ``oq_worker`` (see
docs/how-to/test-your-pipelines.md).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from orchestration_queue._extras import named_extra

with named_extra():
    import dagster as dg
    import pytest

    from orchestration_queue.dagster.resources import QueueResource
    from orchestration_queue.dagster.sensors.ticks import AssetEvent

__all__ = ["SensorTick", "evaluate_sensor", "oq_dagster_instance", "oq_resource", "queue_resource"]


@pytest.fixture
def oq_dagster_instance() -> Iterator[dg.DagsterInstance]:
    """Create a real Dagster instance in a temporary directory, which is removed after the test."""
    with dg.instance_for_test() as instance:
        yield instance


@pytest.fixture
def oq_resource(oq_server: str) -> Iterator[QueueResource]:
    """Open the queue's server as a resource."""
    with queue_resource(oq_server) as resource:
        yield resource


@contextmanager
def queue_resource(url: str) -> Iterator[QueueResource]:
    """Open a resource outside a run or tick; disconnect when the context ends."""
    resource = QueueResource(url=url)
    try:
        yield resource
    finally:
        resource.close()


@dataclass(frozen=True, slots=True)
class SensorTick:
    """The result of one tick of a sensor.

    Attributes:
        run_requests: The requested runs.
        asset_events: The reported asset events.
        partitions: The keys of the added dynamic partitions.
        cursor: The cursor of the next tick.
        skip_message: Why there is no run; None if there is one.
        log: The logged lines.
    """

    run_requests: Sequence[dg.RunRequest]
    asset_events: Sequence[AssetEvent]
    partitions: Sequence[str]
    cursor: str | None
    skip_message: str | None
    log: Sequence[str]


def evaluate_sensor(
    sensor: dg.SensorDefinition,
    resources: Mapping[str, object],
    *,
    cursor: str | None = None,
    instance: dg.DagsterInstance | None = None,
    definitions: dg.Definitions | None = None,
) -> SensorTick:
    """Evaluate a sensor once, as the daemon would; no runs are started and no asset events are written.

    Args:
        sensor: The sensor.
        resources: The sensor's resources, by key.
        cursor: The cursor; None for the first tick.
        instance: The instance to read; needed for dynamic partitions.
        definitions: The definitions of the sensor; needed for partitioned assets.

    Raises:
        Exception: The sensor's exception; the daemon would keep the cursor and retry.
    """
    lines = _LogCapture()
    with dg.build_sensor_context(
        cursor=cursor,
        resources=dict(resources),
        definitions=definitions,
        instance_ref=instance.get_ref() if instance else None,
    ) as context:
        context.log.addHandler(lines)
        result = sensor.evaluate_tick(context)
    return SensorTick(
        run_requests=tuple(result.run_requests or ()),
        asset_events=tuple(result.asset_events),
        partitions=tuple(key for request in result.dynamic_partitions_requests or () for key in request.partition_keys),
        cursor=result.cursor,
        skip_message=result.skip_message,
        log=tuple(lines.seen),
    )


class _LogCapture(logging.Handler):
    """Captures the lines that a tick logs; pytest does not, because Dagster's logger of a tick has no parent."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(record.getMessage())
