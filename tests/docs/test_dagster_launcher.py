"""The dagster.yaml of docs/how-to/dagster-launcher.md, and that of the chart, make our launcher and coordinator."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from orchestration_queue.dagster import QueueRunCoordinator, QueueRunLauncher
from tests.helm.test_chart import CHART, rendered, values_of

pytestmark = pytest.mark.dagster

COORDINATOR_PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "from-queued-run-coordinator.md").read_text()
PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "dagster-launcher.md").read_text()


@cache
def chart() -> list[dict[str, Any]]:
    """What the chart makes."""
    return list(rendered(values_of(CHART / "ci" / "dagster-spark-values.yaml")))


def from_the_page() -> str:
    """What the page shows."""
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    return str(block)


def from_the_chart() -> str:
    """What the chart installs."""
    (text,) = (made["data"]["dagster.yaml"] for made in chart() if "dagster.yaml" in made.get("data", {}))
    return str(text)


def test_the_coordinators_page_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OQ_URL", "redis://localhost")
    (block,) = re.findall(r"```yaml\n(.*?)```", COORDINATOR_PAGE, re.DOTALL)
    with dg.instance_for_test(overrides=yaml.safe_load(block)) as instance:
        assert isinstance(instance.run_coordinator, QueueRunCoordinator)
        assert isinstance(instance.run_launcher, QueueRunLauncher)


@pytest.mark.parametrize("source", [from_the_page, from_the_chart])
def test_the_instance_loads(source: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(source)
    monkeypatch.setenv("OQ_URL", "redis://localhost")
    config = yaml.safe_load(source())
    parts = {name: config[name] for name in ("run_launcher", "run_coordinator", "run_monitoring")}
    with dg.instance_for_test(overrides=parts) as instance:
        assert isinstance(instance.run_coordinator, QueueRunCoordinator)
        launcher = instance.run_launcher
        assert isinstance(launcher, QueueRunLauncher)
        assert launcher.supports_resume_run
        assert instance.run_monitoring_enabled
        assert instance.run_monitoring_max_resume_run_attempts == 3


def test_the_chart_has_workers_for_runs_beside_those_for_steps() -> None:
    queues = [
        command[command.index("--queue") + 1]
        for made in chart()
        if made["kind"] == "Deployment"
        for container in made["spec"]["template"]["spec"]["containers"]
        if "dagster" in (command := container.get("command", [])) and "worker" in command
    ]
    assert sorted(queues) == ["dagster", "dagster-runs"]
    assert yaml.safe_load(from_the_chart())["run_launcher"]["config"]["queue"] == "dagster-runs"


def test_the_page_names_every_field() -> None:
    table = PAGE.partition("## Configuration")[2].partition("The coordinator has")[0]
    named = set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table.splitlines() if "|" in line)))
    assert named == set(QueueRunLauncher.config_type())


def test_the_pages_sensor_sweeps_the_steps_queue() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block, "page", "exec"), names)  # noqa: S102  the page is ours
    dg.Definitions.validate_loadable(names["defs"])
    (sensor,) = names["defs"].sensors
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
