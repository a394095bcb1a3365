"""Sensors and the trigger of asset watchers: no event is missed or handled twice, whatever starts again meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import redis
from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger
from airflow.sdk import Asset, AssetWatcher
from airflow.sdk.exceptions import AirflowException, AirflowSensorTimeout, AirflowSkipException, TaskDeferred
from airflow.triggers.shared_stream import SharedStreamManager
from structlog import get_logger

from orchestration_queue import JobFailedError, JobNotFoundError, Queue, UsageError
from orchestration_queue.airflow.provider import JobSensor, QueueEventSensor, QueueEventTrigger
from orchestration_queue.airflow.provider import connections as shared
from orchestration_queue.airflow.provider.event_triggers import FirstEventTrigger
from tests.airflow.provider import FakeInstance, connection_json, context_of, fire, handle, rebuild, serving
from tests.waiting import wait_until, wait_until_sync

VARIABLE = "AIRFLOW_CONN_ORCHESTRATION_QUEUE_DEFAULT"


@pytest.fixture(autouse=True)
def connection(server_url: str, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Airflow's default connection to an empty server; what was opened is closed."""
    monkeypatch.setenv(VARIABLE, connection_json(server_url))
    yield
    assert not shared._open


@pytest.fixture
def queue(server_url: str, queue_name: str) -> Iterator[Queue]:
    with Queue(queue_name, url=server_url) as queue:
        yield queue


def defer(sensor: JobSensor | QueueEventSensor, instance: FakeInstance) -> Any:
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute(context_of(instance))
    assert deferred.value.timeout == sensor.timeout
    return rebuild(deferred.value.trigger)


def positions(raw: redis.Redis, queue: Queue) -> dict[str, str]:
    """Up to where the queue keeps events for sensors and watchers, by the name of each."""
    found: dict[str, str] = raw.hgetall(queue.keys.events_readers)  # type: ignore[assignment]  # it decodes replies
    stored = {name: value.split() for name, value in found.items() if name}
    seconds, microseconds = raw.time()
    now_ms = seconds * 1000 + microseconds // 1000
    return {name: at for name, (at, until) in stored.items() if name.startswith("airflow") and int(until) > now_ms}


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_sensor_returns_the_result_of_a_job(queue: Queue, server_url: str, deferrable: bool) -> None:
    job = queue.add("extract", {"day": 1})
    sensor = JobSensor(
        task_id="s", queue_name=queue.name, job_id=job.id, deferrable=deferrable, poke_interval=0.05, timeout=60
    )
    if deferrable:
        trigger = defer(sensor, FakeInstance())
        with serving(queue.name, server_url, handle):
            assert sensor.execute_complete(context_of(FakeInstance()), asyncio.run(fire(trigger))) == {
                "got": {"day": 1}
            }
    with serving(queue.name, server_url, handle):
        assert sensor.execute(context_of(FakeInstance())) == {"got": {"day": 1}}


def test_a_sensor_fails_with_the_job(queue: Queue, server_url: str) -> None:
    job = queue.add("fail")
    sensor = JobSensor(task_id="s", queue_name=queue.name, job_id=job.id)
    trigger = defer(sensor, FakeInstance())
    with serving(queue.name, server_url, handle):
        event = asyncio.run(fire(trigger))
    with pytest.raises(JobFailedError, match="no luck"):
        sensor.execute_complete(context_of(FakeInstance()), event)
    with pytest.raises(JobFailedError, match="no luck"):
        sensor.execute(context_of(FakeInstance()))


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_sensor_that_never_fails_is_skipped(queue: Queue, deferrable: bool) -> None:
    sensor = JobSensor(task_id="s", queue_name=queue.name, job_id="42", deferrable=deferrable, never_fail=True)
    with pytest.raises(AirflowSkipException):
        sensor.execute(context_of(FakeInstance()))
    failure = {"queue": queue.name, "job_id": "42", "reason": "no luck"}
    with pytest.raises(AirflowSkipException, match="no luck"):
        sensor.resume_execution("execute_complete", {"event": {"failure": failure}}, context_of(FakeInstance()))


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_job_that_does_not_exist_is_named(queue: Queue, deferrable: bool) -> None:
    sensor = JobSensor(task_id="s", queue_name=queue.name, job_id="42", deferrable=deferrable)
    with pytest.raises(JobNotFoundError, match=f"Queue '{queue.name}' has no job '42'"):
        sensor.execute(context_of(FakeInstance()))


