"""What the page on Spark for Dagster's assets shows is what happens."""

from __future__ import annotations

import importlib
import re
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pandas as pd
import pytest

from orchestration_queue.spark.connect.address import ServerState
from tests.processes import worker_process

pytestmark = [
    pytest.mark.dagster,
    pytest.mark.spark,
    pytest.mark.timeout(300),  # seconds of processor time, on however busy a machine
    # Dagster's own Pipes read these from the context of an asset.
    pytest.mark.filterwarnings("ignore:AssetExecutionContext.*is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated"),  # Dagster's own, when it nests
    pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated"),  # by which Dagster reads YAML
    pytest.mark.filterwarnings("ignore:Parameter `owners` of"),  # which its loading gives
    pytest.mark.filterwarnings("ignore:Class `.*CodeReference.*` is currently in beta"),  # its own, too
]

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "dagster-spark.md").read_text()
SOURCES = dict(re.findall(r"```python\n# (\S+\.py)\n(.*?)```", PAGE, re.DOTALL))
FILES = dict(re.findall(r"```yaml\n# (\S+\.yaml)\n(.*?)```", PAGE, re.DOTALL))
SOURCES |= dict(re.findall(r"```yaml\n# (\S+\.yml)\n(.*?)```", PAGE, re.DOTALL))


@pytest.fixture
def place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server_url: str, connect_state: ServerState
) -> Iterator[Path]:
    """Where the page's files lie, and are imported from, with some flights."""
    for name, source in SOURCES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    (tmp_path / "flights").mkdir()
    carriers, distances = ["UA", "AA", "UA", "B6"], [1400, 1089, 100, 762]
    pd.DataFrame({"carrier": carriers, "distance": distances}).to_parquet(tmp_path / "flights" / "part.parquet")
    variables = {"OQ_URL": server_url, "SPARK_REMOTE": connect_state.url, "FLIGHTS": str(tmp_path / "flights")}
    for name, value in {**variables, "LAKE": str(tmp_path / "lake")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for module in ("definitions", "lake", "shop", "workers"):
        sys.modules.pop(module, None)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as made:
        yield made


def test_the_pages_script_and_task_report_to_the_pages_assets(
    place: Path, instance: dg.DagsterInstance, server_url: str
) -> None:
    defs = importlib.import_module("definitions").defs
    with worker_process("workers:tasks", "spark", server_url):
        told = {}
        for asset, partition in (("totals", "2013-01-02"), ("rows", None)):
            result = dg.materialize(
                [defs.get_assets_def(asset)],
                instance=instance,
                resources=defs.resources,
                partition_key=partition,
            )
            (event,) = result.get_asset_materialization_events()
            told[asset] = {name: value.value for name, value in event.materialization.metadata.items()}
    assert (told["totals"]["carriers"], told["totals"]["day"], told["rows"]["rows"]) == (3, "2013-01-02", 4)
    assert told["totals"]["orchestration_queue/spark_session"]


def test_the_pages_assets_hand_dataframes_on(place: Path, instance: dg.DagsterInstance) -> None:
    defs = importlib.import_module("lake").defs
    assets = [defs.get_assets_def("flights"), defs.get_assets_def("distances")]
    for carrier in ("UA", "AA"):
        dg.materialize(assets, selection="flights", instance=instance, resources=defs.resources, partition_key=carrier)
    assert (place / "lake" / "flights" / "partition=UA" / "@dataframe.json").exists()
    result = dg.materialize(assets, selection="distances", instance=instance, resources=defs.resources)
    (event,) = result.get_asset_materialization_events()
    uri = str(event.materialization.metadata["dagster/uri"].value)
    found = pd.read_parquet(uri.removeprefix("file://")).set_index("carrier")["sum(distance)"].to_dict()
    assert found == {"UA": 1500, "AA": 1089}


def test_the_pages_pipeline_makes_assets(place: Path) -> None:
    shop = importlib.import_module("shop").shop
    deps = {spec.key.to_user_string(): [dep.asset_key.to_user_string() for dep in spec.deps] for spec in shop.specs}
    assert deps == {"orders": [], "totals": ["orders"]}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page's files, as a package that Dagster can load."""
    package = tmp_path / "spark_page" / "defs"
    for name, text in FILES.items():
        (package / name).parent.mkdir(parents=True)
        (package / name).write_text(text)
    for directory in (package, package.parent):
        (directory / "__init__.py").touch()
    text = '[tool.dg]\ndirectory_type = "project"\nproject.root_module = "spark_page"\n'
    (tmp_path / "pyproject.toml").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("OQ_URL", "redis://localhost")
    yield package
    for module in [name for name in sys.modules if name.split(".")[0] == "spark_page"]:
        del sys.modules[module]


def test_the_pages_files_load_and_its_mistake_is_told_as_it_says(project: Path) -> None:
    defs = dg.load_from_defs_folder(path_within_project=project)
    dg.Definitions.validate_loadable(defs)
    keys = {key.to_user_string() for key in defs.resolve_asset_graph().materializable_asset_keys}
    assert keys == {"lake/totals", "report"}
    assert defs.resolve_sensor_def("report_on_event").default_status is dg.DefaultSensorStatus.RUNNING
    file = project / "totals" / "defs.yaml"
    file.write_text(file.read_text().replace("memory:", "memry:"))
    (told,) = re.findall(r"```text\n(.*?)\n```", PAGE, re.DOTALL)
    with pytest.raises(Exception) as caught:  # noqa: PT011  Dagster wraps it
        dg.load_from_defs_folder(path_within_project=project).resolve_asset_graph()
    assert told in "".join(traceback.format_exception(caught.value))
