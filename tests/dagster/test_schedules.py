"""Schedules both ways: one place decides, and no time is run twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any

import dagster as dg
import pytest
import redis
from dagster._utils.schedules import cron_string_iterator

from orchestration_queue import Cron, Dag, Every, FlowTemplate, JobOptions, JobTemplate, Node
from orchestration_queue.dagster import QueueResource, queue_schedules, scheduler_sensor
from orchestration_queue.dagster.testing import evaluate_sensor
from orchestration_queue.errors import InvalidNameError, InvalidOptionError
from orchestration_queue.schedules.scheduled_run import scheduled_job_id
from orchestration_queue.testing import running_worker
from tests.dagster.ticks import SHORT, happened, target, tick
from tests.waiting import wait_until_sync

pytestmark = pytest.mark.dagster

THREE = datetime(2026, 3, 29, 3, 0, tzinfo=UTC)
DUE_MS = round(THREE.timestamp() * 1000)


def schedule_of(defs: dg.Definitions, name: str) -> dg.ScheduleDefinition:
    """One schedule, without the resources that others bring."""
    (found,) = (one for one in defs.schedules or () if isinstance(one, dg.ScheduleDefinition) and one.name == name)
    return found


def due(defs: dg.Definitions, name: str, at: datetime = THREE) -> dg.RunRequest:
    """What a schedule requests at a time."""
    with dg.build_schedule_context(scheduled_execution_time=at) as context:
        (request,) = schedule_of(defs, name).evaluate_tick(context).run_requests or ()
    assert isinstance(request, dg.RunRequest)
    return request


def run(defs: dg.Definitions, request: dg.RunRequest, resource: QueueResource, **options: Any) -> Any:
    """The run that was requested."""
    whole = dg.Definitions.merge(defs, dg.Definitions(resources={"queue": resource}))
    (job,) = (job for job in whole.resolve_all_job_defs() if job.name.startswith("add_"))
    return job.execute_in_process(run_config=request.run_config, **options)


def test_a_schedule_adds_the_job_that_the_queue_would_have_made(resource: QueueResource, queue_name: str) -> None:
    template = JobTemplate(name="extract", data={"deep": True}, options=JobOptions(attempts=3))
    defs = queue_schedules(queue_name, {"nightly": (Cron("0 3 * * *", tz="Europe/Berlin"), template)})
    request = due(defs, "nightly")
    assert request.run_key == "2026-03-29T03:00:00+00:00"
    assert request.tags["orchestration_queue/scheduler"] == "nightly"
    assert request.tags["orchestration_queue/scheduled_at"] == request.run_key
    assert run(defs, request, resource).success
    assert run(defs, request, resource).success  # launched again by hand
    (job,) = resource.queue(queue_name).jobs("waiting")
    assert job.id == scheduled_job_id("nightly", DUE_MS)
    record = job.record
    assert (record.name, record.data, record.max_attempts) == ("extract", {"deep": True}, 3)


def test_a_schedule_stands_as_the_cron_pattern_says() -> None:
    defs = queue_schedules(
        "my-queue",
        {"nightly": Cron("0 3 * * *", tz="Europe/Berlin"), "hourly": Cron("5 * * * *")},
        default_status=dg.DefaultScheduleStatus.RUNNING,
        resource_key="other",
        job_name="add_mine",
    )
    nightly, hourly = (schedule_of(defs, name) for name in ("nightly", "hourly"))
    assert (nightly.cron_schedule, nightly.execution_timezone) == ("0 3 * * *", "Europe/Berlin")
    assert (hourly.cron_schedule, hourly.execution_timezone) == ("5 * * * *", "UTC")
    assert nightly.default_status is dg.DefaultScheduleStatus.RUNNING
    assert nightly.job_name == hourly.job_name == "add_mine"
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="other"):
        dg.Definitions.validate_loadable(defs)


def test_two_places_do_not_decide(resource: QueueResource, queue_name: str) -> None:
    defs = queue_schedules(queue_name, {"nightly": Cron("0 3 * * *")})
    schedulers = resource.queue(queue_name).schedulers
    schedulers.upsert("nightly", Cron("0 3 * * *"))
    refused = run(defs, due(defs, "nightly"), resource, raise_on_error=False)
    assert not refused.success
    (failure,) = [event for event in refused.all_events if event.is_step_failure]
    assert "both would add its jobs" in str(failure.step_failure_data.error)
    schedulers.pause("nightly")
    assert run(defs, due(defs, "nightly"), resource).success
    schedulers.remove("nightly")


def test_a_whole_flow_can_be_scheduled(resource: QueueResource, queue_name: str) -> None:
    template = FlowTemplate(Dag("load", [Node("raw")], queue_name))
    defs = queue_schedules(queue_name, {"nightly": (Cron("0 3 * * *"), template)})
    assert run(defs, due(defs, "nightly"), resource).success
    (job,) = resource.queue(queue_name).jobs("waiting")
    assert (job.record.name, job.record.data) == (template.members()["name"], template.members()["data"])


@pytest.mark.parametrize(
    "schedule",
    [
        Every(60),
        Cron("0 3 * * *", limit=3),
        Cron("0 3 * * *", start=THREE),
        Cron("0 3 * * *", jitter=timedelta(minutes=1)),
        Cron("0 3 * * *", overlap="skip"),
        Cron("0 3 * * *", missed="skip"),
        Cron("0 3 1 * 1", day_or=False),
        Cron("0 0 3 * * *"),
        Cron("0 3 */2 * 1", day_or=True),
    ],
)
def test_what_dagster_would_read_otherwise_is_refused(schedule: Any) -> None:
    with pytest.raises(InvalidOptionError):
        queue_schedules("q", {"nightly": schedule})


def test_bad_names_and_no_schedulers_are_refused() -> None:
    either = queue_schedules("q", {"nightly": Cron("0 3 1 * 1", day_or=True)})
    assert schedule_of(either, "nightly").cron_schedule == "0 3 1 * 1"
    with pytest.raises(InvalidOptionError, match="is empty; name at least one"):
        queue_schedules("q", {})
    for bad in ("every night", "", "1st"):
        with pytest.raises(InvalidNameError):
            queue_schedules("q", {bad: Cron("0 3 * * *")})
    with pytest.raises(InvalidNameError):
        queue_schedules("a:b", {"nightly": Cron("0 3 * * *")})


def made(queue: str, **options: Any) -> dg.SensorDefinition:
    return scheduler_sensor(queue, "nightly", **{"job": target, "start": "oldest", "wait": SHORT, **options})


def test_a_real_fire_becomes_a_run_at_its_scheduled_time(resource: QueueResource, queue_name: str) -> None:
    async def done(_job: Any) -> None:
        """Nothing: the run is what matters."""

    queue = resource.queue(queue_name)
    planned = queue.schedulers.upsert("nightly", Every(0.2, limit=2)).next_run
    with running_worker(queue, done):
        wait_until_sync(lambda: queue.counts().completed == 2, "the scheduler to fire twice", seconds=60)
    for sensor in (made(queue_name), made(queue_name, on="completed")):
        result = tick(sensor, resource, None)
        first, second = result.run_requests
        assert first.run_key != second.run_key
        at = datetime.fromisoformat(first.tags["orchestration_queue/scheduled_at"])
        assert round(at.timestamp() * 1000) == planned
        assert first.run_key == f"nightly:{at.isoformat()}"
        assert first.tags["orchestration_queue/job_id"] == scheduled_job_id("nightly", planned)


def test_only_its_own_fires_count_and_each_once(resource: QueueResource, queue_name: str, raw: redis.Redis) -> None:
    for job_id in (
        "17",
        "repeat.nightly",
        scheduled_job_id("nightly-2", DUE_MS),
        "x.1",
        *[scheduled_job_id("nightly", DUE_MS)] * 2,
    ):
        happened(raw, queue_name, "added", job_id)
    happened(raw, queue_name, "completed", scheduled_job_id("nightly", DUE_MS))
    (request,) = tick(made(queue_name), resource, None).run_requests
    assert request.run_key == "nightly:2026-03-29T03:00:00+00:00"
    (request,) = tick(made(queue_name, on="completed"), resource, None).run_requests
    assert request.run_key == "nightly:2026-03-29T03:00:00+00:00"


def test_a_scheduled_time_may_mean_a_partition(resource: QueueResource, queue_name: str, raw: redis.Redis) -> None:
    happened(raw, queue_name, "added", scheduled_job_id("nightly", DUE_MS))

    @dg.asset(partitions_def=dg.DailyPartitionsDefinition("2026-01-01"))
    def table() -> None:
        """A day."""

    sensor = made(
        queue_name, job=dg.AssetSelection.assets(table), partition=lambda at: f"{at - timedelta(days=1):%Y-%m-%d}"
    )
    defs = dg.Definitions(assets=[table], sensors=[sensor])
    (request,) = evaluate_sensor(sensor, {"queue": resource}, definitions=defs).run_requests
    assert request.partition_key == "2026-03-28"


def test_bad_scheduler_sensors_are_refused() -> None:
    with pytest.raises(InvalidNameError):
        scheduler_sensor("q", "", job=target)
    with pytest.raises(InvalidOptionError, match="one of added, completed"):
        made("q", on="failed")
    with pytest.raises(InvalidOptionError):
        made("q", limit=0)
    assert made("my-queue").name == "scheduled_my_queue_nightly"


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
@pytest.mark.parametrize("pattern", ["*/15 * * * *", "30 * * * *", "0 0 * * *"])
def test_ten_years_of_clock_changes_are_those_of_dagster(pattern: str, zone: str) -> None:
    """They differ where docs/explanation/schedules.md says so."""
    for year in range(2024, 2034):
        for month, day in ((3, 8), (3, 25), (10, 25), (11, 1)):
            start = datetime(year, month, day, tzinfo=UTC)
            end = start + timedelta(days=7)
            theirs = takewhile(end.__gt__, cron_string_iterator(start.timestamp(), pattern, zone))
            first_ms, last_ms = (int(at.timestamp() * 1000) for at in (start, end))
            ours = Cron(pattern, tz=zone).timing.runs_until(first_ms, last_ms - 1, 700)
            assert ours == [int(at.timestamp() * 1000) for at in theirs]