def test_a_sensor_finds_the_first_event_after_its_start(queue: Queue, raw: redis.Redis) -> None:
    queue.add("load", "before")
    sensor = QueueEventSensor(task_id="s", queue_name=queue.name, events=["added"], job_names=["load"])
    instance = FakeInstance()
    trigger = defer(sensor, instance)
    queue.add("extract")
    job = queue.add("load")  # before a triggerer has started the trigger
    event = asyncio.run(fire(trigger))
    assert asyncio.run(fire(trigger)) == event  # of a triggerer that died before it had told Airflow
    found = sensor.execute_complete(context_of(instance), event)
    assert (found["type"], found["job_id"], found["job_name"]) == ("added", job.id, "load")
    wait_until_sync(lambda: not positions(raw, queue), "the end of its position")


def test_a_sensor_that_runs_again_begins_where_it_began(queue: Queue) -> None:
    instance = FakeInstance()

    def build() -> QueueEventSensor:
        return QueueEventSensor(task_id="s", queue_name=queue.name, events=["added"])

    defer(build(), instance)
    job = queue.add("load")
    assert build().execute(context_of(instance))["job_id"] == job.id  # the worker had died before it told Airflow


async def test_a_trigger_that_waits_long_does_not_read_everything_again(queue: Queue, raw: redis.Redis) -> None:
    trigger = FirstEventTrigger(queue.name, ["completed"], [], "airflow-x")
    waiting = asyncio.ensure_future(fire(trigger))
    await wait_until(lambda: positions(raw, queue), "the trigger")
    before = positions(raw, queue)
    queue.add("load")
    await wait_until(lambda: positions(raw, queue) != before, "its position")
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await trigger.on_kill()
    await wait_until(lambda: not positions(raw, queue), "the end of its position")


@pytest.mark.parametrize("mode", ["poke", "reschedule"])
def test_a_sensor_that_looks_from_time_to_time_misses_nothing(queue: Queue, raw: redis.Redis, mode: str) -> None:
    instance = FakeInstance()

    def build() -> QueueEventSensor:  # in the mode `reschedule`, each look is that of another process
        return QueueEventSensor(
            task_id="s", queue_name=queue.name, events=["added"], job_names=["load"], deferrable=False, mode=mode
        )

    assert not build().poke(context_of(instance))
    jobs = [queue.add("load" if number == 250 else "extract") for number in range(300)]
    found = build().poke(context_of(instance))
    assert found
    assert dict(found.xcom_value or {})["job_id"] == jobs[250].id
    wait_until_sync(lambda: not positions(raw, queue), "the end of its position")


class Recorder:
    """Airflow's part of a watcher: it takes events, and says that they were recorded, until it dies."""

    def __init__(self, trigger: QueueEventTrigger) -> None:
        path, arguments = trigger.serialize()
        assert path == f"{QueueEventTrigger.__module__}.QueueEventTrigger"
        self.trigger = QueueEventTrigger(**arguments)
        self.manager = SharedStreamManager(log=get_logger())
        self.jobs: list[str] = []

    async def __aenter__(self) -> Recorder:
        self.task = asyncio.ensure_future(self._take())
        return self

    async def _take(self) -> None:
        key = self.trigger.shared_stream_key()
        stream = self.manager.subscribe(trigger_id=1, trigger=self.trigger, key=key)
        number = 0
        try:
            async for event in self.trigger.filter_shared_stream(stream):
                self.jobs.append(event.payload["job_id"])
                number += 1
                sequence = self.manager.bind_pending_event(trigger_id=1, key=key)
                assert sequence is not None
                self.manager.confirm_persisted([sequence])
        finally:
            await self.manager.unsubscribe(1, key)

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.manager.stop_all()


async def test_a_watcher_records_each_event_once_over_restarts(queue: Queue, raw: redis.Redis) -> None:
    trigger = QueueEventTrigger(queue.name, ["added"], ["load"])
    queue.add("load", "before the first start")
    added: list[str] = []
    async with Recorder(trigger) as first:
        await wait_until(lambda: positions(raw, queue), "the first start")
        added += [queue.add("load").id for _ in range(5)]
        queue.add("extract")
        await wait_until(lambda: first.jobs == added, "the first events")
    added += [queue.add("load").id for _ in range(2_000)]  # while no triggerer runs
    async with Recorder(trigger) as second:
        await wait_until(lambda: len(second.jobs) >= 2_000, "events of the outage")
        added.append(queue.add("load").id)
        await wait_until(lambda: second.jobs[-1:] == added[-1:], "the last event")
    assert first.jobs + second.jobs == added


