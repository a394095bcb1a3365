"""Operators and their triggers on a real server: one job for each try, found again, cancelled, failed, refused."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, TaskDeferralTimeout, TaskDeferred
from airflow.serialization.serialized_objects import DagSerialization
from airflow.triggers.base import BaseTrigger

from orchestration_queue import JobFailedError, NewJob, Node, Queue, Retention, UsageError
from orchestration_queue.airflow.provider import AddFlowOperator, AddJobOperator, FlowTrigger, JobTrigger
from orchestration_queue.airflow.provider import connections as shared
from orchestration_queue.errors import FlowFailedError
from orchestration_queue.worker import ActiveJob
from tests.airflow.provider import FakeInstance, connection_json, context_of, fire, handle, rebuild, serving
from tests.chaos.saboteur import Saboteur
from tests.waiting import wait_until

CONSOLE = "http://console:8080"


@pytest.fixture(autouse=True)
def connection(server_url: str, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Airflow's default connection to an empty server; what was opened is closed."""
    monkeypatch.setenv(
        "AIRFLOW_CONN_ORCHESTRATION_QUEUE_DEFAULT", connection_json(server_url, console_url=CONSOLE + "/")
    )
    yield
    assert not shared._open


@pytest.fixture
def queue(server_url: str, queue_name: str) -> Iterator[Queue]:
    with Queue(queue_name, url=server_url) as queue:
        yield queue


def add_job(queue: Queue, **arguments: Any) -> AddJobOperator:
    return AddJobOperator(
        **{"task_id": "extract", "queue_name": queue.name, "job_name": "extract", "defer_after": 0, **arguments}
    )


def add_flow(queue: Queue, **arguments: Any) -> AddFlowOperator:
    nodes = [{"name": "extract", "data": {"day": 1}}, {"name": "load", "deps": ["extract"]}]
    return AddFlowOperator(
        **{"task_id": "tables", "queue_name": queue.name, "nodes": nodes, "defer_after": 0, **arguments}
    )


def defer(operator: AddJobOperator | AddFlowOperator, instance: FakeInstance) -> BaseTrigger:
    """Execute an operator until it waits; return the trigger as the triggerer builds it."""
    with pytest.raises(TaskDeferred) as deferred:
        operator.execute(context_of(instance))
    built: BaseTrigger = rebuild(deferred.value.trigger)
    return built


def fail(_: Any) -> str:
    raise LookupError("no logical date")


@pytest.mark.parametrize(
    ("parent", "is_disabled", "header"),
    [
        (lambda ti: f"airflow/{ti.dag_id}.{ti.task_id}/0198", False, "airflow/tables.extract/0198"),
        (lambda _: "unused", True, None),
        (fail, False, None),
    ],
)
def test_a_job_names_its_task_s_run_in_openlineage(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, parent: Callable[[Any], str], is_disabled: bool, header: str | None
) -> None:
    """With Airflow's provider for that, which is not installed here."""
    macros = SimpleNamespace(lineage_parent_id=parent)
    conf = SimpleNamespace(is_disabled=lambda: is_disabled)
    for name, module in (("", None), (".conf", conf), (".plugins", None), (".plugins.macros", macros)):
        monkeypatch.setitem(sys.modules, f"airflow.providers.openlineage{name}", module or SimpleNamespace())
    defer(add_job(queue), FakeInstance(dag_id="tables", task_id="extract"))
    (job,) = queue.jobs("waiting")
    assert job.record.headers.get("openlineage.parent") == header


