"""Airflow on the queue: its tasks run as jobs on warm workers, and its DAGs use queues, jobs and flows.

The names below are loaded on first use: importing this package imports no Airflow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestration_queue._lazy import lazy_names

if TYPE_CHECKING:
    from orchestration_queue.airflow.executor import QueueExecutor
    from orchestration_queue.airflow.worker import AirflowWorker

__all__ = ["AirflowWorker", "QueueExecutor"]

_HOMES = {
    "executor": "QueueExecutor",
    "worker": "AirflowWorker",
}
__getattr__, __dir__ = lazy_names(
    __name__, {name: f"airflow.{home}" for home, names in _HOMES.items() for name in names.split()}
)
