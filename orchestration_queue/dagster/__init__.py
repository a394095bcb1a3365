"""Dagster on the queue: run steps and assets on workers, react to events with sensors, use queues as resources.

The names below are loaded on first use: a machine that only reports to Dagster needs no Dagster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestration_queue._lazy import lazy_names

if TYPE_CHECKING:
    from orchestration_queue.dagster.assets.task_assets import (
        Arguments,
        AssetTask,
        queue_asset,
        queue_flow_assets,
        queue_task_asset,
    )
    from orchestration_queue.dagster.definitions import build_queue_definitions
    from orchestration_queue.dagster.resources import FlowResource, JobSchedulerResource, QueueResource
    from orchestration_queue.dagster.runs.coordinator import QueueRunCoordinator
    from orchestration_queue.dagster.runs.launcher import QueueRunLauncher
    from orchestration_queue.dagster.schedules import queue_schedules, scheduler_sensor
    from orchestration_queue.dagster.sensors import (
        Limits,
        QueueEvent,
        Reaction,
        ReplayBudget,
        backlog_sensor,
        dead_letter_sensor,
        flow_completed_sensor,
        flow_sensor,
        health_sensor,
        queue_event_sensor,
        queue_health_checks,
        request_run,
        sweep_sensor,
    )
    from orchestration_queue.dagster.steps import CodeLocation, DagsterWorker
    from orchestration_queue.dagster.steps.executor import QueueExecutor, queue_executor

__all__ = [
    "Arguments",
    "AssetTask",
    "CodeLocation",
    "DagsterWorker",
    "FlowResource",
    "JobSchedulerResource",
    "Limits",
    "QueueEvent",
    "QueueExecutor",
    "QueueResource",
    "QueueRunCoordinator",
    "QueueRunLauncher",
    "Reaction",
    "ReplayBudget",
    "backlog_sensor",
    "build_queue_definitions",
    "dead_letter_sensor",
    "flow_completed_sensor",
    "flow_sensor",
    "health_sensor",
    "queue_asset",
    "queue_event_sensor",
    "queue_executor",
    "queue_flow_assets",
    "queue_health_checks",
    "queue_schedules",
    "queue_task_asset",
    "request_run",
    "scheduler_sensor",
    "sweep_sensor",
]

_HOMES = {
    "assets.task_assets": "Arguments AssetTask queue_asset queue_flow_assets queue_task_asset",
    "runs.coordinator": "QueueRunCoordinator",
    "definitions": "build_queue_definitions",
    "steps.executor": "QueueExecutor queue_executor",
    "runs.launcher": "QueueRunLauncher",
    "resources": "FlowResource JobSchedulerResource QueueResource",
    "schedules": "queue_schedules scheduler_sensor",
    "sensors": (
        "Limits QueueEvent Reaction ReplayBudget backlog_sensor dead_letter_sensor "
        "flow_completed_sensor flow_sensor health_sensor queue_event_sensor queue_health_checks request_run "
        "sweep_sensor"
    ),
    "steps": "CodeLocation DagsterWorker",
}
__getattr__, __dir__ = lazy_names(
    __name__, {name: f"dagster.{home}" for home, names in _HOMES.items() for name in names.split()}
)
