"""DAGs that exist twice, on the queue and with LocalExecutor, whose runs are compared."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from airflow.sdk import DAG, get_current_context
from airflow.sdk.definitions._internal.contextmanager import DagContext

__all__ = ["EXECUTORS", "START", "current_kind", "feature", "instance", "mark", "position", "report_deadline"]

EXECUTORS: Final = {"queue": "orchestration_queue.airflow.QueueExecutor", "local": "LocalExecutor"}
START: Final = datetime(2024, 1, 1, tzinfo=UTC)
_BY_KIND: Final = ("schedule", "deadline")


def feature(**options: Any) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Build the DAG that a function fills once for each executor: ``NAME_queue`` and ``NAME_local``.

    Args:
        options: The DAG's. A function as `schedule` or `deadline` gets the kind, which is ``queue`` or ``local``.
    """

    def build(fill: Callable[[], None]) -> Callable[[], None]:
        for kind, executor in EXECUTORS.items():
            own: dict[str, Any] = {"schedule": None, "start_date": START, **options}
            own |= {name: own[name](kind) for name in _BY_KIND if callable(own.get(name))}
            own["default_args"] = {"executor": executor, **options.get("default_args", {})}
            with DAG(f"{fill.__name__}_{kind}", **own):
                fill()
        return fill

    return build


def current_kind() -> str:
    """Which of the two DAGs is built."""
    dag = DagContext.get_current()
    assert dag is not None
    return dag.dag_id.rpartition("_")[2]


def instance() -> Any:
    """The task instance that runs."""
    return get_current_context()["ti"]


def mark(dag_id: str, line: str) -> int:
    """Leave a line that the comparison finds; return how many there are."""
    path = Path(os.environ["OQ_TEST_MARKS"]) / dag_id
    with path.open("a") as file:
        file.write(line + "\n")
    return len(path.read_text().splitlines())


def position(line: str = "") -> int:
    """Return how many tasks of this DAG have been here before."""
    ti = instance()
    return mark(ti.dag_id, line or ti.task_id) - 1


def report_deadline(dag_id: str, **_: Any) -> None:
    """Leave a mark when a deadline was missed."""
    mark(dag_id, "deadline missed")


async def report_deadline_async(dag_id: str, **_: Any) -> None:
    """Leave a mark when a deadline was missed, in the triggerer."""
    mark(dag_id, "deadline missed")
