"""Components, from real files by Dagster's own loading, and by `dg` as its users call it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import redis
import yaml
from dagster.components.testing.utils import DefsFolderSandbox, create_defs_folder_sandbox

from orchestration_queue.client import Queue
from orchestration_queue.dagster import QueueResource, components
from orchestration_queue.dagster.components import (
    QueueEventSensorComponent,
    QueueFlowComponent,
    QueueResourceComponent,
    QueueSchedulersComponent,
    QueueTaskComponent,
)

pytestmark = [
    pytest.mark.dagster,
    pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated"),  # by which Dagster reads YAML
    pytest.mark.filterwarnings("ignore:Parameter `owners` of initializer `SensorDef"),  # which its loading gives
    pytest.mark.filterwarnings("ignore:Class `.*CodeReference.*` is currently in beta"),  # its own, too
]

DG = str(Path(sys.executable).with_name("dg"))
ALL = [QueueEventSensorComponent, QueueFlowComponent, QueueSchedulersComponent, QueueTaskComponent]


@pytest.fixture
def sandbox() -> Iterator[DefsFolderSandbox]:
    with create_defs_folder_sandbox() as made:
        yield made


def written(kind: type[dg.Component], **attributes: Any) -> dict[str, Any]:
    """A component's file, as YAML has it."""
    return {"type": f"orchestration_queue.dagster.components.{kind.__name__}", "attributes": attributes}


def definitions(sandbox: DefsFolderSandbox, kind: type[dg.Component], **attributes: Any) -> dg.Definitions:
    """What a component's file makes."""
    path = sandbox.scaffold_component(kind, defs_yaml_contents=written(kind, **attributes))
    with sandbox.load_component_and_build_defs(path) as (_, made):
        return made


def test_a_flow_in_yaml_runs_on_workers(
    sandbox: DefsFolderSandbox,
    instance: dg.DagsterInstance,
    resource: QueueResource,
    queue_name: str,
    scratch: str,
    worker: subprocess.Popen[bytes],
) -> None:
    nodes = [
        {"asset": "lake/raw", "task": "produce", "arguments": {"scratch": scratch, "name": "raw", "rows": 5}},
        {"asset": "clean", "task": "total", "deps": ["lake/raw"], "group": "tables", "tags": {"tier": "gold"}},
    ]
    made = definitions(sandbox, QueueFlowComponent, name="tables", queue=queue_name, nodes=nodes, pool="p")
    with_queue = dg.Definitions.merge(made, dg.Definitions(resources={"queue": resource}))
    result = with_queue.resolve_implicit_global_asset_job_def().execute_in_process(instance=instance)
    assert result.success
    keys = [event.asset_key for event in result.get_asset_materialization_events()]
    assert keys == [dg.AssetKey(["lake", "raw"]), dg.AssetKey("clean")]
    (assets,) = made.assets or ()
    assert isinstance(assets, dg.AssetsDefinition)
    spec = assets.get_asset_spec(dg.AssetKey("clean"))
    assert (spec.group_name, spec.tags["tier"], assets.op.pool) == ("tables", "gold", "p")


def test_a_task_in_yaml_runs_on_a_worker(
    sandbox: DefsFolderSandbox,
    instance: dg.DagsterInstance,
    resource: QueueResource,
    queue_name: str,
    scratch: str,
    worker: subprocess.Popen[bytes],
) -> None:
    arguments = {"scratch": scratch, "name": "flaky", "attempts": 2}
    attributes: dict[str, Any] = {"asset": "flaky", "task": "fail_until", "queue": queue_name, "attempts": 2}
    made = definitions(sandbox, QueueTaskComponent, **attributes, arguments=arguments, timeout_seconds=30)
    with_queue = dg.Definitions.merge(made, dg.Definitions(resources={"queue": resource}))
    result = with_queue.resolve_implicit_global_asset_job_def().execute_in_process(instance=instance)
    (event,) = result.get_asset_materialization_events()
    assert event.materialization.metadata["result"].value == "try 2"


