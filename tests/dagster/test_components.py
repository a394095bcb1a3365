"""Components, from real files by Dagster's own loading, and by `dg` as its users call it."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import redis
import yaml
from dagster.components.testing.utils import DefsFolderSandbox

from orchestration_queue.client import Queue
from orchestration_queue.dagster import QueueResource, components, queue_event_sensor
from orchestration_queue.dagster.components import (
    QueueEventSensorComponent,
    QueueFlowComponent,
    QueueResourceComponent,
    QueueSchedulersComponent,
    QueueTaskComponent,
)
from orchestration_queue.dagster.sensors.options import Listening
from orchestration_queue.dagster.testing import evaluate_sensor
from tests.dagster.sandboxes import WARNINGS, definitions, whole_story, written
from tests.dagster.ticks import tick

pytestmark = [pytest.mark.dagster, *WARNINGS]

DG = str(Path(sys.executable).with_name("dg"))
ALL = [QueueEventSensorComponent, QueueFlowComponent, QueueSchedulersComponent, QueueTaskComponent]


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


FUNCTIONS = """
import dagster as dg

@dg.template_var
def has_rows():
    return lambda event: event.fields["rows"] != "0"

@dg.template_var
def customer():
    return lambda event: event.fields["customer"]

@dg.template_var
def observe():
    return lambda event, queue: dg.AssetObservation("report", metadata={"job": event.job_id})
