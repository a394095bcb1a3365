"""A run of 200 tasks that say when they begin and end, for a campaign of kills."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, get_current_context, task, task_group


def trace(event: str) -> None:
    """Leave a line in one write, which other processes can't part."""
    ti: Any = get_current_context()["ti"]
    path = Path(os.environ["OQ_TEST_MARKS"]) / f"trace-{ti.run_id}"
    line = f"{event} {ti.task_id}[{ti.map_index}] {ti.try_number} {os.getpid()}\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, line.encode())
    os.close(descriptor)


@task
def first(x: int) -> int:
    trace("begin")
    time.sleep(0.2 + x % 5 / 2)
    trace("end")
    return x


@task
def second(x: int) -> int:
    trace("begin")
    time.sleep(0.2)
    trace("end")
    return x + 1


@task
def items() -> list[int]:
    context: Any = get_current_context()
    return list(range(context["params"]["items"]))


@task
def total(values: Any) -> int:
    return sum(values)


@task_group
def pair(x: int) -> Any:
    return second(first(x))  # type: ignore[arg-type]


with DAG(
    "campaign",
    schedule=None,
    start_date=datetime(2024, 1, 1, tzinfo=UTC),
    params={"items": 100},
    max_active_tasks=64,
    default_args={"retries": 5, "retry_delay": timedelta(0)},
):
    total(pair.expand(x=items()))
