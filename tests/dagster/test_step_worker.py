"""`oq dagster worker`: which code it loads and how, when it renews its processes, and what it refuses."""

from __future__ import annotations

import re
import subprocess
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.reconstruct import ReconstructableJob
from dagster._grpc.types import ExecuteRunArgs, ExecuteStepArgs

from orchestration_queue.client import Job, Queue
from orchestration_queue.dagster import CodeLocation, DagsterWorker
from orchestration_queue.dagster.steps.losses import is_loss, last_lines
from orchestration_queue.dagster.steps.work_item import WorkItem
from orchestration_queue.dagster.steps.write_fence import WriteFence, WriteFences, now
from orchestration_queue.errors import JobFailedError, UsageError
from tests.dagster import steps
from tests.dagster.step_workers import Fleet, home_is
from tests.processes import OQ, running_process
from tests.waiting import wait_until_sync

pytestmark = [pytest.mark.dagster, pytest.mark.timeout(300)]

THREADED = """
import threading, time
import dagster as dg
threading.Thread(target=lambda: time.sleep(1000), daemon=True).start()

@dg.op
def lonely():
    print("alone")

@dg.job
def threaded_job():
    lonely()
"""


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    """An instance that all tests of this module use."""
    with dg.instance_for_test() as made:
        yield made


@pytest.fixture
def fleet(instance: dg.DagsterInstance, server_url: str, tmp_path: Path) -> Fleet:
    """A queue of this test's own, without workers."""
    return Fleet(instance, server_url, f"steps-{uuid.uuid4().hex[:8]}", tmp_path)


def test_a_host_that_has_served_is_replaced(fleet: Fleet) -> None:
    def hosts() -> set[str]:
        assert fleet.run(steps.where_job).success
        return {line.split()[2] for line in fleet.lines("where")}

    with fleet.worker("--max-items", "2"):
        (first,) = hosts()
        wait_until_sync(lambda: len(hosts()) > 1, "a second host to take over", 120)
        wait_until_sync(lambda: not Path(f"/proc/{first}").exists(), "the first to leave")


def test_it_shows_its_metrics_and_whether_it_is_ready(fleet: Fleet, tmp_path: Path) -> None:
    log = tmp_path / "log"

    def address() -> str:
        found = re.search(r"Metrics and probes at (http://\S+)", log.read_text())
        return found[1] if found else ""

    def is_ready() -> bool:
        with suppress(OSError), urllib.request.urlopen(f"{address()}/readyz", timeout=10) as answer:  # noqa: S310
            return bool(answer.status == 200)
        return False

    def shown() -> str:
        with urllib.request.urlopen(f"{address()}/metrics", timeout=10) as answer:  # noqa: S310  an address of our own
            return str(answer.read(), "utf-8")

    with fleet.worker("--metrics-port", "0", "--queue-metrics", log=log):
        wait_until_sync(address, "the endpoint", 120)
        wait_until_sync(is_ready, "the worker to be ready", 60)
        assert fleet.run(steps.where_job).success
        done = f'jobs_finished_total{{outcome="completed",queue="{fleet.queue}",task="dagster.step"}} 2.0'
        wait_until_sync(lambda: done in shown(), "both steps to be counted")
        assert f'depth{{queue="{fleet.queue}",state="waiting"}} 0.0' in shown()


def test_a_run_is_work_like_any_other_and_what_is_none_fails(fleet: Fleet) -> None:
    recon = dg.reconstructable(steps.where_job)
    run = fleet.instance.create_run_for_job(
        recon.get_definition(),
        job_code_origin=recon.get_python_origin(),
        run_config={"execution": {"config": {**fleet.config, "max_concurrent": 1}}},
    )
    work = WorkItem(ExecuteRunArgs(recon.get_python_origin(), run.run_id, None), env={"SCRATCH": str(fleet.scratch)})
    gone = WorkItem(ExecuteStepArgs(recon.get_python_origin(), "no-such-run", ["where_0"]))
    with fleet.worker(), Queue(fleet.queue, url=fleet.url) as queue:
        done = queue.add(work.kind, work.data()).wait(120)
        assert done["exit_code"] == 0
        assert fleet.instance.get_run_by_id(run.run_id).status is dg.DagsterRunStatus.SUCCESS  # type: ignore[union-attr]
        for name, data, reason in (
            (gone.kind, gone.data(), "'no-such-run' is not in this worker's instance"),
            (gone.kind, {"args": "nonsense"}, "holds no work of Dagster's"),
            (gone.kind, {}, "holds no work of Dagster's"),
            ("greet", {}, "no handler for 'greet'"),
        ):
            assert reason in failure(queue.add(name, data))


