"""Assets whose functions run on workers, written like any asset."""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import Any

import dagster as dg
import pytest

from orchestration_queue.dagster import QueueResource, queue_asset
from orchestration_queue.errors import InvalidOptionError, UsageError
from orchestration_queue.tasks import Tasks
from tests.processes import worker_process

pytestmark = pytest.mark.dagster


@pytest.fixture
def module(queue_name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The assets, with the test's queue."""
    monkeypatch.setenv("TEST_QUEUE", queue_name)
    return importlib.reload(importlib.import_module("tests.dagster.daily"))


def test_the_functions_run_on_a_worker(
    module: ModuleType, instance: dg.DagsterInstance, resource: QueueResource, queue_name: str, server_url: str
) -> None:
    with worker_process("tests.dagster.daily:tasks", queue_name, server_url, "--concurrency", "2") as worker:
        counted = dg.materialize([module.counted], instance=instance, resources={"queue": resource})
        clean = dg.materialize(
            [module.clean], instance=instance, resources={"queue": resource}, partition_key="2013-01-01"
        )
    (event,) = counted.get_asset_materialization_events()
    assert event.materialization.metadata["rows"].value == 842
    assert event.materialization.metadata["pid"].value == worker.pid != os.getpid()
    assert [check.passed for check in counted.get_asset_check_evaluations()] == [True]
    (event,) = clean.get_asset_materialization_events()
    assert event.materialization.asset_key == dg.AssetKey(["lake", "clean"])
    assert event.partition == event.materialization.metadata["day"].value == "2013-01-01"
    assert event.materialization.metadata["orchestration_queue/attempts"].value == 2
    assert event.materialization.metadata["orchestration_queue/task"].value == "lake__clean"
    assert "[ConnectionError] ConnectionError: the lake froze" in str(
        event.materialization.metadata["orchestration_queue/history"].value
    )


def test_the_asset_looks_like_any_other(module: ModuleType) -> None:
    assert sorted(module.tasks) == ["counted", "lake__clean"]
    counted, clean = module.counted.get_asset_spec(), module.clean.get_asset_spec()
    assert counted.description == "How many flights there were."
    assert (clean.group_name, {dep.asset_key for dep in clean.deps}) == ("lake", {dg.AssetKey("counted")})
    assert counted.kinds == {"queue"}


def test_arguments_that_depend_on_the_run_are_checked_before_anything_is_sent(
    instance: dg.DagsterInstance, resource: QueueResource, queue_name: str, raw: Any
) -> None:
    @queue_asset(Tasks(queue=queue_name), arguments=lambda context: {"rows": context.run.job_name})
    def table(rows: int) -> None: ...

    result = dg.materialize([table], instance=instance, resources={"queue": resource}, raise_on_error=False)
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    assert "rows" in str(failure.event_specific_data)
    assert raw.keys() == []


@pytest.mark.parametrize(
    ("tasks", "options", "error", "words"),
    [
        (Tasks(), {}, InvalidOptionError, "Neither the asset nor its registry names a queue"),
        (Tasks(queue="q"), {}, UsageError, "rows"),
        (Tasks(queue="q"), {"arguments": {"rows": "many"}}, UsageError, "rows"),
        (Tasks(queue="q"), {"arguments": {"row": 1}}, UsageError, "row"),
    ],
)
def test_bad_input_is_refused_where_it_is_written(
    tasks: Tasks, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):

        @queue_asset(tasks, **options)
        def table(rows: int) -> None: ...
