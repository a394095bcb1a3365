"""Dagster on the queue: assets that workers make, sensors that listen, and the queue as a resource."""

from orchestration_queue.dagster.assets import Arguments, AssetTask, queue_flow_assets, queue_task_asset
from orchestration_queue.dagster.resources import QueueResource
from orchestration_queue.dagster.sensors import Reaction, flow_completed_sensor, queue_event_sensor

__all__ = [
    "Arguments",
    "AssetTask",
    "QueueResource",
    "Reaction",
    "flow_completed_sensor",
    "queue_event_sensor",
    "queue_flow_assets",
    "queue_task_asset",
]
