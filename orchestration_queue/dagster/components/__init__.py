"""Components: assets, sensors and schedulers of the queue, written in YAML and scaffolded by ``dg``."""

from orchestration_queue.dagster.components.events import QueueEventSensorComponent
from orchestration_queue.dagster.components.flow import FlowNode, QueueFlowComponent, QueueTaskComponent
from orchestration_queue.dagster.components.resource import QueueResourceComponent
from orchestration_queue.dagster.components.schedulers import QueueSchedulersComponent, SchedulerSpec

__all__ = [
    "FlowNode",
    "QueueEventSensorComponent",
    "QueueFlowComponent",
    "QueueResourceComponent",
    "QueueSchedulersComponent",
    "QueueTaskComponent",
    "SchedulerSpec",
]
