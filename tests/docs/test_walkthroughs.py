"""Pages for users of other queues, which a reader types in, do what they say."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import dagster as dg
import pytest

from tests.docs.page import Page
from tests.docs.walkthrough import type_in


@pytest.mark.parametrize("origin", ["celery", "airflow", "bullmq"])
def test_the_page_does_what_it_says(origin: str, tmp_path: Path) -> None:
    assert type_in(Page(f"how-to/from-{origin}.md").text, tmp_path) == ["oq", "python"]


@pytest.mark.dagster
@pytest.mark.parametrize("name", ["from-dagster-celery", "from-multiprocess-executor"])
def test_what_replaces_an_executor_loads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page(f"how-to/{name}.md")
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    (block,) = page.blocks()
    page.run_in(module.__dict__, block)
    dg.Definitions.validate_loadable(module.defs)
    assert module.defs.resolve_implicit_global_asset_job_def().executor_def.name == "queue"
