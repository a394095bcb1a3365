"""Components on ChasquiMQ's and qless's queues, from real files by Dagster's own loading."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any

import dagster as dg
import pytest
import redis
import yaml
from dagster.components.testing.utils import DefsFolderSandbox

from orchestration_queue.dagster.sensors.options import Shown
from orchestration_queue.dagster.testing import SensorTick, evaluate_sensor
from orchestration_queue.errors import UnrecoverableError
from orchestration_queue.wires.chasquimq import AsyncChasquiQueue
from orchestration_queue.wires.chasquimq import components as chasquimq_components
from orchestration_queue.wires.chasquimq.components import (
    ChasquiDeadLetterSensorComponent,
    ChasquiEventSensorComponent,
    ChasquiResourceComponent,
)
from orchestration_queue.wires.chasquimq.dagster import (
    ChasquiResource,
    chasqui_dead_letter_sensor,
    chasqui_event_sensor,
)
from orchestration_queue.wires.qless import components as qless_components
from orchestration_queue.wires.qless.components import (
    QlessEventSensorComponent,
    QlessFailureSensorComponent,
    QlessResourceComponent,
    QlessStalledSensorComponent,
)
from orchestration_queue.wires.qless.dagster import (
    QlessResource,
    qless_event_sensor,
    qless_failure_sensor,
    qless_stalled_sensor,
)
from tests.chasquimq.working import is_settled, working
from tests.dagster.sandboxes import WARNINGS, definitions, whole_story
from tests.waiting import wait_until, wait_until_sync

pytestmark = [pytest.mark.dagster, *WARNINGS]

OURS = "orchestration_queue/"
SENSORS: dict[type[dg.Component], tuple[Any, dict[str, Any]]] = {
    ChasquiEventSensorComponent: (chasqui_event_sensor, {"queue": "q"}),
    ChasquiDeadLetterSensorComponent: (chasqui_dead_letter_sensor, {"queue": "q"}),
    QlessEventSensorComponent: (qless_event_sensor, {}),
    QlessFailureSensorComponent: (qless_failure_sensor, {}),
    QlessStalledSensorComponent: (qless_stalled_sensor, {"queue": "q"}),
}
NAMED = {"name": "heard", "target": "key:report"}
FUNCTIONS = """
import dagster as dg

@dg.template_var
def of():
    return lambda found: dg.RunRequest(tags={"of": getattr(found, "jid", None) or found.job_id})
"""


@dg.asset
def report() -> None:
    """What the sensors' runs make."""


@pytest.fixture
def chasqui(server_url: str) -> Iterator[ChasquiResource]:
    made = ChasquiResource(url=server_url)
    yield made
    made.close()


@pytest.fixture
def qless(server_url: str) -> Iterator[QlessResource]:
    made = QlessResource(url=server_url, worker="me")
    yield made
    made.close()


def sensor_of(
    sandbox: DefsFolderSandbox, kind: type[dg.Component], functions: str = "", /, **attributes: Any
) -> dg.SensorDefinition:
    """Return the sensor that a file makes."""
    (sensor,) = definitions(sandbox, kind, functions, **NAMED, **attributes).sensors or ()
    assert isinstance(sensor, dg.SensorDefinition)
    return sensor


def tick(sensor: dg.SensorDefinition, resource: dg.ConfigurableResource[Any], cursor: str | None = None) -> SensorTick:
    """One tick of a sensor, whose resource has its usual name."""
    (key,) = sensor.required_resource_keys
    return evaluate_sensor(sensor, {key: resource}, cursor=cursor, definitions=dg.Definitions([report]))


async def run_jobs(queue: str, url: str, **outcomes: Exception | None) -> None:
    """Have a worker of a ChasquiMQ queue run jobs that end so."""

    async def end(job: Any) -> None:
        if error := outcomes[job.id]:
            raise error

    async with AsyncChasquiQueue(queue, url=url) as client, working(queue, end, url):
        for job_id in outcomes:
            await client.add("import", job_id=job_id, attempts=1)
        with redis.Redis.from_url(url) as server:
            await wait_until(lambda: is_settled(server, client.keys), "all jobs to end")


