"""Run Airflow's jobs: pass workloads to fork servers, and report how they ended."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NoReturn

from pydantic import ValidationError

from orchestration_queue._logging import get_logger
from orchestration_queue.airflow.envelope import (
    ALREADY_RUNNING,
    CONTINUES,
    LOST,
    UNREACHABLE,
    DagBundle,
    WorkloadEnvelope,
)
from orchestration_queue.errors import PayloadError, UnrecoverableError
from orchestration_queue.options.isolation import Isolation
from orchestration_queue.worker.forks.fork_runner import ForkRunner
from orchestration_queue.worker.forks.fork_server_process import ForkServerProcess, Running
from orchestration_queue.worker.forks.write_fence import FenceSlot
from orchestration_queue.worker.job import AsyncActiveJob
from orchestration_queue.worker.sandbox.supervised import describe_exit

__all__ = ["WorkloadRunner"]

log = get_logger("orchestration_queue.airflow")

_PROGRAM = "orchestration_queue.airflow.fork_server"
_SPARE = DagBundle()
"""A server that has imported Airflow, before it is known of which bundle the first task is."""
_POSTPONEMENT: Final = timedelta(seconds=5)
_MOST_POSTPONEMENTS: Final = 120
"""Airflow queues a task again after 10 minutes in which it has not begun, by default, and its token is void then."""


class WorkloadRunner(ForkRunner):
    """The handlers of Airflow's jobs, and what they need while the worker runs."""

    # Airflow's supervisor forwards it to the task, whose operator's `on_kill` cleans up.
    asking: Sequence[signal.Signals] = (signal.SIGTERM,)

    def __init__(self, slots: int, **options: Any) -> None:
        super().__init__(_PROGRAM, slots, **options)
        self._cold: dict[str, int] = {}
        self._versions: dict[ForkServerProcess, dict[str, set[str]]] = {}

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Load Airflow before the first job, and end all processes afterwards.

        Raises:
            UsageError: Airflow cannot be loaded.
        """
        async with self.serving([_SPARE]):
            yield

    def handler(self, name: str) -> Callable[[AsyncActiveJob], Any]:  # noqa: ARG002
        """Return the handler of all jobs, which are named after their tasks."""
        return self._handle

    async def _handle(self, job: AsyncActiveJob) -> dict[str, object]:
        try:
            work = WorkloadEnvelope.model_validate(job.data)
        except (PayloadError, ValidationError) as error:
            raise UnrecoverableError(f"The job contains no workload of Airflow's ({type(error).__name__}).") from error
        started = time.monotonic()
        with self.fenced(job.record) as slot:
            self._drop_stale(work)
            self.pool.assign(_SPARE.name, work.dag_bundle)
            async with self.pool.lend(work.dag_bundle, Isolation.AUTO) as loan:
                self._note_version(loan.server, work)
                running = loan.server.begin(job.data, slot)
                await self.end(running, job, work.timeout_ms, started)
                if loan.is_warm:
                    self._warm(loan.server, slot)
            if slot.note.get("outcome") == UNREACHABLE and work.postponed < _MOST_POSTPONEMENTS:
                self._postpone(job, slot, work)
            return self._settle(job, slot, running)

    def _drop_stale(self, work: WorkloadEnvelope) -> None:
        """Have a new fork server started if one can't be forked any more, or has an older version of the DAG."""
        dag_id, version = work.dag_version
        for name, server in self.pool.servers.items():
            if server.hazards and (path := str(server.facts["latest"])):
                self._set_cold(path, "; ".join(server.hazards))
                self.pool.retire(name)
            elif version and name == work.dag_bundle.name:
                known = self._versions.get(server, {}).get(dag_id)
                # A UUID of version 7 sorts by time: a run that began with an older version must not load it again.
                if known and version > max(known):
                    log.info("%s is loaded again, because DAG %r has a new version.", work.dag_bundle.label, dag_id)
                    self.pool.retire(work.dag_bundle.name)

    def _note_version(self, server: ForkServerProcess, work: WorkloadEnvelope) -> None:
        self._versions = {one: seen for one, seen in self._versions.items() if one.is_alive}
        dag_id, version = work.dag_version
        if version:
            self._versions.setdefault(server, {}).setdefault(dag_id, set()).add(version)

    def _set_cold(self, path: str, reason: str) -> None:
        log.warning("%s is imported again by each of its tasks: importing it leaves %s.", path, reason)
        self._cold[path] = _modified_ns(path)

    def _warm(self, server: ForkServerProcess, slot: FenceSlot) -> None:
        """Have the fork server import the DAG file that a task has imported well."""
        parsed = slot.note.get("parsed")
        if not parsed or slot.note.get("outcome") != "0":
            return
        file = json.loads(parsed)
        if self._cold.get(file["path"]) != _modified_ns(file["path"]):
            server.tell("import", **file)

    def _postpone(self, job: AsyncActiveJob, slot: FenceSlot, work: WorkloadEnvelope) -> NoReturn:
        """Run a job again later, instead of failing a task that has not begun."""
        self.kill_left(slot)
        log.warning("Job %s is postponed: Airflow's API server is unreachable (%s).", job.id, slot.note.get("reason"))
        job.move_to_delayed(_POSTPONEMENT, data={**job.data, "postponed": work.postponed + 1})

    def _settle(self, job: AsyncActiveJob, slot: FenceSlot, running: Running) -> dict[str, object]:
        """Return the result of a job whose workload ended on its own.

        Raises:
            UnrecoverableError: Airflow does not know of its end.
        """
        note, code = slot.note, running.ended.result()
        where = {"host": socket.gethostname(), "pid": int(note.get("pid", 0))}
        if note.get("outcome") == ALREADY_RUNNING:
            # A job has one lease at a time, so the process that began it is gone.
            if job.record.stalled_count:
                raise UnrecoverableError(f"{LOST}the worker that had begun it did not renew its lease.")
            if job.data.get("postponed"):
                raise UnrecoverableError(f"{LOST}Airflow's API server was unreachable while it ran.")
            return {"outcome": ALREADY_RUNNING, **where}
        if code == 0:
            outcome = {"outcome": CONTINUES} if note.get("continues") else {}
            return {"exit_code": int(note.get("outcome", 0)), **outcome, **where}
        self.kill_left(slot)
        if "reason" in note:
            raise UnrecoverableError(f"Airflow could not run it: {note['reason']}")
        lost = LOST if running.is_lost else ""
        raise UnrecoverableError(
            f"{lost}the task's supervisor ({where['pid']} on {where['host']}) {describe_exit(code)}."
        )


def _modified_ns(path: str) -> int:
    """Return when a file was modified; -1 if it is gone."""
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return -1
