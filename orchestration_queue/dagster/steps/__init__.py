"""Workers for Dagster: each step or run in a separate process that has the code loaded."""

from orchestration_queue.dagster.steps.code_location import CodeLocation
from orchestration_queue.dagster.steps.fork_pool import Recycling
from orchestration_queue.dagster.steps.worker import DagsterWorker

__all__ = ["CodeLocation", "DagsterWorker", "Recycling"]
