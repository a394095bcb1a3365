"""The Connect server of Spark's own tests, and what Dagster needs to use it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestration_queue.dagster.spark import ParquetIOManager, SparkSessionResource
from orchestration_queue.spark.connect.layout import State
from tests.spark.conftest import connect_mode_ends_with_the_test, connect_server, connect_state

__all__ = ["connect_mode_ends_with_the_test", "connect_server", "connect_state"]


@pytest.fixture
def session(connect_state: State) -> Iterator[SparkSessionResource]:
    """Sessions on the shared server, outside of any run; they end with the test."""
    resource = SparkSessionResource(url=connect_state.url, conf={"spark.sql.shuffle.partitions": "2"})
    yield resource
    resource.close()


@pytest.fixture
def lake(tmp_path: Path, session: SparkSessionResource) -> ParquetIOManager:
    """An IO manager with a directory of its own."""
    return ParquetIOManager(root=str(tmp_path / "lake"), spark=session)
