"""A DAG whose file a test changes."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG, task

VALUE = 1


@task(queue="changing")
def give() -> int:
    return VALUE


with DAG("changing", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=UTC)):
    give()
