"""`oq dagster worker`: which code it loads and how, when it renews its processes, and what it refuses."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
import uuid
from ast import literal_eval
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.reconstruct import ReconstructableJob
from dagster._grpc.types import ExecuteRunArgs, ExecuteStepArgs

from orchestration_queue.client import Job, Queue
from orchestration_queue.dagster import CodeLocation, DagsterWorker
from orchestration_queue.dagster.job_health import Cause, cause_of, last_lines
from orchestration_queue.dagster.steps.envelope import INSTANCE
from orchestration_queue.dagster.steps.work_item import WorkItem
from orchestration_queue.dagster.steps.write_fence import WriteFence, WriteFences, now
from orchestration_queue.doctor import run_checks
from orchestration_queue.errors import JobFailedError, UsageError
from orchestration_queue.options import JobOptions
from orchestration_queue.options.job import Headers
from orchestration_queue.states import JobState
from tests.dagster import steps
from tests.dagster.step_workers import Fleet, home_is
from tests.processes import OQ, running_process
from tests.waiting import wait_until_sync

pytestmark = [pytest.mark.dagster, pytest.mark.timeout(300)]

LONELY = """
import os, time
from pathlib import Path
import dagster as dg
{at_import}

@dg.op
def lonely():
    with Path(os.environ["SCRATCH"], "lonely").open("a") as file:
        print({body}, file=file)

@dg.job
def lonely_job():
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
            (gone.kind, {"args": "nonsense"}, "contains no Dagster work item"),
            (gone.kind, {}, "contains no Dagster work item"),
            ("greet", {}, "no handler for 'greet'"),
        ):
            assert reason in failure(queue.add(name, data))


def test_jobs_of_another_instance_are_put_back(fleet: Fleet) -> None:
    recon = dg.reconstructable(steps.where_job)
    work = WorkItem(ExecuteStepArgs(recon.get_python_origin(), "a-run-of-theirs", ["where_0"]))
    with fleet.worker(), Queue(fleet.queue, url=fleet.url) as queue:
        job = queue.add(work.kind, work.data(), JobOptions(headers=Headers({INSTANCE: "theirs"})))
        wait_until_sync(lambda: job.refresh().state is JobState.DELAYED, "the job to be put back", 120)


def failure(job: Job) -> str:
    """Why a job fails."""
    with pytest.raises(JobFailedError) as caught:
        job.wait(120)
    return str(caught.value)


@contextmanager
def worker_of(
    fleet: Fleet, file: Path, *arguments: str, log: Path | None = None
) -> Iterator[Callable[[], dg.DagsterRun]]:
    """A worker of a file with an op ``lonely``; gives what runs that op once more."""
    command = [OQ, "dagster", "worker", "-f", str(file), "-q", fleet.queue, *arguments]
    recon = ReconstructableJob.for_file(str(file), "lonely_job")

    def run() -> dg.DagsterRun:
        created = fleet.instance.create_run_for_job(LONELY_JOB, job_code_origin=recon.get_python_origin())
        args = ExecuteStepArgs(recon.get_python_origin(), created.run_id, ["lonely"])
        work = WorkItem(args, env={"SCRATCH": str(fleet.scratch)})
        assert queue.add(work.kind, work.data()).wait(120)["exit_code"] == 0
        assert "STEP_SUCCESS" in fleet.types(created.run_id, "lonely")
        return created

    home = home_is(fleet.instance.root_directory)
    with home, running_process(command, fleet.url, log), Queue(fleet.queue, url=fleet.url) as queue:
        yield run


@dg.op
def lonely() -> None:
    """Stand for the op of the files, which only their workers import."""


@dg.job(name="lonely_job")
def LONELY_JOB() -> None:  # noqa: N802  a constant
    """Stand for the job of the files."""
    lonely()


def write_location(directory: Path, at_import: str = "", body: str = "0") -> Path:
    """Write a file with an op ``lonely`` that notes a value."""
    file = directory / "lonely.py"
    file.write_text(LONELY.format(at_import=at_import, body=body))
    return file


@pytest.mark.parametrize(
    ("at_import", "hazard"),
    [
        ("import threading; threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()", "1 thread ("),
        ("import builtins, socket; builtins.pair = socket.socketpair()", "a connection to another process"),
        (
            "import sqlite3; db = sqlite3.connect(__file__ + '.db'); db.execute('create table if not exists t (a)')",
            ".db",
        ),
    ],
    ids=["thread", "connection", "database"],
)
def test_code_that_cannot_be_forked_runs_in_new_processes(
    fleet: Fleet, tmp_path: Path, at_import: str, hazard: str
) -> None:
    with worker_of(fleet, write_location(tmp_path, at_import)) as run:
        told = [entry.message for entry in fleet.instance.all_logs(run().run_id)]
    assert any("Code location 'lonely.py' cannot be forked" in message and hazard in message for message in told)


@pytest.mark.parametrize(
    ("at_import", "decision", "of_the_step"),
    [
        ("", "fork: importing the code leaves no threads", "fork: importing the code leaves no threads"),
        (
            "import numpy.random",
            "fork after repair: random numbers of numpy are seeded again",
            "fork after repair: random numbers of numpy are seeded again",
        ),
        (
            "import threading; threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
            "spawn: importing the code leaves 1 thread (",
            "spawn",
        ),
    ],
    ids=["fork", "repair", "spawn"],
)
def test_log_run_registry_and_doctor_tell_how_steps_are_isolated_and_why(
    fleet: Fleet, tmp_path: Path, at_import: str, decision: str, of_the_step: str
) -> None:
    log = tmp_path / "log"
    location = write_location(tmp_path, at_import)
    with worker_of(fleet, location, log=log) as run, Queue(fleet.queue, url=fleet.url) as queue:
        entries = fleet.instance.all_logs(run().run_id, of_type=dg.DagsterEventType.STEP_WORKER_STARTED)
        wait_until_sync(queue.workers, "the worker to be registered", 60)
        (registered,) = queue.workers()
        found = [finding.what for finding in run_checks(fleet.url, [fleet.queue])]
    (started,) = [entry.dagster_event for entry in entries if entry.dagster_event]
    assert str(started.engine_event_data.metadata["isolation"].value).startswith(of_the_step)
    assert f"Code location 'lonely.py': {decision}" in log.read_text()
    assert "alembic" not in log.read_text()
    assert registered.isolation["lonely.py"].startswith(decision)
    assert any(decision in what for what in found) is decision.startswith("spawn")


