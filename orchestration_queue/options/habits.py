"""What users of other queues write, and what it is here: data for the errors of unknown attributes and options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

__all__ = ["JOB_HABITS", "OPTION_HABITS", "QUEUE_HABITS", "TASK_HABITS", "advise", "option_advice"]

_ADD = "{task}.add(...)"
_OPTIONS = "{task}.with_options(JobOptions(...)).add(...)"

TASK_HABITS = {
    # Celery
    "delay": _ADD,
    "apply_async": _OPTIONS,
    "apply": "{task}(...)",
    "s": "{task}.node('name')(...) in a Dag",
    "si": "{task}.node('name')(...) in a Dag",
    "signature": "{task}.node('name')(...) in a Dag",
    "chunks": "{task}.add_bulk({task}.job(...) for ...)",
    "retry": "an exception, with JobOptions(attempts=..., backoff=...) for the task",
    # dramatiq
    "send": _ADD,
    "send_with_options": _OPTIONS,
    "message": "{task}.job(...)",
    "fn": "{task}.function",
    # Prefect, Airflow, Dask
    "submit": _ADD,
    "expand": "{task}.map('name', over=..., as_=...) in a Dag",
    "partial": "{task}.node('name')(...) in a Dag",
    "override": "{task}.with_options(JobOptions(...))",
    "set_upstream": "{task}.node('name', deps=[...])(...) in a Dag",
    "set_downstream": "{task}.node('name', deps=[...])(...) in a Dag",
    # RQ, Huey
    "enqueue": _ADD,
    "schedule": "{task}.with_options(JobOptions(delay=...)).add(...)",
    "call_local": "{task}(...)",
}
"""By attribute of a task, what to write."""

QUEUE_HABITS = {
    # RQ
    "enqueue": "queue.add('name', data), or task.add(...)",
    "enqueue_call": "queue.add('name', data), or task.add(...)",
    "enqueue_in": "queue.add('name', data, JobOptions(delay=...))",
    "enqueue_at": "queue.add('name', data, JobOptions(delay_until=...))",
    "enqueue_many": "queue.add_bulk([NewJob(...), ...])",
    "fetch_job": "queue.get(job_id)",
    "empty": "queue.drain()",
    "job": "Tasks(queue=...) and @tasks.task",
    # BullMQ and Bull
    "addBulk": "queue.add_bulk([NewJob(...), ...])",
    "getJob": "queue.get(job_id)",
    "getJobs": "queue.jobs(...)",
    "getJobCounts": "queue.counts()",
    "upsertJobScheduler": "queue.schedulers.upsert(...)",
    "process": "Worker(queue, handler).run(), or `oq worker`",
    "retryJobs": "queue.retry_jobs()",
    "send_task": "queue.add('name', data)",
}
"""By attribute of a queue, what to write."""

JOB_HABITS = {
    "get": "job.wait(timeout)",
    "ready": "job.read_state()",
    "successful": "job.read_state()",
    "revoke": "job.cancel()",
    "get_result": "job.wait(timeout)",
    "return_value": "job.wait(timeout)",
    "get_status": "job.read_state()",
    "waitUntilFinished": "job.wait(timeout)",
    "updateProgress": "job.update_progress(...)",
}
"""By attribute of a job, what to write."""

OPTION_HABITS = {
    # Celery, dramatiq
    "max_retries": "attempts, which counts the first run, too",
    "retries": "attempts, which counts the first run, too",
    "retry_backoff": "backoff",
    "default_retry_delay": "backoff",
    "retry_delay": "backoff",
    "min_backoff": "backoff",
    "time_limit": "timeout",
    "soft_time_limit": "timeout",
    "countdown": "delay",
    "eta": "delay_until",
    "expires": "ttl",
    "max_age": "ttl",
    "task_id": "job_id",
    "ignore_result": "remove_on_complete",
    # RQ
    "job_timeout": "timeout",
    "result_ttl": "remove_on_complete",
    "failure_ttl": "remove_on_fail",
    "retry": "attempts",
    # Airflow, Prefect
    "execution_timeout": "timeout",
    "timeout_seconds": "timeout",
    "retry_delay_seconds": "backoff",
    "priority_weight": "priority",
    "pool": "pools",
}
"""By name of an option elsewhere, its name here."""


def option_advice(word: str, known: Mapping[str, Any]) -> str | None:
    """Return the quoted option that other queues call by this name, also in camel case; None without one."""
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in word)
    found = OPTION_HABITS.get(snake, snake)
    name, comma, note = found.partition(",")
    return f"{name!r}{comma}{note}" if name in known and name != word else None


def advise(table: Mapping[str, str]) -> Callable[[Any, str], NoReturn]:
    """Return a ``__getattr__`` that says what to write in place of an attribute that a class lacks.

    Define it where type checkers don't see it, or no wrong attribute would be an error to them.
    """

    def refuse(self: Any, name: str) -> NoReturn:
        kind = type(self).__name__
        message = f"{kind!r} object has no attribute {name!r}"
        if name in table:
            own = self.__dict__.get("name", "task")
            raise AttributeError(f"{message}; write `{table[name].format(task=own)}`.")
        raise AttributeError(message, name=name, obj=self)

    return refuse
