"""What the operators share that add work to a queue, and wait for its end in the triggerer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cached_property
from typing import Any, ClassVar

from airflow.sdk import BaseOperator, BaseOperatorLink, Context
from airflow.sdk.exceptions import TaskDeferralTimeout, TaskDeferred
from airflow.triggers.base import BaseTrigger

from orchestration_queue.airflow.provider.attempts import TaskAttempt
from orchestration_queue.airflow.provider.checks import check_flag, check_queue, check_text
from orchestration_queue.airflow.provider.hook import DEFAULT_CONNECTION, QueueHook
from orchestration_queue.airflow.provider.links import ConsoleLink
from orchestration_queue.airflow.provider.outcomes import read_outcome
from orchestration_queue.client import Queue
from orchestration_queue.errors import JobFailedError, NotFoundError, OrchestrationQueueError, TransportError
from orchestration_queue.options import Duration
from orchestration_queue.options.durations import check_duration

__all__ = ["AddOperator"]


class AddOperator(BaseOperator):
    """Adds work to a queue, once for each try of the task, and waits for its end.

    Args:
        queue_name: The queue.
        queue_conn_id: The connection's id.
        wait_for_completion: Wait for the work's end; otherwise the task's result is the work's id.
        deferrable: Wait in the triggerer; otherwise in a worker of Airflow.
        defer_after: How long to wait in a worker of Airflow before: a duration, or seconds. To resume a deferred task
            takes Airflow several seconds, which a short job saves.
        arguments: The arguments of every operator.
    """

    template_fields: Sequence[str] = ("queue_name",)
    operator_extra_links: Collection[BaseOperatorLink] = (ConsoleLink(),)
    ui_color = "#dff3ec"

    _kind: ClassVar[str]
    """What it adds: ``job`` or ``flow``."""

    def __init__(
        self,
        *,
        queue_name: str,
        queue_conn_id: str = DEFAULT_CONNECTION,
        wait_for_completion: bool = True,
        deferrable: bool = True,
        defer_after: Duration = 2,
        **arguments: Any,
    ) -> None:
        super().__init__(**arguments)
        self.queue_name = check_queue(queue_name)
        self.queue_conn_id = check_text(queue_conn_id, "queue_conn_id")
        self.wait_for_completion = check_flag(wait_for_completion, "wait_for_completion")
        self.deferrable = check_flag(deferrable, "deferrable")
        self.defer_after = check_duration(defer_after, "defer_after")
        self.console_page = ""
        self._work_id: str | None = None

    @cached_property
    def _hook(self) -> QueueHook:
        return QueueHook(self.queue_conn_id)

    @abstractmethod
    def _find_earlier(self, queue: Queue, attempt: TaskAttempt) -> Any:
        """Return work of an earlier try that this one continues; None if it adds its own."""

    @abstractmethod
    def _add(self, queue: Queue, attempt: TaskAttempt) -> Any:
        """Add the work of this try, or find it if it was added before."""

    @abstractmethod
    def _get(self, queue: Queue, work_id: str) -> Any:
        """Return the work with an id."""

    @abstractmethod
    def _build_trigger(self, work_id: str) -> BaseTrigger:
        """Return the trigger that waits for the work."""

    @abstractmethod
    def _log_end(self, queue: Queue, work_id: str) -> None:
        """Log what the work logged."""

    def execute(self, context: Context) -> Any:
        """Add the work, or find it again, and wait for its end.

        Returns:
            Its result; or its id, if the task does not wait.

        Raises:
            JobFailedError: The job failed, or that of one of the flow's nodes.
            UsageError: The arguments are invalid; nothing was added.
        """
        attempt = TaskAttempt.of(context)
        with self._hook.queue(self.queue_name) as queue:
            work = self._find_earlier(queue, attempt) if attempt.try_number > 1 else None
            if work is None:
                self._work_id = attempt.id  # known before it is added, so that on_kill finds it in any case
                work = self._add(queue, attempt)
            self._announce(context, work)
            if not self.wait_for_completion:
                return work.id
            if not self.deferrable:
                return self._await(queue, work, None)
            with suppress(TimeoutError, TransportError):
                return self._await(queue, work, self.defer_after)
        trigger = self._build_trigger(work.id)
        raise TaskDeferred(trigger=trigger, method_name="execute_complete", timeout=self.execution_timeout)

    def _announce(self, context: Context, work: Any) -> None:
        """Log the work, and publish its id and its page while the task waits for it."""
        self._work_id = work.id
        verb = "Added" if work.is_new else "Found"
        self.log.info("%s %s %s of queue %s", verb, self._kind, work.id, self.queue_name)
        self._set_page(work.id)
        context["ti"].xcom_push(key=f"{self._kind}_id", value=work.id)
        if self.console_page:
            context["ti"].xcom_push(key=ConsoleLink().xcom_key, value=self.console_page)

    def _set_page(self, work_id: str) -> None:
        self.console_page = self._hook.server.console_page(self.queue_name, f"{self._kind}s", work_id)

    def _await(self, queue: Queue, work: Any, timeout: timedelta | None) -> Any:
        try:
            result = work.wait(timeout)
        except JobFailedError:
            self._copy_log(queue, work.id)
            raise
        self._copy_log(queue, work.id)
        return result

    def _copy_log(self, queue: Queue, work_id: str) -> None:
        """Log what the work logged. It is an extra, which must not fail the task."""
        with suppress(OrchestrationQueueError):
            self._log_end(queue, work_id)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Return the result of the work that a trigger waited for.

        Raises:
            JobFailedError: The job failed, or that of one of the flow's nodes.
            AirflowException: The trigger could not wait for it.
        """
        if (work_id := self._read_id(context)) is not None:
            # The outcome is in the event; page and log are extras, which must not fail the task.
            with suppress(OrchestrationQueueError):
                self._set_page(work_id)
                with self._hook.queue(self.queue_name) as queue:
                    self._copy_log(queue, work_id)
        return read_outcome(event)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Resume after the trigger; cancel the work if the task's ``execution_timeout`` has expired."""
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout:
            self._work_id = self._read_id(context)
            self.on_kill()
            raise

    def _read_id(self, context: Context) -> str | None:
        ti = context["ti"]
        found = ti.xcom_pull(task_ids=ti.task_id, key=f"{self._kind}_id", map_indexes=ti.map_index)
        return None if found is None else str(found)

    def on_kill(self) -> None:
        """Cancel the work, since the task was ended while it waited in a worker, or its time has expired."""
        if self._work_id is None:
            return
        with suppress(NotFoundError), self._hook.queue(self.queue_name) as queue:
            self._get(queue, self._work_id).cancel()
            self.log.info("Cancelled %s %s of queue %s", self._kind, self._work_id, self.queue_name)
