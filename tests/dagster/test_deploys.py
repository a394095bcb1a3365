"""A fleet whose workers are replaced one by one, while runs of both builds and of another location continue."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.reconstruct import ReconstructableJob
from dagster._core.remote_origin import ManagedGrpcPythonEnvCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from orchestration_queue.dagster._compat import LaunchRunContext
from tests.dagster.launches import launcher_of
from tests.dagster.step_workers import READY, home_is
from tests.processes import OQ, running_process
from tests.waiting import wait_until_sync

pytestmark = [pytest.mark.dagster, pytest.mark.timeout(300)]

STEPS = 10
DEFINITIONS = """
import os
from pathlib import Path
import dagster as dg
from orchestration_queue.dagster import queue_executor

BUILD = os.environ.get("BUILD", "none")  # as an image has it in its code

@dg.op
def note(context):
    run, here = context.run, Path(__file__)
    with here.with_name("steps").open("a") as file:
        print(run.tags["wanted"], here.name, BUILD, run.run_id, context.op_handle.name, sep=",", file=file)

@dg.job(executor_def=queue_executor)
def {name}_job():
    for number in range({steps}):
        note.alias(f"note_{{number}}")()
"""


@dataclass(frozen=True)
class _Deploy:
    """An instance, and its code as each build has it.

    Attributes:
        instance: The instance, whose runs are jobs.
        url: The queue's server.
        queue: The queue of runs and steps.
        directory: Where the code is, and where steps leave traces.
    """

    instance: dg.DagsterInstance
    url: str
    queue: str
    directory: Path

    def launch(self, location: str, build: str) -> str:
        """Launch a run as a code server of this build has it launched; return its id."""
        path = str(self.directory / f"{location}.py")
        job = ReconstructableJob.for_file(path, f"{location}_job")
        code = job.get_python_origin()
        target = LoadableTargetOrigin(python_file=path)
        server = ManagedGrpcPythonEnvCodeLocationOrigin(target, f"{location}.py")
        image = code.repository_origin._replace(container_image=build)
        run = self.instance.create_run_for_job(
            job.get_definition(),
            tags={"wanted": f"{location}.py,{build}", "orchestration_queue/queue": self.queue},
            remote_job_origin=RemoteRepositoryOrigin(server, "__repository__").get_job_origin(f"{location}_job"),
            job_code_origin=code._replace(repository_origin=image),
        )
        self.instance.run_launcher.launch_run(LaunchRunContext(run, None))
        return str(run.run_id)

    @contextmanager
    def worker(self, build: str, name: str) -> Iterator[subprocess.Popen[bytes]]:
        """A worker of a build that serves both locations."""
        files = [word for location in ("etl", "reports") for word in ("-f", str(self.directory / f"{location}.py"))]
        command = ["env", f"BUILD={build}", OQ, "dagster", "worker", *files, "-q", self.queue, "--code-version", build]
        log = self.directory / f"{name}.log"
        with running_process([*command, "--concurrency", "4", "--drain", "200"], self.url, log) as process:
            yield process

    def await_workers(self, *names: str) -> None:
        """Wait until workers are ready."""
        logs = [self.directory / f"{name}.log" for name in names]
        ready = f"{' and '.join(names)} to be ready, see {self.directory}"
        wait_until_sync(lambda: all(READY in log.read_text() for log in logs), ready, 200)

    def has_ended(self, *run_ids: str) -> bool:
        """Return whether runs ended well.

        Raises:
            AssertionError: One did not.
        """
        runs = [self.instance.get_run_by_id(run_id) for run_id in run_ids]
        assert not any(run is None or run.is_failure_or_canceled for run in runs), runs
        return all(run is not None and run.is_success for run in runs)


def test_no_step_of_a_rolling_deploy_runs_on_a_wrong_build(server_url: str, queue_name: str, tmp_path: Path) -> None:
    """Two workers are replaced one by one under sixty steps of two builds, each build of two code locations."""
    for location in ("etl", "reports"):
        (tmp_path / f"{location}.py").write_text(DEFINITIONS.format(name=location, steps=STEPS))
    launcher = launcher_of(url=server_url, queue=queue_name, match_image=True)
    with ExitStack() as stack:
        instance = stack.enter_context(dg.instance_for_test(overrides={"run_launcher": launcher}))
        stack.enter_context(home_is(instance.root_directory))
        deploy = _Deploy(instance, server_url, queue_name, tmp_path)
        first = stack.enter_context(deploy.worker("a", "first"))
        second = stack.enter_context(deploy.worker("a", "second"))
        deploy.await_workers("first", "second")
        old = [deploy.launch("etl", "a"), deploy.launch("reports", "a")]
        stack.enter_context(deploy.worker("b", "third"))
        deploy.await_workers("third")
        new = [deploy.launch("etl", "b"), deploy.launch("reports", "b")]
        first.terminate()
        old.append(deploy.launch("etl", "a"))  # as one that was queued before the deploy
        stack.enter_context(deploy.worker("b", "fourth"))
        new.append(deploy.launch("reports", "b"))
        wait_until_sync(lambda: deploy.has_ended(*old), f"the runs of the old build, see {tmp_path}", 200)
        second.terminate()
        wait_until_sync(lambda: deploy.has_ended(*new), f"the runs of the new build, see {tmp_path}", 200)
        assert (first.wait(60), second.wait(60)) == (0, 0)
    done = [line.split(",") for line in (tmp_path / "steps").read_text().splitlines()]
    wrong = [line for line in done if line[:2] != line[2:4]]
    assert not wrong
    assert Counter(build for _, _, _, build, _, _ in done) == {"a": 3 * STEPS, "b": 3 * STEPS}
    assert len({(run_id, step) for *_, run_id, step in done}) == len(done), "each step ran once"
