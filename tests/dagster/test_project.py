"""A project with assets of all kinds, deployed as the Helm chart does it and driven as the UI drives it."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import start_server
from tests.dagster.deployment import VALUES, Deployment, deployment, find_postgres, postgres
from tests.dagster.test_webserver import ask
from tests.waiting import wait_until_sync

pytestmark = [pytest.mark.dagster, pytest.mark.timeout(400)]

LOCATION = VALUES["dagster"]["module"]  # type: ignore[index]  # a dict of dicts
SELECTOR = {"repositoryLocationName": LOCATION, "repositoryName": "__repository__"}
DAYS = [str(date(2024, 1, 1) + timedelta(days=number)) for number in range(500)]
REGIONS = [f"region_{number}" for number in range(8)]
OPEN = ("QUEUED", "STARTING", "STARTED", "CANCELING")
"""But for NOT_STARTED: Dagster's daemon, killed between making a run and submitting it, may leave such a one."""
_LAUNCH = """
mutation Launch($params: ExecutionParams!) {
  launchRun(executionParams: $params) {
    __typename ... on LaunchRunSuccess { run { id } } ... on PythonError { message }
  }
}
"""
_AGAIN = """
mutation Again($params: ReexecutionParams!) {
  launchRunReexecution(reexecutionParams: $params) {
    __typename ... on LaunchRunSuccess { run { id } } ... on PythonError { message }
  }
}
"""
_BACKFILL = """
mutation Backfill($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message }
  }
}
"""
_SWITCHES = {
    ("Sensor", "RUNNING"): "startSensor(sensorSelector: $selector)",
    ("Schedule", "RUNNING"): "startSchedule(scheduleSelector: $selector)",
    ("Sensor", "STOPPED"): "stopSensor(id: $id)",
    ("Schedule", "STOPPED"): "stopRunningSchedule(id: $id)",
}
_STATE = """
query State($selector: InstigationSelector!) {
  instigationStateOrError(instigationSelector: $selector) { ... on InstigationState { id status } }
}
"""
_RUN = """
query Run($id: ID!) {
  runOrError(runId: $id) { ... on Run {
    status stepStats { stepKey status }
    eventConnection { events { __typename ... on MessageEvent { message } } }
  } }
}
"""


@dataclass(frozen=True)
class Project:
    """The deployed project.

    Attributes:
        parts: Its processes.
        scratch: Where its code leaves traces.
        database: The URL of its database; None for SQLite.
    """

    parts: Deployment
    scratch: Path
    database: str | None

    def ask(self, query: str, **variables: Any) -> Any:
        """Return the only answer of a query."""
        (answer,) = ask(self.parts.web, query, **variables).values()
        return answer

    def launch(self, job: str, *assets: str, **tags: str) -> str:
        """Launch a run as the launchpad does; return its id."""
        selector = {**SELECTOR, "pipelineName": job, "assetSelection": [{"path": [name]} for name in assets]}
        metadata = {"tags": [{"key": key, "value": value} for key, value in tags.items()]}
        answer = self.ask(_LAUNCH, params={"selector": selector, "mode": "default", "executionMetadata": metadata})
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return str(answer["run"]["id"])

    def run(self, run_id: str) -> dict[str, Any]:
        """Return what the run's page shows."""
        shown: dict[str, Any] = self.ask(_RUN, id=run_id)
        return shown

    def ends(self, run_id: str, status: str = "SUCCESS", seconds: float = 200) -> dict[str, Any]:
        """Wait for the end of a run; return what its page shows then."""
        wait_until_sync(
            lambda: self.run(run_id)["status"] == status, f"run {run_id} to be {status}, see {self.parts.home}", seconds
        )
        return self.run(run_id)

    def runs(self, *statuses: str) -> list[str]:
        """Return the jobs, statuses and ids of the runs with one of these statuses."""
        found = self.ask("{ runsOrError { ... on Runs { results { id jobName status } } } }")["results"]
        return [f"{run['jobName']} {run['status']} {run['id']}" for run in found if run["status"] in statuses]

    def lines(self, name: str, count: int = 0, seconds: float = 120) -> list[str]:
        """Return the lines of a trace, once it has that number of them."""
        path = self.scratch / name

        def read() -> list[str]:
            return path.read_text().splitlines() if path.exists() else []

        wait_until_sync(lambda: len(read()) >= count, f"{count} lines of {name}, see {self.parts.home}", seconds)
        return read()

    def switch(self, kind: str, name: str, status: str) -> None:
        """Start or stop a sensor or a schedule, as its switch does."""
        which = {**SELECTOR, "name": name}
        state = self.ask(_STATE, selector=which)
        mutation = _SWITCHES[kind, status]
        if "$id" in mutation:
            self.ask(f"mutation Switch($id: String!) {{ {mutation} {{ __typename }} }}", id=state["id"])
        else:
            selector = {**SELECTOR, f"{kind.lower()}Name": name}
            self.ask(
                f"mutation Switch($selector: {kind}Selector!) {{ {mutation} {{ __typename }} }}", selector=selector
            )
        assert self.ask(_STATE, selector=which)["status"] == status

    def backfill(self, asset: str, partitions: list[str]) -> None:
        """Start a backfill as the asset's page does."""
        answer = self.ask(_BACKFILL, params={"assetSelection": [{"path": [asset]}], "partitionNames": partitions})
        assert answer["__typename"] == "LaunchBackfillSuccess", answer


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """All of it, for all tests of this module."""
    home = tmp_path_factory.mktemp("project")
    scratch = home / "traces"
    scratch.mkdir()
    with ExitStack() as stack:
        server = start_server(home / "queue.sock")
        stack.callback(server.wait, 60)
        stack.callback(server.kill)
        database = stack.enter_context(postgres()) if find_postgres() else None
        parts = stack.enter_context(deployment(home, f"unix://{home / 'queue.sock'}", database, scratch))
        yield Project(parts, scratch, database)


