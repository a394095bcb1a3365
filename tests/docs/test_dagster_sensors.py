"""The code of docs/how-to/dagster-sensors.md loads as one code location, its test passes, its table is whole."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import dagster as dg
import pytest

from orchestration_queue import Queue
from orchestration_queue.dagster import QueueResource
from orchestration_queue.dagster.sensors.options import Listening
from orchestration_queue.dagster.testing import oq_resource  # noqa: F401  a fixture

pytestmark = pytest.mark.dagster

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "dagster-sensors.md").read_text()


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The page's blocks, as one module."""
    monkeypatch.setenv("OQ_URL", "redis://localhost:1")
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    exec(compile(code, "page", "exec"), module.__dict__)  # noqa: S102
    return module


def test_the_pages_definitions_load_together(page: ModuleType) -> None:
    dg.Definitions.validate_loadable(page.defs)
    names = {sensor.name for sensor in page.defs.sensors}
    assert {"uploads", "flows_of_data_tables", "scheduled_data_weekly", "events_of_orders_stalled"} <= names
    assert {schedule.name for schedule in page.defs.schedules} == {"extract", "refresh"}


def test_the_pages_test_passes(
    page: ModuleType,
    oq_queue: Queue,
    oq_resource: QueueResource,  # noqa: F811
) -> None:
    page.test_uploads(oq_queue, oq_resource)


def test_the_page_names_every_option() -> None:
    table = PAGE.partition("| Option |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table.splitlines()[2:])))
    assert named == set(Listening.model_fields)
