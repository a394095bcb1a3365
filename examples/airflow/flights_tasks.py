"""The tasks that the DAGs of flights_dag.py add jobs for: ``oq worker flights_tasks:tasks``, in this directory."""

from __future__ import annotations

from orchestration_queue import Tasks

tasks = Tasks(queue="flights")


@tasks.task
def extract(day: str) -> dict[str, object]:
    """Return where a day's flights were put, and how many there are."""
    return {"path": f"/lake/flights/{day}", "rows": 842}


@tasks.task
def clean(path: str) -> str:
    """Return where the clean flights were put."""
    return f"{path}/clean"


@tasks.task
def load(path: str) -> dict[str, object]:
    """Return what was loaded."""
    return {"from": path, "rows": 831}


@tasks.task
def report(reason: str) -> str:
    """Return the report's path."""
    return f"/reports/flights.html, because {reason}"
