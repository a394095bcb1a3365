"""`oq dagster worker`: which code it loads and how, when it renews its processes, and what it refuses."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
import uuid
from ast import literal_eval
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.reconstruct import ReconstructableJob
from dagster._grpc.types import ExecuteRunArgs, ExecuteStepArgs

from orchestration_queue.client import Job, Queue
from orchestration_queue.dagster import CodeLocation, DagsterWorker
from orchestration_queue.dagster._compat import rehearse
from orchestration_queue.dagster.job_health import Cause, cause_of, last_lines
from orchestration_queue.dagster.steps.envelope import INSTANCE
from orchestration_queue.dagster.steps.work_item import WorkItem
from orchestration_queue.doctor import run_checks
from orchestration_queue.errors import JobFailedError, UsageError
from orchestration_queue.options import JobOptions
from orchestration_queue.options.job import Headers
from orchestration_queue.states import JobState
from orchestration_queue.worker.forks.write_fence import WriteFence, WriteFences, now
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
DATABASES = """
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
LOCATIONS = {
    "plain": (DATABASES, "databases()"),
    "seeded": ("import random; import numpy.random", "(os.getppid(), random.random(), numpy.random.random())"),
    "thread": ("import threading; threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()", "0"),
    "connection": ("import builtins, socket; builtins.pair = socket.socketpair()", "0"),
    "database": (
        "import sqlite3; db = sqlite3.connect(__file__ + '.db'); db.execute('create table if not exists t (a)')",
        "0",
    ),
}
"""What files with an op ``lonely`` do when they are imported, and what the op notes."""


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    """An instance that all tests of this module use."""
    with dg.instance_for_test() as made:
        yield made


@pytest.fixture
def fleet(instance: dg.DagsterInstance, server_url: str, tmp_path: Path) -> Fleet:
    """A queue of this test's own, without workers."""
    return Fleet(instance, server_url, f"steps-{uuid.uuid4().hex[:8]}", tmp_path)


@pytest.fixture(scope="module")
def metrics(
    instance: dg.DagsterInstance, server_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Fleet, str]]:
    """A queue with a worker that several tests use, and the address of its metrics."""
    fleet = Fleet(instance, server_url, f"steps-{uuid.uuid4().hex[:8]}", tmp_path_factory.mktemp("metrics"))
    log = fleet.scratch / "log"

    def address() -> str:
        found = re.search(r"Metrics and probes at (http://\S+)", log.read_text())
        return found[1] if found else ""

    with fleet.worker("--metrics-port", "0", "--queue-metrics", log=log):
        wait_until_sync(address, "the endpoint", 120)
        yield fleet, address()


@pytest.fixture
def served(metrics: tuple[Fleet, str], tmp_path: Path) -> Fleet:
    """The same queue, with traces of this test alone."""
    return replace(metrics[0], scratch=tmp_path)


def test_a_host_that_has_served_is_replaced(fleet: Fleet) -> None:
    def hosts() -> set[str]:
        assert fleet.run(steps.where_job).success
        return {line.split()[2] for line in fleet.lines("where")}

    with fleet.worker("--max-items", "2"):
        (first,) = hosts()
        wait_until_sync(lambda: len(hosts()) > 1, "a second host to take over", 120)
        wait_until_sync(lambda: not Path(f"/proc/{first}").exists(), "the first to leave")


def test_it_shows_its_metrics_and_whether_it_is_ready(metrics: tuple[Fleet, str], served: Fleet) -> None:
    address = metrics[1]

    def is_ready() -> bool:
        with suppress(OSError), urllib.request.urlopen(f"{address}/readyz", timeout=10) as answer:  # noqa: S310
            return bool(answer.status == 200)
        return False

    def shown() -> str:
        with urllib.request.urlopen(f"{address}/metrics", timeout=10) as answer:  # noqa: S310  an address of our own
            return str(answer.read(), "utf-8")

    def done() -> float:
        what = f'jobs_finished_total{{outcome="completed",queue="{served.queue}",task="dagster.step"}} '
        return float(shown().partition(what)[2].partition("\n")[0] or 0)

    wait_until_sync(is_ready, "the worker to be ready", 60)
    before = done()
    assert served.run(steps.where_job).success
    wait_until_sync(lambda: done() == before + 2, "both steps to be counted")
    assert f'depth{{queue="{served.queue}",state="waiting"}} 0.0' in shown()


