"""The queue as a resource."""

# No `from __future__ import annotations` here: Dagster reads the annotation of `context`, and a string fails.

import os

import dagster as dg
import pytest
import redis

from orchestration_queue import Cron, Dag, Node
from orchestration_queue.dagster import FlowResource, JobSchedulerResource, QueueResource
from orchestration_queue.dagster.resources import ServerResource
from orchestration_queue.errors import TransportError

pytestmark = pytest.mark.dagster

CLOSED_URL = "redis://user:hunter2@localhost:1"
"""No server answers there, and no message shows the password."""


def test_nothing_connects_before_a_client_is_asked_for() -> None:
    @dg.op
    def idle(queue: QueueResource) -> str:
        return queue.prefix

    @dg.job
    def job() -> None:
        idle()

    nowhere = QueueResource(url=CLOSED_URL)
    assert job.execute_in_process(resources={"queue": nowhere}).output_for_node("idle") == "glide"
    with pytest.raises(TransportError) as refused:
        nowhere.queue("q")
    assert "hunter2" not in str(refused.value)


def test_the_clients_of_a_step_share_a_connection_that_ends_with_it(server_url: str, queue_name: str) -> None:
    seen: list[QueueResource] = []

    @dg.op
    def add(queue: QueueResource) -> str:
        seen.append(queue)
        job = queue.queue(queue_name).add("hello", {"to": "world"})
        assert queue.queue(queue_name).get(job.id).record.data == {"to": "world"}
        assert queue.connection is queue.connection
        return job.id

    @dg.job
    def job() -> None:
        add()

    result = job.execute_in_process(resources={"queue": QueueResource(url=server_url)})
    assert result.output_for_node("add") == "1"
    (used,) = seen
    assert used._connection is None


def test_a_secret_url_is_shown_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OQ_URL", CLOSED_URL)
    resource = QueueResource(url=dg.EnvVar("OQ_URL"))
    stored = dg.Definitions(resources={"queue": resource}).get_repository_def().get_top_level_resources()["queue"]
    assert stored.config_schema is not None
    assert stored.config_schema.default_value["url"] == {"env": "OQ_URL"}
    assert "hunter2" not in repr(QueueResource(url=CLOSED_URL))


@pytest.mark.parametrize("carrier", ["transaction", "packed"])
def test_flows_are_submitted_and_found_in_a_step(
    server_url: str, queue_name: str, raw: redis.Redis, carrier: str
) -> None:
    def transactions() -> int:
        return int(raw.info("commandstats").get("cmdstat_exec", {"calls": 0})["calls"])

    before = transactions()

    @dg.op
    def submit(context: dg.OpExecutionContext, flows: FlowResource) -> str:
        dag = Dag("load", [Node("raw"), Node("clean", deps=["raw"])], queue_name)
        flow = flows.submit(dag, flow_id=f"load-{context.run_id}")
        again = flows.submit(dag, flow_id=f"load-{context.run_id}")
        assert flows.of(queue_name).get(flow.id).status().nodes == 2
        assert again.id == flow.id
        return flow.id

    @dg.job
    def job() -> None:
        submit()

    result = job.execute_in_process(resources={"flows": FlowResource(url=server_url, carrier=carrier)})
    assert result.output_for_node("submit") == f"load-{result.run_id}"
    assert (transactions() > before) is (carrier == "transaction")


def test_schedulers_are_set_in_a_step_and_seen_in_a_schedule(server_url: str, queue_name: str) -> None:
    resource = JobSchedulerResource(url=server_url)

    @dg.op
    def write(schedulers: JobSchedulerResource) -> None:
        schedulers.of(queue_name).upsert("nightly", Cron("0 3 * * *"))

    @dg.job
    def job() -> None:
        write()

    @dg.schedule(cron_schedule="0 * * * *", job=job)
    def hourly(schedulers: JobSchedulerResource) -> dg.SkipReason:
        return dg.SkipReason(str(schedulers.of(queue_name).get("nightly") is not None))

    assert job.execute_in_process(resources={"schedulers": resource}).success
    with dg.build_schedule_context(resources={"schedulers": resource}) as context:
        assert hourly.evaluate_tick(context).skip_message == "True"
    resource.of(queue_name).remove("nightly")
    resource.close()


@pytest.mark.parametrize("kind", [QueueResource, FlowResource, JobSchedulerResource])
def test_each_resource_hangs_up_after_a_step_that_fails_and_after_a_tick(
    kind: type[ServerResource], server_url: str
) -> None:
    seen: list[ServerResource] = []

    @dg.op(required_resource_keys={"server"})
    def fail(context: dg.OpExecutionContext) -> None:
        used: ServerResource = context.resources.server
        assert used.connection is used.connection
        seen.append(used)
        raise dg.Failure("as told")

    @dg.job
    def job() -> None:
        fail()

    @dg.sensor(job=job, required_resource_keys={"server"})
    def look(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        used: ServerResource = context.resources.server
        assert not used.connection.is_closed
        seen.append(used)
        return dg.SkipReason("looked")

    assert not job.execute_in_process(resources={"server": kind(url=server_url)}, raise_on_error=False).success
    with dg.build_sensor_context(resources={"server": kind(url=server_url)}) as context:
        look.evaluate_tick(context)
    assert [used._connection for used in seen] == [None, None]


def test_a_forked_process_uses_sockets_of_its_own(resource: QueueResource, queue_name: str) -> None:
    queue = resource.queue(queue_name)
    queue.add("before", {})
    child = os.fork()
    if child == 0:  # no assertion or exception may come back from here
        try:
            resource.queue(queue_name).add("forked", {})
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    queue.add("after", {})
    assert [job.record.name for job in queue.jobs("waiting")] == ["before", "forked", "after"]


@pytest.mark.parametrize("kind", [FlowResource, JobSchedulerResource])
def test_no_resource_shows_a_secret_url(kind: type[ServerResource]) -> None:
    assert "hunter2" not in repr(kind(url=CLOSED_URL))


@pytest.mark.parametrize("kind", [FlowResource, JobSchedulerResource])
def test_a_prefix_reaches_the_keys(kind: type[FlowResource | JobSchedulerResource], server_url: str) -> None:
    resource = kind(url=server_url, prefix="mine")
    assert resource.of("q").keys.events == "mine:{q}:events"
    resource.close()