def test_a_job_is_added_and_its_result_returned(queue: Queue, server_url: str) -> None:
    operator, instance = add_job(queue, data={"day": 1}, job_options={"attempts": 2}), FakeInstance()
    trigger = defer(operator, instance)
    (job,) = queue.jobs("waiting")
    assert (job.name, job.data, job.record.max_attempts) == ("extract", {"day": 1}, 2)
    assert job.record.headers["airflow.run_id"] == instance.run_id
    with serving(queue.name, server_url, handle):
        event = asyncio.run(fire(trigger))
    assert operator.execute_complete(context_of(instance), event) == {"got": {"day": 1}}
    page = f"{CONSOLE}/ui/queues/{queue.name}/jobs/{job.id}"
    assert instance.pushed == {"job_id": job.id, "_link_ConsoleLink": page}
    (link,) = operator.operator_extra_links
    assert link.get_link(operator, ti_key=instance) == page  # type: ignore[arg-type]  # as Airflow passes it


@pytest.mark.parametrize("build", [add_job, add_flow])
def test_a_try_that_runs_again_finds_its_work(queue: Queue, server_url: str, build: Callable[..., Any]) -> None:
    instance = FakeInstance()
    defer(build(queue), instance)
    before = queue.counts()
    trigger = defer(build(queue), instance)
    assert queue.counts() == before
    with serving(queue.name, server_url, handle):
        result = read(build(queue), instance, trigger)
    # It has ended meanwhile: no trigger is needed.
    assert build(queue).execute(context_of(instance)) == result


def read(operator: Any, instance: FakeInstance, trigger: BaseTrigger) -> Any:
    return operator.execute_complete(context_of(instance), asyncio.run(fire(trigger)))


def test_a_run_of_the_same_name_is_another_one(queue: Queue) -> None:
    defer(add_job(queue), FakeInstance())
    defer(add_job(queue), FakeInstance())
    assert queue.counts().waiting == 2


def test_a_later_try_waits_for_the_job_that_still_runs(queue: Queue, server_url: str) -> None:
    first = FakeInstance()
    defer(add_job(queue), first)
    second = FakeInstance(try_number=2)
    trigger = defer(add_job(queue), second)
    assert queue.counts().waiting == 1
    assert second.pushed["job_id"] == first.pushed["job_id"]
    with serving(queue.name, server_url, handle):
        assert read(add_job(queue), second, trigger) == {"got": None}
    defer(add_job(queue), FakeInstance(try_number=3))  # the job has ended: the task was cleared
    assert queue.counts().waiting == 1


def test_a_cancelled_job_is_not_waited_for_again(queue: Queue) -> None:
    defer(add_job(queue), FakeInstance())
    (first,) = queue.jobs("waiting")
    first.cancel()
    trigger = defer(add_job(queue), FakeInstance(try_number=2))
    assert isinstance(trigger, JobTrigger)
    assert trigger.job_id != first.id


def test_a_failed_job_fails_the_task_with_its_reason(queue: Queue, server_url: str) -> None:
    operator, instance = add_job(queue, job_name="fail"), FakeInstance()
    trigger = defer(operator, instance)
    with serving(queue.name, server_url, handle):
        event = asyncio.run(fire(trigger))
    with pytest.raises(JobFailedError, match=r"Job 'airflow-nightly-extract-\w+-1' of queue .* failed: ValueError: no"):
        operator.execute_complete(context_of(instance), event)


def test_a_worker_of_airflow_can_wait_instead(queue: Queue, server_url: str) -> None:
    with serving(queue.name, server_url, handle):
        assert add_job(queue, data=1, deferrable=False).execute(context_of(FakeInstance())) == {"got": 1}
        results = add_flow(queue, deferrable=False).execute(context_of(FakeInstance()))
        assert results == {"extract": {"got": {"day": 1}}, "load": {"got": None}}
        with pytest.raises(JobFailedError, match="no luck"):
            add_job(queue, job_name="fail", deferrable=False).execute(context_of(FakeInstance()))


def test_a_short_job_is_not_deferred(queue: Queue, server_url: str) -> None:
    with serving(queue.name, server_url, handle):
        assert add_job(queue, data=1, defer_after=60).execute(context_of(FakeInstance())) == {"got": 1}


