"""Components: assets, sensors and schedulers of the queue, written in YAML and scaffolded by ``dg``."""

from orchestration_queue.dagster.components.flow import FlowNodeModel, QueueFlowComponent, QueueTaskComponent
from orchestration_queue.dagster.components.queue import (
    QueueEventSensorComponent,
    QueueResourceComponent,
    QueueSchedulersComponent,
    SchedulerSpec,
)

__all__ = [
    "FlowNodeModel",
    "QueueEventSensorComponent",
    "QueueFlowComponent",
    "QueueResourceComponent",
    "QueueSchedulersComponent",
    "QueueTaskComponent",
    "SchedulerSpec",
]
