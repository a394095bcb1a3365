"""Workers for Dagster: each step or run in a process of its own, warm and isolated."""

from orchestration_queue.dagster.stepping.hosts import Recycling
from orchestration_queue.dagster.stepping.location import CodeLocation
from orchestration_queue.dagster.stepping.worker import DagsterWorker

__all__ = ["CodeLocation", "DagsterWorker", "Recycling"]
