"""DAGs of small tasks, one pair for each executor that is measured."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, task

CHAIN = 20
AT_ONCE = 50


@task
def step(before: Any = None) -> None:
    """A task that does nothing."""


for name in os.environ["OQ_BENCH_EXECUTORS"].split(","):
    kind = name.rpartition(".")[2]
    common: Any = {"schedule": None, "start_date": datetime(2024, 1, 1, tzinfo=UTC), "max_active_tasks": 64}
    common["default_args"] = {"executor": name}
    with DAG(f"chain_{kind}", **common) as chain:
        last: Any = step.override(task_id="step_0")()
        for number in range(1, CHAIN):
            last = step.override(task_id=f"step_{number}")(last)
    with DAG(f"at_once_{kind}", **common) as at_once:
        for number in range(AT_ONCE):
            step.override(task_id=f"step_{number}")()
    globals()[chain.dag_id], globals()[at_once.dag_id] = chain, at_once
