"""What may be configured counts: the fields, options and arguments that no other test would miss."""

# No `from __future__ import annotations` here: Dagster reads the annotations of contexts, and strings fail.

import os
import signal
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import redis
from dagster.components.testing.utils import DefsFolderSandbox, create_defs_folder_sandbox

from orchestration_queue import Dag, Node
from orchestration_queue.client import Queue
from orchestration_queue.dagster import (
    AssetTask,
    FlowResource,
    Limits,
    QueueResource,
    backlog_sensor,
    dead_letter_sensor,
    flow_completed_sensor,
    flow_sensor,
    queue_event_sensor,
    request_run,
    scheduler_sensor,
)
from orchestration_queue.dagster.assets.task_assets import queue_flow_assets
from orchestration_queue.dagster.components import (
    QueueFlowComponent,
    QueueResourceComponent,
    QueueSchedulersComponent,
    QueueTaskComponent,
)
from orchestration_queue.dagster.pipes import PipesQueueClient
from orchestration_queue.dagster.sensors.ticks import dump_cursor
from orchestration_queue.dagster.steps.step_handler import ExecutorOptions, QueueStepHandler
from orchestration_queue.dagster.steps.work_item import WorkItem
from orchestration_queue.errors import StateError
from orchestration_queue.options import JobOptions
from orchestration_queue.protocol.keys import QueueKeys
from tests.dagster import steps
from tests.dagster.step_workers import Fleet
from tests.dagster.ticks import SHORT, happened, target, tick
from tests.waiting import wait_until_sync

pytestmark = [
    pytest.mark.dagster,
    pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated"),  # by which Dagster reads YAML
    pytest.mark.filterwarnings("ignore:Parameter `owners` of initializer `SensorDef"),  # which its loading gives
    pytest.mark.filterwarnings("ignore:Class `.*CodeReference.*` is currently in beta"),  # its own, too
    pytest.mark.filterwarnings("ignore:AssetExecutionContext.*is deprecated:DeprecationWarning"),  # its own Pipes
]


# The executor.


def test_lease_version_and_the_tag_for_time_reach_the_steps_job(
    instance: dg.DagsterInstance, server_url: str, queue_name: str, tmp_path: Path
) -> None:
    nobody = Fleet(instance, server_url, queue_name, tmp_path)
    tags = {"orchestration_queue/timeout": "44"}
    result = nobody.run(steps.where_job, tags=tags, lease=7.0, code_version="v3", unclaimed_timeout=0.5)
    with Queue(queue_name, url=server_url) as queue:
        record = queue.get(f"dagster.{result.run_id}.where_0.1").record
    assert (record.options["lockDuration"], record.options["timeout"]) == (7_000, 44_000)
    work = WorkItem.from_data(record.data)
    assert (work.code_version, work.timeout) == ("v3", timedelta(seconds=44))


def test_a_worker_counts_as_lost_after_the_executors_lease(server_url: str, queue_name: str, raw: redis.Redis) -> None:
    keys = QueueKeys(queue_name)
    raw.hset(keys.job("s"), mapping={"id": "s", "state": "active", "lastActive": "1"})
    leases = (timedelta(seconds=0.5), timedelta(hours=1))
    impatient, patient = (QueueStepHandler(ExecutorOptions(url=server_url, lease=lease)) for lease in leases)
    for handler in (impatient, patient):
        handler.begin("r")
    try:
        for handler in (patient, impatient):
            assert handler.watch.verdict(keys, "s") is None
        wait_until_sync(lambda: impatient.watch.verdict(keys, "s") is not None, "the loss to be noticed", 60)
        assert patient.watch.verdict(keys, "s") is None
        assert not patient.watch.has_suspects
    finally:
        for handler in (impatient, patient):
            handler.close()


# Resources.


def test_a_prefix_reaches_all_that_resources_make(server_url: str, queue_name: str, raw: redis.Redis) -> None:
    resource, flows = (kind(url=server_url, prefix="mine") for kind in (QueueResource, FlowResource))
    assert isinstance(resource, QueueResource)
    assert isinstance(flows, FlowResource)
    dag = Dag("load", [Node("raw")], queue_name)
    with resource.events(queue_name) as events:
        resource.queue(queue_name).add("work", {})
        resource.flow_producer().submit(dag)
        flows.submit(dag)
        assert next(iter(events)).type == "added"
    assert {str(key).partition(":")[0] for key in raw.scan_iter()} == {"mine"}
    resource.close()
    flows.close()


