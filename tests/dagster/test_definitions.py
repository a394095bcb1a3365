"""One call for a queue's definitions: each argument shows, and nothing else."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from orchestration_queue import Cron
from orchestration_queue.dagster import AssetTask, Limits, QueueResource, ReplayBudget, build_queue_definitions
from orchestration_queue.errors import InvalidNameError, InvalidOptionError, UsageError
from orchestration_queue.options import WorkerOptions
from orchestration_queue.testing import drain
from tests.dagster.ticks import target, tick

pytestmark = pytest.mark.dagster


def loaded(monkeypatch: pytest.MonkeyPatch, **options: Any) -> dg.Definitions:
    """The definitions, beside the job that they run."""
    monkeypatch.setenv("OQ_URL", "redis://localhost:1")
    defs = dg.Definitions.merge(build_queue_definitions("data", **options), dg.Definitions(jobs=[target]))
    dg.Definitions.validate_loadable(defs)
    return defs


def sensors_of(defs: dg.Definitions) -> list[str]:
    return sorted(sensor.name for sensor in defs.sensors or ())


def test_a_queue_alone_brings_its_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    defs = loaded(monkeypatch)
    assert set(defs.resources or {}) == {"queue", "flows", "schedulers"}
    assert sensors_of(defs) == ["sweep_of_data"]
    stored = defs.get_repository_def().get_top_level_resources()["queue"].config_schema
    assert stored is not None
    assert stored.default_value["url"] == {"env": "OQ_URL"}


def test_url_and_prefix_reach_every_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    defs = loaded(monkeypatch, url="redis://elsewhere", prefix="mine")
    for resource in (defs.resources or {}).values():
        assert (resource.url, resource.prefix) == ("redis://elsewhere", "mine")


@pytest.mark.parametrize(
    ("options", "sensor"),
    [
        ({"on_events": {"failed": target}}, "events_of_data_failed"),
        ({"on_flows": {"tables": target}}, "flows_of_data_tables"),
        ({"on_schedulers": {"nightly": target}}, "scheduled_data_nightly"),
        ({"on_dead_letter": target}, "dead_letters_of_data"),
        ({"on_dead_letter": target, "replay": ReplayBudget(3)}, "dead_letters_of_data"),
        ({"on_backlog": (Limits(depth=9), target)}, "backlog_of_data"),
    ],
)
def test_each_reaction_is_a_sensor(monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], sensor: str) -> None:
    assert sensors_of(loaded(monkeypatch, **options, sweep=None)) == [sensor]


def test_what_is_left_behind_is_swept_as_often_as_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    (sensor,) = loaded(monkeypatch, sweep=timedelta(minutes=3)).sensors or ()
    assert isinstance(sensor, dg.SensorDefinition)
    assert sensor.minimum_interval_seconds == 180
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING


def test_flows_and_schedules_come_with_their_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    defs = loaded(
        monkeypatch,
        flows={"tables": [AssetTask("raw"), AssetTask(dg.AssetSpec("clean", deps=["raw"]))]},
        schedules={"nightly": Cron("0 3 * * *")},
    )
    jobs = {job.name for job in defs.resolve_all_job_defs()}
    assert {"tables_job", "add_scheduled_data"} <= jobs
    assert {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()} == {"raw", "clean"}
    assert defs.resolve_schedule_def("nightly").default_status is dg.DefaultScheduleStatus.STOPPED


def test_all_of_it_can_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    defs = loaded(
        monkeypatch,
        on_events={"failed": target},
        on_flows={"tables": target},
        on_schedulers={"weekly": target},
        on_dead_letter=target,
        on_backlog=(Limits(depth=9), target),
        schedules={"nightly": Cron("0 3 * * *")},
        running=True,
    )
    assert {sensor.default_status for sensor in defs.sensors or ()} == {dg.DefaultSensorStatus.RUNNING}
    assert len(sensors_of(defs)) == 6
    assert defs.resolve_schedule_def("nightly").default_status is dg.DefaultScheduleStatus.RUNNING


def test_the_replay_budget_is_used(resource: QueueResource, queue_name: str) -> None:
    async def broken(_job: Any) -> None:
        raise ValueError("broken")

    client = resource.queue(queue_name)
    client.add("a", {})
    letters = WorkerOptions(dead_letter_queue=f"{queue_name}-dead")
    drain(client, broken, timeout=60, raise_failures=False, options=letters)
    made = build_queue_definitions(queue_name, on_dead_letter=target, replay=ReplayBudget(1), sweep=None)
    (sensor,) = made.sensors or ()
    assert isinstance(sensor, dg.SensorDefinition)
    assert not tick(sensor, resource, None).run_requests
    assert client.counts().waiting == 1


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"replay": ReplayBudget(3)}, UsageError),
        ({"queue": "a:b"}, InvalidNameError),
        ({"flows": {"no name": [AssetTask("raw")]}}, InvalidNameError),
        ({"schedules": {"nightly": Cron("0 3 * * *", limit=1)}}, InvalidOptionError),
    ],
)
def test_bad_arguments_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        build_queue_definitions(**{"queue": "data", **options})
