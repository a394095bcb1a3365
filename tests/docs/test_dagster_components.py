"""The files of docs/how-to/dagster-components.md load together, and the mistake it shows is told as it says."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

pytestmark = [
    pytest.mark.dagster,
    pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated"),  # by which Dagster reads YAML
    pytest.mark.filterwarnings("ignore:Parameter `owners` of initializer `SensorDef"),  # which its loading gives
    pytest.mark.filterwarnings("ignore:Class `.*CodeReference.*` is currently in beta"),  # its own, too
]

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
PAGE = (PAGES / "dagster-components.md").read_text()
FILES = dict(re.findall(r"```(?:yaml|python)\n# (\S+)\n(.*?)```", PAGE, re.DOTALL))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page's files, as a package that Dagster can load."""
    package = tmp_path / "page_defs" / "defs"
    for name, text in FILES.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    for directory in (package, package.parent):
        (directory / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text(
        '[tool.dg]\ndirectory_type = "project"\nproject.root_module = "page_defs"\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("OQ_URL", "redis://localhost")
    yield package
    for module in [name for name in sys.modules if name.split(".")[0] == "page_defs"]:
        del sys.modules[module]


def test_the_pages_files_load_together(project: Path) -> None:
    defs = dg.load_from_defs_folder(path_within_project=project)
    dg.Definitions.validate_loadable(defs)
    keys = {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()}
    assert keys == {"tables/raw", "tables/clean", "report"}
    assert defs.resolve_job_def("write_data_schedulers").name == "write_data_schedulers"
    assert defs.resolve_sensor_def("uploads_heard").default_status is dg.DefaultSensorStatus.RUNNING
    assert "'uploads', 'imports'" in str(defs.resolve_sensor_def("customers_heard").description)
    assert defs.resolve_sensor_def("imports_failed").minimum_interval_seconds == 10


@pytest.mark.parametrize(
    ("page", "sensors"),
    [
        ("chasquimq.md", {"imports_heard", "imports_failed"}),
        ("qless.md", {"imports_heard", "imports_failed", "imports_stalled"}),
    ],
)
def test_the_files_of_other_systems_pages_load(project: Path, page: str, sensors: set[str]) -> None:
    ((name, text),) = re.findall(r"```yaml\n# (imports/\S+)\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)
    (project / name).write_text(text)
    defs = dg.load_from_defs_folder(path_within_project=project)
    dg.Definitions.validate_loadable(defs)
    assert {sensor.name for sensor in defs.sensors or () if sensor.name.startswith("imports")} == sensors


def test_the_pages_mistake_is_told_as_it_says(project: Path) -> None:
    file = project / "tables" / "defs.yaml"
    file.write_text(file.read_text().replace("timeout_seconds", "timeout_second"))
    (told,) = re.findall(r"```text\n(.*?)\n```", PAGE, re.DOTALL)
    with pytest.raises(Exception) as caught:  # noqa: PT011  Dagster wraps it
        dg.load_from_defs_folder(path_within_project=project).resolve_asset_graph()
    assert told in "".join(traceback.format_exception(caught.value))


def test_numbers_may_be_templates(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTEMPTS", "4")
    file = project / "tables" / "defs.yaml"
    file.write_text(file.read_text().replace("attempts: 3", 'attempts: "{{ env.ATTEMPTS }}"'))
    defs = dg.load_from_defs_folder(path_within_project=project)
    assert dg.AssetKey(["tables", "raw"]) in defs.resolve_asset_graph().get_all_asset_keys()