def test_sensors_on_a_chasquimq_queue(
    sandbox: DefsFolderSandbox, chasqui: ChasquiResource, server_url: str, queue_name: str
) -> None:
    asyncio.run(run_jobs(queue_name, server_url, good=None, bad=ValueError("x"), ugly=UnrecoverableError("no disk")))
    listens = {"queue": queue_name, "start": "0", "wait_seconds": 0.1}
    heard = sensor_of(sandbox, ChasquiEventSensorComponent, events=["completed"], job_names=["import"], **listens)
    (request,) = tick(heard, chasqui).run_requests
    assert (request.tags[OURS + "job_id"], request.tags[OURS + "event"]) == ("good", "completed")
    letters = sensor_of(
        sandbox,
        ChasquiDeadLetterSensorComponent,
        FUNCTIONS,
        queue=queue_name,
        reasons=["unrecoverable"],
        react="{{ of }}",
    )
    found = tick(letters, chasqui)
    assert [request.tags["of"] for request in found.run_requests] == ["ugly"]
    assert not tick(letters, chasqui, found.cursor).run_requests


def test_sensors_on_qless_queues(sandbox: DefsFolderSandbox, qless: QlessResource, queue_name: str) -> None:
    client = qless.client()
    client.set_config("heartbeat", -10)
    for jid in ("failed", "lost"):
        client.put(queue_name, "app.Import", jid=jid)
        (job,) = client.pop(queue_name)
        if jid == "failed":
            client.fail(job, "disk", "no space")
    failures = sensor_of(sandbox, QlessFailureSensorComponent, groups=["disk"], interval_seconds=5)
    assert [request.tags[OURS + "job_id"] for request in tick(failures, qless).run_requests] == ["failed"]
    assert failures.minimum_interval_seconds == 5
    stalled = sensor_of(sandbox, QlessStalledSensorComponent, FUNCTIONS, queue=queue_name, react="{{ of }}")
    assert [request.tags["of"] for request in tick(stalled, qless).run_requests] == ["lost"]


def test_a_sensor_on_qless_s_messages_listens(
    sandbox: DefsFolderSandbox, qless: QlessResource, server_url: str
) -> None:
    heard = sensor_of(sandbox, QlessEventSensorComponent, queues=["q"], wait_seconds=50)
    with redis.Redis.from_url(server_url) as server:

        def publish() -> None:
            wait_until_sync(lambda: server.pubsub_numsub("ql:log")[0][1], "the tick to listen")
            server.publish("ql:log", '{"jid": "a", "event": "completed", "queue": "q"}')

        thread = threading.Thread(target=publish)
        thread.start()
        (request,) = tick(heard, qless).run_requests
        thread.join()
    assert (request.tags[OURS + "job_id"], request.tags[OURS + "source_queue"]) == ("a", "q")


@pytest.mark.parametrize("kind", SENSORS)
def test_every_field_reaches_the_sensor(
    sandbox: DefsFolderSandbox, kind: type[dg.Component], monkeypatch: pytest.MonkeyPatch
) -> None:
    build, needs = SENSORS[kind]
    given: dict[str, Any] = {}
    words = ("events", "job_names", "reasons", "queues", "groups")
    values = {word: ["one"] for word in words} | {"start": "5-0", "wait_seconds": 3, "interval_seconds": 7, "limit": 9}
    shown = {"resource_key": "bus", "running": True, "description": "Hears."}
    fields = {name: value for name, value in values.items() if name in kind.model_fields}  # type: ignore[attr-defined]

    def build_sensor(*queue: str, **options: Any) -> Any:
        given.update(options)
        return build(*queue, **options)

    module = "chasquimq.dagster" if kind.__name__.startswith("Chasqui") else "qless.components"
    monkeypatch.setattr(f"orchestration_queue.wires.{module}.{build.__name__}", build_sensor)
    sensor_of(sandbox, kind, **needs, **fields, **shown)
    assert given | {name.removesuffix("_seconds"): value for name, value in fields.items()} == given
    assert (given["name"], given["resource_key"], given["description"]) == ("heard", "bus", "Hears.")
    assert given["default_status"] is dg.DefaultSensorStatus.RUNNING


