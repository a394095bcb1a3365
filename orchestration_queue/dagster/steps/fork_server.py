"""The fork server of a Dagster worker: it has loaded the instance's storage and the user's code."""

from __future__ import annotations

import logging
import sys
from contextlib import nullcontext

import dagster as dg

from orchestration_queue.dagster._compat import (
    can_be_copied,
    capture_logs_directly,
    guard_events,
    rehearse,
    storage_id,
    warm_up,
)
from orchestration_queue.dagster.steps.code_location import CodeLocation
from orchestration_queue.dagster.steps.database import (
    await_database,
    keep_connection,
    outlast_outages,
    sqlite_engines,
    sync_at_end,
)
from orchestration_queue.dagster.steps.work_item import WorkItem, WorkKind, perform
from orchestration_queue.errors import StateError
from orchestration_queue.worker.forks.fork_safety import (
    close_idle_connections,
    decide,
    find_hazards,
    find_repairs,
    open_descriptors,
    source_files,
)
from orchestration_queue.worker.forks.fork_server import FAILED, ForkServer
from orchestration_queue.worker.forks.write_fence import WriteFence
from orchestration_queue.worker.sandbox.frames import Frame

__all__ = ["main"]

_ATTEMPTS = frozenset({dg.DagsterEventType.STEP_WORKER_STARTED, dg.DagsterEventType.STEP_UP_FOR_RETRY})
"""The first event of an attempt, and the one before the next attempt."""
_BEGUN = frozenset({dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING})


def main(
    descriptor: int,
    parent: int,
    log_level: int,
    fence: int,
    location: dict[str, str] | None,
    *,
    is_resident: bool,
) -> None:
    """Serve work items until the worker disconnects.

    Args:
        descriptor: The socket to the worker.
        parent: The worker's process id.
        log_level: The worker's log level.
        fence: The shared memory of the write fences.
        location: The code to load first; None to load nothing.
        is_resident: Run work items in this process, one at a time, instead of in forks.
    """
    server = _StepServer(descriptor, parent, log_level, fence, is_resident=is_resident)
    logging.getLogger("alembic").setLevel(max(log_level, logging.WARNING))  # it writes two lines per connection
    code = CodeLocation(**location) if location is not None else None
    server.main(lambda: server.load(code), lambda: server.examine(code))


class _StepServer(ForkServer):
    _instance: dg.DagsterInstance | None = None
    _instance_id = ""
    _known: frozenset[int] = frozenset()
    _isolation = ""

    def load(self, location: CodeLocation | None) -> None:
        """Import the code that every work item needs: the storage's drivers, and the user's code."""
        if location is None:
            return
        # Before the instance opens its files: an engine that exists already is not replaced.
        sqlite_engines.share()
        instance = await_database(dg.DagsterInstance.get)
        await_database(lambda: warm_up(instance))
        if not self.is_resident:
            rehearse(sqlite_engines.adopt)
        self._instance_id = storage_id(instance)
        self._known = open_descriptors()
        sys.argv[:] = [location.file or location.module or location.name]  # user code may parse it
        location.load()
        if can_be_copied(instance) and not self.is_resident:
            self._instance = instance
        else:
            instance.dispose()

    def examine(self, location: CodeLocation | None) -> dict[str, object]:
        """Return facts about the loaded code for the worker: its files, and whether it can be forked."""
        if location is None:
            self._isolation = "spawn"
            return {"hazards": [], "repairs": [], "sources": {}, "instance": ""}
        repairs = [] if self.is_resident else [*close_idle_connections(), *find_repairs()]
        hazards = [] if self.is_resident else find_hazards(self._known)
        self._isolation = "in_process" if self.is_resident else decide(hazards, repairs, is_forked=True)
        return {
            "hazards": hazards,
            "repairs": repairs,
            "sources": source_files([location.file] if location.file else []),
            "instance": self._instance_id,
        }

    def run(self, frame: Frame, fence: WriteFence) -> int:
        """Run one work item, alone in its process or one of many; return the exit code."""
        try:
            self._run(frame, fence)
        except _LostError as error:
            fence.report(lost=str(error))
            return FAILED
        return 0

    def _run(self, frame: Frame, fence: WriteFence) -> None:
        work = WorkItem.from_data(frame["data"])
        capture_logs_directly(lambda path: fence.report(stderr=path))
        opened = self._instance
        with nullcontext(opened) if opened else await_database(dg.DagsterInstance.get) as instance:
            if not self.is_resident:
                keep_connection(instance)
                if work.kind is WorkKind.STEP:
                    sync_at_end(instance, work.run_id)
            guard_events(instance, fence.admit)
            outlast_outages(instance)
            if crash := frame["crash"]:
                _fail_run(crash, work, instance)
                return
            if notice := frame["notice"]:
                _log_notice(notice, work, instance)
            if frame["is_redelivered"]:
                _refuse_to_repeat(work, instance)
            fence.report(exit_code=str(perform(work, instance, self._isolation)))

    def finish(self) -> None:
        """Close the database of a fork."""
        sqlite_engines.close()


def _fail_run(reason: str, work: WorkItem, instance: dg.DagsterInstance) -> None:
    """Fail a run whose process cannot report its end, unless Dagster's run monitoring does so, or resumes it."""
    run = instance.get_run_by_id(work.run_id)
    if run is not None and not run.is_finished and not instance.run_monitoring_enabled:
        instance.report_run_failed(run, f"The run can't continue: {reason}")


def _log_notice(notice: str, work: WorkItem, instance: dg.DagsterInstance) -> None:
    """Write a message of the worker to the run's log."""
    if run := instance.get_run_by_id(work.run_id):
        instance.report_engine_event(notice, run, step_key=work.step_key or None)


class _LostError(Exception):
    """Another worker was lost while it ran the step, whose events may be incomplete."""


def _refuse_to_repeat(work: WorkItem, instance: dg.DagsterInstance) -> None:
    """Raise if a run or step whose worker was lost had begun.

    Dagster counts the attempts of a step, and its executor starts the next one as another job.

    Raises:
        StateError: A run had begun.
        _LostError: The attempt of a step had begun.
    """
    if work.kind is WorkKind.STEP:
        entries = instance.all_logs(work.run_id, of_type=set(_ATTEMPTS))
        kinds = [entry.dagster_event_type for entry in entries if entry.step_key == work.step_key]
        if kinds and kinds[-1] is dg.DagsterEventType.STEP_WORKER_STARTED:
            raise _LostError("the worker that had begun it did not renew its lease.")
        return
    run = instance.get_run_by_id(work.run_id)
    if work.kind is not WorkKind.RUN or (run is not None and run.status not in _BEGUN):
        raise StateError("its worker was lost after it had begun, and only Dagster can resume it")
