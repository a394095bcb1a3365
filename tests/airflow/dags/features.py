"""The same DAG twice: on the queue, and with LocalExecutor."""

from __future__ import annotations

import os
import signal
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.python import PythonOperator
from airflow.providers.standard.sensors.python import PythonSensor
from airflow.sdk import DAG, TaskGroup, get_current_context, task


def tries() -> int:
    found: Any = get_current_context()["ti"].try_number
    return int(found)


@task
def number() -> int:
    return 20


@task
def add(x: int, y: int = 1) -> int:
    return x + y


@task
def several() -> list[int]:
    return [1, 2, 3]


@task
def total(values: Any) -> int:
    return sum(values)


@task(retries=2, retry_delay=timedelta(0))
def fails_once() -> int:
    if tries() == 1:
        raise RuntimeError("the first try fails")
    return tries()


@task
def fails() -> None:
    raise RuntimeError("always")


@task(retries=1, retry_delay=timedelta(0))
def dies_once() -> str:
    if tries() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


@task
def exits() -> None:
    sys.exit(3)


@task(execution_timeout=timedelta(seconds=1))
def overtime() -> None:
    signal.pause()


@task.branch
def choose() -> str:
    return "chosen"


@task.short_circuit
def stop_here() -> bool:
    return False


@task(trigger_rule="all_done")
def at_the_end() -> str:
    return "done"


@task
def prepare() -> str:
    return "prepared"


@task
def clean_up() -> str:
    return "clean"


def build(dag_id: str, executor: str) -> DAG:
    arguments = {"executor": executor} if executor else {}
    with DAG(dag_id, schedule=None, start_date=datetime(2024, 1, 1, tzinfo=UTC), default_args=arguments) as dag:
        total(add.partial(y=10).expand(x=several()))
        first: Any = number()
        added: Any = add(first)
        add.override(task_id="more")(added)
        fails_once()
        dies_once()
        overtime()
        [fails() >> BashOperator(task_id="after_failure", bash_command="true"), exits()] >> at_the_end()
        choose() >> [
            PythonOperator(task_id="chosen", python_callable=lambda: "yes"),
            PythonOperator(task_id="not_chosen", python_callable=lambda: "no"),
        ]
        stop_here() >> BashOperator(task_id="after_stop", bash_command="true")
        BashOperator(task_id="shell", bash_command="echo $((6 * 7))")
        PythonSensor(
            task_id="sensor", python_callable=second_look, op_args=[dag_id], mode="reschedule", poke_interval=1
        )
        with TaskGroup("group"):
            work = add.override(task_id="work")(1, 1)
            ready: Any = prepare()
            ready >> work >> clean_up().as_teardown(setups=ready)
    return dag


def second_look(dag_id: str) -> bool:
    """Whether a sensor has been here before, in this run."""
    path = f"{os.environ['OQ_TEST_MARKS']}/{dag_id}-{get_current_context()['run_id']}"
    if os.path.exists(path):  # noqa: PTH110
        return True
    with open(path, "w"):  # noqa: PTH123
        return False


on_the_queue = build("features_on_queue", "")
local = build("features_local", "LocalExecutor")