def test_schedulers_in_yaml_are_written_by_their_job(
    sandbox: DefsFolderSandbox,
    instance: dg.DagsterInstance,
    resource: QueueResource,
    server_url: str,
    queue_name: str,
    raw: redis.Redis,
) -> None:
    specs = [
        {"name": "daily", "cron": "0 6 * * *", "tz": "Europe/Berlin", "task": "extract", "data": {"full": True}},
        {"name": "often", "every_seconds": 30, "attempts": 3},
        {"name": "after", "after_seconds": 5, "priority": 7},
    ]
    made = definitions(sandbox, QueueSchedulersComponent, queue=queue_name, schedulers=specs, job_name="write_all")
    assert raw.keys() == [], "loading writes nothing"
    whole = dg.Definitions.merge(made, dg.Definitions(resources={"queue": resource}))
    for _ in range(2):
        assert whole.resolve_job_def("write_all").execute_in_process(instance=instance).success
    with Queue(queue_name, url=server_url) as queue:
        entries = queue.schedulers.list()
    assert set(entries) == {"daily", "often", "after"}
    daily = entries["daily"].members
    assert (daily["pattern"], daily["tz"]) == ("0 6 * * *", "Europe/Berlin")
    assert raw.hget(f"glide:{{{queue_name}}}:schedulers", "often") is not None


def test_an_event_sensor_in_yaml_asks_for_a_run_for_each_event(
    sandbox: DefsFolderSandbox, resource: QueueResource, server_url: str, queue_name: str, raw: redis.Redis
) -> None:
    attributes: dict[str, Any] = {"name": "heard", "queue": queue_name, "target": "key:report", "events": ["added"]}
    made = definitions(
        sandbox, QueueEventSensorComponent, **attributes, start="oldest", wait_seconds=5, limit=1, running=True
    )

    @dg.asset
    def report() -> None: ...

    whole = dg.Definitions.merge(made, dg.Definitions(assets=[report], resources={"queue": resource}))
    repository = whole.get_repository_def()
    sensor = repository.get_sensor_def("heard")
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    with Queue(queue_name, url=server_url) as queue:
        ids = [queue.add("a").id, queue.add("b").id]
    with dg.build_sensor_context(repository_def=repository, resources={"queue": resource}) as context:
        tick = sensor.evaluate_tick(context)
    (request,) = tick.run_requests or ()
    assert request.tags["orchestration_queue/job_id"] == ids[0]
    assert request.tags["orchestration_queue/event"] == "added"


