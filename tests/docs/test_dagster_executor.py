"""The code of docs/how-to/dagster-executor.md is code that loads, and its table names every field."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType

import dagster as dg
import pytest

from orchestration_queue.dagster import queue_executor

pytestmark = pytest.mark.dagster

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "dagster-executor.md").read_text()


def test_the_pages_definitions_load(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    for block in blocks:
        exec(compile(block, "page", "exec"), module.__dict__)  # noqa: S102
    config = json.loads(module.delays_by_airport.op.tags["orchestration_queue/config"])
    assert config == {"timeout": 600, "memory_mib": 4096, "env": {"OMP_NUM_THREADS": "2"}}
    dg.Definitions.validate_loadable(module.defs)
    job = module.defs.resolve_implicit_global_asset_job_def()
    assert job.executor_def.name == "queue"


def test_the_page_names_every_field() -> None:
    table = PAGE.partition("## Configuration")[2].partition("Tags of an op")[0]
    named = set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table.splitlines() if "|" in line)))
    schema = queue_executor.config_schema.as_field().config_type
    assert named == set(schema.fields)  # type: ignore[attr-defined]  # a shape has them