def test_prefix_and_time_to_live_of_pipes_reach_their_keys(
    uncaptured: dg.DagsterInstance, server_url: str, queue_name: str, raw: redis.Redis
) -> None:
    client = PipesQueueClient(url=server_url, prefix="mine", ttl_seconds=77)
    failing = threading.Thread(target=_materialize, args=(queue_name, client, uncaptured))
    failing.start()
    with Queue(queue_name, url=server_url, prefix="mine") as queue:
        wait_until_sync(lambda: queue.counts().waiting, "the job to wait", 60)
        kept = {str(key): raw.ttl(key) for key in raw.scan_iter("*:pipes:*")}
        (job,) = queue.jobs("waiting")
        job.cancel()
        failing.join(60)
    client.close()
    assert not failing.is_alive()
    assert kept
    assert all(key.startswith("mine:") and 60 < ttl <= 77 for key, ttl in kept.items())


def test_a_cancelled_step_waits_for_its_job_as_long_as_pipes_are_told(
    uncaptured: dg.DagsterInstance, server_url: str, queue_name: str, raw: redis.Redis
) -> None:
    client = PipesQueueClient(url=server_url, cancel_timeout_seconds=0.1)
    since: list[float] = []

    def cancel() -> None:
        with Queue(queue_name, url=server_url) as queue:
            wait_until_sync(lambda: queue.counts().waiting, "the job to wait", 60)
            (job,) = queue.jobs("waiting")
            raw.hset(f"glide:{{{queue_name}}}:job:{job.id}", "state", "active")  # a worker that never ends it
            since.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

    cancelling = threading.Thread(target=cancel)
    cancelling.start()
    with pytest.raises(dg.DagsterExecutionInterruptedError):
        _materialize(queue_name, client, uncaptured, raise_on_error=True)
    cancelling.join()
    assert time.monotonic() - since[0] < 20, "by default it would be more"
    client.close()


def _materialize(
    queue: str, client: PipesQueueClient, instance: dg.DagsterInstance, raise_on_error: bool = False
) -> None:
    @dg.asset
    def made(context: dg.AssetExecutionContext, pipes: PipesQueueClient) -> None:
        pipes.run(context=context, queue=queue, task="never")

    dg.materialize([made], instance=instance, resources={"pipes": client}, raise_on_error=raise_on_error)


# Components.


@pytest.fixture
def sandbox() -> Iterator[DefsFolderSandbox]:
    with create_defs_folder_sandbox() as made:
        yield made


def definitions(sandbox: DefsFolderSandbox, kind: type[dg.Component], **attributes: Any) -> dg.Definitions:
    """What a component's file makes."""
    written = {"type": f"orchestration_queue.dagster.components.{kind.__name__}", "attributes": attributes}
    path = sandbox.scaffold_component(kind, defs_yaml_contents=written)
    with sandbox.load_component_and_build_defs(path) as (_, made):
        return made


NODE: dict[str, Any] = {
    "asset": "lake/clean",
    "task": "tidy",
    "arguments": {"day": 1},
    "deps": ["raw"],
    "queue": "narrow",
    "description": "Tidy rows.",
    "group": "tables",
    "owners": ["team:lake"],
    "tags": {"tier": "gold"},
    "attempts": 3,
    "timeout_seconds": 30,
    "priority": 7,
}


@pytest.mark.parametrize(
    ("kind", "attributes", "name", "queue"),
    [
        (QueueFlowComponent, {"name": "tables", "queue": "data", "nodes": [NODE]}, "tables", "data"),
        (QueueTaskComponent, NODE, "lake__clean", "narrow"),
    ],
)
def test_every_field_of_a_node_and_its_component_counts(
    sandbox: DefsFolderSandbox,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[dg.Component],
    attributes: dict[str, Any],
    name: str,
    queue: str,
) -> None:
    given: dict[str, Any] = {}

    def made(tasks: list[AssetTask], **options: Any) -> dg.AssetsDefinition:
        given.update(options, tasks=tasks)
        return queue_flow_assets(tasks, **options)

    monkeypatch.setattr("orchestration_queue.dagster.components.flow.queue_flow_assets", made)
    definitions(sandbox, kind, **attributes, resource_key="bus", retries=2, pool="narrow")
    (task,) = given.pop("tasks")
    retried = dg.RetryPolicy(max_retries=2)
    assert given == {"name": name, "queue": queue, "resource_key": "bus", "retry_policy": retried, "pool": "narrow"}
    assert (task.task, task.arguments, task.queue) == ("tidy", {"day": 1}, "narrow")
    assert task.options == JobOptions(attempts=3, timeout=timedelta(seconds=30), priority=7)
    spec = task.spec
    assert (spec.key.to_user_string(), [dep.asset_key.to_user_string() for dep in spec.deps]) == ("lake/clean", ["raw"])
    assert (spec.description, spec.group_name, spec.owners) == ("Tidy rows.", "tables", ["team:lake"])
    assert spec.tags["tier"] == "gold"