def failure(job: Job) -> str:
    """Why a job fails."""
    with pytest.raises(JobFailedError) as caught:
        job.wait(120)
    return str(caught.value)


def test_code_that_starts_threads_gets_new_processes_instead_of_copies(fleet: Fleet, tmp_path: Path) -> None:
    file = tmp_path / "threaded.py"
    file.write_text(THREADED)
    workspace = tmp_path / "workspace.yaml"
    workspace.write_text(f"load_from:\n  - python_file: {file}\n")
    log = tmp_path / "worker.log"
    recon = ReconstructableJob.for_file(str(file), "threaded_job")
    run = fleet.instance.create_run_for_job(recon.get_definition(), job_code_origin=recon.get_python_origin())
    work = WorkItem(ExecuteStepArgs(recon.get_python_origin(), run.run_id, ["lonely"]))
    command = [OQ, "dagster", "worker", "-w", str(workspace), "-q", fleet.queue]
    home = home_is(fleet.instance.root_directory)
    with home, running_process(command, fleet.url, log), Queue(fleet.queue, url=fleet.url) as queue:
        assert queue.add(work.kind, work.data()).wait(120)["exit_code"] == 0
    assert "starts 1 threads while it is imported" in log.read_text()
    assert "STEP_SUCCESS" in fleet.types(run.run_id, "lonely")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "No code to load; name a module with -m, a file with -f, or a workspace with -w."),
        (["-m", "no_such_module_at_all"], "cannot be loaded"),
        (["-f", "no_such_file.py"], "There is no file 'no_such_file.py' with definitions"),
        (["-w", "no_such_workspace.yaml"], "cannot be read as a Dagster workspace"),
        (["-m", "tests.dagster.steps", "-m", "tests.dagster.steps"], "needs code locations of different names"),
        (["-m", "tests.dagster.steps", "-q", "a:b"], "a:b"),
    ],
)
def test_a_worker_that_cannot_start_says_why_in_one_sentence(fleet: Fleet, arguments: list[str], sentence: str) -> None:
    with home_is(fleet.instance.root_directory):
        ended = subprocess.run(
            [OQ, "dagster", "worker", "-q", fleet.queue, "--url", fleet.url, *arguments],
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert ended.returncode == 2
    assert sentence in ended.stderr.splitlines()[-1]


def test_a_worker_needs_the_instance_of_those_who_launch(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    command = [OQ, "dagster", "worker", "-m", "tests.dagster.steps", "--url", fleet.url]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 2
    assert ended.stderr.startswith("DAGSTER_HOME is not set")


def test_a_worker_without_code_is_refused() -> None:
    with pytest.raises(UsageError, match="needs code locations"):
        DagsterWorker("q", [])


@pytest.mark.parametrize("places", [{}, {"module": "a", "file": "b"}, {"module": "a", "package": "b"}])
def test_a_code_location_is_one_place(places: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="pass one"):
        CodeLocation(**places)


# The fence.


def test_what_is_told_behind_the_fence_is_read_before_it() -> None:
    fence = WriteFences(2)
    with fence.slot(now() + 600) as slot:
        guard = WriteFence(fence.descriptor, slot.index)
        assert 500 < guard.left_s <= 600
        guard.check()
        guard.tell(stderr="/a/path")
        guard.tell(reason="x" * 20_000 + "end")
        assert slot.note["stderr"] == "/a/path"
        assert slot.note["reason"].endswith("xend")
        slot.extend(now() - 1)
        assert guard.left_s < 0
        slot.prolong(60)
        assert guard.left_s < 0  # what is over is over
        slot.extend(now() + 60)
        slot.prolong(600)
        assert guard.left_s > 500
        guard.close()
    with fence.slot(now() + 60) as again:
        assert again.note == {}
    fence.close()


def test_reasons_tell_losses_from_failures(tmp_path: Path) -> None:
    assert is_loss("Lost: its process (1 on a) was killed by SIGKILL")
    assert is_loss("job stalled more than maxStalledCount")
    assert not is_loss("Job timeout exceeded")
    file = tmp_path / "errors"
    file.write_text("\n".join(map(str, range(1000))))
    assert last_lines({"stderr": str(file)}).endswith("998\n999")
    assert len(last_lines({"stderr": str(file)}).splitlines()) == 40
    assert last_lines({}) == last_lines({"stderr": str(tmp_path / "none")}) == ""
