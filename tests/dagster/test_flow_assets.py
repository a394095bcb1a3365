"""Assets that are one flow: what Dagster shows is what the workers did."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import redis
from dagster._core.storage.tags import ASSET_PARTITION_RANGE_END_TAG, ASSET_PARTITION_RANGE_START_TAG

from orchestration_queue.client import FlowProducer
from orchestration_queue.dagster import AssetTask, QueueResource, queue_flow_assets, queue_task_asset
from orchestration_queue.errors import CycleError, InvalidOptionError, UsageError
from orchestration_queue.options import Backoff, JobOptions
from tests.waiting import wait_until_sync

pytestmark = pytest.mark.dagster


def diamond(
    queue: str, scratch: str, retry_policy: dg.RetryPolicy | None = None, **tasks: AssetTask
) -> dg.AssetsDefinition:
    """source -> left, right -> join; any of them may be replaced."""
    usual = {
        "source": AssetTask("source", "produce", {"scratch": scratch, "name": "source", "rows": 7}),
        "left": AssetTask(
            dg.AssetSpec("left", deps=["source"]), "produce", {"scratch": scratch, "name": "left", "rows": 3}
        ),
        "right": AssetTask(
            dg.AssetSpec("right", deps=["source"]), "produce", {"scratch": scratch, "name": "right", "rows": 4}
        ),
        "join": AssetTask(dg.AssetSpec("join", deps=["left", "right"]), "total"),
    }
    return queue_flow_assets(list((usual | tasks).values()), name="diamond", queue=queue, retry_policy=retry_policy)


def materialized(result: dg.ExecuteInProcessResult) -> dict[str, Mapping[str, object]]:
    """What was materialized, in order, with the values of its metadata."""
    events = result.get_asset_materialization_events()
    return {
        event.materialization.asset_key.to_user_string(): {
            name: value.value for name, value in event.materialization.metadata.items()
        }
        for event in events
    }


def job_ids(raw: redis.Redis, queue: str) -> set[str]:
    return {str(key).partition(":job:")[2] for key in raw.keys(f"glide:{{{queue}}}:job:*")}


def test_a_run_is_a_flow_and_its_nodes_are_materializations(
    instance: dg.DagsterInstance,
    resource: QueueResource,
    queue_name: str,
    scratch: str,
    raw: redis.Redis,
    worker: subprocess.Popen[bytes],
) -> None:
    result = dg.materialize([diamond(queue_name, scratch)], instance=instance, resources={"queue": resource})
    assert result.success
    seen = materialized(result)
    assert next(iter(seen)) == "source"
    assert list(seen)[-1] == "join"
    assert set(seen) == {"source", "left", "right", "join"}
    source = seen["source"]
    flow_id = f"diamond-{result.run_id}"
    assert source["rows"] == source["dagster/row_count"] == 7
    assert source["path"] == str(Path(scratch, "source"))
    assert source["ratio"] == 0.5
    assert source["parts"] == [1, 2]
    assert source["owner"] == "tests"
    assert source["orchestration_queue/queue"] == queue_name
    assert source["orchestration_queue/task"] == "produce"
    assert source["orchestration_queue/flow_id"] == flow_id
    assert source["orchestration_queue/job_id"] == f"{flow_id}.source"
    assert source["orchestration_queue/attempts"] == 1
    assert source["orchestration_queue/workers_lost"] == 0
    assert isinstance(source["orchestration_queue/seconds"], float)
    assert source["orchestration_queue/carrier"] == "transaction"
    assert "glidemq_addJob" in str(source["orchestration_queue/calls"])
    assert source["orchestration_queue/log"] == "```\nmaking source\nmade 7 rows\n```"
    assert seen["join"]["result"] == 7
    logged = [event.user_message for event in instance.all_logs(result.run_id)]
    assert f"Submitted flow {flow_id}: 4 nodes in {queue_name}" in logged
    assert "left: made 3 rows" in logged
    headers = json.loads(raw.hget(f"glide:{{{queue_name}}}:job:{flow_id}.source", "opts") or "")["headers"]
    assert headers == {
        "dagster.run_id": result.run_id,
        "dagster.step_key": "diamond",
        "dagster.job_name": result.job_def.name,
    }


def test_the_ui_is_told_that_the_queue_does_the_work(queue_name: str, scratch: str) -> None:
    assets = diamond(queue_name, scratch)
    assert all("queue" in spec.kinds for spec in assets.specs)
    assert assets.op.tags["orchestration_queue/flow_queue"] == queue_name


def test_a_subset_submits_only_its_nodes(
    instance: dg.DagsterInstance,
    resource: QueueResource,
    queue_name: str,
    scratch: str,
    worker: subprocess.Popen[bytes],
    raw: redis.Redis,
) -> None:
    result = dg.materialize(
        [diamond(queue_name, scratch)],
        instance=instance,
        resources={"queue": resource},
        selection=["left", "join"],
    )
    assert result.success
    assert list(materialized(result)) == ["left", "join"]
    assert materialized(result)["join"]["result"] == 3
    assert job_ids(raw, queue_name) == {f"diamond-{result.run_id}.{node}" for node in ("left", "join")}


def test_a_failed_node_fails_the_step_and_names_what_could_not_run(
    instance: dg.DagsterInstance,
    resource: QueueResource,
    queue_name: str,
    scratch: str,
    worker: subprocess.Popen[bytes],
    raw: redis.Redis,
) -> None:
    broken = AssetTask(dg.AssetSpec("left", deps=["source"]), "fail")
    result = dg.materialize(
        [diamond(queue_name, scratch, left=broken)],
        instance=instance,
        resources={"queue": resource},
        raise_on_error=False,
    )
    assert not result.success
    assert set(materialized(result)) == {"source", "right"}
    failure = result.failure_data_for_node("diamond")
    assert failure is not None
    assert failure.user_failure_data is not None
    flow_id = f"diamond-{result.run_id}"
    assert failure.user_failure_data.description == (
        f"Flow {flow_id}: node 'left' failed: the source is gone. Not run, because they depend on it: join."
    )
    told = failure.user_failure_data.metadata
    assert told["orchestration_queue/failed"].value == {"left": "the source is gone"}
    assert told["orchestration_queue/not_run"].value == ["join"]
    assert raw.hget(f"glide:{{{queue_name}}}:job:{flow_id}.join", "outcome") == "upstream_failed"


def test_three_failures_are_understood_from_the_events_of_their_run_alone(
    instance: dg.DagsterInstance,
    resource: QueueResource,
    queue_name: str,
    scratch: str,
    worker: subprocess.Popen[bytes],
) -> None:
    options = JobOptions(attempts=3, backoff=Backoff(type="fixed", delay=0))
    load = AssetTask(dg.AssetSpec("left", deps=["source"]), "fail_in_three_ways", options=options)
    run = dg.materialize(
        [diamond(queue_name, scratch, left=load)],
        instance=instance,
        resources={"queue": resource},
        raise_on_error=False,
    )
    events = [entry.dagster_event for entry in instance.all_logs(run.run_id) if entry.dagster_event]
    (failed,) = [event.step_failure_data for event in events if event.is_step_failure]
    assert failed.user_failure_data is not None
    told = failed.user_failure_data.metadata["orchestration_queue/history"].value
    assert isinstance(told, str)
    for number, why in enumerate(
        (
            "[ConnectionResetError] ConnectionResetError: warehouse went away",
            "[upload error] bucket is read-only",
            "[KeyError] KeyError: 'missing column'",
        ),
        1,
    ):
        (head,) = [line for line in told.splitlines() if f" attempt {number} failed on " in line]
        assert head.endswith(f": {why}")
        assert f"  log: attempt {number} connects" in told.splitlines()
    assert told.count("in fail_in_three_ways") == 3
    assert 'raise ConnectionResetError("warehouse went away")' in told


def test_a_step_tried_again_joins_its_flow_and_repeats_only_what_failed(
    instance: dg.DagsterInstance,
    resource: QueueResource,
    queue_name: str,
    scratch: str,
    worker: subprocess.Popen[bytes],
    raw: redis.Redis,
) -> None:
    flaky = AssetTask(
        dg.AssetSpec("left", deps=["source"]), "fail_until", {"scratch": scratch, "name": "left", "attempts": 2}
    )
    joined = AssetTask(dg.AssetSpec("join", deps=["left", "right"]), "produce", {"scratch": scratch, "name": "join"})
    assets = diamond(queue_name, scratch, dg.RetryPolicy(max_retries=1), left=flaky, join=joined)
    result = dg.materialize([assets], instance=instance, resources={"queue": resource})
    assert result.success
    assert materialized(result)["left"]["result"] == "try 2"
    assert set(materialized(result)) == {"source", "left", "right", "join"}
    assert Path(scratch, "source.runs").read_text().splitlines() == [f"diamond-{result.run_id}.source"]
    assert Path(scratch, "join.runs").read_text().splitlines() == [f"diamond-{result.run_id}.join"]
    logged = [event.user_message for event in instance.all_logs(result.run_id)]
    assert any(line.startswith(f"Joined flow diamond-{result.run_id}") for line in logged)
    assert any(line.startswith("Retrying node left, which failed before:") for line in logged)
    assert len(job_ids(raw, queue_name)) == 4


def test_the_jobs_own_attempts_are_told(
    instance: dg.DagsterInstance,
    resource: QueueResource,
    queue_name: str,
    scratch: str,
    worker: subprocess.Popen[bytes],
) -> None:
    task = AssetTask(
        "flaky",
        "fail_until",
        {"scratch": scratch, "name": "flaky", "attempts": 3},
        options=JobOptions(attempts=3),
    )
    result = dg.materialize(
        [queue_task_asset(task, queue=queue_name)], instance=instance, resources={"queue": resource}
    )
    assert materialized(result)["flaky"]["orchestration_queue/attempts"] == 3
    assert materialized(result)["flaky"]["result"] == "try 3"


def test_cancelling_the_run_cancels_the_flow(
    instance: dg.DagsterInstance,
    resource: QueueResource,
    queue_name: str,
    scratch: str,
    worker: subprocess.Popen[bytes],
    raw: redis.Redis,
) -> None:
    long = AssetTask("source", "wait_for", {"scratch": scratch, "name": "go"})

    def cancel() -> None:
        wait_until_sync(Path(scratch, "go.started").exists, "the node to start")
        os.kill(os.getpid(), signal.SIGINT)  # as Dagster's run worker does when a run is terminated

    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(dg.DagsterExecutionInterruptedError):
        dg.materialize([diamond(queue_name, scratch, source=long)], instance=instance, resources={"queue": resource})
    canceller.join()
    (run,) = instance.get_runs()
    jobs = [f"glide:{{{queue_name}}}:job:diamond-{run.run_id}.{node}" for node in ("source", "left", "right", "join")]
    wait_until_sync(lambda: all(raw.hexists(job, "finishedOn") for job in jobs), "all nodes to end")
    withdrawn = [(raw.hget(job, "state"), raw.hget(job, "failedReason")) for job in jobs]
    assert withdrawn == [("failed", "revoked"), *[("failed", "upstream failed")] * 3], "and nothing let the first end"


def test_cancelling_the_run_before_the_submission_is_answered_cancels_the_flow_too(
    instance: dg.DagsterInstance,
    resource: QueueResource,
    queue_name: str,
    scratch: str,
    raw: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    submit = FlowProducer.submit

    def interrupted(*args: Any, **options: Any) -> None:
        submit(*args, **options)
        raise dg.DagsterExecutionInterruptedError

    monkeypatch.setattr(FlowProducer, "submit", interrupted)
    with pytest.raises(dg.DagsterExecutionInterruptedError):
        dg.materialize([diamond(queue_name, scratch)], instance=instance, resources={"queue": resource})
    jobs = job_ids(raw, queue_name)
    assert len(jobs) == 4
    assert {raw.hget(f"glide:{{{queue_name}}}:job:{job_id}", "state") for job_id in jobs} == {"failed"}


def test_arguments_may_depend_on_the_partition(
    instance: dg.DagsterInstance,
    resource: QueueResource,
    queue_name: str,
    scratch: str,
    worker: subprocess.Popen[bytes],
) -> None:
    assets = queue_flow_assets(
        [AssetTask("daily", "produce", lambda context: {"scratch": scratch, "name": context.partition_key})],
        name="daily_flow",
        queue=queue_name,
        partitions_def=dg.StaticPartitionsDefinition(["mon", "tue"]),
    )
    result = dg.materialize([assets], instance=instance, resources={"queue": resource}, partition_key="tue")
    assert materialized(result)["daily"]["path"] == str(Path(scratch, "tue"))
    (event,) = result.get_asset_materialization_events()
    assert event.partition == "tue"


@pytest.mark.parametrize(
    ("outcome", "severity", "description"),
    [
        (True, "ERROR", None),
        (False, "ERROR", None),
        ({"passed": False, "severity": "WARN", "description": "few", "metadata": {"rows": 2}}, "WARN", "few"),
        (None, "ERROR", "The task's result must state in 'checks' whether 'enough' passed, got nothing."),
        ("yes", "ERROR", "The task's result must state in 'checks' whether 'enough' passed, got 'yes'."),
        ({"passed": 1}, "ERROR", "The task's result must state in 'checks' whether 'enough' passed, got {"),
    ],
)
def test_a_task_tells_what_its_checks_found(
    instance: dg.DagsterInstance,
    resource: QueueResource,
    queue_name: str,
    worker: subprocess.Popen[bytes],
    outcome: object,
    severity: str,
    description: str | None,
) -> None:
    checks = {} if outcome is None else {"enough": outcome}
    result = {"rows": 2, "checks": checks, "data_version": "v2"}
    task = AssetTask("table", "echo", {"result": result}, checks=["enough"])
    assets = queue_flow_assets([task], name="checked", queue=queue_name)
    ran = dg.materialize([assets], instance=instance, resources={"queue": resource})
    (evaluation,) = ran.get_asset_check_evaluations()
    assert evaluation.passed is (outcome is True)
    assert evaluation.severity.value == severity
    assert (evaluation.description or "").startswith(description or "")
    seen = materialized(ran)["table"]
    assert seen["rows"] == 2
    assert "checks" not in seen
    assert "data_version" not in seen
    (event,) = ran.get_asset_materialization_events()
    assert event.materialization.tags is not None
    assert event.materialization.tags["dagster/data_version"] == "v2"


def test_a_check_is_not_evaluated_without_making_its_asset(
    instance: dg.DagsterInstance, resource: QueueResource, queue_name: str, raw: redis.Redis
) -> None:
    assets = queue_flow_assets([AssetTask("table", "echo", checks=["enough"])], name="checked", queue=queue_name)
    job = dg.define_asset_job("only_checks", dg.AssetSelection.checks_for_assets("table"))
    defs = dg.Definitions([assets], jobs=[job], resources={"queue": resource})
    ran = defs.resolve_job_def("only_checks").execute_in_process(instance=instance, raise_on_error=False)
    (failure,) = [event for event in ran.all_events if event.is_step_failure]
    assert "select it, too" in str(failure.event_specific_data)
    assert raw.keys() == [], "nothing was sent"


def test_a_backfill_in_one_run_is_told_all_its_partitions(
    instance: dg.DagsterInstance, resource: QueueResource, queue_name: str, worker: subprocess.Popen[bytes]
) -> None:
    days = dg.DailyPartitionsDefinition("2013-01-01", end_date="2013-01-08")
    assets = queue_flow_assets(
        [AssetTask("daily", "echo", lambda context: {"result": {"days": list(context.partition_keys)}})],
        name="daily_flow",
        queue=queue_name,
        partitions_def=days,
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    job = dg.Definitions([assets], resources={"queue": resource}).resolve_implicit_global_asset_job_def()
    tags = {ASSET_PARTITION_RANGE_START_TAG: "2013-01-02", ASSET_PARTITION_RANGE_END_TAG: "2013-01-04"}
    ran = job.execute_in_process(instance=instance, tags=tags)
    events = ran.get_asset_materialization_events()
    asked = ["2013-01-02", "2013-01-03", "2013-01-04"]
    assert [event.partition for event in events] == asked
    assert all(event.materialization.metadata["days"].value == asked for event in events)
    assert instance.get_materialized_partitions(dg.AssetKey("daily")) == set(asked)


def test_assets_that_could_never_run_are_refused_where_they_are_written(queue_name: str) -> None:
    with pytest.raises(CycleError, match=r"(a -> b -> a|b -> a -> b)"):
        queue_flow_assets(
            [AssetTask(dg.AssetSpec("a", deps=["b"]), "produce"), AssetTask(dg.AssetSpec("b", deps=["a"]), "produce")],
            name="circle",
            queue=queue_name,
        )


MONTHS = dg.StaticPartitionsDefinition(["2013-01", "2013-02", "2013-03"])


def by_month(queue: str, scratch: str) -> dg.AssetsDefinition:
    """raw -> a node for each month -> year."""
    month = AssetTask(
        dg.AssetSpec("month", deps=["raw"], partitions_def=MONTHS),
        "echo",
        checks=("rows",),
        partition_arguments=lambda key: {
            "result": {"rows": int(key[-2:]), "checks": {"rows": {"passed": key != "2013-02", "severity": "WARN"}}}
        },
    )
    raw = AssetTask("raw", "produce", {"scratch": scratch, "name": "raw"})
    year = AssetTask(dg.AssetSpec("year", deps=["month"]), "total")
    return queue_flow_assets([raw, month, year], name="year", queue=queue)


def test_an_asset_of_a_flow_is_a_node_for_each_partition_of_the_run(
    instance: dg.DagsterInstance,
    resource: QueueResource,
    queue_name: str,
    scratch: str,
    worker: subprocess.Popen[bytes],
) -> None:
    assets, month = by_month(queue_name, scratch), dg.AssetKey("month")
    whole = {ASSET_PARTITION_RANGE_START_TAG: "2013-01", ASSET_PARTITION_RANGE_END_TAG: "2013-03"}
    job = dg.Definitions([assets], jobs=[dg.define_asset_job("all")], resources={"queue": resource})
    result = job.resolve_job_def("all").execute_in_process(instance=instance, tags=whole)
    assert result.success
    assert materialized(result)["year"]["result"] == 1 + 2 + 3
    found = {record.partition_key: record for record in instance.fetch_materializations(month, limit=10).records}
    assert set(found) == set(MONTHS.get_partition_keys())
    made = found["2013-03"].asset_materialization
    assert made is not None
    assert made.metadata["dagster/row_count"].value == 3
    assert "glidemq_addFlow after raw" in str(made.metadata["orchestration_queue/calls"].value)
    (check,) = result.get_asset_check_evaluations()
    assert (check.passed, check.severity, check.description) == (
        False,
        dg.AssetCheckSeverity.WARN,
        "Failed for 2013-02.",
    )

    again = job.resolve_job_def("all").execute_in_process(
        instance=instance, partition_key="2013-01", asset_selection=[month]
    )
    assert again.success
    (newest,) = instance.fetch_materializations(month, limit=1).records
    assert (newest.partition_key, newest.run_id) == ("2013-01", again.run_id)
    assert [check.passed for check in again.get_asset_check_evaluations()] == [True]


def test_a_run_without_partitions_is_refused_where_an_asset_of_the_flow_has_them(
    instance: dg.DagsterInstance, resource: QueueResource, queue_name: str, scratch: str
) -> None:
    job = dg.Definitions(
        [by_month(queue_name, scratch)], jobs=[dg.define_asset_job("all")], resources={"queue": resource}
    )
    result = job.resolve_job_def("all").execute_in_process(instance=instance, raise_on_error=False)
    (failed,) = result.get_step_failure_events()
    assert "has partitions, but the run has none" in str(failed.step_failure_data.user_failure_data)


def test_arguments_for_partitions_need_partitions() -> None:
    with pytest.raises(UsageError, match="requires partitions; pass"):
        AssetTask("month", partition_arguments=lambda key: {"month": key})


def test_the_resource_says_what_carries_a_flow(
    instance: dg.DagsterInstance,
    server_url: str,
    queue_name: str,
    scratch: str,
    worker: subprocess.Popen[bytes],
) -> None:
    packed = QueueResource(url=server_url, carrier="packed")
    result = dg.materialize([diamond(queue_name, scratch)], instance=instance, resources={"queue": packed})
    assert materialized(result)["join"]["orchestration_queue/carrier"] == "packed"
    with pytest.raises(InvalidOptionError, match="must be 'transaction' or 'packed', got 'pigeon'"):
        QueueResource(url=server_url, carrier="pigeon")
