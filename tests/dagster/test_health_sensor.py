"""What ``oq doctor`` finds in a queue becomes runs and asset checks."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from orchestration_queue.dagster import QueueResource, health_sensor, queue_health_checks
from orchestration_queue.errors import InvalidNameError, InvalidOptionError
from orchestration_queue.options import JobOptions, Retention
from orchestration_queue.schedules import Every, JobTemplate
from orchestration_queue.testing import TimeMachine, drain
from tests.dagster.ticks import target, tick

pytestmark = pytest.mark.dagster

TAG = "orchestration_queue/"
WEEK = 7 * 86_400


def failed_checks(result: Any) -> dict[str, dg.AssetCheckSeverity]:
    assert all(isinstance(event, dg.AssetCheckEvaluation) for event in result.asset_events)
    return {event.check_name: event.severity for event in result.asset_events if not event.passed}


def test_jobs_without_a_worker_ask_for_one_run_until_they_are_gone(resource: QueueResource, queue_name: str) -> None:
    sensor, cursor = health_sensor(queue_name, job=target), None
    asked = []
    for is_stuck in (False, True, True, False, True):
        resource.queue(queue_name).drain()
        if is_stuck:
            resource.queue(queue_name).add("work")
        result = tick(sensor, resource, cursor)
        cursor = result.cursor
        asked.append([(one.tags[TAG + "source_queue"], one.tags[TAG + "check"]) for one in result.run_requests])
        assert not result.asset_events
    alarm = [(queue_name, "workers")]
    assert asked == [[], alarm, [], [], alarm]
    (request,) = result.run_requests
    assert request.tags[TAG + "finding"] == "It has 1 ready job, and no worker serves it"
    assert queue_name in request.tags[TAG + "action"]


def test_a_schedule_whose_job_failed_or_that_is_overdue_is_found(resource: QueueResource, queue_name: str) -> None:
    queue = resource.queue(queue_name)
    queue.schedulers.upsert("weekly", Every(WEEK), JobTemplate(options=JobOptions(remove_on_fail=Retention(count=9))))
    sensor = health_sensor(queue_name, asset="tables", job=target)
    first = tick(sensor, resource, None)
    assert not first.run_requests
    assert not failed_checks(first)
    queue.schedulers.run_now("weekly")

    async def broken(_job: Any) -> None:
        raise ValueError("broken")

    drain(queue, broken, raise_failures=False, timeout=60)
    second = tick(sensor, resource, first.cursor)
    assert [one.tags[TAG + "check"] for one in second.run_requests] == ["schedules"]
    assert "broken" in second.run_requests[0].tags[TAG + "finding"]
    (name,) = [name for name in failed_checks(second) if name.endswith("_schedules")]
    assert failed_checks(second)[name] is dg.AssetCheckSeverity.ERROR
    queue.clean(0, state="failed")
    with TimeMachine() as clock:
        clock.travel(2 * WEEK)
        third = tick(sensor, resource, None)
    assert "overdue" in third.run_requests[0].tags[TAG + "finding"]


def test_the_asset_checks_say_what_the_sensor_says(resource: QueueResource, queue_name: str) -> None:
    checks = queue_health_checks(queue_name, asset="tables")

    def evaluate() -> dict[str, bool]:
        definitions = dg.Definitions(asset_checks=[checks], resources={"queue": resource})
        job = definitions.resolve_implicit_global_asset_job_def()
        result = job.execute_in_process()
        assert result.success
        return {one.check_name: one.passed for one in result.get_asset_check_evaluations()}

    healthy = evaluate()
    assert all(healthy.values())
    resource.queue(queue_name).add("work")
    (failed,) = [name for name, passed in evaluate().items() if not passed]
    assert failed.endswith("_workers")
    reported = tick(health_sensor(queue_name, asset="tables"), resource, None)
    assert failed_checks(reported) == {failed: dg.AssetCheckSeverity.ERROR}
    assert len(reported.asset_events) == len(healthy)


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="`job` or `asset` is required"):
        health_sensor("data")
    with pytest.raises(InvalidOptionError, match="`interval` must be at least 1 s"):
        health_sensor("data", job=target, interval=0)
    with pytest.raises(InvalidNameError):
        queue_health_checks("{}", asset="tables")
