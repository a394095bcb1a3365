"""Workers for Dagster: each step or run in a separate process that has the code loaded."""

from orchestration_queue.dagster.steps.code_location import CodeLocation
from orchestration_queue.dagster.steps.worker import DagsterWorker
from orchestration_queue.worker.forks.fork_pool import Recycling

__all__ = ["CodeLocation", "DagsterWorker", "Recycling"]