async def test_events_that_were_not_recorded_are_read_again(queue: Queue, raw: redis.Redis) -> None:
    trigger = QueueEventTrigger(queue.name, ["added"])
    async with Recorder(trigger):
        await wait_until(lambda: positions(raw, queue), "the first start")
    job = queue.add("load")
    producer = QueueEventTrigger.create_shared_stream_producer(trigger.serialize()[1])
    stream: AsyncIterator[Any] = producer.open_stream()
    event, _ = await anext(stream)
    assert event["job_id"] == job.id
    await stream.aclose()  # type: ignore[attr-defined]  # a generator: the triggerer dies here
    await producer.aclose()
    async with Recorder(trigger) as later:
        await wait_until(lambda: later.jobs == [job.id], "the event")


def test_an_asset_s_watcher_is_named_by_its_scheme(queue: Queue) -> None:
    trigger = MessageQueueTrigger(scheme="orchestration_queue", queue_name=queue.name, job_names=["load"])
    ours = QueueEventTrigger(queue.name, job_names=["load"])
    assert trigger.serialize() == ours.serialize()
    asset = Asset("loaded", watchers=[AssetWatcher(name="loads", trigger=ours)])
    assert asset.watchers[0].trigger is ours


WRONG: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (JobSensor, {"queue_name": "a:b", "job_id": "1"}, "Queue name 'a:b' contains ':'"),
    (JobSensor, {"queue_name": "q", "job_id": 5}, "`job_id` must be text that is not empty"),
    (JobSensor, {"queue_name": "q", "job_id": "1", "deferrable": 0}, "`deferrable` must be True or False"),
    (
        QueueEventSensor,
        {"queue_name": "q", "events": ["complete"]},
        "Queues have no event 'complete'; use 'completed'.",
    ),
    (QueueEventSensor, {"queue_name": "q", "events": ["x"]}, "Queues have no event 'x'; use some of"),
    (QueueEventSensor, {"queue_name": "q", "events": []}, "`events` must not be empty"),
    (QueueEventSensor, {"queue_name": "q", "events": "completed"}, "`events` must be a list of texts"),
    (QueueEventSensor, {"queue_name": "q", "job_names": [5]}, "`job_names` must be a list of texts"),
    (QueueEventTrigger, {"queue_name": "a:b"}, "Queue name 'a:b' contains ':'"),
    (QueueEventTrigger, {"queue_name": "q", "events": ["done"]}, "Queues have no event 'done'"),
    (QueueEventTrigger, {"queue_name": "q", "reader": ""}, "`reader` must be text that is not empty"),
    (QueueEventTrigger, {"queue_name": "q", "queue_conn_id": 5}, "`queue_conn_id` must be text that is not empty"),
]


@pytest.mark.parametrize(("kind", "wrong", "sentence"), WRONG)
def test_what_is_wrong_is_refused_when_the_file_is_read(
    kind: Callable[..., Any], wrong: dict[str, Any], sentence: str
) -> None:
    task = {} if kind is QueueEventTrigger else {"task_id": "t"}
    with pytest.raises(UsageError) as refused:
        kind(**task, **wrong)
    assert sentence in str(refused.value)


async def test_a_trigger_with_a_wrong_connection_fails_the_task_in_one_sentence(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, connection_json("http://x"))
    event = await fire(FirstEventTrigger(queue.name, ["added"], [], "airflow-x"))
    sensor = JobSensor(task_id="s", queue_name=queue.name, job_id="1")
    with pytest.raises(AirflowException, match=r"^Airflow's connection 'orchestration_queue_default' cannot be used"):
        sensor.resume_execution("execute_complete", {"event": event}, context_of(FakeInstance()))


def test_a_sensor_s_time_limit_is_airflow_s(queue: Queue) -> None:
    sensor = QueueEventSensor(task_id="s", queue_name=queue.name, timeout=5)
    with pytest.raises(AirflowSensorTimeout):
        sensor.resume_execution("__fail__", {"error": "Trigger timeout"}, context_of(FakeInstance()))
