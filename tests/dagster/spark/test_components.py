"""Spark steps in YAML, from real files by Dagster's own loading."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib.metadata import entry_points
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster.components.testing.utils import DefsFolderSandbox

from orchestration_queue.client import AsyncQueue
from orchestration_queue.dagster.spark import PipesSparkClient, components
from orchestration_queue.dagster.spark.components import SparkClientComponent, SparkStepComponent, SparkStepOptions
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.spark import SparkOptions, SparkSubmit
from tests.dagster.sandboxes import whole_story
from tests.waiting import wait_until
from tests.workers import working

pytestmark = [
    pytest.mark.dagster,
    pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated"),  # by which Dagster reads YAML
    pytest.mark.filterwarnings("ignore:Parameter `owners` of"),  # which its loading gives
    pytest.mark.filterwarnings("ignore:Class `.*CodeReference.*` is currently in beta"),  # its own, too
    pytest.mark.filterwarnings("ignore:AssetExecutionContext.*is deprecated:DeprecationWarning"),
]


def definitions(sandbox: DefsFolderSandbox, **attributes: Any) -> dg.Definitions:
    """What a step's file makes."""
    written = {"type": f"{SparkStepComponent.__module__}.SparkStepComponent", "attributes": attributes}
    path = sandbox.scaffold_component(SparkStepComponent, defs_yaml_contents=written)
    with sandbox.load_component_and_build_defs(path) as (_, made):
        return made


def the_asset(made: dg.Definitions) -> dg.AssetsDefinition:
    (asset,) = made.assets or ()
    assert isinstance(asset, dg.AssetsDefinition)
    return asset


def test_every_field_of_a_step_counts(sandbox: DefsFolderSandbox) -> None:
    made = definitions(
        sandbox,
        asset="lake/totals",
        script="daily/totals.py",
        arguments=["--day", "{partition}"],
        partitions={"kind": "daily", "start": "2013-01-01", "end": "2014-01-01", "tz": "America/New_York"},
        deps=["lake/flights"],
        checks=["not_empty"],
        description="All of a day.",
        group="gold",
        owners=["team:data"],
        tags={"tier": "top"},
        retries=2,
        pool="warehouse",
        on_event={"queue": "uploads", "events": ["completed"], "running": True},
    )
    asset = the_asset(made)
    spec = asset.get_asset_spec(key := dg.AssetKey(["lake", "totals"]))
    assert (spec.description, spec.group_name, spec.owners, spec.tags["tier"]) == (
        "All of a day.",
        "gold",
        ["team:data"],
        "top",
    )
    assert {"spark", "queue"} <= spec.kinds
    assert [dep.asset_key for dep in spec.deps] == [dg.AssetKey(["lake", "flights"])]
    assert [*asset.check_keys] == [dg.AssetCheckKey(key, "not_empty")]
    assert asset.partitions_def == dg.DailyPartitionsDefinition(
        "2013-01-01", end_date="2014-01-01", timezone="America/New_York"
    )
    assert asset.op.pool == "warehouse"
    assert asset.op.retry_policy == dg.RetryPolicy(max_retries=2)
    (sensor,) = made.sensors or ()
    assert isinstance(sensor, dg.SensorDefinition)
    assert (sensor.name, sensor.default_status) == ("lake__totals_on_event", dg.DefaultSensorStatus.RUNNING)
    assert sensor.required_resource_keys == {"spark"}
    whole = dg.Definitions.merge(made, dg.Definitions(resources={"spark": PipesSparkClient()}))
    made_by_it = whole.get_repository_def().get_job(str(sensor.job_name))
    assert made_by_it.asset_layer.executable_asset_keys == {key}


