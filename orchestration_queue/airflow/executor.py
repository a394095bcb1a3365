"""Airflow's executor on the queue: a task is a job, which a warm worker runs."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import quote

from airflow.executors.base_executor import BaseExecutor
from airflow.executors.workloads import ExecuteTask
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState

from orchestration_queue.airflow.configuration import AirflowOptions, TaskOptions
from orchestration_queue.airflow.envelope import KEPT, WorkloadEnvelope, queue_of
from orchestration_queue.airflow.job_watcher import JobReport, JobWatcher, Outcome
from orchestration_queue.airflow.tokens import check_keys, seal
from orchestration_queue.client import NewJob, Queue
from orchestration_queue.errors import JobNotFoundError, OrchestrationQueueError, TransportError, UsageError
from orchestration_queue.options import JobOptions, as_timedelta
from orchestration_queue.options.base import MAX_NAME_LENGTH, MAX_PRIORITY
from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import job_records
from orchestration_queue.server import Connection

if TYPE_CHECKING:
    from airflow.cli.cli_config import GroupCommand
    from airflow.executors.workloads import ExecutorWorkload
    from airflow.executors.workloads.types import WorkloadKey
    from airflow.models.connection_test import ConnectionTestKey
    from airflow.models.taskinstance import TaskInstance

__all__ = ["QueueExecutor"]

_TIMEOUT: Final = timedelta(seconds=5)
"""How long the scheduler's loop waits for the server at most, when it adds jobs."""
_PAUSE_S: Final = 5.0
"""How long it adds none after the server was unreachable."""


