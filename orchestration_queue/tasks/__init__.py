"""Functions as tasks: a job's name selects the function, its data become the arguments, with types checked."""

from orchestration_queue.tasks.clients import AsyncTaskJob, TaskJob
from orchestration_queue.tasks.depends import Depends, RunningJob, current_job
from orchestration_queue.tasks.logs import JobFields, JobLogs, JsonLines
from orchestration_queue.tasks.registry import Tasks
from orchestration_queue.tasks.task import AsyncTask, Isolation, Task

__all__ = [
    "AsyncTask",
    "AsyncTaskJob",
    "Depends",
    "Isolation",
    "JobFields",
    "JobLogs",
    "JsonLines",
    "RunningJob",
    "Task",
    "TaskJob",
    "Tasks",
    "current_job",
]
