"""A project with assets of all kinds, deployed as the Helm chart does it and driven as the UI drives it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import date, timedelta
from itertools import pairwise

import pytest

from tests.dagster.deployment import deployment
from tests.dagster.project import ALL, OPEN, Project, is_there
from tests.dagster.stores import postgres, queue_server
from tests.processes import OQ, worker_process
from tests.waiting import wait_until_sync

pytestmark = [pytest.mark.dagster, pytest.mark.timeout(400)]

_FRESHNESS = """{ assetNodes(assetKeys: [{path: ["fresh"]}]) { freshnessStatusInfo { freshnessStatus } } }"""
DAYS = [str(date(2024, 1, 1) + timedelta(days=number)) for number in range(500)]
REGIONS = [f"region_{number}" for number in range(8)]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """All of it, for all tests of this module."""
    home = tmp_path_factory.mktemp("project")
    scratch = home / "traces"
    scratch.mkdir()
    with ExitStack() as stack:
        queue = stack.enter_context(queue_server(home))
        database = stack.enter_context(postgres())
        parts = stack.enter_context(deployment(home, queue.url, database.url if database else None, scratch))
        yield Project(parts, scratch, queue, database)


def overlaps(lines: list[str]) -> int:
    """Return how many of these spans of time begin before the one before has ended."""
    spans = sorted(tuple(map(float, line.split())) for line in lines)
    return sum(later[0] < earlier[1] for earlier, later in pairwise(spans))


def test_schedules_sensors_and_backfills_start_as_in_the_ui(project: Project) -> None:
    """First, so that their runs arrive while the other tests run."""
    project.backfill("days_at_once", DAYS)
    project.backfill("by_region", REGIONS)
    project.backfill("by_day_and_region", ["2024-02-03|region_1"])
    for kind, name in (("Sensor", "new_customers"), ("Sensor", "automation"), ("Schedule", "every_minute")):
        project.switch(kind, name, "RUNNING")
    (project.scratch / "customer-acme").touch()


def test_assets_of_all_kinds_are_materialized(project: Project) -> None:
    limit = 'mutation { setConcurrencyLimit(concurrencyKey: "narrow", limit: 1) }'
    assert project.ask(limit) is True
    shown = project.ends(project.launch("plain"))
    assert [event["__typename"] for event in shown["eventConnection"]["events"]].count("MaterializationEvent") == 29
    assert {step["status"] for step in shown["stepStats"]} == {"SUCCESS"}
    assert overlaps(project.lines("pooled", 3)) == 0
    assert project.lines("flaky") == ["0", "1"]
    assert len(project.lines("after_check")) == 1


def test_a_failed_check_blocks_what_comes_after(project: Project) -> None:
    before = len(project.lines("after_check"))
    (project.scratch / "check-fails").touch()
    project.ends(project.launch("gated"), "FAILURE")
    assert len(project.lines("after_check")) == before


def test_dynamic_steps_and_limits_by_tag(project: Project) -> None:
    runs = [project.launch("mapped"), project.launch("limited")]
    for run_id in runs:
        project.ends(run_id)
    assert project.lines("gathered") == ["14"]
    assert overlaps(project.lines("heavy")) == 0


def test_what_is_written_in_yaml_works_as_in_code(project: Project) -> None:
    """Assets that the queue's workers make, and a sensor for their jobs."""
    project.switch("Sensor", "sums", "RUNNING")
    with worker_process("tests.dagster.jobs:tasks", "tasks", project.queue.url):
        shown = project.ends(project.launch("__ASSET_JOB", "raw_in_yaml", "sum_in_yaml"))
    made = [event for event in shown["eventConnection"]["events"] if event["__typename"] == "MaterializationEvent"]
    assert len(made) == 2
    assert len(project.lines("raw.runs")) == 1
    assert len(project.lines("heard", 1)) == 1
    project.switch("Sensor", "sums", "STOPPED")


