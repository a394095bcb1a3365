"""A DAG of the bundle of a team."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import DAG, task

NAME = Path(__file__).parent.name


@task
def where() -> str:
    return NAME


with DAG(f"of_{NAME}", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=UTC)):
    where()