def overlaps(lines: list[str]) -> int:
    """Return how many of these spans of time begin before the one before has ended."""
    spans = sorted(tuple(map(float, line.split())) for line in lines)
    return sum(later[0] < earlier[1] for earlier, later in pairwise(spans))


def test_schedules_sensors_and_backfills_start_as_in_the_ui(project: Project) -> None:
    """First, so that their runs come while the other tests go on."""
    project.backfill("days_at_once", DAYS)
    project.backfill("by_region", REGIONS)
    project.backfill("by_day_and_region", ["2024-02-03|region_1"])
    for kind, name in (("Sensor", "new_customers"), ("Sensor", "automation"), ("Schedule", "every_minute")):
        project.switch(kind, name, "RUNNING")
    (project.scratch / "customer").touch()


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


def test_a_run_goes_on_from_its_failure(project: Project) -> None:
    failed = project.launch("repairable")
    project.ends(failed, "FAILURE")
    (project.scratch / "repaired").touch()
    answer = project.ask(_AGAIN, params={"parentRunId": failed, "strategy": "FROM_FAILURE"})
    assert answer["__typename"] == "LaunchRunSuccess", answer
    shown = project.ends(answer["run"]["id"])
    assert [step["stepKey"] for step in shown["stepStats"]] == ["broken_once"]
    assert len(project.lines("breakable")) == 1


def test_a_run_that_takes_longer_than_it_may_is_stopped(project: Project) -> None:
    run_id = project.launch("too_long")
    shown = project.ends(run_id, "FAILURE")
    assert any("maximum runtime" in str(event.get("message")) for event in shown["eventConnection"]["events"])
    assert all(not is_there(int(pid)) for pid in project.lines("sleep"))


def test_what_dies_is_made_good(project: Project) -> None:
    """The step, its worker, the run's worker, the daemon and the webserver, at once."""
    run_id = project.launch("chain")
    step = int(project.lines("links", 2)[1].split()[1])
    (project.scratch / "killed").touch()
    with suppress(ProcessLookupError):
        os.kill(step, signal.SIGKILL)
    dying = ("dagster-worker", "dagster-runs", "dagster-daemon", "dagster-web")
    for part in dying:
        project.parts.kill(part)
    for part in dying:
        project.parts.start(part)
    wait_until_sync(project.parts.answers, f"the webserver, see {project.parts.home}", 150)
    shown = project.ends(run_id)
    assert {step["status"] for step in shown["stepStats"]} == {"SUCCESS"}
    done = Counter(line.split()[0] for line in project.lines("links"))
    assert done == {"link_0": 1, "link_1": 2, "link_2": 1, "link_3": 1}


def test_backfills_in_one_run_and_in_one_for_each_partition(project: Project) -> None:
    assert project.lines("days", 1) == [str(len(DAYS))]
    assert sorted(project.lines("regions", 8)) == REGIONS
    assert project.lines("days_and_regions", 1) == ["2024-02-03|region_1"]


def test_the_schedule_the_sensor_and_the_automation_have_asked_for_their_runs(project: Project) -> None:
    assert project.lines("customers", 1) == ["acme"]
    project.ends(project.launch("plain", "table_0"))
    assert project.lines("eager", 1)
    assert project.lines("ticks", 1, 150)


def test_no_run_is_left_open(project: Project) -> None:
    for kind, name in (("Sensor", "new_customers"), ("Sensor", "automation"), ("Schedule", "every_minute")):
        project.switch(kind, name, "STOPPED")
    try:
        wait_until_sync(lambda: not project.runs(*OPEN), "the end of all runs", 100)
    except AssertionError:
        raise AssertionError(
            [(run, project.run(run.split()[2])["eventConnection"]) for run in project.runs(*OPEN)]
        ) from None
    assert len(project.runs("FAILURE")) == 3, "those that were meant to fail"
    assert not project.runs("CANCELED")


def test_each_step_and_run_opens_one_connection(project: Project) -> None:
    if project.database is None:
        pytest.skip("PostgreSQL is not installed; `.ci/run` installs it")
    log = Path(project.database.partition("host=")[2]) / "log"

    def opened() -> Counter[str]:
        return Counter(re.findall(r"connection authorized:.*application_name=(\S+)", log.read_text()))

    before = opened()
    shown = project.ends(project.launch("mapped"))
    found = opened() - before
    assert found["dagster-worker"] == len(shown["stepStats"]) == 6
    assert found["dagster-runs"] == 1


def is_there(pid: int) -> bool:
    """Return whether a process lives."""
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False