def test_a_run_goes_on_from_its_failure(project: Project) -> None:
    failed = project.launch("repairable")
    project.ends(failed, "FAILURE")
    (project.scratch / "repaired").touch()
    shown = project.ends(project.launch_again(failed))
    assert [step["stepKey"] for step in shown["stepStats"]] == ["broken_once"]
    assert len(project.lines("breakable")) == 1


def test_a_run_that_takes_longer_than_it_may_is_stopped(project: Project) -> None:
    run_id = project.launch("too_long")
    shown = project.ends(run_id, "FAILURE")
    assert any("maximum runtime" in str(event.get("message")) for event in shown["eventConnection"]["events"])
    assert all(not is_there(int(pid)) for pid in project.lines("sleep"))


def test_backfills_in_one_run_and_in_one_for_each_partition(project: Project) -> None:
    """Before anything is killed: a step that dies with its worker is done again."""
    wanted = {"days": [str(len(DAYS))], "regions": REGIONS, "days_and_regions": ["2024-02-03|region_1"]}
    for name, lines in wanted.items():
        project.lines(name, len(lines))
    wait_until_sync(
        lambda: not any(run.startswith("__ASSET_JOB") for run in project.runs(*OPEN)), "their runs' ends", 150
    )
    assert {name: sorted(project.lines(name)) for name in wanted} == wanted


def test_what_dies_is_made_good(project: Project) -> None:
    """The step, its worker, the run's worker, the daemon and the webserver, at once."""
    run_id = project.launch("chain")
    step = int(project.lines("links", 2)[1].split()[1])
    (project.scratch / "killed").touch()
    dying = ("dagster-worker", "dagster-runs", "dagster-daemon", "dagster-web")
    for part in dying:
        project.parts.kill(part)
        # After its worker, which would report that the step has crashed, and before that worker's fork server ends it.
        with suppress(ProcessLookupError):
            os.kill(step, signal.SIGKILL)
    for part in dying:
        project.parts.start(part)
    wait_until_sync(project.parts.answers, f"the webserver, see {project.parts.home}", 150)
    shown = project.ends(run_id)
    assert {step["status"] for step in shown["stepStats"]} == {"SUCCESS"}
    done = Counter(line.split()[0] for line in project.lines("links"))
    assert done == {"link_0": 1, "link_1": 2, "link_2": 1, "link_3": 1}


def endure(project: Project) -> str:
    """Launch a run; return its id once some of its four steps wait for their sign to end."""
    run_id = project.launch("enduring")
    wait_until_sync(lambda: len(begun(project, run_id)) >= 2, f"steps of {run_id}, see {project.parts.home}", 120)
    return run_id


def begun(project: Project, run_id: str) -> list[str]:
    """Return a line for each step of the run that has begun, as often as it has."""
    return [line for line in project.lines("enduring") if line.startswith(run_id)]


def assert_right(project: Project, run_id: str) -> None:
    """The run ends well, and no step was done twice."""
    project.ends(run_id)
    assert project.lines(f"sum-{run_id}") == ["14"]
    assert len(begun(project, run_id)) == 4


def test_a_killed_run_process_is_resumed_with_its_steps(project: Project) -> None:
    run_id = endure(project)
    started = project.says(run_id, "Started process for")
    os.kill(int(started.partition("(pid: ")[2].partition(")")[0]), signal.SIGKILL)
    project.says(run_id, "Started process for resuming")
    (project.scratch / f"go-{run_id}").touch()
    assert_right(project, run_id)


def test_a_killed_queue_server_comes_back_with_all_jobs(project: Project) -> None:
    run_id = endure(project)
    project.queue.kill()
    (project.scratch / f"go-{run_id}").touch()  # steps end that can notify no queue
    project.lines(f"endured-{run_id}", 2)
    project.queue.start()
    assert_right(project, run_id)


def test_a_database_that_restarts_stops_no_run(project: Project) -> None:
    if project.database is None:
        pytest.skip("PostgreSQL is not installed; `.ci/run` installs it")
    run_id = endure(project)
    project.database.kill()
    (project.scratch / f"go-{run_id}").touch()  # steps end that cannot tell Dagster
    project.lines(f"endured-{run_id}", 2)
    project.database.start()
    assert_right(project, run_id)


