"""What Dagster needs to use the Connect server of Spark's own tests."""

from __future__ import annotations

import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestration_queue.dagster.spark import ParquetIOManager, PipesSparkClient, SparkSessionResource
from orchestration_queue.spark import ConnectServer
from orchestration_queue.spark.connect.address import ServerState
from tests.processes import worker_process

PATIENT = ("--concurrency", "2", "--lease", "10", "--stalled-interval", "1", "--promotion-interval", "0.2")


@pytest.fixture(scope="package")
def step_queue() -> str:
    """One queue, so that one worker serves all tests."""
    return f"spark-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="package")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What that worker serves; tests may add to it."""
    place = tmp_path_factory.mktemp("scripts")
    shutil.copytree(Path(__file__).with_name("jobs"), place, dirs_exist_ok=True)
    return place


@pytest.fixture(scope="package")
def step_worker(
    server_url: str, step_queue: str, scripts: Path, connect_server: ConnectServer
) -> Iterator[subprocess.Popen[bytes]]:
    """A worker in a process of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEST_SCRIPTS", str(scripts))
        with worker_process("tests.dagster.spark.step_jobs:tasks", step_queue, server_url, *PATIENT) as process:
            yield process


@pytest.fixture
def client(server_url: str, step_queue: str, step_worker: subprocess.Popen[bytes]) -> Iterator[PipesSparkClient]:
    """A client whose jobs that worker does."""
    made = PipesSparkClient(url=server_url, default_queue=step_queue)
    yield made
    made.close()


@pytest.fixture
def session(connect_state: ServerState) -> Iterator[SparkSessionResource]:
    """Sessions on the shared server, outside of any run; they end with the test."""
    resource = SparkSessionResource(url=connect_state.url, conf={"spark.sql.shuffle.partitions": "2"})
    yield resource
    resource.close()


@pytest.fixture
def lake(tmp_path: Path, session: SparkSessionResource) -> ParquetIOManager:
    """An IO manager with a directory of its own."""
    return ParquetIOManager(root=str(tmp_path / "lake"), spark=session)
