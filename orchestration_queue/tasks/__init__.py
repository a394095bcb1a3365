"""Functions as tasks: a job's name finds the function, its data become the arguments."""

from orchestration_queue.tasks.registry import Task, Tasks

__all__ = ["Task", "Tasks"]
