"""Sensors for queues: their events, flows, dead letters, backlogs and health, and the sweep of lost jobs and runs."""

from __future__ import annotations

from orchestration_queue.dagster.sensors.backlog import Limits, backlog_sensor
from orchestration_queue.dagster.sensors.dead_letters import DeadLetterReaction, ReplayBudget, dead_letter_sensor
from orchestration_queue.dagster.sensors.events import queue_event_sensor
from orchestration_queue.dagster.sensors.flows import FlowReaction, flow_completed_sensor, flow_sensor
from orchestration_queue.dagster.sensors.health import health_sensor, queue_health_checks
from orchestration_queue.dagster.sensors.sweeps import sweep_sensor
from orchestration_queue.dagster.sensors.ticks import Answer, Partition, QueueEvent, Reaction, request_run

__all__ = [
    "Answer",
    "DeadLetterReaction",
    "FlowReaction",
    "Limits",
    "Partition",
    "QueueEvent",
    "Reaction",
    "ReplayBudget",
    "backlog_sensor",
    "dead_letter_sensor",
    "flow_completed_sensor",
    "flow_sensor",
    "health_sensor",
    "queue_event_sensor",
    "queue_health_checks",
    "request_run",
    "sweep_sensor",
]