def test_a_run_is_work_like_any_other_and_what_is_none_fails(served: Fleet) -> None:
    recon = dg.reconstructable(steps.where_job)
    run = served.instance.create_run_for_job(
        recon.get_definition(),
        job_code_origin=recon.get_python_origin(),
        run_config={"execution": {"config": {**served.config, "max_concurrent": 1}}},
    )
    work = WorkItem(ExecuteRunArgs(recon.get_python_origin(), run.run_id, None), env={"SCRATCH": str(served.scratch)})
    gone = WorkItem(ExecuteStepArgs(recon.get_python_origin(), "no-such-run", ["where_0"]))
    with Queue(served.queue, url=served.url) as queue:
        done = queue.add(work.kind, work.data()).wait(120)
        assert done["exit_code"] == 0
        assert served.instance.get_run_by_id(run.run_id).status is dg.DagsterRunStatus.SUCCESS  # type: ignore[union-attr]
        for name, data, reason in (
            (gone.kind, gone.data(), "'no-such-run' does not exist in this worker's instance"),
            (gone.kind, {"args": "nonsense"}, "contains no Dagster work item"),
            (gone.kind, {}, "contains no Dagster work item"),
            ("greet", {}, "no handler for 'greet'"),
        ):
            assert reason in failure(queue.add(name, data))


def test_jobs_of_another_instance_are_put_back(served: Fleet) -> None:
    recon = dg.reconstructable(steps.where_job)
    work = WorkItem(ExecuteStepArgs(recon.get_python_origin(), "a-run-of-theirs", ["where_0"]))
    with Queue(served.queue, url=served.url) as queue:
        job = queue.add(work.kind, work.data(), JobOptions(headers=Headers({INSTANCE: "theirs"})))
        wait_until_sync(lambda: job.refresh().state is JobState.DELAYED, "the job to be put back", 120)
        job.cancel()  # it may be with the worker again


def failure(job: Job) -> str:
    """Why a job fails."""
    with pytest.raises(JobFailedError) as caught:
        job.wait(120)
    return str(caught.value)


@dg.op
def lonely() -> None:
    """Stand for the op of the files, which only their workers import."""


@dg.job(name="lonely_job")
def LONELY_JOB() -> None:  # noqa: N802  a constant
    """Stand for the job of the files."""
    lonely()


def write_location(file: Path, at_import: str = "", body: str = "0") -> Path:
    """Write a file with an op ``lonely`` that notes a value."""
    file.write_text(LONELY.format(at_import=at_import, body=body))
    return file


def run_lonely(fleet: Fleet, file: Path) -> dg.DagsterRun:
    """Run the op of a file once on its worker."""
    recon = ReconstructableJob.for_file(str(file), "lonely_job")
    created = fleet.instance.create_run_for_job(LONELY_JOB, job_code_origin=recon.get_python_origin())
    args = ExecuteStepArgs(recon.get_python_origin(), created.run_id, ["lonely"])
    work = WorkItem(args, location=file.name, env={"SCRATCH": str(fleet.scratch)})
    with Queue(fleet.queue, url=fleet.url) as queue:
        assert queue.add(work.kind, work.data()).wait(120)["exit_code"] == 0
    assert "STEP_SUCCESS" in fleet.types(created.run_id, "lonely")
    return created


@contextmanager
def worker_of(fleet: Fleet, *files: Path, first_sign: float = 60, log: Path | None = None) -> Iterator[None]:
    """A worker of files with an op ``lonely``."""
    command = [OQ, "dagster", "worker", "-q", fleet.queue, "--first-sign", str(first_sign)]
    for file in files:
        command += ["-f", str(file)]
    with home_is(fleet.instance.root_directory), running_process(command, fleet.url, log):
        yield