"""


def sensor_of(sandbox: DefsFolderSandbox, **attributes: Any) -> dg.SensorDefinition:
    """The sensor that a file makes which may name the functions above."""
    (sensor,) = definitions(sandbox, QueueEventSensorComponent, FUNCTIONS, **attributes).sensors or ()
    assert isinstance(sensor, dg.SensorDefinition)
    return sensor


def event_of(raw: redis.Redis, queue: str, job_id: str, rows: int = 1) -> str:
    """An event that tells more than usual."""
    fields: dict[Any, Any] = {"event": "completed", "jobId": job_id, "rows": rows, "customer": f"of-{job_id}"}
    added = raw.xadd(f"glide:{{{queue}}}:events", fields)
    assert isinstance(added, str)
    return added


SENSOR: dict[str, Any] = {"name": "heard", "target": "key:report", "start": "oldest", "wait_seconds": 0.2}


def test_a_sensor_in_yaml_listens_to_several_queues_and_chooses_among_events(
    sandbox: DefsFolderSandbox, resource: QueueResource, queue_name: str, raw: redis.Redis
) -> None:
    one, two = f"{queue_name}-1", f"{queue_name}-2"
    event_of(raw, one, "a")
    event_of(raw, two, "b")
    event_of(raw, two, "empty", rows=0)
    sensor = sensor_of(sandbox, **SENSOR, queue=[one, f"{{{{ '{two}' }}}}"], where="{{ has_rows }}")
    requests = tick(sensor, resource, None).run_requests
    assert [request.tags["orchestration_queue/job_id"] for request in requests] == ["a", "b"]


def test_a_sensor_in_yaml_looks_at_the_names_of_jobs(
    sandbox: DefsFolderSandbox, resource: QueueResource, queue_name: str
) -> None:
    queue = resource.queue(queue_name)
    _, load = (queue.add(name, {}) for name in ("extract", "load"))
    sensor = sensor_of(sandbox, **SENSOR, queue=queue_name, events=["added"], job_names=["load"])
    (request,) = tick(sensor, resource, None).run_requests
    assert request.tags["orchestration_queue/job_id"] == load.id


def test_a_sensor_in_yaml_maps_events_to_partitions(
    sandbox: DefsFolderSandbox,
    instance: dg.DagsterInstance,
    resource: QueueResource,
    queue_name: str,
    raw: redis.Redis,
) -> None:
    event_of(raw, queue_name, "7")
    partitions = {"partition": "{{ customer }}", "dynamic_partitions": "customers"}
    sensor = sensor_of(sandbox, **SENSOR, queue=queue_name, **partitions)

    @dg.asset(partitions_def=dg.DynamicPartitionsDefinition(name="customers"))
    def report() -> None: ...

    defs = dg.Definitions(assets=[report], sensors=[sensor])
    found = evaluate_sensor(sensor, {"queue": resource}, instance=instance, definitions=defs)
    assert [request.partition_key for request in found.run_requests] == list(found.partitions) == ["of-7"]


def test_a_sensor_in_yaml_may_tell_of_assets_and_request_nothing(
    sandbox: DefsFolderSandbox, resource: QueueResource, queue_name: str, raw: redis.Redis
) -> None:
    event_of(raw, queue_name, "7")
    attributes = {**SENSOR, "queue": queue_name, "react": "{{ observe }}"}
    del attributes["target"]
    found = tick(sensor_of(sandbox, **attributes), resource, None)
    assert [event.metadata["job"].value for event in found.asset_events] == ["7"]
    assert not found.run_requests


def test_every_other_field_of_a_sensor_in_yaml_reaches_it(
    sandbox: DefsFolderSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}

    def made(react: Any, **options: Any) -> dg.SensorDefinition:
        given.update(options)
        sensor: dg.SensorDefinition = queue_event_sensor(react, **options)
        return sensor

    monkeypatch.setattr("orchestration_queue.dagster.components.queue.queue_event_sensor", made)
    seconds = {"wait_seconds": 3, "linger_seconds": 0.5, "tick_limit_seconds": 7}
    gap = {"on_gap": "observe", "gap_asset": "losses", "limit": 9}
    shown = {"resource_key": "bus", "running": True, "description": "Hears."}
    sensor_of(sandbox, name="all", queue="q", target="key:report", start="oldest", **seconds, **gap, **shown)
    assert given["name"] == "all"
    expected = Listening(
        start="oldest",
        wait=timedelta(seconds=3),
        linger=timedelta(seconds=0.5),
        tick_limit=timedelta(seconds=7),
        limit=9,
        on_gap="observe",
        gap_asset="losses",
        resource_key="bus",
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Hears.",
    )
    assert {name: given[name] for name in Listening.model_fields} == expected.model_dump()


def test_the_sensors_component_has_all_that_the_sensor_has() -> None:
    in_code = set(inspect.signature(queue_event_sensor).parameters) - {"options"} | set(Listening.model_fields)
    in_yaml = {name.removesuffix("_seconds") for name in QueueEventSensorComponent.model_fields}
    assert {*in_yaml, "job", "default_status"} - {"target", "running"} == in_code


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"queue": []}, "Sensor 'heard': `queue` must be one queue or several different ones, got []"),
        ({"queue": ["q", 3]}, "queue[1] must be a word, got 3; quote or remove it."),
        ({"queue": "a:b"}, "Sensor 'heard': Queue name 'a:b'"),
        ({"events": "completed"}, "events must be a list of words, got 'completed'; write each word as '- ...'."),
        ({"events": []}, "Sensor 'heard': `events` and `job_names` must be lists of words"),
        ({"job_names": [{}]}, "job_names[0] must be a word, got {}"),
        ({"target": None}, "Sensor 'heard': `target`, the assets of its runs, or `react`"),
        ({"target": "key:"}, "`target` must be a selection of assets, got 'key:' ("),
        ({"where": "has_rows"}, "where must be a function, got 'has_rows'; write '{{ name }}'"),
        ({"partition": "{{ 7 }}"}, "partition must be a function, got 7"),
        ({"dynamic_partitions": "customers"}, "Sensor 'heard': `dynamic_partitions` requires `partition`"),
        ({"wait_seconds": 51}, "Sensor 'heard': `wait` must be above 0 and at most 50 s, got 51 s"),
        (
            {"linger_seconds": 6},
            "Sensor 'heard': `linger` must be from 0 to 5 s, after which the next tick starts, got 6 s",
        ),
        ({"tick_limit_seconds": 0}, "Sensor 'heard': `tick_limit` must be above 0 and at most 50 s, got 0 s"),
        ({"limit": 0}, "Sensor 'heard': `limit` must be from 1 to 10000 events, got 0"),
        ({"on_gap": "observe"}, "Sensor 'heard': `on_gap='observe'` and `gap_asset` require each other"),
        ({"name": "no name"}, "Sensor 'heard': "),
    ],
)
def test_a_wrong_sensor_is_told_in_a_sentence(sandbox: DefsFolderSandbox, attributes: Any, words: str) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011  Dagster wraps it
        sensor_of(sandbox, **{**SENSOR, "queue": "q", **attributes})
    assert words.replace("'heard'", repr(attributes.get("name", "heard"))) in whole_story(caught.value)


def test_the_resource_in_yaml_takes_its_url_from_the_environment(
    sandbox: DefsFolderSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_QUEUE", "redis://:secret@host")
    made = definitions(
        sandbox, QueueResourceComponent, resource_key="bus", url_variable="MY_QUEUE", prefix="p", carrier="packed"
    )
    resource = (made.resources or {})["bus"]
    assert isinstance(resource, QueueResource)
    assert (resource.prefix, resource.carrier) == ("p", "packed")
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
        ([{"asset": "a"}, {"asset": "b", "qeue": "x"}], "nodes[1] ('b'): unknown key 'qeue'; did you mean 'queue'?"),
        ([{"asset": "a", "zzz": 1}], "nodes[0] ('a'): unknown key 'zzz'; use asset, task, "),
        ([{"task": "t"}], "nodes[0]: 'asset' is missing; add it."),
        (["a"], "nodes[0] must be a mapping, got 'a'; use the keys asset, task, "),
        ([{"asset": "a", "attempts": "many"}], "nodes[0] ('a'): invalid value 'many' of 'attempts': "),
        ([{"asset": "a", "attempts": -1}], "nodes[0] ('a'): JobOptions.attempts (given -1)"),
        ([{"asset": "a", "timeout_seconds": -1}], "nodes[0] ('a'): JobOptions.timeout"),
        ([{"asset": "a", "priority": 4096}], "nodes[0] ('a'): JobOptions.priority"),
        ([], "nodes must be a non-empty list, got []"),
        ("a", "nodes must be a non-empty list, got 'a'"),
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
        ({"name": "s"}, "schedulers[0] ('s'): Exactly one of cron, every_seconds and after_seconds must be set, got 0"),
        ({"name": "s", "cron": "* * * * *", "every_seconds": 1}, "and after_seconds must be set, got 2; keep one."),
        ({"name": "s", "cron": "61 * * * *"}, "schedulers[0] ('s'): "),
        ({"name": "s", "cron": "* * * * *", "tz": "Mars/Base"}, "Mars/Base"),
        ({"name": "s", "every_seconds": 1, "tz": "UTC"}, "`tz` applies to cron patterns only; remove it"),
        ({"name": "s", "every_seconds": 0}, "schedulers[0] ('s'): "),
        ({"cron": "* * * * *"}, "schedulers[0]: 'name' is missing"),
    ],
)
def test_a_wrong_scheduler_is_told_by_its_place(sandbox: DefsFolderSandbox, spec: Any, words: str) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011  Dagster wraps it
        definitions(sandbox, QueueSchedulersComponent, **SCHEDULERS, schedulers=[spec])
    assert words in whole_story(caught.value)


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
        [DG, *arguments], cwd=project, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.timeout(620)
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
        name
        for name in components.__all__
        if isinstance(kind := getattr(components, name), type) and issubclass(kind, dg.Component)
    }
    assert found == {kind.__name__ for kind in [*ALL, QueueResourceComponent]}
