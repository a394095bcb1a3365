"""An instance whose runs are jobs, its code location, and workers: what the tests of launcher and coordinator use."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import ModuleTarget
from dagster._daemon.backfill import execute_backfill_iteration
from dagster._daemon.monitoring import execute_run_monitoring_iteration

from orchestration_queue.client import Queue
from orchestration_queue.dagster.runs.run_jobs import find_run_job
from orchestration_queue.protocol.record import JobRecord
from tests.conftest import start_server
from tests.dagster import steps
from tests.dagster.step_workers import READY, Fleet
from tests.process_state import restore_environment
from tests.waiting import wait_until_sync

__all__ = ["QUEUE", "Launches", "launcher_of", "launches", "serving"]

LOCATION = "tests.dagster.steps"
QUEUE = "runs"


def launcher_of(**config: object) -> dict[str, object]:
    """What ``dagster.yaml`` says of the launcher."""
    return {"module": "orchestration_queue.dagster", "class": "QueueRunLauncher", "config": config}


@dataclass(frozen=True)
class Launches(Fleet):
    """Where a test's runs happen, and how they get there.

    Attributes:
        context: The code location, as daemon and webserver have it.
    """

    context: WorkspaceProcessContext

    def create(self, job: str, tags: Mapping[str, str] | None = None) -> str:
        """Make a run; its id. It goes to this test's queue, and so do its steps."""
        location = self.context.create_request_context().get_code_location(LOCATION)
        remote = location.get_repository("__repository__").get_full_job(job)
        definition = steps.defs.resolve_job_def(job)
        is_in_process = definition.executor_def is dg.in_process_executor
        run = self.instance.create_run_for_job(
            definition,
            run_config={} if is_in_process else {"execution": {"config": self.config}},
            tags={"orchestration_queue/queue": self.queue, **(tags or {})},
            remote_job_origin=remote.get_remote_origin(),
            job_code_origin=remote.get_python_origin(),
        )
        return str(run.run_id)

    def launch(self, job: str, tags: Mapping[str, str] | None = None) -> str:
        """Launch a run, past the coordinator; its id."""
        run_id = self.create(job, tags)
        self.instance.launch_run(run_id, self.context.create_request_context())
        return run_id

    def submit(self, job: str, tags: Mapping[str, str] | None = None) -> str:
        """Submit a run to the coordinator; its id."""
        run_id = self.create(job, tags)
        self.instance.submit_run(run_id, self.context.create_request_context())
        return run_id

    def status(self, run_id: str) -> dg.DagsterRunStatus:
        """What Dagster says of the run."""
        run = self.instance.get_run_by_id(run_id)
        assert run is not None
        return run.status

    def reaches(self, run_id: str, status: dg.DagsterRunStatus, seconds: float = 120) -> None:
        """Wait until Dagster says so."""
        wait_until_sync(lambda: self.status(run_id) is status, f"the run to be {status.value}", seconds)

    def traces(self, name: str, count: int = 1) -> list[str]:
        """Return the lines of a trace, once it has that number of them."""
        wait_until_sync(lambda: len(self.lines(name)) >= count, f"{count} lines of {name}", 120)
        return self.lines(name)

    def monitor(self) -> None:
        """Do what Dagster's daemon does every now and then."""
        for error in execute_run_monitoring_iteration(self.context, logging.getLogger("monitor")):
            assert error is None, error

    def backfill(self, asset: str, partitions: Sequence[str], seconds: float = 250) -> None:
        """Start a backfill, and do what Dagster's daemon does until it has ended."""
        env = json.dumps({"env": {"SCRATCH": str(self.scratch)}})
        made = PartitionBackfill.from_asset_partitions(
            backfill_id=f"{asset}-{time.time_ns()}",
            asset_graph=self.context.create_request_context().asset_graph,
            partition_names=partitions,
            asset_selection=[dg.AssetKey(asset)],
            backfill_timestamp=time.time(),
            tags={"orchestration_queue/queue": self.queue, "orchestration_queue/config": env},
            dynamic_partitions_store=self.instance,
            all_partitions=False,
            title=None,
            description=None,
            run_config=None,
        )
        self.instance.add_backfill(made)

        def has_ended() -> bool:
            for error in execute_backfill_iteration(self.context, logging.getLogger("backfill")):
                assert error is None, error
            now = self.instance.get_backfill(made.backfill_id)
            assert now is not None
            assert now.status not in (BulkActionStatus.FAILED, BulkActionStatus.COMPLETED_FAILED), now.error
            return now.status in (BulkActionStatus.COMPLETED, BulkActionStatus.COMPLETED_SUCCESS)

        wait_until_sync(has_ended, f"the backfill of {asset} to end", seconds)

    def job(self, run_id: str) -> JobRecord:
        """The run's job."""
        place = find_run_job(self.instance, run_id, self.queue)
        with Queue(place.queue, url=self.url) as queue:
            return queue.get(place.job_id).record

    def messages(self, run_id: str) -> str:
        """All that Dagster's log says of the run."""
        return "\n".join(entry.user_message or entry.message for entry in self.instance.all_logs(run_id))


@contextmanager
def launches(url: str, scratch: Path, **overrides: Any) -> Iterator[Launches]:
    """An instance with our launcher and coordinator, monitored, and its code location. No workers."""
    config = {
        # Long for what is not to be lost on a busy machine, and short for the test that waits for its end.
        "run_launcher": launcher_of(url=url, queue=QUEUE, lease=8.0, env={"SCRATCH": str(scratch)}),
        "run_coordinator": {"module": "orchestration_queue.dagster", "class": "QueueRunCoordinator"},
        "run_monitoring": {"enabled": True, "max_resume_run_attempts": 1, "start_timeout_seconds": 600},
        **overrides,
    }
    target = ModuleTarget(LOCATION, None, str(Path(__file__).parents[2]), LOCATION)
    with dg.instance_for_test(overrides=config) as instance, WorkspaceProcessContext(instance, target) as context:
        yield Launches(instance, url, QUEUE, scratch, context)


@contextmanager
def serving(home: Path, **overrides: Any) -> Iterator[Launches]:
    """The same on a server of its own, with a worker that is ready."""
    server = start_server(home / "queue.sock")
    environment = dict(os.environ)
    log, traces = home / "worker.log", home / "traces"
    traces.mkdir()
    try:
        with launches(f"unix://{home / 'queue.sock'}", traces, **overrides) as made, made.worker(log=log):
            wait_until_sync(lambda: READY in log.read_text(), f"the worker to be ready, see {log}", 180)
            restore_environment(environment)  # Dagster's home would be that of every later test
            yield made
    finally:
        server.kill()
        server.wait()
