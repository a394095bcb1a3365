"""DAGs whose workers or schedulers are killed in the middle, or whose tasks have several jobs."""

from __future__ import annotations

import logging
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, get_current_context, task

START = datetime(2024, 1, 1, tzinfo=UTC)
MARKS = Path(os.environ["OQ_TEST_MARKS"])


def mark(name: str) -> None:
    with (MARKS / name).open("a") as file:
        file.write(f"{os.getpid()}\n")


@task(queue="mortal", retries=1, retry_delay=timedelta(0))
def endless_at_first() -> str:
    mark("endless")
    ti: Any = get_current_context()["ti"]
    if ti.try_number == 1:
        time.sleep(3600)
    return "second try"


@task(queue="beside")
def keep_busy() -> None:
    mark("busy")
    while not (MARKS / "idle").exists():
        time.sleep(0.05)


@task(queue="talking")
def talk() -> None:
    logging.getLogger(__name__).info("It has begun")
    while not (MARKS / "said").exists():
        time.sleep(0.05)


@task(queue="steady")
def wait_for_release(x: int) -> int:
    mark(f"steady-{x}")
    while not (MARKS / "released").exists():
        time.sleep(0.05)
    return x


@task(queue="punctual")
def punctual() -> None:
    mark("punctual")


@task.sensor(queue="repeated", mode="reschedule", poke_interval=0)
def third_time() -> bool:
    mark("third_time")
    return len((MARKS / "third_time").read_text().splitlines()) == 3


with DAG("rescheduled", schedule=None, start_date=START):
    third_time()

with DAG("api_server_killed", schedule=None, start_date=START):
    punctual()

with DAG("worker_killed", schedule=None, start_date=START):
    endless_at_first()

with DAG("worker_killed_beside", schedule=None, start_date=START):
    endless_at_first.override(queue="beside")()

with DAG("busy", schedule=None, start_date=START):
    keep_busy()

with DAG("talking", schedule=None, start_date=START):
    talk()

with DAG("scheduler_killed", schedule=None, start_date=START):
    wait_for_release.expand(x=list(range(4)))