def test_a_step_adds_the_job_that_its_file_says(
    sandbox: DefsFolderSandbox, instance: dg.DagsterInstance, server_url: str, queue_name: str
) -> None:
    made = definitions(
        sandbox,
        asset="totals",
        script="daily/totals.py",
        arguments=["--day", "{partition}", "--top", "5", 7],
        spark={"runtime": "submit", "memory": "2g", "timeout_seconds": 90, "conf": {"spark.sql.ansi.enabled": True}},
        queue=queue_name,
        attempts=3,
        priority=7,
        partitions={"kind": "static", "values": ["a", "b"]},
        resource_key="cluster",
    )
    client = PipesSparkClient(url=server_url, cancel_timeout_seconds=0)
    whole = dg.Definitions.merge(made, dg.Definitions(resources={"cluster": client}))
    with serving(queue_name, server_url) as served:
        job = whole.resolve_implicit_global_asset_job_def()
        assert job.execute_in_process(instance=instance, partition_key="b").success
    (record,) = served
    assert record.name == "spark_step"
    assert record.data == {
        "script": "daily/totals.py",
        "arguments": ["--day", "b", "--top", "5", "7"],
        "by_submit": True,
        "options": {"memory": "2g", "timeout": "PT1M30S", "conf": {"spark.sql.ansi.enabled": "true"}},
    }
    assert (record.options["attempts"], record.options["priority"]) == (3, 7)


@contextmanager
def serving(queue_name: str, url: str) -> Iterator[list[JobRecord]]:
    """A worker in a thread, which only notes what it is to do."""
    served: list[JobRecord] = []
    is_over = threading.Event()

    async def work() -> None:
        async with AsyncQueue(queue_name, url=url) as queue, working(queue, lambda job: served.append(job.record), url):
            await wait_until(is_over.is_set, "the test to end", 240)

    thread = threading.Thread(target=asyncio.run, args=(work(),))
    thread.start()
    try:
        yield served
    finally:
        is_over.set()
        thread.join()


def test_a_task_gets_its_arguments_by_name(
    sandbox: DefsFolderSandbox, instance: dg.DagsterInstance, server_url: str, queue_name: str
) -> None:
    made = definitions(sandbox, asset="rows", task="count_rows", arguments={"rows": 5}, queue=queue_name)
    whole = dg.Definitions.merge(made, dg.Definitions(resources={"spark": PipesSparkClient(url=server_url)}))
    with serving(queue_name, server_url) as served:
        assert whole.resolve_implicit_global_asset_job_def().execute_in_process(instance=instance).success
    (record,) = served
    assert (record.name, record.data) == ("count_rows", {"rows": 5})


def test_options_are_those_that_code_would_say() -> None:
    every = {
        "app_name": "a",
        "memory": "2g",
        "driver_cores": 1,
        "executors": 2,
        "executor_memory": "3g",
        "executor_cores": 4,
        "shuffle_partitions": 5,
        "conf": {"spark.sql.ansi.enabled": "true"},
    }
    submit = SparkStepOptions(runtime="submit", timeout_seconds=60, **every)
    assert submit.options() == SparkSubmit(timeout=timedelta(minutes=1), **every)
    session = SparkStepOptions(shuffle_partitions=5, timeout_seconds=60)
    assert session.options() == SparkOptions(shuffle_partitions=5, timeout=timedelta(minutes=1))