def test_every_field_of_a_scheduler_reaches_its_entry(
    sandbox: DefsFolderSandbox, instance: dg.DagsterInstance, resource: QueueResource, queue_name: str
) -> None:
    specs = [
        {"name": "often", "every_seconds": 30, "task": "extract", "data": {"full": True}, "attempts": 3},
        {"name": "after", "after_seconds": 5, "priority": 7},
    ]
    made = definitions(
        sandbox, QueueSchedulersComponent, queue=queue_name, schedulers=specs, job_name="write_all", resource_key="bus"
    )
    whole = dg.Definitions.merge(made, dg.Definitions(resources={"bus": resource}))
    assert whole.resolve_job_def("write_all").execute_in_process(instance=instance).success
    entries = resource.queue(queue_name).schedulers.list()
    often, after = (entries[name].members for name in ("often", "after"))
    assert often["every"] == 30_000
    template = often["template"]
    assert (template["name"], template["data"], template["opts"]["attempts"]) == ("extract", {"full": True}, 3)
    assert after["repeatAfterComplete"] == 5_000
    assert after["template"]["opts"]["priority"] == 7


def test_the_resources_variable_is_the_one_that_is_named(sandbox: DefsFolderSandbox) -> None:
    made = definitions(sandbox, QueueResourceComponent, url_variable="MY_QUEUE")
    assert (made.resources or {})["queue"].url == dg.EnvVar("MY_QUEUE")


# Sensors.

SHOWN: dict[str, Any] = {
    "resource_key": "bus",
    "default_status": dg.DefaultSensorStatus.RUNNING,
    "description": "Shown.",
    "name": "called",
}


@pytest.mark.parametrize(
    "sensor",
    [
        queue_event_sensor(request_run, queue="q", job=target, **SHOWN),
        flow_sensor("load", queue="q", job=target, **SHOWN),
        flow_completed_sensor("load", last_nodes=["a"], queue="q", job=target, **SHOWN),
        dead_letter_sensor("q", job=target, **SHOWN),
        backlog_sensor("q", job=target, limits=Limits(depth=1), **SHOWN),
        scheduler_sensor("q", "nightly", job=target, **SHOWN),
    ],
    ids=["event", "flow", "completed", "dead-letter", "backlog", "scheduler"],
)
def test_every_sensor_stands_as_its_options_say(sensor: dg.SensorDefinition) -> None:
    assert (sensor.name, sensor.description) == ("called", "Shown.")
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    assert sensor.required_resource_keys == {"bus"}
    assert sensor.job_name == "target"


def listening(kind: str, queue: str, **options: Any) -> dg.SensorDefinition:
    """A sensor of each kind that listens."""
    match kind:
        case "event":
            return queue_event_sensor(request_run, name="s", queue=queue, job=target, **options)
        case "flow":
            return flow_sensor("load", queue=queue, job=target, **options)
        case "completed":
            return flow_completed_sensor("load", last_nodes=["a"], name="s", queue=queue, job=target, **options)
        case _:
            return scheduler_sensor(queue, "nightly", job=target, **options)


KINDS = pytest.mark.parametrize("kind", ["event", "flow", "completed", "scheduler"])


@KINDS
def test_a_quiet_tick_ends_when_it_has_waited_so_long(
    resource: QueueResource, queue_name: str, raw: redis.Redis, kind: str
) -> None:
    begun = time.monotonic()
    assert not tick(listening(kind, queue_name, wait=SHORT), resource, None).run_requests
    assert 0.2 <= time.monotonic() - begun < 20, "by default it would be more"


@KINDS
def test_every_listening_sensor_minds_start_limit_and_gaps(
    resource: QueueResource, queue_name: str, raw: redis.Redis, kind: str
) -> None:
    first, *_, last = [happened(raw, queue_name, "progress", str(number)) for number in range(5)]
    options: dict[str, Any] = {"wait": SHORT, "on_gap": "fail"}
    assert tick(listening(kind, queue_name, **options), resource, None).cursor is not None
    now = tick(listening(kind, queue_name, **options), resource, None)
    assert last in str(now.cursor)
    brief = listening(kind, queue_name, **{**options, "wait": timedelta(microseconds=1)}, start="oldest", limit=2)
    assert last not in str(tick(brief, resource, None).cursor), "its time is over after one read, which is of two"
    raw.xtrim(f"glide:{{{queue_name}}}:events", maxlen=1, approximate=False)
    with pytest.raises(StateError, match="dropped events after"):
        tick(listening(kind, queue_name, **options), resource, dump_cursor({queue_name: first}))