class QueueExecutor(BaseExecutor):
    """Runs tasks, callbacks and connection tests as jobs on queues, for ``airflow queue worker``.

    Configure it as ``[core] executor = orchestration_queue.airflow.QueueExecutor``, and its server in the section
    ``[orchestration_queue]``. A task of Airflow's queue ``default`` waits on our queue ``airflow.default``.

    Raises:
        UsageError: The configuration is invalid, or Airflow has no secret to encrypt tokens with.
    """

    supports_ad_hoc_ti_run = True
    supports_callbacks = True
    supports_connection_test = True
    supports_multi_team = True
    # The job's id is in Airflow's database before the job exists, so a scheduler that takes over finds it.
    pre_assigns_external_executor_id: ClassVar[bool] = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._options = AirflowOptions.of(self.conf)
        check_keys()
        self._connection = Connection(self._options.url, timeout=_TIMEOUT, connect_timeout=_TIMEOUT)
        lease_s = as_timedelta(self._options.lease).total_seconds()
        self._watcher = JobWatcher(self._connection, 2 * lease_s, self._cancel, self._has_begun)
        self._keys: dict[str, WorkloadKey] = {}
        self._jobs: dict[WorkloadKey, str] = {}
        self._wait_until = 0.0

    def start(self) -> None:
        """Connect to the server, and start to read the queues' events.

        Raises:
            ServerError: The server refuses this client.
        """
        try:
            self._connection.execute(Call("PING"))
        except TransportError as error:
            self.log.warning("The queue's server is out of reach; tasks stay queued until it is back: %s", error)
        self._watcher.start()

    def _queue(self, airflow_queue: str | None) -> Queue:
        name = queue_of(airflow_queue or self.conf.get_mandatory_value("operators", "default_queue"))
        return Queue(name, connection=self._connection, prefix=self._options.prefix)

    def _process_workloads(self, workload_items: Sequence[ExecutorWorkload]) -> None:
        """Add jobs, in one exchange per 100 of a queue. What can't be added now stays queued for the next heartbeat."""
        if time.monotonic() < self._wait_until:
            return
        by_queue: defaultdict[str | None, list[ExecutorWorkload]] = defaultdict(list)
        for workload in workload_items:
            by_queue[_queue_of(workload)].append(workload)
        for name, workloads in by_queue.items():
            try:
                self._add(self._queue(name), workloads)
            except UsageError as error:
                self._refuse(workloads, error)
            except OrchestrationQueueError as error:
                self._wait_until = time.monotonic() + _PAUSE_S
                self.log.warning("%d tasks stay queued, because their jobs can't be added: %s", len(workloads), error)
                return

    def _add(self, queue: Queue, workloads: Sequence[ExecutorWorkload]) -> None:
        jobs: dict[str, tuple[ExecutorWorkload, NewJob]] = {}
        for workload in workloads:
            try:
                job_id = _job_id(workload)
                jobs[job_id] = workload, self._job(job_id, workload)
            except UsageError as error:
                self._refuse([workload], error)
        self._watcher.expect(queue.keys, jobs)
        try:
            queue.add_bulk([job for _, job in jobs.values()])
        except OrchestrationQueueError as error:
            for job_id in jobs:  # it is watched again once it is added again
                self._watcher.drop(job_id)
            if len(jobs) > 1 and isinstance(error, UsageError):  # one has too much data, and none was added
                for workload, _ in jobs.values():
                    self._add_or_refuse(queue, workload)
                return
            raise
        self._watcher.confirm(jobs)
        for job_id, (workload, _) in jobs.items():
            self._forget_queued(workload.key)
            self._follow(job_id, workload.key)

    def _add_or_refuse(self, queue: Queue, workload: ExecutorWorkload) -> None:
        try:
            self._add(queue, [workload])
        except UsageError as error:
            self._refuse([workload], error)

    def _refuse(self, workloads: Sequence[ExecutorWorkload], error: UsageError) -> None:
        """Fail tasks that can't be jobs: they would keep all others queued."""
        for workload in workloads:
            self._forget_queued(workload.key)
            self.fail(workload.key, str(error))

    def _job(self, job_id: str, workload: ExecutorWorkload) -> NewJob:
        """Build a workload's job.

        Raises:
            UsageError: Its task asks for something invalid.
        """
        task = workload.ti if isinstance(workload, ExecuteTask) else None
        asked = TaskOptions.of(task.executor_config if task else None)
        data = WorkloadEnvelope(
            workload=workload.model_dump(mode="json", exclude={"token"}), token=seal(workload.token), **asked.limits()
        )
        options = JobOptions(
            job_id=job_id,
            priority=_priority(task.priority_weight) if task else 1,
            timeout=asked.timeout,
            lease=self._options.lease,
            pools=asked.pools,
            share=asked.share,
            remove_on_complete=KEPT,
            remove_on_fail=KEPT,
        )
        name = f"{task.dag_id}.{task.task_id}" if task else f"airflow.{type(workload).__name__}"
        return NewJob(name[:MAX_NAME_LENGTH], data.model_dump(mode="json", exclude_defaults=True), options)

    def _forget_queued(self, key: WorkloadKey) -> None:
        queues: tuple[dict[Any, Any], ...] = (self.queued_tasks, self.queued_callbacks, self.queued_connection_tests)
        for queued in queues:
            queued.pop(key, None)

    def _follow(self, job_id: str, key: WorkloadKey) -> None:
        self.running.add(key)
        self._keys[job_id], self._jobs[key] = key, job_id

    def sync(self) -> None:
        """Report the jobs that have started or ended. It never waits for the server."""
        for report in self._watcher.take():
            key = self._keys.get(report.job_id)
            if key is None:
                continue
            if report.outcome is not Outcome.RUNNING:
                del self._keys[report.job_id]
            if self._jobs.get(key) == report.job_id:  # else it is queued again, after a deferral
                self._report(key, report)

    def _report(self, key: WorkloadKey, report: JobReport) -> None:
        if report.outcome is Outcome.RUNNING:
            if not isinstance(key, TaskInstanceKey):  # a task reports its start itself
                self.running_state(key)
            return
        del self._jobs[key]
        match report.outcome:
            case Outcome.COMPLETED:
                self.success(key)
            case Outcome.FAILED:
                self.log.warning("%s: %s", key, report.reason)
                self.fail(key, report.reason)
            case _:
                self.running.discard(key)

    def try_adopt_task_instances(self, tis: Sequence[TaskInstance]) -> Sequence[TaskInstance]:
        """Watch the jobs of tasks whose scheduler is gone; return those that have no job. One exchange per 1,000."""
        found: dict[str, tuple[QueueKeys, TaskInstance]] = {}
        for ti in tis:
            with suppress(UsageError):  # no job is on a queue with an invalid name
                if ti.external_executor_id:
                    found[ti.external_executor_id] = self._queue(ti.queue).keys, ti
        wanted = [(keys, job_id) for job_id, (keys, _) in found.items()]
        try:
            records = self._connection.follow(job_records.jobs(wanted, ("state",))) if wanted else []
        except OrchestrationQueueError as error:
            # They are running or wait for a worker, as far as is known: the watcher finds out.
            self.log.warning("The jobs of %d tasks can't be read now: %s", len(wanted), error)
            records = []
        lost = {job_id for (_, job_id), record in zip(wanted, records, strict=False) if record is None}
        adopted = {job_id: entry for job_id, entry in found.items() if job_id not in lost}
        for job_id, (keys, ti) in adopted.items():
            self._follow(job_id, ti.key)
            self._watcher.add(keys, [job_id])
        kept = {ti.id for _, ti in adopted.values()}
        return [ti for ti in tis if ti.id not in kept]

    def revoke_task(self, *, ti: TaskInstance) -> None:
        """Cancel the job of a task, and forget it. One exchange; none in the seconds after the server was unreachable.

        A job that is not canceled does no harm: Airflow's API server lets a task begin once.
        """
        self.queued_tasks.pop(ti.key, None)
        self.running.discard(ti.key)
        job_id = self._jobs.pop(ti.key, None) or ti.external_executor_id
        if job_id:
            self._keys.pop(job_id, None)
            self._watcher.drop(job_id)
            if time.monotonic() < self._wait_until:
                self.log.warning("Job %s is not canceled, because the server is unreachable", job_id)
                return
            with suppress(UsageError):  # no job is on a queue with an invalid name
                self._cancel(self._queue(ti.queue).keys, job_id)

    def fail_connection_test(self, key: ConnectionTestKey) -> None:
        """Cancel the job of a test that Airflow has given up."""
        super().fail_connection_test(key)
        job_id = self._jobs.pop(key, None)
        if job_id is not None:
            self._keys.pop(job_id, None)
            if (keys := self._watcher.drop(job_id)) is not None and time.monotonic() >= self._wait_until:
                self._cancel(keys, job_id)

    def _cancel(self, keys: QueueKeys, job_id: str) -> None:
        try:
            Queue(keys.queue, connection=self._connection, prefix=self._options.prefix).cancel(job_id)
        except JobNotFoundError:
            return
        except OrchestrationQueueError as error:
            if isinstance(error, TransportError):
                self._wait_until = time.monotonic() + _PAUSE_S
            self.log.warning("Job %s of queue %s could not be canceled: %s", job_id, keys.queue, error)

    def get_task_log(self, ti: TaskInstance, try_number: int) -> tuple[list[str], list[str]]:  # noqa: ARG002
        """Return what the log of a running task begins with: its job, and the job's page in the console.

        The lines of the log are read from the task's file, by the worker's log server if need be; for that, Airflow
        wants no list of sources from here.
        """
        if not (job_id := ti.external_executor_id):
            return [], []
        queue = queue_of(ti.queue or self.conf.get_mandatory_value("operators", "default_queue"))
        console = (self._options.console_url or os.environ.get("OQ_CONSOLE_URL", "")).rstrip("/")
        page = f": {console}/ui/queues/{quote(queue, safe='')}/jobs/{quote(job_id, safe='')}" if console else ""
        return [], [f"Runs as job {job_id} of queue {queue}{page}"]

    def _has_begun(self, job_id: str, at: datetime) -> bool:
        """Whether Airflow's database says that a job's task ran before the job stalled. Called by the watcher.

        A task that another worker has begun since then is well, and its first heartbeat, unlike the start of a task
        that was deferred, is of that time. Clocks may differ by a quarter of a lease: renewals are due before its
        last 3/8, so a worker that has died since the last one did so before those.
        """
        key = self._keys.get(job_id)
        if not isinstance(key, TaskInstanceKey):
            return False
        from airflow.models.taskinstance import TaskInstance

        with create_session(scoped=False) as session:
            found = TaskInstance.get_task_instance(key.dag_id, key.run_id, key.task_id, key.map_index, session=session)
        if found is None or found.state != TaskInstanceState.RUNNING or found.last_heartbeat_at is None:
            return False
        if found.external_executor_id != job_id:
            return False
        return found.last_heartbeat_at < at - as_timedelta(self._options.lease) / 4

    def end(self) -> None:
        """Stop watching. Jobs wait or run on, and the next scheduler adopts them."""
        self._watcher.close()
        self.sync()
        self._connection.close()

    def terminate(self) -> None:
        """Stop watching, as :meth:`end`."""
        self.end()

    @staticmethod
    def get_cli_commands() -> list[GroupCommand]:
        """Return ``airflow queue worker``."""
        from orchestration_queue.airflow.commands import commands

        return commands()


def _queue_of(workload: ExecutorWorkload) -> str | None:
    return workload.ti.queue if isinstance(workload, ExecuteTask) else getattr(workload, "queue", None)


def _job_id(workload: ExecutorWorkload) -> str:
    """Return the id of a workload's job: the same when it is added again, another when the task is queued again."""
    if not isinstance(workload, ExecuteTask):
        return str(workload.key.id)
    task = workload.ti
    return task.external_executor_id or f"{task.id}.{task.try_number}"


def _priority(weight: int) -> int:
    """Return the queue's priority of a weight: 1 is the most urgent and 0, for a weight of 1 or less, the last."""
    return 0 if weight <= 1 else max(1, MAX_PRIORITY + 2 - weight)