def freshness(project: Project) -> str:
    """Return what the page of an asset with a freshness policy shows."""
    found = project.ask(_FRESHNESS)
    return str(found[0]["freshnessStatusInfo"]["freshnessStatus"])


def assert_daemon_asks_for_runs(project: Project, customer: str, ticks: int) -> None:
    """The schedule, the sensor and the automation have asked for their runs, and an asset is fresh once it is made.

    Args:
        project: The project.
        customer: What the sensor finds.
        ticks: How many runs of the schedule were asked for before.
    """
    (project.scratch / f"customer-{customer}").touch()
    eager = len(project.lines("eager"))
    project.ends(project.launch("__ASSET_JOB", "fresh"))
    wait_until_sync(lambda: freshness(project) == "HEALTHY", "the asset to be fresh", 120)
    project.ends(project.launch("plain", "table_0"))
    assert project.lines("eager", eager + 1)
    assert project.lines("ticks", ticks + 1, 150)
    wait_until_sync(lambda: customer in project.lines("customers"), "the run of the new partition", 120)
    assert len(project.lines("customers")) == len(set(project.lines("customers")))


def test_dagsters_daemon_asks_for_the_runs_of_schedule_sensor_and_automation(project: Project) -> None:
    assert_daemon_asks_for_runs(project, "acme", 0)


@pytest.fixture(scope="module")
def ticks_of_dagsters_daemon(project: Project) -> int:
    """How many runs of the schedule Dagster's daemon has asked for; ours takes over."""
    stock = project.parts.commands["dagster-daemon"]
    assert stock[1] == "run"
    project.parts.kill("dagster-daemon")
    ticks = sum(run.startswith("ticking ") for run in project.runs(*ALL))
    project.parts.commands["dagster-daemon"] = [OQ, "dagster", "daemon", *stock[2:]]
    project.parts.start("dagster-daemon")
    return ticks


def test_an_asset_is_stale_after_a_minute_under_our_daemon(project: Project, ticks_of_dagsters_daemon: int) -> None:
    wait_until_sync(lambda: freshness(project) == "DEGRADED", "the asset to be stale", 150)


def test_our_daemon_asks_for_the_same_runs(project: Project, ticks_of_dagsters_daemon: int) -> None:
    assert_daemon_asks_for_runs(project, "initech", ticks_of_dagsters_daemon)


def test_no_run_is_left_open(project: Project) -> None:
    for kind, name in (("Sensor", "new_customers"), ("Sensor", "automation"), ("Schedule", "every_minute")):
        project.switch(kind, name, "STOPPED")
    # A daemon that was killed above may have queued a run whose job it did not add.
    subprocess.run([OQ, "dagster", "sweep"], env=project.parts.environment, check=True, timeout=100)
    try:
        wait_until_sync(lambda: not project.runs(*OPEN), "the end of all runs", 100)
    except AssertionError:
        raise AssertionError(project.explain(*OPEN)) from None
    failed = sorted(run.split()[0] for run in project.runs("FAILURE"))
    assert failed == ["gated", "repairable", "too_long"], project.explain("FAILURE")
    assert not project.runs("CANCELED")


def test_each_step_and_run_opens_one_connection(project: Project) -> None:
    if project.database is None:
        pytest.skip("PostgreSQL is not installed; `.ci/run` installs it")
    log = project.database.log

    def opened() -> Counter[str]:
        return Counter(re.findall(r"connection authorized:.*application_name=(\S+)", log.read_text()))

    def measure() -> tuple[Counter[str], list[str]]:
        """Return the connections of a run, and the runs that were begun meanwhile."""
        before, known = opened(), set(project.runs(*ALL))
        project.ends(project.launch("mapped"))
        return opened() - before, [run for run in project.runs(*ALL) if run not in known]

    found, runs = measure()
    while len(runs) > 1:  # the daemon was about to start one
        found, runs = measure()
    assert found["dagster-worker"] == 6, "its steps"
    assert found["dagster-runs"] == 1
