"""`queue_executor` with real workers: what Dagster's users expect of an executor, and what each of its fields does."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._grpc.types import ExecuteStepArgs

from orchestration_queue.client import Queue
from orchestration_queue.client.flow_runs import RunsOf
from orchestration_queue.dagster.routing import JobRoute, wire_priority
from orchestration_queue.dagster.steps.work_item import WorkItem
from orchestration_queue.errors import InvalidOptionError, UsageError
from orchestration_queue.options.isolation import Isolation
from orchestration_queue.protocol.operations.control import Cancellation
from orchestration_queue.states import JobState
from tests.dagster import steps
from tests.dagster.step_workers import READY, Fleet
from tests.waiting import wait_until_sync

pytestmark = [pytest.mark.dagster, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def shared(server_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """An instance with a worker that all tests of this module use."""
    pools = {"concurrency": {"pools": {"default_limit": 1}}}
    with dg.instance_for_test(overrides=pools) as instance:
        home = tmp_path_factory.mktemp("steps")
        fleet = Fleet(instance, server_url, f"steps-{uuid.uuid4().hex[:8]}", home)
        with fleet.worker("--code-version", "v2", log=home / "worker.log"):
            wait_until_sync(lambda: READY in (home / "worker.log").read_text(), f"the worker, see {home}", 180)
            yield fleet


@pytest.fixture
def fleet(shared: Fleet, tmp_path: Path) -> Fleet:
    """The same, with traces of this test alone."""
    return Fleet(shared.instance, shared.url, shared.queue, tmp_path)


def overlaps(lines: list[str]) -> int:
    """How many of these spans of time begin before the one before has ended."""
    spans = sorted(tuple(map(float, line.split())) for line in lines)
    return sum(later[0] < earlier[1] for earlier, later in pairwise(spans))


def test_a_diamond_of_assets_passes_its_values_on(fleet: Fleet) -> None:
    result = fleet.run(steps.diamond)
    assert result.success
    (materialization,) = result.asset_materializations_for_node("report")
    assert materialization.metadata["both"].value == 18
    types = fleet.types(result.run_id)
    assert types.count("STEP_SUCCESS") == types.count("STEP_WORKER_STARTING") == 5
    order = [
        entry.step_key
        for entry in fleet.instance.all_logs(result.run_id)
        if entry.dagster_event and entry.dagster_event.is_step_success
    ]
    assert order[0] == "source"
    assert order[3:] == ["both", "report"]


def test_runs_of_a_job_stand_side_by_side(fleet: Fleet) -> None:
    runs = {job: [fleet.run(job).run_id for _ in range(2)] for job in (steps.fan_out, steps.flaky_job)}
    with Queue(fleet.queue, url=fleet.url) as queue:
        mapped, retried = (queue.flows.runs(dagster_job=job.name) for job in (steps.fan_out, steps.flaky_job))
    squared = [f"squared[part_{number}]" for number in range(3)]
    assert (mapped.of, mapped.nodes) == (RunsOf.DAGSTER_JOB, ["parts", *squared, "total"])
    assert [run.id for run in mapped.runs] == runs[steps.fan_out][::-1]
    assert [run.id for run in retried.runs] == runs[steps.flaky_job][::-1]
    for run in mapped.runs:
        assert run.state == "completed"
        assert {name: node.outcome for name, node in (run.nodes or {}).items()} == dict.fromkeys(
            ["parts", *squared, "total"], "completed"
        )
        assert all(node.seconds and node.started_at for node in (run.nodes or {}).values())
    for run in retried.runs:
        assert (run.state, list(run.nodes or {})) == ("completed", ["flaky"])


def test_events_link_to_their_jobs_in_the_console(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OQ_CONSOLE_URL", "http://console:8080/")
    result = fleet.run(steps.where_job)
    entries = fleet.instance.all_logs(result.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)
    events = [entry.dagster_event for entry in entries if entry.dagster_event]
    found = {event.step_key: event.engine_event_data.metadata.get("orchestration_queue/console") for event in events}
    job = f"http://console:8080/ui/queues/{fleet.queue}/jobs/dagster.{result.run_id}"
    assert found["where_0"] == dg.MetadataValue.url(f"{job}.where_0.1")
    assert found["where_1"] == dg.MetadataValue.url(f"{job}.where_1.1")


def test_the_steps_run_elsewhere_each_in_a_process_of_its_own(fleet: Fleet) -> None:
    assert fleet.run(steps.where_job).success
    pids, parents, _ = zip(*(line.split(" ", 3)[1:] for line in fleet.lines("where")), strict=True)
    assert len(set(pids)) == 2
    assert len(set(parents)) == 1


def test_a_fan_runs_side_by_side_and_within_max_concurrent(fleet: Fleet) -> None:
    result = fleet.run(steps.fan, max_concurrent=2)
    assert result.success
    running = most = 0
    for kind in fleet.types(result.run_id):
        running += (kind == "STEP_WORKER_STARTING") - (kind == "STEP_SUCCESS")
        most = max(most, running)
    assert most == 2
    assert fleet.types(result.run_id).count("STEP_SUCCESS") == len(steps.LEAVES)


def test_a_limit_of_0_is_none_as_for_other_executors(fleet: Fleet) -> None:
    assert fleet.run(steps.where_job, max_concurrent=0).success


def test_a_subset_of_assets_runs_alone(fleet: Fleet) -> None:
    assert fleet.run(steps.diamond).success
    result = fleet.run(steps.diamond, asset_selection=[dg.AssetKey("both")])
    assert result.success
    assert {event.step_key for event in result.get_step_success_events()} == {"both"}


def test_steps_are_retried_by_their_own_policy(fleet: Fleet) -> None:
    result = fleet.run(steps.flaky_job)
    assert result.success
    assert fleet.lines("flaky") == ["0", "1", "2"]
    assert fleet.types(result.run_id, "flaky").count("STEP_UP_FOR_RETRY") == 2


def test_retries_can_be_disabled(fleet: Fleet) -> None:
    result = fleet.run(steps.flaky_job, retries={"disabled": {}})
    assert not result.success
    assert fleet.lines("flaky") == ["0"]


def test_dynamic_outputs_are_mapped_and_collected(fleet: Fleet) -> None:
    assert fleet.run(steps.fan_out).success
    assert fleet.lines("total") == ["5"]


def test_the_limit_of_a_pool_holds(fleet: Fleet) -> None:
    assert fleet.run(steps.pooled_job).success
    spans = fleet.lines("shelf")
    assert (len(spans), overlaps(spans)) == (3, 0)
    assert not fleet.instance.event_log_storage.get_concurrency_info("narrow").claimed_slots


def test_tag_concurrency_limits_hold(fleet: Fleet) -> None:
    limits = [{"key": "kind", "value": "heavy", "limit": 1}]
    assert fleet.run(steps.heavy_job, tag_concurrency_limits=limits).success
    spans = fleet.lines("shelf")
    assert (len(spans), overlaps(spans)) == (3, 0)


def test_without_limits_the_same_steps_overlap(fleet: Fleet) -> None:
    assert fleet.run(steps.heavy_job, env={"SCRATCH": str(fleet.scratch), "TOGETHER": "2"}).success
    assert overlaps(fleet.lines("shelf")) > 0


def test_compute_logs_hold_all_output_of_a_step_and_of_its_children(fleet: Fleet) -> None:
    result = fleet.run(steps.diamond)
    captured = [
        entry.dagster_event.logs_captured_data
        for entry in fleet.instance.all_logs(result.run_id)
        if entry.dagster_event and entry.dagster_event.event_type_value == "LOGS_CAPTURED"
    ]
    (mine,) = [data for data in captured if data.step_keys == ["report"]]
    manager = fleet.instance.compute_log_manager
    key = manager.build_log_key_for_run(result.run_id, mine.file_key)
    # The step tells of its success first.
    wait_until_sync(lambda: manager.is_capture_complete(key), "the step's process to close its logs", 60)
    logs = manager.get_log_data(key)
    assert logs.stdout
    assert logs.stderr
    assert logs.stdout.decode() == "both is 18\nfrom a child\n"
    assert "to the error stream" in logs.stderr.decode()
    assert "a line for the log" in logs.stderr.decode()


# Each field has its effect.


def test_isolation_in_process_keeps_one_warm_process(fleet: Fleet) -> None:
    pids = {_process_of_one(fleet, isolation="in_process") for _ in range(2)}
    assert len(pids) == 1
    forked = {line.split()[2] for line in _after(fleet, isolation="fork")}
    assert not pids & forked


def _process_of_one(fleet: Fleet, **run: Any) -> str:
    """The process that did the only step of one more run, and is done with it: a step tells of its success before."""
    result = fleet.run(steps.urgent_job, **run)
    assert result.success
    with Queue(fleet.queue, url=fleet.url) as queue:
        job = queue.get(f"dagster.{result.run_id}.where_0.1")
        wait_until_sync(lambda: job.refresh().is_finished, "the step's worker to have its process back", 60)
    return fleet.lines("where")[-1].split()[1]


def test_isolation_spawn_starts_a_process_for_each_step(fleet: Fleet) -> None:
    parents = [line.split()[2] for line in _after(fleet, isolation="spawn")]
    assert len(set(parents)) == 2


def _after(fleet: Fleet, **config: Any) -> list[str]:
    """The traces of one more run."""
    seen = len(fleet.lines("where"))
    assert fleet.run(steps.where_job, **config).success
    return fleet.lines("where")[seen:]


def test_a_step_gets_the_executors_environment(fleet: Fleet) -> None:
    env = {"SCRATCH": str(fleet.scratch), "FLAVOUR": "salt"}
    for isolation in ("fork", "in_process"):
        assert {line.split()[3] for line in _after(fleet, env=env, isolation=isolation)} == {"salt"}
    # And a process that is kept does not keep it.
    assert {line.split(" ", 4)[3] for line in _after(fleet, isolation="in_process")} == {""}


def test_a_step_whose_job_is_revoked_fails_once(fleet: Fleet) -> None:
    with ThreadPoolExecutor(1) as pool, Queue(fleet.queue, url=fleet.url) as queue:
        run = pool.submit(fleet.run, steps.endless_job)
        wait_until_sync(lambda: fleet.lines("endless"), "the step to begin", 60)
        (begun,) = fleet.instance.get_runs(dg.RunsFilter(job_name="endless_job"), limit=1)
        assert queue.cancel(f"dagster.{begun.run_id}.endless.1") is Cancellation.FLAGGED
        result = run.result(60)
    assert not result.success
    assert fleet.lines("cleaned")
    assert fleet.types(result.run_id, "endless").count("STEP_FAILURE") == 1


def test_a_step_that_takes_too_long_is_stopped_and_fails(fleet: Fleet) -> None:
    result = fleet.run(steps.endless_job, step_timeout=3.0)
    assert not result.success
    # Its time begins with its process: on a busy machine it may be over before the step is.
    assert fleet.lines("cleaned") == [line.split()[0] for line in fleet.lines("endless")]
    assert fleet.types(result.run_id, "endless").count("STEP_FAILURE") == 1


def why(result: dg.ExecuteJobResult, step: str) -> str:
    """Why a step failed."""
    (event,) = [event for event in result.all_events if event.is_step_failure and event.step_key == step]
    return str(event.step_failure_data.error)


def test_a_step_that_no_worker_takes_fails_in_time_and_leaves_the_queue(fleet: Fleet) -> None:
    unserved = f"{fleet.queue}-unserved"
    result = fleet.run(steps.endless_job, queue=unserved, unclaimed_timeout=0.5)
    assert "has no worker; start one" in why(result, "endless")
    assert f"oq dagster worker -m your.definitions --queue {unserved}" in why(result, "endless")
    with Queue(unserved, url=fleet.url) as queue:
        assert queue.counts().waiting == 0


def test_a_run_says_that_no_worker_is_there(fleet: Fleet) -> None:
    unserved = f"{fleet.queue}-unserved"
    result = fleet.run(steps.endless_job, queue=unserved, unclaimed_timeout=12.0)
    told = [entry.message for entry in fleet.instance.all_logs(result.run_id)]
    assert sum(f"queue '{unserved}' has no worker; start one with" in message for message in told) == 1


def test_a_run_says_that_no_worker_has_its_version_of_the_code(fleet: Fleet) -> None:
    result = fleet.run(steps.where_job, code_version="v4", unclaimed_timeout=10)
    lack = f"it requires code version 'v4', but workers of queue '{fleet.queue}' have 'v2'; start one with"
    told = [entry.message for entry in fleet.instance.all_logs(result.run_id)]
    assert sum("waits, because" in message and lack in message for message in told) == 1, "once for both steps"
    assert lack in why(result, "where_0")
    assert fleet.lines("where") == []


def test_another_prefix_is_another_queue(fleet: Fleet) -> None:
    result = fleet.run(steps.endless_job, prefix="other", unclaimed_timeout=0.5)
    assert "has no worker; start one" in why(result, "endless")


def test_workers_put_back_what_wants_another_version_of_the_code(fleet: Fleet) -> None:
    assert fleet.run(steps.where_job, code_version="v2").success
    wants_v3 = WorkItem(
        ExecuteStepArgs(dg.reconstructable(steps.diamond).get_python_origin(), "r", ["s"]), code_version="v3"
    )
    with Queue(fleet.queue, url=fleet.url) as queue:
        job = queue.add(wants_v3.kind, wants_v3.data())
        wait_until_sync(lambda: job.refresh().state is JobState.DELAYED, "the job to be put back", 60)
        job.cancel()  # it may be with a worker again


def test_a_step_may_start_when_its_inputs_are_there(fleet: Fleet) -> None:
    result = fleet.run(steps.early_job, step_dependency_config={"require_upstream_step_success": False})
    assert result.success
    told = [(event.step_key, event.event_type_value) for event in result.all_events]
    assert told.index(("early_bird", "STEP_START")) < told.index(("slow_starter", "STEP_SUCCESS"))


def test_a_process_that_crashes_is_tried_again_when_asked_to_and_says_how_it_ended(fleet: Fleet) -> None:
    result = fleet.run(steps.mortal_job, crash_retries=1)
    assert result.success
    (retry,) = [event for event in result.all_events if event.is_step_up_for_retry]
    message = str(retry.step_retry_data.error)
    assert "was killed by SIGSEGV" in message
    assert "steps.py" in message
    starts = [kind for kind in fleet.types(result.run_id, "mortal") if kind in ("STEP_START", "STEP_RESTARTED")]
    assert starts == ["STEP_START", "STEP_RESTARTED"]


def test_losses_are_not_counted_as_the_steps_own_failures(fleet: Fleet) -> None:
    result = fleet.run(steps.fragile_job, tags={"orchestration_queue/crash_retries": "1"})
    assert result.success
    assert fleet.lines("fragile") == ["0", "0", "1"]  # crashed, failed, and well


def test_a_process_that_crashes_fails_its_step(fleet: Fleet) -> None:
    result = fleet.run(steps.mortal_job)
    assert not result.success
    assert "was killed by SIGSEGV" in why(result, "mortal")


def test_the_steps_own_policy_decides_about_crashes(fleet: Fleet) -> None:
    result = fleet.run(steps.fragile_job)
    assert result.success
    assert fleet.lines("fragile") == ["0", "1"]


BAD_CONFIG: list[tuple[dict[str, Any], str]] = [
    ({"isolation": "jail"}, "jail"),
    ({"worker_lost_retries": -1}, "worker_lost_retries"),
    ({"crash_retries": -1}, "crash_retries"),
    ({"lease": 0.0}, "lease"),
    ({"step_timeout": -1.0}, "step_timeout"),
    ({"unclaimed_timeout": 0.0}, "unclaimed_timeout"),
    ({"queue": "a:b"}, "a:b"),
    ({"queue": ""}, "queue"),
    ({"prefix": "a{b"}, "a{b"),
    ({"max_concurrent": -1}, "max_concurrent"),
    ({"url": "http://nowhere"}, "http"),
    ({"no_such_field": 1}, "no_such_field"),
]


@pytest.mark.parametrize(("config", "word"), BAD_CONFIG, ids=[str(config) for config, _ in BAD_CONFIG])
def test_bad_config_is_refused_before_any_step_starts(fleet: Fleet, config: dict[str, Any], word: str) -> None:
    try:
        result = fleet.run(steps.where_job, **config)
    except (dg.DagsterInvalidConfigError, UsageError) as error:
        message = str(error)
    else:
        (failure,) = [event for event in result.all_events if event.is_job_failure]
        message = str(failure.job_failure_data.error)
    assert word in message
    assert not fleet.lines("where")


# Tags.

ROUTE = JobRoute("etl", 0, Isolation.FORK, None)


@pytest.mark.parametrize(
    ("step", "run", "queue", "priority"),
    [
        ({}, {}, "etl", 0),
        ({"orchestration_queue/queue": "a"}, {"orchestration_queue/queue": "b"}, "a", 0),
        ({}, {"orchestration_queue/queue": "b"}, "b", 0),
        ({"dagster-celery/queue": "c"}, {"orchestration_queue/queue": "b"}, "c", 0),
        ({"dagster/priority": "3"}, {}, "etl", 3),
        ({"dagster/priority": "3"}, {"dagster/priority": "4"}, "etl", 7),
        ({"orchestration_queue/priority": "9", "dagster/priority": "3"}, {}, "etl", 9),
        ({"dagster-celery/priority": "8"}, {"dagster-celery/run_priority": "2"}, "etl", 5),
        ({"dagster-celery/priority": "3"}, {}, "etl", -2),
        ({}, {"dagster-celery/run_priority": "-1"}, "etl", -1),
    ],
)
def test_tags_route_a_step(step: dict[str, str], run: dict[str, str], queue: str, priority: int) -> None:
    route = ROUTE.with_tags(step, run)
    assert (route.queue, route.priority) == (queue, priority)


def test_priorities_of_the_wire_are_the_other_way_round() -> None:
    urgent, high, plain, low = map(wire_priority, (5000, 7, 0, -3))
    assert (urgent, plain, low) == (1, 0, 0)
    assert urgent < high < wire_priority(6) <= 2048


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dagster/priority", "high"),
        ("orchestration_queue/priority", "1.5"),
        ("dagster-celery/priority", ""),
        ("orchestration_queue/timeout", "soon"),
        ("orchestration_queue/timeout", "0"),
        ("orchestration_queue/timeout", "nan"),
        ("orchestration_queue/isolation", "jail"),
        ("orchestration_queue/crash_retries", "-1"),
        ("orchestration_queue/config", "timeout=5"),
    ],
)
def test_a_tag_that_says_nothing_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidOptionError, match=f"The tag '{name}' must be .+, got '{value}'; correct it"):
        ROUTE.with_tags({name: value}, {})


def test_the_config_of_a_step_goes_before_that_of_its_run_and_single_tags_before_both() -> None:
    def config(**settings: object) -> dict[str, str]:
        return {"orchestration_queue/config": json.dumps(settings)}

    run = config(timeout=60, env={"A": "run", "B": "run"}, code_version="v2", worker_lost_retries=5)
    step = {**config(timeout=5, env={"A": "step"}, memory_mib=512, cpu_seconds=9), "orchestration_queue/timeout": "7"}
    route = ROUTE.with_tags(step, run)
    assert route.timeout == timedelta(seconds=7)
    assert route.env == {"A": "step", "B": "run"}
    assert (route.code_version, route.worker_lost_retries) == ("v2", 5)
    assert (route.memory_mib, route.cpu_seconds) == (512, 9)
    assert ROUTE.with_tags(step, {**run, "orchestration_queue/timeout": "99"}).timeout == timedelta(seconds=7)
    with pytest.raises(InvalidOptionError, match="has no option 'memory'"):
        ROUTE.with_tags(config(memory=512), {})
    with pytest.raises(InvalidOptionError, match="runs `in_process`"):
        ROUTE.with_tags(config(memory_mib=512, isolation="in_process"), {})


def test_a_step_that_takes_more_memory_than_its_config_allows_fails(fleet: Fleet) -> None:
    config = json.dumps({"memory_mib": 900, "cpu_seconds": 600, "env": {"APPETITE": "big"}})
    result = fleet.run(steps.hungry_job, tags={"orchestration_queue/config": config})
    assert "MemoryError" in why(result, "hungry")
    assert fleet.lines("hungry") == ["big"]
    assert fleet.run(steps.hungry_job).success


def test_a_step_holds_slots_of_the_queue_s_pools(fleet: Fleet) -> None:
    def config(**pools: int) -> dict[str, str]:
        return {"orchestration_queue/config": json.dumps({"pools": pools})}

    route = ROUTE.with_tags(config(a=1), config(b=2))
    assert route.pools == {"a": 1}
    assert ROUTE.with_tags({}, config(b=2)).pools == {"b": 2}
    with pytest.raises(InvalidOptionError, match="1 to 1,000 slots of pool 'a', got 0"):
        ROUTE.with_tags(config(a=0), {})
    with Queue(fleet.queue, url=fleet.url) as queue:
        name = f"{fleet.queue}-pool"
        result = fleet.run(steps.where_job, tags=config(**{name: 2}))
        assert f"Pool '{name}' is not defined" in why(result, "where_0")
        queue.pools.set(name, 2)
        try:
            result = fleet.run(steps.where_job, tags=config(**{name: 2}))
            assert result.success
            assert queue.get(f"dagster.{result.run_id}.where_0.1").record.pools == {name: 2}
        finally:
            assert queue.pools.remove(name), "no step holds or waits for slots"


def test_a_step_starts_from_a_share_of_the_queue(fleet: Fleet) -> None:
    def config(share: object) -> dict[str, str]:
        return {"orchestration_queue/config": json.dumps({"share": share})}

    assert ROUTE.with_tags(config("a"), config("b")).share == "a"
    assert ROUTE.with_tags({}, config("b")).share == "b"
    for wrong in ("", "a:b", 5, "x" * 101):
        with pytest.raises(InvalidOptionError, match="Share"):
            ROUTE.with_tags(config(wrong), {})
    result = fleet.run(steps.where_job, tags=config("tenant-a"))
    assert result.success
    with Queue(fleet.queue, url=fleet.url) as queue:
        assert queue.get(f"dagster.{result.run_id}.where_0.1").record.share == "tenant-a"


def test_a_bad_tag_ends_the_run_before_any_step_starts(fleet: Fleet) -> None:
    result = fleet.run(steps.where_job, tags={"orchestration_queue/isolation": "jail"})
    assert not result.success
    assert "STEP_WORKER_STARTING" not in fleet.types(result.run_id)


def test_the_tags_of_a_run_reach_its_steps(fleet: Fleet) -> None:
    tags = {"orchestration_queue/isolation": "in_process", "orchestration_queue/timeout": "90"}
    assert len({_process_of_one(fleet, tags=tags) for _ in range(2)}) == 1
    result = fleet.run(steps.endless_job, tags={"orchestration_queue/queue": "elsewhere"}, unclaimed_timeout=0.5)
    assert "'elsewhere'" in why(result, "endless")


def test_urgent_steps_are_taken_first(fleet: Fleet) -> None:
    result = fleet.run(steps.urgent_job)
    assert result.success
    with Queue(fleet.queue, url=fleet.url) as queue:
        assert queue.get(f"dagster.{result.run_id}.where_0.1").refresh().priority == wire_priority(7)
