"""The deployed project of tests/dagster_project, driven through GraphQL as the UI drives it."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from tests.dagster.deployment import VALUES, Deployment
from tests.dagster.stores import Database, QueueServer
from tests.dagster.test_webserver import ask
from tests.waiting import wait_until_sync

__all__ = ["ALL", "OPEN", "Project", "is_there"]

LOCATION = VALUES["dagster"]["module"]  # type: ignore[index]  # a dict of dicts
SELECTOR = {"repositoryLocationName": LOCATION, "repositoryName": "__repository__"}
OPEN = ("QUEUED", "STARTING", "STARTED", "CANCELING")
"""Without NOT_STARTED: Dagster's daemon, killed between creating a run and submitting it, may leave such a one."""
ALL = (*OPEN, "SUCCESS", "FAILURE", "CANCELED")
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
_STATUS = "query Status($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"
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
        queue: The queue's server.
        database: Its database; None for SQLite.
    """

    parts: Deployment
    scratch: Path
    queue: QueueServer
    database: Database | None

    def ask(self, query: str, **variables: Any) -> Any:
        """Return the only answer of a query; reload the page while the database is unreachable."""
        answers: list[Any] = []

        def is_answered() -> bool:
            try:
                answers.extend(ask(self.parts.web, query, **variables).values())
            except HTTPError as error:
                if error.code != HTTPStatus.INTERNAL_SERVER_ERROR or query.lstrip().startswith("mutation"):
                    raise
            return bool(answers)

        wait_until_sync(is_answered, f"an answer, see {self.parts.home}", 120)
        (answer,) = answers
        return answer

    def launch(self, job: str, *assets: str, **tags: str) -> str:
        """Launch a run as the launchpad does; return its id."""
        selector = {**SELECTOR, "pipelineName": job, "assetSelection": [{"path": [name]} for name in assets]}
        metadata = {"tags": [{"key": key, "value": value} for key, value in tags.items()]}
        answer = self.ask(_LAUNCH, params={"selector": selector, "mode": "default", "executionMetadata": metadata})
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return str(answer["run"]["id"])

    def launch_again(self, run_id: str) -> str:
        """Launch what has failed of a run; return the new run's id."""
        answer = self.ask(_AGAIN, params={"parentRunId": run_id, "strategy": "FROM_FAILURE"})
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return str(answer["run"]["id"])

    def run(self, run_id: str) -> dict[str, Any]:
        """Return what the run's page shows."""
        shown: dict[str, Any] = self.ask(_RUN, id=run_id)
        return shown

    def ends(self, run_id: str, status: str = "SUCCESS", seconds: float = 200) -> dict[str, Any]:
        """Wait for the end of a run; return what its page shows then."""

        def has_ended() -> bool:
            return bool(self.ask(_STATUS, id=run_id)["status"] == status)

        wait_until_sync(has_ended, f"run {run_id} to be {status}, see {self.parts.home}", seconds)
        return self.run(run_id)

    def says(self, run_id: str, text: str, seconds: float = 150) -> str:
        """Return the first message of a run that has this text, once it is there."""

        def find() -> str:
            events = self.run(run_id)["eventConnection"]["events"]
            return next((event["message"] for event in events if text in str(event.get("message"))), "")

        wait_until_sync(find, f"run {run_id} to say {text!r}, see {self.parts.home}", seconds)
        return find()

    def runs(self, *statuses: str) -> list[str]:
        """Return the jobs, statuses and ids of the runs with one of these statuses."""
        found = self.ask("{ runsOrError { ... on Runs { results { id jobName status } } } }")["results"]
        return [f"{run['jobName']} {run['status']} {run['id']}" for run in found if run["status"] in statuses]

    def explain(self, *statuses: str) -> str:
        """Return what the logs of the runs with one of these statuses say."""
        return "\n".join(f"{run}: {self.run(run.split()[2])['eventConnection']}" for run in self.runs(*statuses))

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
        mutation = _SWITCHES[kind, status]

        def is_switched() -> bool:
            """The daemon may have read the state before, and writes it back after its tick."""
            state = self.ask(_STATE, selector=which)
            if state.get("status") == status:
                return True
            if "$id" in mutation:
                self.ask(f"mutation Switch($id: String!) {{ {mutation} {{ __typename }} }}", id=state["id"])
            else:
                selector = {**SELECTOR, f"{kind.lower()}Name": name}
                self.ask(
                    f"mutation Switch($selector: {kind}Selector!) {{ {mutation} {{ __typename }} }}", selector=selector
                )
            return False

        wait_until_sync(is_switched, f"{name} to be {status}")

    def backfill(self, asset: str, partitions: list[str]) -> None:
        """Start a backfill as the asset's page does."""
        answer = self.ask(_BACKFILL, params={"assetSelection": [{"path": [asset]}], "partitionNames": partitions})
        assert answer["__typename"] == "LaunchBackfillSuccess", answer


def is_there(pid: int) -> bool:
    """Return whether a process lives."""
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False
