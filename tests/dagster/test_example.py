"""The example pipeline fits together before anything runs."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

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


@pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated")  # by which Dagster reads YAML
@pytest.mark.filterwarnings("ignore:Parameter `owners` of initializer `SensorDef")  # which its loading gives
@pytest.mark.filterwarnings("ignore:Class `.*CodeReference.*` is currently in beta")  # its own, too
def test_the_yaml_variant_loads_and_names_the_same_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from examples.flights import settings, tasks

    project = tmp_path / "yaml_flights"
    shutil.copytree(Path(settings.__file__).parent / "defs", project / "defs")
    for directory in (project, project / "defs"):
        (directory / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text(
        '[tool.dg]\ndirectory_type = "project"\nproject.root_module = "yaml_flights"\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("FLIGHTS_DATA", str(tmp_path))
    monkeypatch.setenv("OQ_URL", "redis://localhost")
    try:
        defs = dg.load_from_defs_folder(path_within_project=project / "defs")
        dg.Definitions.validate_loadable(defs)
        graph = defs.resolve_asset_graph()
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "yaml_flights"]:
            del sys.modules[name]
    months = graph.get(dg.AssetKey("months"))
    assert months.partitions_def is not None
    assert months.partitions_def.get_partition_keys() == list(settings.MONTHS.values())
    assert {key.name for key in months.check_keys} == {"rows", "nulls", "ranges", "uniqueness", "clock"}
    named = set(re.findall(r"task: (\w+)", "".join(file.read_text() for file in project.rglob("*.yaml"))))
    assert named == set(tasks.tasks)