def test_the_resource_in_yaml_takes_its_url_from_the_environment(
    sandbox: DefsFolderSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_QUEUE", "redis://:secret@host")
    made = definitions(sandbox, QueueResourceComponent, resource_key="bus", url_variable="MY_QUEUE", prefix="p")
    resource = (made.resources or {})["bus"]
    assert isinstance(resource, QueueResource)
    assert resource.prefix == "p"
    assert "secret" not in repr(resource)


@pytest.mark.parametrize("kind", ALL)
def test_what_is_scaffolded_loads(sandbox: DefsFolderSandbox, kind: type[dg.Component]) -> None:
    path = sandbox.scaffold_component(kind, "daily-tables", scaffold_params={"queue": "gold"})
    text = (path / "defs.yaml").read_text()
    assert yaml.safe_load(text)["attributes"]["queue"] == "gold"
    assert "daily_tables" in text
    with sandbox.load_component_and_build_defs(path) as (_, made):
        assert [*(made.assets or ()), *(made.jobs or ()), *(made.sensors or ())]


FLOW: dict[str, Any] = {"name": "f", "queue": "q"}
SCHEDULERS: dict[str, Any] = {"queue": "q"}


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([{"asset": "a"}, {"asset": "b", "qeue": "x"}], "nodes[1] ('b'): there is no 'qeue'; did you mean 'queue'?"),
        ([{"asset": "a", "zzz": 1}], "nodes[0] ('a'): there is no 'zzz'; there are asset, task, "),
        ([{"task": "t"}], "nodes[0]: 'asset' is missing; add it."),
        (["a"], "nodes[0] is 'a', and not a mapping; write it with keys out of asset, task, "),
        ([{"asset": "a", "attempts": "many"}], "nodes[0] ('a'): 'attempts' is 'many', which does not do: "),
        ([{"asset": "a", "attempts": -1}], "nodes[0] ('a'): JobOptions.attempts (given -1)"),
        ([{"asset": "a", "timeout_seconds": -1}], "nodes[0] ('a'): JobOptions.timeout"),
        ([{"asset": "a", "priority": 4096}], "nodes[0] ('a'): JobOptions.priority"),
        ([], "nodes is [], and not a list of one or more"),
        ("a", "nodes is 'a', and not a list of one or more"),
        ([{"asset": "a", "deps": ["b"]}, {"asset": "b", "deps": ["a"]}], "cycle"),
    ],
)
def test_a_wrong_node_is_told_by_its_place(sandbox: DefsFolderSandbox, nodes: Any, words: str) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011  Dagster wraps it
        definitions(sandbox, QueueFlowComponent, **FLOW, nodes=nodes)
    assert words in whole_story(caught.value)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"name": "s"}, "schedulers[0] ('s'): 0 of cron, every_seconds and after_seconds say when it runs"),
        ({"name": "s", "cron": "* * * * *", "every_seconds": 1}, "schedulers[0] ('s'): 2 of cron"),
        ({"name": "s", "cron": "61 * * * *"}, "schedulers[0] ('s'): "),
        ({"name": "s", "cron": "* * * * *", "tz": "Mars/Base"}, "Mars/Base"),
        ({"name": "s", "every_seconds": 1, "tz": "UTC"}, "drop tz"),
        ({"name": "s", "every_seconds": 0}, "schedulers[0] ('s'): "),
        ({"cron": "* * * * *"}, "schedulers[0]: 'name' is missing"),
    ],
)
def test_a_wrong_scheduler_is_told_by_its_place(sandbox: DefsFolderSandbox, spec: Any, words: str) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011  Dagster wraps it
        definitions(sandbox, QueueSchedulersComponent, **SCHEDULERS, schedulers=[spec])
    assert words in whole_story(caught.value)


def whole_story(error: BaseException | None) -> str:
    """An exception's message, and those of all that caused it."""
    return f"{error}\n{whole_story(error.__cause__ or error.__context__)}" if error else ""


PROJECT = """\
[project]
name = "shop"
version = "0"
requires-python = ">=3.11"

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "shop"
"""
DEFINITIONS = """\
from pathlib import Path

import dagster as dg

@dg.definitions
def defs():
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of dg's, with nothing in it but the resource."""
    (tmp_path / "shop" / "defs" / "server").mkdir(parents=True)
    for package in ("shop", "shop/defs"):
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "shop" / "defs" / "server" / "defs.yaml").write_text(yaml.safe_dump(written(QueueResourceComponent)))
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "shop" / "definitions.py").write_text(DEFINITIONS)
    return tmp_path


def dg_says(project: Path, *arguments: str) -> tuple[int, str]:
    """What `dg` does in the project."""
    environment = {**os.environ, "DAGSTER_HOME": "", "OQ_URL": "redis://localhost", "COLUMNS": "200", "NO_COLOR": "1"}
    done = subprocess.run(
        [DG, *arguments], cwd=project, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.timeout(240)
def test_dg_scaffolds_what_it_then_checks_and_lists(project: Path) -> None:
    name = "orchestration_queue.dagster.components.QueueFlowComponent"
    code, said = dg_says(project, "scaffold", "defs", name, "tables", "--queue", "gold")
    assert code == 0, said
    file = project / "shop" / "defs" / "tables" / "defs.yaml"
    code, said = dg_says(project, "list", "defs")
    assert code == 0, said
    assert "tables/clean" in said
    file.write_text(file.read_text().replace("task: extract", "taks: extract"))
    code, said = dg_says(project, "check", "yaml")
    assert code != 0
    assert "attributes.nodes.0.taks Additional properties are not allowed ('taks' was unexpected)" in said


def test_all_components_are_where_dg_looks() -> None:
    found = {
        kind.__name__ for kind in vars(components).values() if isinstance(kind, type) and issubclass(kind, dg.Component)
    }
    assert found == {kind.__name__ for kind in [*ALL, QueueResourceComponent]}
