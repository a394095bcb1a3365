"""The fork server of an Airflow worker: it has imported Airflow, and DAG files whose tasks ran well before."""

from __future__ import annotations

import json
import os
import resource
import selectors
from collections.abc import Callable
from typing import Any, Final

import httpx
from airflow.executors import workloads
from airflow.executors.base_executor import BaseExecutor
from airflow.sdk.api.client import TaskInstanceOperations
from airflow.sdk.exceptions import TaskAlreadyRunningError
from pydantic import TypeAdapter

from orchestration_queue._logging import get_logger
from orchestration_queue._process import die_with_parent
from orchestration_queue.airflow.envelope import ALREADY_RUNNING, UNREACHABLE, DagBundle, WorkloadEnvelope
from orchestration_queue.airflow.preload import preload
from orchestration_queue.airflow.tokens import unseal
from orchestration_queue.airflow.warm_dags import WarmDags
from orchestration_queue.worker.forks.fork_safety import (
    close_idle_connections,
    find_hazards,
    find_repairs,
    open_descriptors,
    source_files,
)
from orchestration_queue.worker.forks.fork_server import ForkServer, explain
from orchestration_queue.worker.forks.write_fence import WriteFence
from orchestration_queue.worker.sandbox.frames import Frame

__all__ = ["main"]

log = get_logger("orchestration_queue.airflow")

_EXIT_S: Final = 0.01
_PAUSES: Final = ("defer", "reschedule", "await_input")
"""The messages to Airflow's API server after which it queues a task again."""
_WORKLOADS: Final[TypeAdapter[Any]] = TypeAdapter(workloads.All)


def main(
    descriptor: int,
    parent: int,
    log_level: int,
    fence: int,
    location: dict[str, str] | None,
    *,
    is_resident: bool,
) -> None:
    """Serve workloads until the worker disconnects.

    Args:
        descriptor: The socket to the worker.
        parent: The worker's process id.
        log_level: The worker's log level.
        fence: The shared memory of the write fences.
        location: The DAG bundle; None for a process that runs one workload.
        is_resident: Unused: workloads always run in forks.
    """
    server = _WorkloadServer(descriptor, parent, log_level, fence, is_resident=is_resident)
    server.bundle = DagBundle(**location) if location is not None else DagBundle()
    server.main(server.load, server.examine)


class _WorkloadServer(ForkServer):
    # Airflow's supervisor does not mind: LocalExecutor and CeleryExecutor run it in processes that last, too.
    most_items = 100
    bundle = DagBundle()
    _item: WriteFence
    _supervisor = 0
    _known: frozenset[int] = frozenset()
    _latest = ""

    def load(self) -> None:
        """Import what every task needs of Airflow."""
        self.dags = WarmDags()
        self.dags.offer(lambda **file: self._item.report(parsed=json.dumps(file)))
        preload()
        # The task's process is a child of this one's fork and leads a group of its own: it must not outlive that.
        os.register_at_fork(after_in_child=lambda: _end_with(self._supervisor))
        _notice_exit_soon()
        _report_pauses(lambda: self._item.report(continues="1"))
        self._known = open_descriptors()

    def examine(self) -> dict[str, object]:
        """Return facts about the loaded code for the worker: its files, and whether it can be forked."""
        repairs = [*close_idle_connections(), *find_repairs()]
        return {
            "latest": self._latest,
            "hazards": find_hazards(self._known | self.descriptors),
            "repairs": repairs,
            "sources": source_files(self.dags.paths),
        }

    def receive(self, frame: Frame) -> None:
        """Import a DAG file, and report to the worker what that left."""
        if frame["kind"] != "import" or self.dags.is_settled(frame["path"]):
            return
        self._latest = frame["path"]
        if reason := self.dags.load(frame["path"], frame["bundle_path"], frame["bundle_name"], frame["seconds"]):
            log.info("%s is imported again by each of its tasks: %s", frame["path"], reason)
        self.dismiss_forks()
        self.freeze()
        self.send(kind="examined", **self.examine())

    def run(self, frame: Frame, fence: WriteFence) -> int:
        """Run a workload under Airflow's supervisor; Airflow's database gets the state of its task from there."""
        work = WorkloadEnvelope.model_validate(frame["data"])
        os.environ.update(work.env)
        if work.memory_mib is not None:  # data, not address space, because Java and torch reserve much of that
            resource.setrlimit(resource.RLIMIT_DATA, (work.memory_mib << 20, resource.RLIM_INFINITY))
        if work.cpu_seconds is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (work.cpu_seconds, resource.RLIM_INFINITY))
        # The token is put in afterwards, because the error for an invalid workload shows what was given.
        workload = _WORKLOADS.validate_python({**work.workload, "token": ""})
        workload = workload.model_copy(update={"token": unseal(work.token)})
        self._item, self._supervisor = fence, os.getpid()
        try:
            code = BaseExecutor.run_workload(workload)
        except TaskAlreadyRunningError:
            fence.report(outcome=ALREADY_RUNNING)
            return 0
        except Exception as error:
            if _is_unreachable(error):
                fence.report(outcome=UNREACHABLE)
            fence.report(reason=explain(error))
            raise
        fence.report(outcome=str(code))
        has_changed = work.env or work.memory_mib is not None or work.cpu_seconds is not None
        self.is_reusable = isinstance(workload, workloads.ExecuteTask) and not has_changed
        return 0


def _is_unreachable(error: Exception) -> bool:
    """Whether Airflow's API server did not answer, which its client has tried for a few seconds."""
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.is_server_error
    return isinstance(error, httpx.RequestError)


def _end_with(supervisor: int) -> None:
    if os.getppid() == supervisor:
        die_with_parent(supervisor)


def _report_pauses(report: Callable[[], None]) -> None:
    """Report to the worker when the task has asked Airflow's API server to queue it again."""
    for name in _PAUSES:
        send = getattr(TaskInstanceOperations, name)

        def send_and_report(*arguments: Any, send: Callable[..., Any] = send) -> Any:
            answer = send(*arguments)
            report()
            return answer

        setattr(TaskInstanceOperations, name, send_and_report)


def _notice_exit_soon() -> None:
    """Shorten the wait of Airflow's supervisor once its task has closed all sockets, and only has to exit.

    It would wait for its next heartbeat, up to 5 s, with nothing to read, and the job would hold its slot as long.
    """
    wait = selectors.DefaultSelector.select

    def select(self: selectors.DefaultSelector, timeout: float | None = None) -> Any:
        return wait(self, timeout if self.get_map() or timeout is None else min(timeout, _EXIT_S))

    selectors.DefaultSelector.select = select  # type: ignore[method-assign]