def test_the_client_in_yaml_takes_its_url_from_the_environment(
    sandbox: DefsFolderSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_QUEUE", "redis://:secret@host")
    attributes = {"resource_key": "cluster", "url_variable": "MY_QUEUE", "prefix": "p", "default_queue": "heavy"}
    written = {"type": f"{SparkClientComponent.__module__}.SparkClientComponent", "attributes": attributes}
    path = sandbox.scaffold_component(SparkClientComponent, defs_yaml_contents=written)
    with sandbox.load_component_and_build_defs(path) as (_, made):
        client = (made.resources or {})["cluster"]
    assert isinstance(client, PipesSparkClient)
    assert (client.prefix, client.default_queue) == ("p", "heavy")
    assert "secret" not in repr(client)


def test_what_is_scaffolded_loads(sandbox: DefsFolderSandbox) -> None:
    path = sandbox.scaffold_component(SparkStepComponent, "daily-totals", scaffold_params={"queue": "gold"})
    attributes = yaml.safe_load((path / "defs.yaml").read_text())["attributes"]
    assert (attributes["queue"], attributes["script"]) == ("gold", "daily_totals.py")
    with sandbox.load_component_and_build_defs(path) as (_, made):
        assert the_asset(made).key == dg.AssetKey("daily_totals")


SCRIPT: dict[str, Any] = {"asset": "a", "script": "a.py"}


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"asset": "a"}, "Spark step 'a' must have either `script` or `task`, got neither; set one."),
        ({**SCRIPT, "task": "t"}, "Spark step 'a' must have either `script` or `task`, got both; set one."),
        ({"asset": "a", "script": "/a.py"}, "relative to the worker's directory of scripts, got '/a.py'"),
        ({"asset": "a", "script": "b/../../a.py"}, "relative to the worker's directory of scripts, got 'b/../../a.py'"),
        ({**SCRIPT, "arguments": {"x": 1}}, "must be a list of strings, got {'x': 1}"),
        ({"asset": "a", "task": "t", "arguments": ["x"]}, "of Spark step 'a' must be a mapping for a task, got ['x']"),
        (
            {"asset": "a", "task": "t", "spark": {}},
            "`spark` of Spark step 'a' applies to scripts, but a task has its own",
        ),
        ({**SCRIPT, "arguments": ["{partition}"]}, "{partition} in `arguments` of Spark step 'a' requires partitions"),
        ({**SCRIPT, "retries": -1}, "must be >= 0, got -1"),
        ({**SCRIPT, "attempts": -1}, "JobOptions.attempts (given -1)"),
        ({**SCRIPT, "spark": {"memry": "2g"}}, "spark: unknown key 'memry'; did you mean 'memory'?"),
        ({**SCRIPT, "spark": "2g"}, "spark must be a mapping, got '2g'"),
        ({**SCRIPT, "spark": {"memory": "2g"}}, "spark: `memory` applies to applications, not to sessions"),
        ({**SCRIPT, "spark": {"runtime": "submit", "memory": "much"}}, "spark: SparkSubmit.memory (given 'much')"),
        ({**SCRIPT, "spark": {"runtime": "yarn"}}, "spark: invalid value 'yarn' of 'runtime': "),
        ({**SCRIPT, "spark": {"timeout_seconds": -1}}, "spark: SparkOptions.timeout"),
        ({**SCRIPT, "partitions": {"kind": "daily"}}, "partitions: daily partitions require 'start'; add it."),
        ({**SCRIPT, "partitions": {"kind": "static"}}, "partitions: static partitions require 'values'; add it."),
        (
            {**SCRIPT, "partitions": {"kind": "dynamic", "start": "x"}},
            "Unknown key 'start' of dynamic partitions",
        ),
        ({**SCRIPT, "partitions": {"kind": "daily", "start": "soon"}}, "daily partitions can't be created"),
        ({**SCRIPT, "partitions": {"kind": "yearly"}}, "partitions: invalid value 'yearly' of 'kind': "),
        ({**SCRIPT, "on_event": {"events": ["completed"]}}, "on_event ('a_on_event'): 'queue' is missing; add it."),
        ({**SCRIPT, "on_event": {"queue": "q", "evnts": []}}, "unknown key 'evnts'; did you mean 'events'?"),
        ({**SCRIPT, "on_event": "q"}, "on_event must be a mapping, got 'q'"),
        ({**SCRIPT, "deps": "b"}, "deps must be a list of words, got 'b'"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(sandbox: DefsFolderSandbox, attributes: dict[str, Any], words: str) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011  Dagster wraps it
        definitions(sandbox, **attributes)
    assert words in whole_story(caught.value)


def test_dg_finds_the_components() -> None:
    named = {entry.value for entry in entry_points(group="dagster_dg_cli.registry_modules")}
    assert components.__name__ in named
    found = [
        name for name, kind in vars(components).items() if isinstance(kind, type) and issubclass(kind, dg.Component)
    ]
    assert {"SparkStepComponent", "SparkClientComponent"} <= set(found)