def test_a_fork_that_hangs_is_killed_and_runs_in_a_new_process(fleet: Fleet, tmp_path: Path) -> None:
    # Dagster imports the file into this process as well, whose forks must not hang.
    hangs = "import sys; 'pytest' in sys.modules or os.register_at_fork(after_in_child=lambda: time.sleep(1000))"
    with worker_of(fleet, write_location(tmp_path, hangs), "--first-sign", "2") as run:
        first, second = run(), run()
    told = [[entry.message for entry in fleet.instance.all_logs(made.run_id)] for made in (first, second)]
    assert any("did not begin within 2 s and was killed" in message for message in told[0])
    assert any("cannot be forked" in message for message in told[1]), "and no other step waits for its fork"


def test_changed_code_is_loaded_before_the_next_step(fleet: Fleet, tmp_path: Path) -> None:
    with worker_of(fleet, write_location(tmp_path, body="'old'")) as run:
        run()
        write_location(tmp_path, body="'new and longer'")
        run()
    assert fleet.lines("lonely") == ["old", "new and longer"]


def test_changed_code_that_cannot_be_loaded_fails_its_step_and_says_why(fleet: Fleet, tmp_path: Path) -> None:
    with worker_of(fleet, write_location(tmp_path)) as run, Queue(fleet.queue, url=fleet.url) as queue:
        run()
        write_location(tmp_path, "import no_such_module_at_all")
        origin = ReconstructableJob.for_file(str(tmp_path / "lonely.py"), "lonely_job").get_python_origin()
        work = WorkItem(ExecuteStepArgs(origin, "any", ["lonely"]))
        reason = failure(queue.add(work.kind, work.data()))
        write_location(tmp_path, body="'repaired'")
        run()
    assert "'lonely.py' cannot be loaded" in reason
    assert "no_such_module_at_all" in reason
    assert fleet.lines("lonely") == ["0", "repaired"]


def test_forked_steps_draw_numbers_of_their_own(fleet: Fleet, tmp_path: Path) -> None:
    numbers = "(os.getppid(), random.random(), numpy.random.random())"
    with worker_of(fleet, write_location(tmp_path, "import random; import numpy", numbers)) as run:
        run()
        run()
    (parent, *first), (other, *second) = (literal_eval(line) for line in fleet.lines("lonely"))
    assert parent == other, "both are forks of one process"
    assert not set(first) & set(second)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux lists a process's open files")
def test_a_step_opens_each_file_of_its_instance_once_and_closes_it(fleet: Fleet, tmp_path: Path) -> None:
    """Beside the step's own connections, those of a process that it forks."""
    at_import = """
from pathlib import Path
def databases():
    context = dg.OpExecutionContext.get()
    context.log.info("before")
    mine = sorted(os.path.basename(os.path.realpath(one)) for one in Path("/proc/self/fd").iterdir())
    if not (pid := os.fork()):
        context.log.info("in between")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    context.log.info("after")
    return [name for name in mine if name.endswith(".db")]
"""
    with worker_of(fleet, write_location(tmp_path, at_import, "databases()")) as run:
        result = run()
        (opened,) = map(literal_eval, fleet.lines("lonely"))
        history = Path(fleet.instance.root_directory, "history")
        wait_until_sync(lambda: not list(history.rglob(f"{result.run_id}.db-wal")), "the step's process to close")
    assert opened.count(f"{result.run_id}.db") == opened.count("runs.db") == 1
    logged = [entry.user_message for entry in fleet.instance.all_logs(result.run_id)]
    assert [text for text in logged if text in ("before", "in between", "after")] == ["before", "in between", "after"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "No code to load; name a module with -m, a file with -f, or a workspace with -w."),
        (["-m", "no_such_module_at_all"], "cannot be loaded"),
        (["-f", "no_such_file.py"], "There is no file 'no_such_file.py' with definitions"),
        (["-w", "no_such_workspace.yaml"], "cannot be read as a Dagster workspace"),
        (["-m", "tests.dagster.steps", "-m", "tests.dagster.steps"], "needs at least one code location"),
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


def test_a_worker_leaves_dagster_to_its_fork_servers() -> None:
    program = "import sys, orchestration_queue.dagster.steps; sys.exit('dagster' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_worker_without_code_is_refused() -> None:
    with pytest.raises(UsageError, match="needs at least one code location"):
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
    assert cause_of("Lost: its process (1 on a) was killed by SIGKILL") is Cause.LOST
    assert cause_of("job stalled more than maxStalledCount") is Cause.LOST
    assert cause_of("Crashed: its process (1 on a) exited with code 1") is Cause.CRASHED
    assert cause_of("Job timeout exceeded") is cause_of("ValueError: the pump has stalled") is Cause.FAILED
    file = tmp_path / "errors"
    file.write_text("\n".join(map(str, range(1000))))
    assert last_lines({"stderr": str(file)}).endswith("998\n999")
    assert len(last_lines({"stderr": str(file)}).splitlines()) == 40
    assert last_lines({}) == last_lines({"stderr": str(tmp_path / "none")}) == ""
