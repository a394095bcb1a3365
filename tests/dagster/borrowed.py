"""A pytest plugin for Dagster's own tests: what they run in processes runs as jobs on a queue, on a real worker.

Workers serve one instance, so all tests share it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core import instance_for_test as module_of_instances
from dagster._core.definitions import executor_definition
from dagster._core.execution.retries import RetryMode
from dagster._core.execution.step_dependency_config import StepDependencyConfig

from orchestration_queue.dagster import QueueExecutor
from orchestration_queue.dagster.steps.step_handler import ExecutorOptions
from tests.conftest import start_server
from tests.dagster.step_workers import READY, home_is
from tests.processes import OQ, running_process
from tests.waiting import wait_until_sync

_make_instance = dg.instance_for_test
_shared: list[dg.DagsterInstance] = []


@contextmanager
def _lend_instance(*args: Any, **kwargs: Any) -> Iterator[dg.DagsterInstance]:
    """The instance that the worker serves, for tests that do not ask for a special one."""
    overrides = kwargs.get("overrides") or {}
    if args or set(overrides) - {"event_log_storage", "concurrency"} or set(kwargs) - {"overrides", "temp_dir"}:
        with _make_instance(*args, **kwargs) as instance:
            yield instance
    else:
        (instance,) = _shared
        yield instance


def _make_executor(config: dict[str, Any]) -> QueueExecutor:
    """Return the queue's executor for the settings of Dagster's own."""
    retries = RetryMode.from_config(config["retries"]) or RetryMode.ENABLED
    return QueueExecutor(
        ExecutorOptions(max_concurrent=config.get("max_concurrent")),
        retries,
        config.get("tag_concurrency_limits"),
        StepDependencyConfig.from_config(config.get("step_dependency_config")),
    )


dg.instance_for_test = _lend_instance
module_of_instances.instance_for_test = _lend_instance
executor_definition._core_multiprocess_executor_creation = _make_executor  # type: ignore[assignment]  # ours


@pytest.fixture(scope="session", autouse=True)
def _worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    home = tmp_path_factory.mktemp("borrowed")
    url = os.environ["OQ_URL"] = f"unix://{home / 'queue.sock'}"
    log = home / "worker.log"
    storage = {
        "module": "dagster._utils.test",
        "class": "ConcurrencyEnabledSqliteTestEventLogStorage",
        "config": {"base_dir": str(home), "sleep_interval": 0.01},
    }
    overrides = {"event_log_storage": storage, "concurrency": {"pools": {"granularity": "op"}}}
    command = [OQ, "dagster", "worker", "-m", "tests.dagster.steps", "--concurrency", "4"]
    server = start_server(home / "queue.sock")
    try:
        with (
            _make_instance(overrides=overrides) as instance,
            home_is(instance.root_directory),
            running_process(command, url, log, Path.cwd()),
        ):
            wait_until_sync(lambda: READY in log.read_text(), f"the worker, see {log}", 120)
            _shared.append(instance)
            yield
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """What the tests of pools ask for."""
    with _lend_instance() as made:
        yield made