@pytest.fixture(scope="module")
def shared_locations(
    instance: dg.DagsterInstance, server_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    """A queue with a worker of all locations; its log and the files are where it leaves traces."""
    fleet = Fleet(instance, server_url, f"steps-{uuid.uuid4().hex[:8]}", tmp_path_factory.mktemp("locations"))
    files = [write_location(fleet.scratch / f"{name}.py", *LOCATIONS[name]) for name in LOCATIONS]
    with worker_of(fleet, *files, log=fleet.scratch / "log"):
        yield fleet


@pytest.fixture
def locations(shared_locations: Fleet, tmp_path: Path) -> Fleet:
    """The same, with traces of this test alone."""
    return replace(shared_locations, scratch=tmp_path)


FORK = "fork: importing the code leaves no threads"
REPAIR = "fork after repair: random numbers of numpy are seeded again"


@pytest.mark.parametrize(
    ("name", "decision", "of_the_step"),
    [
        ("plain", FORK, FORK),
        ("seeded", REPAIR, REPAIR),
        ("thread", "spawn: importing the code leaves 1 thread (", "spawn"),
        ("connection", "spawn: importing the code leaves a connection to another process", "spawn"),
        ("database", "spawn: importing the code leaves the open file {files}/database.py.db", "spawn"),
    ],
)
def test_log_run_registry_and_doctor_tell_how_steps_are_isolated_and_why(
    shared_locations: Fleet, locations: Fleet, name: str, decision: str, of_the_step: str
) -> None:
    decision = decision.format(files=shared_locations.scratch)
    file, log = shared_locations.scratch / f"{name}.py", shared_locations.scratch / "log"
    entries = locations.instance.all_logs(run_lonely(locations, file).run_id)
    with Queue(locations.queue, url=locations.url) as queue:
        wait_until_sync(queue.workers, "the worker to be registered", 60)
        (registered,) = queue.workers()
        found = [finding.what for finding in run_checks(locations.url, [locations.queue])]
    events = [entry.dagster_event for entry in entries if entry.dagster_event]
    (started,) = [event for event in events if event.event_type is dg.DagsterEventType.STEP_WORKER_STARTED]
    assert str(started.engine_event_data.metadata["isolation"].value).startswith(of_the_step)
    assert f"Code location '{file.name}': {decision}" in log.read_text()
    assert "alembic" not in log.read_text()
    assert registered.isolation[file.name].startswith(decision)
    assert any(decision in what for what in found) is decision.startswith("spawn")
    hazard = decision.partition(" leaves ")[2]
    told = [entry.message for entry in entries if f"Code location '{file.name}' cannot be forked" in entry.message]
    assert [hazard in message for message in told] == [True] * decision.startswith("spawn")


def test_a_fork_that_hangs_is_killed_and_runs_in_a_new_process(fleet: Fleet, tmp_path: Path) -> None:
    # Dagster imports the file into this process as well, whose forks must not hang.
    hangs = "import sys; 'pytest' in sys.modules or os.register_at_fork(after_in_child=lambda: time.sleep(1000))"
    file = write_location(tmp_path / "lonely.py", hangs)
    with worker_of(fleet, file, first_sign=2):
        first, second = run_lonely(fleet, file), run_lonely(fleet, file)
    told = [[entry.message for entry in fleet.instance.all_logs(made.run_id)] for made in (first, second)]
    assert any("did not start within 2 s and was killed" in message for message in told[0])
    assert any("cannot be forked" in message for message in told[1]), "and no other step waits for its fork"


def test_changed_code_is_loaded_before_the_next_step_which_fails_and_says_why_where_it_cannot_be_loaded(
    fleet: Fleet, tmp_path: Path
) -> None:
    file = write_location(tmp_path / "lonely.py", body="'old'")
    with worker_of(fleet, file), Queue(fleet.queue, url=fleet.url) as queue:
        run_lonely(fleet, file)
        write_location(file, body="'new and longer'")
        run_lonely(fleet, file)
        write_location(file, "import no_such_module_at_all")
        origin = ReconstructableJob.for_file(str(file), "lonely_job").get_python_origin()
        work = WorkItem(ExecuteStepArgs(origin, "any", ["lonely"]))
        reason = failure(queue.add(work.kind, work.data()))
        write_location(file, body="'repaired'")
        run_lonely(fleet, file)
    assert "'lonely.py' cannot be loaded" in reason
    assert "no_such_module_at_all" in reason
    assert fleet.lines("lonely") == ["old", "new and longer", "repaired"]


def test_forked_steps_draw_numbers_of_their_own(shared_locations: Fleet, locations: Fleet) -> None:
    for _ in range(2):
        run_lonely(locations, shared_locations.scratch / "seeded.py")
    (parent, *first), (other, *second) = (literal_eval(line) for line in locations.lines("lonely"))
    assert parent == other, "both are forks of one process"
    assert not set(first) & set(second)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux lists a process's open files")
def test_a_step_opens_each_file_of_its_instance_once_and_closes_it(shared_locations: Fleet, locations: Fleet) -> None:
    """Beside the step's own connections, those of a process that it forks."""
    result = run_lonely(locations, shared_locations.scratch / "plain.py")
    (opened,) = map(literal_eval, locations.lines("lonely"))
    history = Path(locations.instance.root_directory, "history")
    wait_until_sync(lambda: not list(history.rglob(f"{result.run_id}.db-wal")), "the step's process to close")
    assert opened.count(f"{result.run_id}.db") == opened.count("runs.db") == 1
    logged = [entry.user_message for entry in locations.instance.all_logs(result.run_id)]
    assert [text for text in logged if text in ("before", "in between", "after")] == ["before", "in between", "after"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "No code to load; name a module with -m, a file with -f, or a workspace with -w, or start"),
        (["-m", "no_such_module_at_all"], "cannot be loaded"),
        (["-f", "no_such_file.py"], "File 'no_such_file.py' with definitions does not exist"),
        (["-w", "no_such_workspace.yaml"], "cannot be read as a Dagster workspace"),
        (["-m", "tests.dagster.steps", "-m", "tests.dagster.steps"], "requires one or more code locations"),
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
    with pytest.raises(UsageError, match="requires one or more code locations"):
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
        guard.report(stderr="/a/path")
        guard.report(reason="x" * 20_000 + "end")
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


@dg.io_manager
def forbidden_io_manager() -> dg.IOManager:
    """A default IO manager of a user, which is not for rehearsals."""
    raise RuntimeError("only steps may call this")


def test_the_rehearsal_runs_no_code_of_the_user_and_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_DEFAULT_IO_MANAGER_MODULE", __name__)
    monkeypatch.setenv("DAGSTER_DEFAULT_IO_MANAGER_ATTRIBUTE", "forbidden_io_manager")
    done: list[str] = []
    materialize = dg.materialize

    def watched(*args: Any, **kwargs: Any) -> dg.ExecuteInProcessResult:
        result = materialize(*args, **kwargs)
        done.append("success" if result.success else "failure")
        return result

    monkeypatch.setattr(dg, "materialize", watched)
    rehearse(lambda _: None)
    assert done == ["success"]
    monkeypatch.setattr(dg, "materialize", lambda *_, **__: 1 / 0)
    rehearse(lambda _: None)


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ('[tool.dagster]\nmodule_name = "shop.definitions"', {"module": "shop.definitions"}),
        (
            '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "shop"',
            {"module": "shop.definitions"},
        ),
        ('[tool.dg.project]\nroot_module = "shop"\nautoload_defs = true', {"autoload": "shop.defs"}),
        ('[tool.dagster]\nmodules = [{type = "module", name = "a"}, {type = "module", name = "b"}]', None),
        ("[tool.ruff]", None),
    ],
)
def test_a_projects_code_is_found_as_dagster_finds_it(
    tmp_path: Path, text: str, location: dict[str, str] | None
) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    found = CodeLocation.of_project(str(tmp_path))
    if location is not None:
        (only,) = found
        assert {name: value for name, value in only.settings().items() if value and name != "name"} == {
            **location,
            "working_directory": str(tmp_path),
        }
    else:
        assert [one.module for one in found] == (["a", "b"] if "modules" in text else [])


def test_a_projects_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert CodeLocation.of_project(str(tmp_path)) == []
    (tmp_path / "pyproject.toml").write_text("not toml")
    with pytest.raises(UsageError, match=r"pyproject.toml cannot be read as a Dagster project"):
        CodeLocation.of_project(str(tmp_path))
