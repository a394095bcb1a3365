"""The code of docs/how-to/dagster-pipes.md does what the page says."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.storage.compute_log_manager import ComputeLogManager  # what dagster.yaml configures

from orchestration_queue.dagster.logs import StreamComputeLogManager
from orchestration_queue.dagster.pipes import PipesQueueClient
from tests.processes import worker_process

pytestmark = [
    pytest.mark.dagster,
    # Dagster's own Pipes read what its asset contexts no longer want to be asked.
    pytest.mark.filterwarnings("ignore:AssetExecutionContext.*is deprecated:DeprecationWarning"),
]

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "dagster-pipes.md").read_text()
SOURCES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.DOTALL))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server_url: str) -> Iterator[Path]:
    """Where the page's files lie, and are imported from."""
    for name, source in SOURCES.items():
        (tmp_path / name).write_text(source)
        sys.modules.pop(name.removesuffix(".py"), None)  # another page's
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("OQ_URL", server_url)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in SOURCES:
        sys.modules.pop(name.removesuffix(".py"), None)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as made:
        yield made


def test_the_pages_handler_reports_to_the_pages_asset(
    place: Path, instance: dg.DagsterInstance, server_url: str
) -> None:
    defs = importlib.import_module("definitions").defs
    with worker_process("loading:tasks", "loading", server_url):
        result = defs.resolve_implicit_global_asset_job_def().execute_in_process(instance=instance)
    (event,) = result.get_asset_materialization_events()
    assert event.materialization.metadata["rows"].value == 842
    (evaluation,) = result.get_asset_check_evaluations()
    assert evaluation.passed
    told = [record.event_log_entry.user_message for record in instance.get_records_for_run(result.run_id).records]
    assert "loading flights for the night shift" in told


def test_the_pages_program_reports_as_well(place: Path, instance: dg.DagsterInstance, server_url: str) -> None:
    @dg.asset
    def outside(context, pipes: PipesQueueClient) -> dg.MaterializeResult[None]:  # type: ignore[no-untyped-def]  # Dagster reads the types
        data = {"program": str(place / "program.py")}
        return pipes.run(context=context, queue="loading", task="run_program", data=data).get_materialize_result()

    with worker_process("programs:tasks", "loading", server_url):
        result = dg.materialize(
            [outside], instance=instance, resources={"pipes": PipesQueueClient(url=dg.EnvVar("OQ_URL"))}
        )
    (event,) = result.get_asset_materialization_events()
    assert event.materialization.metadata["rows"].value == 842


def test_the_pages_compute_logs_are_kept(place: Path) -> None:
    (text,) = re.findall(r"```yaml\n# dagster.yaml\n(.*?)```", PAGE, re.DOTALL)
    with dg.instance_for_test(overrides=yaml.safe_load(text)) as instance:
        manager: ComputeLogManager[dg.DagsterInstance] = instance.compute_log_manager
        assert isinstance(manager, StreamComputeLogManager)
        with manager.capture_logs(["a", "b"]):
            subprocess.run([sys.executable, "-c", "print('said')"], check=True, timeout=100)
        assert manager.get_log_data(["a", "b"]).stdout == b"said\n"