def test_a_task_is_deferred_although_the_server_has_an_outage(
    queue: Queue, server_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Saboteur(Path(server_url.removeprefix("unix://")), tmp_path / "proxy.sock") as proxy:
        url = f"{proxy.url}?connect_timeout=0.2"
        monkeypatch.setenv("AIRFLOW_CONN_ORCHESTRATION_QUEUE_DEFAULT", connection_json(url))
        operator, instance = add_job(queue, defer_after=1), FakeInstance()
        announce = operator._announce

        def announce_then_lose_the_server(*given: Any) -> None:
            announce(*given)
            proxy.refuse()

        monkeypatch.setattr(operator, "_announce", announce_then_lose_the_server)
        trigger = defer(operator, instance)
    assert trigger.serialize()[1]["job_id"] == instance.pushed["job_id"]


def test_a_trigger_does_not_fire_before_airflow_has_noticed_the_deferral(queue: Queue) -> None:
    with pytest.raises(TaskDeferred) as deferred:
        add_job(queue).execute(context_of(instance := FakeInstance()))
    queue.get(instance.pushed["job_id"]).cancel()
    trigger = deferred.value.trigger
    asyncio.run(fire(trigger))
    assert time.time() >= trigger.not_before


def test_a_task_need_not_wait(queue: Queue) -> None:
    job_id = add_job(queue, wait_for_completion=False).execute(context_of(FakeInstance()))
    assert queue.get(job_id).state == "waiting"


def test_a_flow_fails_with_the_node_that_failed_and_continues_there(queue: Queue, server_url: str) -> None:
    lucky: list[str] = []

    def unlucky_once(job: ActiveJob) -> str:
        if job.name == "load" and not lucky:
            lucky.append(job.id)
            raise ValueError("no luck")
        return f"{job.name} {job.attempt}"

    first = FakeInstance(task_id="tables")
    with serving(queue.name, server_url, unlucky_once):
        event = asyncio.run(fire(defer(add_flow(queue), first)))
        with pytest.raises(FlowFailedError, match=r"Node 'load' .* failed: ValueError: no luck"):
            add_flow(queue).execute_complete(context_of(first), event)
        second = FakeInstance(task_id="tables", try_number=2)
        try:  # it may end before the task looks
            results = add_flow(queue).execute(context_of(second))
        except TaskDeferred as deferred:
            results = read(add_flow(queue), second, rebuild(deferred.trigger))
        third = FakeInstance(task_id="tables", try_number=3)
        defer(add_flow(queue), third)  # a task that has succeeded was cleared
    assert second.pushed["flow_id"] == first.pushed["flow_id"] != third.pushed["flow_id"]
    assert results["extract"] == "extract 1"


def test_a_user_who_ends_the_task_cancels_its_work(queue: Queue) -> None:
    job, flow = FakeInstance(), FakeInstance(task_id="tables")
    for trigger in defer(add_job(queue), job), defer(add_flow(queue), flow):
        asyncio.run(trigger.on_kill())
    assert queue.get(job.pushed["job_id"]).record.failed_reason == "revoked"
    assert queue.flows.get(flow.pushed["flow_id"]).status().state == "cancelled"
    for nothing in JobTrigger(queue.name, "none"), FlowTrigger(queue.name, "none"):
        asyncio.run(nothing.on_kill())


def test_a_worker_of_airflow_that_is_killed_cancels_the_job(queue: Queue) -> None:
    operator = add_job(queue)
    operator.on_kill()
    defer(operator, instance := FakeInstance())
    operator.on_kill()
    assert queue.get(instance.pushed["job_id"]).record.failed_reason == "revoked"


def test_the_time_limit_of_the_task_cancels_the_job(queue: Queue) -> None:
    operator, instance = add_job(queue, execution_timeout=timedelta(seconds=9)), FakeInstance()
    with pytest.raises(TaskDeferred) as deferred:
        operator.execute(context_of(instance))
    assert deferred.value.timeout == timedelta(seconds=9)
    with pytest.raises(TaskDeferralTimeout):
        add_job(queue).resume_execution("__fail__", {"error": "Trigger timeout"}, context_of(instance))
    assert queue.get(instance.pushed["job_id"]).record.failed_reason == "revoked"


async def test_triggers_share_a_connection_and_outlast_their_triggerer(
    queue: Queue, server_url: str, raw: redis.Redis
) -> None:
    jobs = queue.add_bulk([NewJob("extract", number) for number in range(300)])
    triggers = [JobTrigger(queue.name, job.id) for job in jobs]
    before = connections(raw)
    waiting = [asyncio.ensure_future(fire(trigger)) for trigger in triggers]
    await wait_until(lambda: shared._open and next(iter(shared._open.values())).users == 300, "all triggers")
    assert len(shared._open) == 1
    for task in waiting:
        task.cancel()  # as a triggerer that stops
    await asyncio.gather(*waiting, return_exceptions=True)
    assert not shared._open
    with serving(queue.name, server_url, handle):
        payloads = await asyncio.gather(*map(fire, triggers))
    assert [payload["result"]["got"] for payload in payloads] == list(range(300))
    assert connections(raw) - before < 150, "300 triggers that start at once connect together"


def connections(raw: redis.Redis) -> int:
    """How many connections the server has ever had."""
    stats: Any = raw.info("stats")
    return int(stats["total_connections_received"])


@pytest.mark.parametrize("build", [add_job, add_flow])
async def test_a_trigger_outlasts_an_outage_of_the_server(
    queue: Queue,
    server_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    build: Callable[..., Any],
) -> None:
    trigger = defer(build(queue), FakeInstance())
    with Saboteur(Path(server_url.removeprefix("unix://")), tmp_path / "proxy.sock") as proxy:
        moved = connection_json(f"{proxy.url}?connect_timeout=0.2")
        monkeypatch.setenv("AIRFLOW_CONN_ORCHESTRATION_QUEUE_DEFAULT", moved)
        proxy.refuse()
        waiting = asyncio.ensure_future(fire(trigger))
        await wait_until(lambda: "Trying again" in caplog.text, "it starts in the outage")
        proxy.admit()
        await wait_until(
            lambda: [one for one in shared._open.values() if one.opening.done() and not one.has_failed], "it waits"
        )
        proxy.refuse()  # while it waits
        proxy.cut()
        with serving(queue.name, server_url, handle):
            await wait_until(lambda: queue.counts().waiting + queue.counts().active == 0, "the end meanwhile")
            proxy.admit()
            assert "result" in await waiting


async def test_work_that_is_gone_fails_the_task_in_one_sentence(queue: Queue) -> None:
    operator, instance = add_job(queue), FakeInstance()
    trigger = defer(operator, instance)
    queue.get(instance.pushed["job_id"]).remove()
    event = await fire(trigger)
    with pytest.raises(AirflowException, match=r"has no job .*: it was never added, or has been removed since"):
        operator.execute_complete(context_of(instance), event)
    with pytest.raises(AirflowException, match="has no record of a flow 'none'"):
        add_flow(queue).execute_complete(context_of(instance), await fire(FlowTrigger(queue.name, "none")))


WRONG: list[tuple[type[Any], dict[str, Any], str]] = [
    (AddJobOperator, {"queue_name": "a:b"}, "Queue name 'a:b' contains ':'"),
    (AddJobOperator, {"queue_name": 5}, "Queue name 5"),
    (AddJobOperator, {"job_name": ""}, "`job_name` must be text that is not empty"),
    (AddJobOperator, {"queue_conn_id": None}, "`queue_conn_id` must be text that is not empty"),
    (AddJobOperator, {"deferrable": "yes"}, "`deferrable` must be True or False"),
    (AddJobOperator, {"defer_after": -1}, "`defer_after`"),
    (AddJobOperator, {"defer_after": "soon"}, "`defer_after`"),
    (AddJobOperator, {"wait_for_completion": 1}, "`wait_for_completion` must be True or False"),
    (AddJobOperator, {"job_options": {"atempts": 3}}, "JobOptions has no option 'atempts'; use 'attempts'."),
    (AddJobOperator, {"job_options": [1]}, "`job_options` must be JobOptions or a dict of its fields"),
    (AddJobOperator, {"job_options": {"job_id": "mine"}}, "has an id of Airflow's task"),
    (AddJobOperator, {"job_options": {"remove_on_complete": Retention(count=0)}}, "must be kept when it has finished"),
    (AddFlowOperator, {"nodes": []}, "has no node"),
    (AddFlowOperator, {"nodes": "load"}, "must have a list of nodes"),
    (AddFlowOperator, {"nodes": [5]}, "must consist of nodes, got 5"),
    (AddFlowOperator, {"nodes": [{"nam": "x"}]}, "has wrong fields"),
    (AddFlowOperator, {"nodes": [Node("a", deps=["b"])]}, "Node 'a' depends on 'b', which is not in the flow"),
    (AddFlowOperator, {"nodes": [Node("a", deps=["b"]), Node("b", deps=["a"])]}, "The flow has a cycle"),
    (AddFlowOperator, {"nodes": [{"name": "a", "options": {"job_id": "x"}}]}, "Node 'a' has its own job_id"),
    (AddFlowOperator, {"flow_name": ""}, "`flow_name` must be text that is not empty"),
    (AddFlowOperator, {"flow_options": {"failfast": True}}, "FlowOptions has no option 'failfast'; use 'fail_fast'."),
]


@pytest.mark.parametrize(("kind", "wrong", "sentence"), WRONG)
def test_what_is_wrong_is_refused_when_the_file_is_read(kind: type[Any], wrong: dict[str, Any], sentence: str) -> None:
    right = {"job_name": "x"} if kind is AddJobOperator else {"nodes": [Node("x")]}
    with pytest.raises(UsageError) as refused:
        kind(**{"task_id": "t", "queue_name": "q", **right, **wrong})
    assert sentence in str(refused.value)


def test_what_a_template_becomes_is_refused_in_the_run(queue: Queue) -> None:
    operator = add_job(queue, queue_name="{{ params.queue }}", job_options={"attempts": "{{ params.n }}"})
    operator.queue_name, operator.job_options = queue.name, {"attempts": "many"}
    with pytest.raises(UsageError, match=r"JobOptions.attempts \(given 'many'\)"):
        operator.execute(context_of(FakeInstance()))


def test_arguments_are_templates(queue: Queue) -> None:
    job = add_job(queue, job_name="{{ x }}", data={"day": ["{{ x }}"]}, job_options={"tags": ["{{ x }}"]})
    flow = add_flow(queue, flow_name="{{ x }}", nodes=[{"name": "n", "data": "{{ x }}"}, Node("plain")])
    for operator in job, flow:
        operator.render_template_fields({"x": "now"})  # type: ignore[typeddict-unknown-key]  # all that they need
    assert (job.job_name, job.data, job.job_options) == ("now", {"day": ["now"]}, {"tags": ["now"]})
    assert (flow.flow_name, flow.nodes[0]) == ("now", {"name": "n", "data": "now"})


def test_a_dag_with_these_tasks_is_stored_by_airflow(queue: Queue) -> None:
    with DAG("stored", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)) as dag:
        first = add_job(queue)
        add_flow(queue, nodes=[Node("a", data={"x": 1})]).set_upstream(first)
        AddJobOperator.partial(task_id="each", queue_name=queue.name, job_name="x").expand(data=first.output)
    stored = DagSerialization.to_dict(dag)
    assert stored == DagSerialization.to_dict(dag)
    back = DagSerialization.from_dict(stored)
    assert [link.name for link in back.get_task("extract").operator_extra_links] == ["Queue console"]
