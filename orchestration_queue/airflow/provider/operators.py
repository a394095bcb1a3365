"""Operators that add a job or a flow to a queue, and wait for its end in the triggerer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from orchestration_queue.airflow.provider.attempts import TaskAttempt, check_kept
from orchestration_queue.airflow.provider.checks import check_text, is_open
from orchestration_queue.airflow.provider.triggers import FlowTrigger, JobTrigger, earliest_event
from orchestration_queue.airflow.provider.waiting import AddOperator
from orchestration_queue.client import Flow, Job, Queue
from orchestration_queue.errors import FlowError
from orchestration_queue.flows import Dag, FlowOptions, Node
from orchestration_queue.flows.stored import FlowState
from orchestration_queue.options import JobOptions

__all__ = ["AddFlowOperator", "AddJobOperator"]

_LINES = 1000
"""How many of the last lines of a job's log are copied to the task's log."""


class AddJobOperator(AddOperator):
    """Adds a job to a queue, and waits for its end; the job's result is the task's.

    Each try of the task adds one job: a try that runs again after a crash finds its job. A later try first looks for an
    unfinished job of the earlier ones, and waits for that instead. Clearing the task, marking it, or its
    ``execution_timeout`` cancels the job.

    Args:
        queue_name: The queue. Templated, as ``job_name``, ``data`` and ``job_options`` are.
        job_name: The job's name, by which workers choose the task.
        data: The job's data: a task's keyword arguments, or any JSON that the handler takes.
        job_options: How the job is placed, retried, limited and kept, or a dict of these. It must be kept when it has
            finished, and gets its id and a tag from the operator.
        arguments: ``queue_conn_id``; ``wait_for_completion=False`` ends the task as soon as the job is added, with its
            id as the result; ``deferrable=False`` waits in a worker of Airflow; ``defer_after=2`` seconds are waited
            there before; and the arguments of every operator.

    Raises:
        InvalidNameError: No queue can have this name.
        InvalidOptionError: Another argument is invalid.

    Example:
        ::

            AddJobOperator(task_id="extract", queue_name="data", job_name="extract", data={"day": "{{ ds }}"})
    """

    template_fields: Sequence[str] = ("queue_name", "job_name", "data", "job_options")
    template_fields_renderers: ClassVar[dict[str, str]] = {"data": "json", "job_options": "json"}
    _kind = "job"

    def __init__(
        self,
        *,
        queue_name: str,
        job_name: str,
        data: Any = None,
        job_options: JobOptions | Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(queue_name=queue_name, **arguments)
        self.job_name = check_text(job_name, "job_name")
        self.data = data
        self.job_options = job_options
        if not is_open(job_options):
            self._options()

    def _options(self) -> JobOptions:
        options = JobOptions.coerce(self.job_options, "job_options")
        return check_kept(options, f"task {self.task_id!r}")

    def _find_earlier(self, queue: Queue, attempt: TaskAttempt) -> Job | None:
        for job in reversed(queue.tags.jobs(attempt.tag, limit=None)):
            if not job.record.is_finished and "revoked" not in job.record.fields:
                return job
        return None

    def _add(self, queue: Queue, attempt: TaskAttempt) -> Job:
        options = attempt.mark(self._options()).model_copy(update={"job_id": attempt.id})
        return queue.add(self.job_name, self.data, options)

    def _get(self, queue: Queue, work_id: str) -> Job:
        return queue.get(work_id)

    def _build_trigger(self, work_id: str) -> JobTrigger:
        return JobTrigger(self.queue_name, work_id, self.queue_conn_id, earliest_event())

    def _log_end(self, queue: Queue, work_id: str) -> None:
        for line in queue.last_logs(work_id, _LINES):
            self.log.info("%s", line)


class AddFlowOperator(AddOperator):
    """Adds a flow to a queue, and waits for its end; the results of its nodes, by name, are the task's result.

    A try that runs again after a crash finds its flow. A later try continues the flow of the one before, unless that
    completed or was cancelled: nodes that have completed are kept, and failed ones run again, with the data that they
    had. Clearing the task, marking it, or its ``execution_timeout`` cancels the flow.

    Args:
        queue_name: The queue of nodes without their own. At least one node must be in it. Templated, as ``nodes`` and
            ``flow_name`` are.
        nodes: The jobs: nodes, or dicts of their fields, such as ``{"name": "load", "deps": ["extract"]}``. Only dicts
            are templated.
        flow_name: The flow's name; default: the task's id.
        flow_options: Options of the flow as a whole.
        arguments: Those of :class:`AddJobOperator`, and of every operator.

    Raises:
        InvalidNameError: No queue, or no node, can have this name.
        FlowError: The nodes are no flow that can run.
        InvalidOptionError: Another argument is invalid.

    Example:
        ::

            AddFlowOperator(
                task_id="tables",
                queue_name="data",
                nodes=[{"name": "extract", "data": {"day": "{{ ds }}"}}, {"name": "load", "deps": ["extract"]}],
            )
    """

    template_fields: Sequence[str] = ("queue_name", "nodes", "flow_name")
    template_fields_renderers: ClassVar[dict[str, str]] = {"nodes": "json"}
    _kind = "flow"

    def __init__(
        self,
        *,
        queue_name: str,
        nodes: Sequence[Node | Mapping[str, Any]],
        flow_name: str | None = None,
        flow_options: FlowOptions | Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(queue_name=queue_name, **arguments)
        self.nodes = nodes
        self.flow_name = self.task_id if flow_name is None else check_text(flow_name, "flow_name")
        self.flow_options = FlowOptions.coerce(flow_options, "flow_options")
        if not is_open([queue_name, nodes, flow_name]):
            self._build_dag(None)

    def _build_dag(self, attempt: TaskAttempt | None) -> Dag:
        nodes: Any = self.nodes
        if isinstance(nodes, list | tuple):
            nodes = [self._build_node(node, attempt) for node in nodes]
        return Dag(self.flow_name, nodes, self.queue_name, self.flow_options)

    def _build_node(self, given: Any, attempt: TaskAttempt | None) -> Any:
        if isinstance(given, Mapping):
            try:
                given = Node(**given)
            except TypeError as problem:
                raise FlowError(
                    f"Node {dict(given)!r} of task {self.task_id!r} has wrong fields ({problem}); "
                    "pass a dict such as {'name': 'load', 'deps': ['extract']}."
                ) from None
        if isinstance(given, Node):
            options = check_kept(given.options, f"node {given.name!r}")
            return given if attempt is None else replace(given, options=attempt.mark(options))
        return given  # the graph refuses it

    def _find_earlier(self, queue: Queue, attempt: TaskAttempt) -> Flow | None:
        jobs = queue.tags.jobs(attempt.tag, limit=None)
        flow = queue.flows.find(jobs[-1].id.partition(".")[0]) if jobs else None
        if flow is None or flow.status().state in (FlowState.COMPLETED, FlowState.CANCELLED):
            return None
        for name in flow.retry():
            self.log.info("Node %s failed before, and runs again", name)
        return flow

    def _add(self, queue: Queue, attempt: TaskAttempt) -> Flow:
        with self._hook.flow_producer() as producer:
            submitted = producer.submit(self._build_dag(attempt), flow_id=attempt.id)
        flow = queue.flows.get(submitted.id)
        flow.is_new = submitted.is_new
        return flow

    def _get(self, queue: Queue, work_id: str) -> Flow:
        return queue.flows.get(work_id)

    def _build_trigger(self, work_id: str) -> FlowTrigger:
        return FlowTrigger(self.queue_name, work_id, self.queue_conn_id, earliest_event())

    def _log_end(self, queue: Queue, work_id: str) -> None:
        for node in queue.flows.get(work_id).tree():
            reason = f": {node.failed_reason}" if node.failed_reason else ""
            self.log.info("Node %s %s%s", node.name, node.outcome, reason)
