"""Pages that a reader types in do what they say: the tutorial, and those for users of other queues."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import dagster as dg
import pytest

from tests.docs.page import Page
from tests.docs.typed_in import type_in


@pytest.mark.parametrize("origin", ["celery", "airflow", "bullmq"])
def test_the_page_does_what_it_says(origin: str, tmp_path: Path) -> None:
    assert type_in(f"how-to/from-{origin}.md", tmp_path) == ["oq", "python"]


@pytest.mark.dagster
def test_what_replaces_dagster_celery_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page("how-to/from-dagster-celery.md")
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    (block,) = page.blocks()
    page.run_in(module.__dict__, block)
    dg.Definitions.validate_loadable(module.defs)
    assert module.defs.resolve_implicit_global_asset_job_def().executor_def.name == "queue"


@pytest.mark.dagster
@pytest.mark.timeout(300)
def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    assert type_in("tutorial/first-pipeline.md", tmp_path) == ["oq", "python", "python", "oq", "oq", "oq", "dagster"]
