"""Airflow's provider for queues: a connection type and its hook, operators, triggers, sensors, and asset events.

The names below are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestration_queue._lazy import lazy_names

if TYPE_CHECKING:
    from orchestration_queue.airflow.provider.event_triggers import QueueEventTrigger
    from orchestration_queue.airflow.provider.hook import QueueHook
    from orchestration_queue.airflow.provider.operators import AddFlowOperator, AddJobOperator
    from orchestration_queue.airflow.provider.sensors import JobSensor, QueueEventSensor
    from orchestration_queue.airflow.provider.spark import QueueSparkSubmitOperator
    from orchestration_queue.airflow.provider.triggers import FlowTrigger, JobTrigger

__all__ = [
    "AddFlowOperator",
    "AddJobOperator",
    "FlowTrigger",
    "JobSensor",
    "JobTrigger",
    "QueueEventSensor",
    "QueueEventTrigger",
    "QueueHook",
    "QueueSparkSubmitOperator",
]

_HOMES = {
    "event_triggers": "QueueEventTrigger",
    "hook": "QueueHook",
    "operators": "AddFlowOperator AddJobOperator",
    "sensors": "JobSensor QueueEventSensor",
    "spark": "QueueSparkSubmitOperator",
    "triggers": "FlowTrigger JobTrigger",
}
__getattr__, __dir__ = lazy_names(
    __name__, {name: f"airflow.provider.{home}" for home, names in _HOMES.items() for name in names.split()}
)
