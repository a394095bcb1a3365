"""The sweep: nothing runs that nobody waits for, and nothing waits for what never comes."""

from __future__ import annotations

import json
import subprocess
from datetime import timedelta

import dagster as dg
import pytest

from orchestration_queue.client import Queue
from orchestration_queue.dagster.sweeping import sweep
from orchestration_queue.errors import UsageError
from tests.dagster.launches import Launches
from tests.dagster.step_workers import home_is
from tests.processes import OQ

pytestmark = [pytest.mark.dagster, pytest.mark.timeout(120)]

ELSEWHERE = {"orchestration_queue/queue": "swept"}
NOW = timedelta(seconds=-1)


def test_jobs_of_runs_that_are_over_or_deleted_are_stopped(launched: Launches) -> None:
    over, deleted, wanted = (launched.submit("hello_job", ELSEWHERE) for _ in range(3))
    run = launched.instance.get_run_by_id(over)
    assert run is not None
    launched.instance.report_run_canceled(run)
    launched.instance.delete_run(deleted)
    assert sweep(launched.instance, ["swept"], timedelta(hours=1)).stopped == (f"dagster.{deleted}.-run",)
    assert sweep(launched.instance, ["swept"], NOW).stopped == (f"dagster.{over}.-run",)
    with Queue("swept", url=launched.url) as queue:
        assert [job.id for job in queue.get_jobs("waiting")] == [f"dagster.{wanted}.-run"]


def test_a_run_that_is_over_is_stopped_where_it_runs(launched: Launches) -> None:
    run_id = launched.submit("held_job")
    launched.traces("held")
    run = launched.instance.get_run_by_id(run_id)
    assert run is not None
    launched.instance.report_run_canceled(run)  # as the UI does it, when it is told to use force
    assert sweep(launched.instance, grace=NOW).stopped == (f"dagster.{run_id}.-run",)
    assert launched.job(run_id).failed_reason == "revoked"


def test_queued_runs_without_a_job_get_one_and_those_whose_job_has_ended_fail(launched: Launches) -> None:
    bare, spent, waiting = (launched.submit("hello_job", ELSEWHERE) for _ in range(3))
    with Queue("swept", url=launched.url) as queue:
        queue.remove(f"dagster.{bare}.-run")
        queue.revoke(f"dagster.{spent}.-run")
        assert sweep(launched.instance, ["swept"]).queued == ()
        swept = sweep(launched.instance, ["swept"], NOW)
        assert (swept.queued, swept.failed) == ((bare,), (spent,))
        assert launched.status(spent) is dg.DagsterRunStatus.FAILURE
        assert {job.id for job in queue.get_jobs("waiting")} >= {f"dagster.{run}.-run" for run in (bare, waiting)}


def test_the_command_says_what_it_did(launched: Launches) -> None:
    run_id = launched.submit("hello_job", ELSEWHERE)
    launched.instance.delete_run(run_id)
    with home_is(launched.instance.root_directory):
        done = subprocess.run([OQ, "dagster", "sweep", "-q", "swept", "--json"], capture_output=True, check=True)
    assert json.loads(done.stdout) == {"stopped": [f"dagster.{run_id}.-run"], "queued": [], "failed": []}


def test_it_refuses_another_launcher() -> None:
    with dg.instance_for_test() as instance, pytest.raises(UsageError, match="configure QueueRunLauncher"):
        sweep(instance)