@pytest.mark.parametrize(
    ("kind", "resource"), [(ChasquiResourceComponent, ChasquiResource), (QlessResourceComponent, QlessResource)]
)
def test_a_resource_takes_its_url_from_the_environment(
    sandbox: DefsFolderSandbox, kind: type[dg.Component], resource: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_QUEUE", "redis://:secret@host")
    made = definitions(sandbox, kind, resource_key="bus", url_variable="MY_QUEUE").resources or {}
    assert isinstance(made["bus"], resource)
    assert "secret" not in repr(made["bus"])


@pytest.mark.parametrize("kind", SENSORS)
def test_what_is_scaffolded_loads(sandbox: DefsFolderSandbox, kind: type[dg.Component]) -> None:
    path = sandbox.scaffold_component(kind, "all-imports", scaffold_params={"queue": "imports"})
    text = (path / "defs.yaml").read_text()
    assert yaml.safe_load(text)["attributes"]["name"] == "all_imports"
    assert "imports" in text.replace("all_imports", "")
    with sandbox.load_component_and_build_defs(path) as (_, made):
        assert made.sensors


MISTAKES: list[tuple[type[dg.Component], dict[str, Any], str]] = [
    (ChasquiEventSensorComponent, {"queue": ""}, "Sensor 'heard': "),
    (ChasquiEventSensorComponent, {"events": "completed"}, "events must be a list of words, got 'completed'"),
    (ChasquiEventSensorComponent, {"events": []}, "Sensor 'heard': `events` must not be empty; pass"),
    (ChasquiEventSensorComponent, {"job_names": [{}]}, "job_names[0] must be a word, got {}"),
    (ChasquiEventSensorComponent, {"start": "then"}, "Sensor 'heard': "),
    (ChasquiEventSensorComponent, {"wait_seconds": 51}, "Sensor 'heard': `wait` must be above 0 and at most 50 s"),
    (ChasquiEventSensorComponent, {"limit": 0}, "Sensor 'heard': `limit` must be a whole number >= 1"),
    (ChasquiEventSensorComponent, {"target": "key:"}, "`target` must be a selection of assets, got 'key:' ("),
    (ChasquiEventSensorComponent, {"react": "of"}, "react must be a function, got 'of'; write '{{ name }}'"),
    (ChasquiEventSensorComponent, {"name": "no name"}, '"no name" is not a valid name in Dagster'),
    (ChasquiEventSensorComponent, {"evnts": ["completed"]}, "evnts"),
    (ChasquiDeadLetterSensorComponent, {"reasons": 5}, "reasons must be a list of words, got 5"),
    (ChasquiDeadLetterSensorComponent, {"interval_seconds": 0}, "Sensor 'heard': `interval` must be >= 1 s, got"),
    (QlessEventSensorComponent, {"queues": "q"}, "queues must be a list of words, got 'q'"),
    (QlessEventSensorComponent, {"queues": [""]}, "Sensor 'heard': `queues[...]` must be a non-empty string"),
    (QlessEventSensorComponent, {"wait_seconds": 0}, "Sensor 'heard': `wait` must be above 0 and at most 50 s"),
    (QlessFailureSensorComponent, {"groups": [5]}, "groups[0] must be a word, got 5"),
    (QlessFailureSensorComponent, {"resource_key": ""}, "Sensor 'heard': Shown.resource_key (given '')"),
    (QlessStalledSensorComponent, {"queue": ""}, "Sensor 'heard': `queue` must be a non-empty string"),
    (QlessStalledSensorComponent, {"limit": -1}, "Sensor 'heard': `limit` must be a whole number >= 1"),
]


@pytest.mark.parametrize(("kind", "attributes", "words"), MISTAKES)
def test_a_mistake_is_told_in_a_sentence(
    sandbox: DefsFolderSandbox, kind: type[dg.Component], attributes: dict[str, Any], words: str
) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011  Dagster wraps it
        definitions(sandbox, kind, FUNCTIONS, **{**NAMED, **SENSORS[kind][1], **attributes})
    assert words in whole_story(caught.value)


def test_all_of_them_are_where_dg_looks_and_need_no_messagepack() -> None:
    looked = {entry.value for entry in entry_points(group="dagster_dg_cli.registry_modules")}
    kinds: list[type[dg.Component]] = [*SENSORS, ChasquiResourceComponent, QlessResourceComponent]
    assert {kind.__module__ for kind in kinds} <= looked
    modules = (chasquimq_components, qless_components)
    for module in modules:
        assert set(module.__all__) == {kind.__name__ for kind in kinds if kind.__module__ == module.__name__}
    names = ", ".join(module.__name__ for module in modules)
    program = f"import sys; sys.modules['msgpack'] = None; import {names}"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)


@pytest.mark.parametrize("kind", SENSORS)
def test_a_component_has_all_that_its_sensor_has(kind: type[dg.Component]) -> None:
    build, _ = SENSORS[kind]
    in_code = set(inspect.signature(build).parameters) - {"options"} | set(Shown.model_fields)
    in_yaml = {name.removesuffix("_seconds") for name in kind.model_fields}  # type: ignore[attr-defined]
    assert {*in_yaml, "job", "default_status"} - {"target", "running"} == in_code
