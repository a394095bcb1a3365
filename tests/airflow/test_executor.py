"""Tasks on the queue, in a whole Airflow: what LocalExecutor makes of them, with kills in the middle, too."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

from orchestration_queue.airflow.envelope import CONTINUES
from orchestration_queue.client import Queue
from tests.airflow.compare import compare, prepare
from tests.airflow.deployment import LONG_S, Airflow
from tests.waiting import wait_until_sync

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

FORBIDDEN: Final = 403
FEATURES: Final = (
    *("asset_producer", "asset_consumer", "bash", "branch", "callbacks", "classic_operators", "connections"),
    *("deadline_sync", "execution_timeout", "exits", "killed", "logs", "mapped_group", "mapping_fails"),
    *("params", "pools", "retries", "setup_teardown", "short_circuit", "taskflow", "variables", "xcoms"),
)
pytestmark = pytest.mark.timeout(1200)


def is_running(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


@pytest.mark.timeout(2400)
def test_tasks_end_as_with_local_executor(airflow: Airflow) -> None:
    """`python -m tests.airflow.compare` compares all features."""
    prepare(airflow)
    with airflow.worker("default", "--concurrency", "4"):
        found = compare(airflow, FEATURES, LONG_S * 6)
    assert found == {name: [] for name in FEATURES}


def test_a_task_whose_worker_is_killed_is_retried_by_airflow_s_rules(airflow: Airflow) -> None:
    with airflow.worker("mortal") as first:
        run = airflow.trigger("worker_killed")
        wait_until_sync(lambda: airflow.lines("endless"), "the task runs", LONG_S)
        kill(airflow, first)
    with airflow.worker("mortal"):
        assert airflow.wait(run) == "success"
    assert airflow.outcomes(run) == {"endless_at_first": ("success", 2)}
    pids = [int(line) for line in airflow.lines("endless")]
    assert len(pids) == 2
    assert not is_running(pids[0]), "the first attempt ended with its worker"


def test_a_lost_task_fails_before_another_worker_has_a_slot_for_it(airflow: Airflow) -> None:
    before = len(airflow.lines("endless"))
    with airflow.worker("beside", "--concurrency", "1") as first:
        run = airflow.trigger("worker_killed_beside")
        wait_until_sync(lambda: len(airflow.lines("endless")) > before, "the task runs", LONG_S)
        with airflow.worker("beside", "--concurrency", "1"):
            busy = airflow.trigger("busy")
            wait_until_sync(lambda: airflow.lines("busy"), "the other worker is busy", LONG_S)
            kill(airflow, first)
            again = {("up_for_retry", 1), ("scheduled", 2), ("queued", 2)}
            wait_until_sync(
                lambda: again & set(airflow.outcomes(run).values()), "the task waits for its second try", LONG_S
            )
            (airflow.marks / "idle").touch()
            assert airflow.wait(run) == airflow.wait(busy) == "success"
    assert airflow.outcomes(run) == {"endless_at_first": ("success", 2)}


def kill(airflow: Airflow, process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(60)


def test_a_job_after_which_its_task_is_due_again_is_no_success(airflow: Airflow) -> None:
    """Airflow would fail a task that it has scheduled again, if the success of the job before were reported then."""
    with airflow.worker("repeated"):
        run = airflow.trigger("rescheduled")
        assert airflow.wait(run) == "success"
    assert airflow.outcomes(run) == {"third_time": ("success", 1)}
    with Queue("airflow.repeated", url=airflow.url) as queue:
        results = [queue.get(job.id).record.result for job in queue.jobs("completed")]
    assert sorted(result.get("outcome", "") for result in results) == ["", CONTINUES, CONTINUES]


def test_tasks_have_one_supervisor_in_turn_until_a_task_has_changed_it(airflow: Airflow) -> None:
    with airflow.worker("turns", "--concurrency", "1"):
        assert airflow.wait(airflow.trigger("turns")) == "success"
    first, second, changed, fourth, fifth = [line.split() for line in airflow.lines("turns")]
    assert [variable for _, variable in (first, second, changed, fourth, fifth)] == ["-", "-", "own", "-", "-"]
    assert first[0] != second[0], "the file was imported in between"
    assert second[0] == changed[0]
    assert changed[0] != fourth[0]
    assert fourth[0] == fifth[0]


def test_a_dag_s_file_is_imported_again_when_it_has_changed(airflow: Airflow) -> None:
    path = airflow.dags / "changing.py"

    def value() -> Any:
        run = airflow.trigger("changing")
        assert airflow.wait(run) == "success"
        return airflow.xcoms(run)["give[-1]"]

    with airflow.worker("changing"):
        assert [value(), value()] == [1, 1]
        path.write_text(path.read_text().replace("VALUE = 1", "VALUE = 2"))
        assert value() == 2
    assert "changing.py has changed" in airflow.log("worker-changing")


def test_a_worker_serves_the_logs_of_its_machine(airflow: Airflow) -> None:

    def answers() -> int:
        try:
            return httpx.get(f"http://127.0.0.1:{airflow.log_port}/log/any", timeout=5).status_code
        except httpx.HTTPError:
            return 0

    with airflow.worker("silent", "--serve-logs"):
        wait_until_sync(lambda: answers() == FORBIDDEN, "it serves logs, to who has a token", LONG_S)
    wait_until_sync(lambda: answers() == 0, "it ends with the worker", LONG_S)


def test_the_log_of_a_running_task_is_shown_with_its_job(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AIRFLOW__LOGGING__BASE_LOG_FOLDER", str(tmp_path))  # of a worker on another machine
    with airflow.worker("talking", "--serve-logs"):
        run = airflow.trigger("talking")

        wait_until_sync(lambda: airflow.outcomes(run) == {"talk": ("running", 1)}, "the task runs", LONG_S)

        def shown() -> str:
            return str(airflow.ask(f"dags/talking/dagRuns/{run}/taskInstances/talk/logs/1?full_content=true"))

        wait_until_sync(lambda: "It has begun" in shown(), "its output is shown while it runs", LONG_S)
        job = airflow.query("select external_executor_id from task_instance where run_id = ?", run)[0][0]
        assert f"http://console:8080/ui/queues/airflow.talking/jobs/{job}" in shown()
        (airflow.marks / "said").touch()
        assert airflow.wait(run) == "success"


def test_a_new_scheduler_adopts_the_jobs_of_one_that_was_killed(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a busy machine can't keep: a scheduler that finds itself dead resets the tasks of its LocalExecutor.
    monkeypatch.setitem(airflow.settings, "SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD", "15")
    with airflow.worker("steady", "--concurrency", "2"):
        run = airflow.trigger("scheduler_killed")
        wait_until_sync(
            lambda: (
                [state for state, _ in airflow.outcomes(run).values()].count("queued") == 2
                and sum(bool(airflow.lines(f"steady-{x}")) for x in range(4)) == 2
            ),
            "two run and two wait",
            LONG_S,
        )
        airflow.kill("scheduler")
        airflow.start_scheduler()
        wait_until_sync(lambda: "Adopting or resetting" in airflow.log("scheduler"), "it starts", LONG_S)
        (airflow.marks / "released").touch()
        assert airflow.wait(run) == "success"
    assert set(airflow.outcomes(run).values()) == {("success", 1)}
    assert [len(airflow.lines(f"steady-{x}")) for x in range(4)] == [1, 1, 1, 1], "none ran twice"


def test_a_task_that_can_not_begin_without_the_api_server_waits_for_it(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no retries, and its code has not run: that is no failure of the task."""
    monkeypatch.setenv("AIRFLOW__WORKERS__EXECUTION_API_RETRIES", "2")
    run = airflow.trigger("api_server_killed")
    wait_until_sync(lambda: airflow.outcomes(run) == {"punctual": ("queued", 1)}, "it is queued", LONG_S)
    airflow.kill("api-server")
    with airflow.worker("punctual"):
        wait_until_sync(lambda: "is postponed" in airflow.log("worker-punctual"), "it can't begin", LONG_S)
        airflow.restart("api-server")
        assert airflow.wait(run) == "success"
    assert airflow.outcomes(run) == {"punctual": ("success", 1)}
    assert len(airflow.lines("punctual")) == 1
