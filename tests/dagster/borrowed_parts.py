"""Dagster's own tests of coordinators and compute log managers, with ours: collected where its tests are unpacked."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from runpy import run_path
from typing import Any

import dagster as dg
import pytest

from orchestration_queue.dagster import QueueRunCoordinator, QueueRunLauncher
from orchestration_queue.dagster.logs import StreamComputeLogManager
from tests.conftest import start_server
from tests.dagster.launches import launcher_of

_THEIRS = Path(import_module("dagster_tests").__path__[0])
_Coordinator: Any = import_module(
    "dagster_tests.core_tests.run_coordinator_tests.test_queued_run_coordinator"
).TestQueuedRunCoordinator
# Its package imports a distribution that is not published.
_ComputeLogManager: Any = run_path(str(_THEIRS / "storage_tests/utils/compute_log_manager.py"))["TestComputeLogManager"]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of these tests' own."""
    socket = tmp_path_factory.mktemp("server") / "queue.sock"
    server = start_server(socket)
    yield f"unix://{socket}"
    server.kill()
    server.wait()


class TestQueueRunCoordinator(_Coordinator):  # type: ignore[misc]  # of theirs we know no types
    """Ours, whose launcher puts runs on the queue."""

    @pytest.fixture
    def instance(self, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
        """An instance with our launcher."""
        # Their launcher is asked what it has launched: with ours, all waits for a worker.
        monkeypatch.setattr(QueueRunLauncher, "queue", lambda _: ())
        with dg.instance_for_test(overrides={"run_launcher": launcher_of(url=url, queue="runs")}) as made:
            yield made

    @pytest.fixture
    def coordinator(self, instance: dg.DagsterInstance) -> QueueRunCoordinator:
        """Our coordinator."""
        made = QueueRunCoordinator()
        made.register_instance(instance)
        return made


class TestStreamComputeLogManager(_ComputeLogManager):  # type: ignore[misc]  # the same
    """Ours, one that writes and another that reads."""

    __test__ = True

    @pytest.fixture(name="compute_log_manager")
    def compute_log_manager(self, url: str, tmp_path: Path) -> Iterator[StreamComputeLogManager]:
        """The one."""
        made = StreamComputeLogManager(url, prefix=tmp_path.name, local_dir=str(tmp_path / "here"))
        yield made
        made.dispose()

    @pytest.fixture(name="write_manager")
    def write_manager(self, compute_log_manager: StreamComputeLogManager) -> StreamComputeLogManager:
        """The same."""
        return compute_log_manager

    @pytest.fixture(name="read_manager")
    def read_manager(self, url: str, tmp_path: Path) -> Iterator[StreamComputeLogManager]:
        """Another, as on the webserver's machine."""
        made = StreamComputeLogManager(url, prefix=tmp_path.name, local_dir=str(tmp_path / "there"))
        yield made
        made.dispose()
