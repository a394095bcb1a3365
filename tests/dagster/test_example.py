"""The example pipeline fits together before anything runs."""

from __future__ import annotations

import sys

import dagster as dg
import pytest

pytestmark = pytest.mark.dagster


def test_the_definitions_load_and_every_task_they_name_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OQ_URL", raising=False)
    from examples.flights import definitions
    from examples.flights.tasks import tasks

    dg.Definitions.validate_loadable(definitions.defs)
    named = {task.task for task in definitions.TASKS}
    assert named | {"freshness_check"} == set(tasks)


def test_the_names_agree_with_what_is_extracted() -> None:
    from examples.flights import extract, settings

    assert tuple(settings.RAW_NODES) == tuple(extract.TABLES)
    assert set(settings.RAW_NODES) == {"flights", "weather", "planes", "airports", "airlines"}


def test_dagsters_processes_load_no_pandas_and_no_spark() -> None:
    import subprocess

    program = (
        "import sys, examples.flights.definitions as d; print({'pandas', 'pyspark', 'matplotlib'} & set(sys.modules))"
    )
    loaded = subprocess.check_output([sys.executable, "-c", program], text=True, timeout=100)
    assert loaded.strip() == "set()"
