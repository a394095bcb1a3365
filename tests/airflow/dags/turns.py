"""Tasks that one worker runs one after another, of which one has a variable of its own."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import DAG, task


@task(queue="turns")
def report() -> None:
    """Leave the supervisor's process and the variable."""
    with (Path(os.environ["OQ_TEST_MARKS"]) / "turns").open("a") as file:
        file.write(f"{os.getppid()} {os.environ.get('OQ_TEST_TURN', '-')}\n")


with DAG("turns", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=UTC)):
    own = {"orchestration_queue": {"env": {"OQ_TEST_TURN": "own"}}}
    changed = report.override(task_id="changed", executor_config=own)()
    report.override(task_id="first")() >> report.override(task_id="second")() >> changed
    changed >> report.override(task_id="fourth")() >> report.override(task_id="fifth")()
