"""Sensors that wait for a job that others added, or for an event of a queue."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

from airflow.sdk import BaseOperatorLink, BaseSensorOperator, Context, PokeReturnValue
from airflow.sdk.exceptions import AirflowSkipException, TaskDeferred

from orchestration_queue.airflow.provider.attempts import TaskAttempt
from orchestration_queue.airflow.provider.checks import check_flag, check_queue, check_text, is_open
from orchestration_queue.airflow.provider.event_triggers import FirstEventTrigger, find_event
from orchestration_queue.airflow.provider.events import EventFilter, open_feed
from orchestration_queue.airflow.provider.hook import DEFAULT_CONNECTION, QueueHook
from orchestration_queue.airflow.provider.links import ConsoleLink
from orchestration_queue.airflow.provider.outcomes import read_outcome
from orchestration_queue.airflow.provider.triggers import JobTrigger, earliest_event
from orchestration_queue.errors import OrchestrationQueueError

__all__ = ["JobSensor", "QueueEventSensor"]


class _QueueSensor(BaseSensorOperator):
    """Waits in the triggerer, or by looking from time to time.

    Args:
        queue_name: The queue.
        queue_conn_id: The connection's id.
        deferrable: Wait in the triggerer; otherwise look every ``poke_interval``, in the sensor's ``mode``.
        arguments: The arguments of every sensor.
    """

    def __init__(
        self, *, queue_name: str, queue_conn_id: str = DEFAULT_CONNECTION, deferrable: bool = True, **arguments: Any
    ) -> None:
        super().__init__(**arguments)
        self.queue_name = check_queue(queue_name)
        self.queue_conn_id = check_text(queue_conn_id, "queue_conn_id")
        self.deferrable = check_flag(deferrable, "deferrable")

    @cached_property
    def _hook(self) -> QueueHook:
        return QueueHook(self.queue_conn_id)

    @contextmanager
    def _skipped_instead(self) -> Iterator[None]:
        """Skip the sensor that is never to fail, as Airflow itself does for one that looks from time to time."""
        try:
            yield
        except OrchestrationQueueError as error:
            if self.never_fail:
                raise AirflowSkipException(str(error)) from error
            raise

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Resume after the trigger."""
        with self._skipped_instead():
            return super().resume_execution(next_method, next_kwargs, context)


class JobSensor(_QueueSensor):
    """Waits for the end of a job; its result is the sensor's.

    Args:
        queue_name: The job's queue. Templated, as ``job_id`` is.
        job_id: The job's id.
        arguments: ``queue_conn_id``; ``deferrable=False`` looks every ``poke_interval`` instead of waiting in the
            triggerer; and the arguments of every sensor.

    Raises:
        InvalidNameError: No queue can have this name.
        InvalidOptionError: Another argument is invalid.
    """

    template_fields: Sequence[str] = ("queue_name", "job_id")
    operator_extra_links: Collection[BaseOperatorLink] = (ConsoleLink(),)

    def __init__(self, *, queue_name: str, job_id: str, **arguments: Any) -> None:
        super().__init__(queue_name=queue_name, **arguments)
        self.job_id = check_text(job_id, "job_id")
        self.console_page = ""

    def poke(self, context: Context) -> PokeReturnValue:  # noqa: ARG002  Airflow passes it
        """Return whether the job has ended, and its result.

        Raises:
            JobNotFoundError: The queue has no such job.
            JobFailedError: The job failed.
        """
        self._set_page()
        with self._hook.queue(self.queue_name) as queue:
            job = queue.get(self.job_id)
            if not job.record.is_finished:
                return PokeReturnValue(is_done=False)
            return PokeReturnValue(is_done=True, xcom_value=job.wait())

    def execute(self, context: Context) -> Any:
        """Wait for the job's end; raise what :meth:`poke` does."""
        if not self.deferrable:
            return super().execute(context)
        with self._skipped_instead():
            found = self.poke(context)
        if found:
            return found.xcom_value
        trigger = JobTrigger(self.queue_name, self.job_id, self.queue_conn_id, earliest_event())
        raise TaskDeferred(trigger=trigger, method_name="execute_complete", timeout=self.timeout)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> Any:  # noqa: ARG002  Airflow passes it
        """Return the job's result.

        Raises:
            JobFailedError: The job failed.
        """
        with suppress(OrchestrationQueueError):  # the outcome is in the event; the page is an extra
            self._set_page()
        return read_outcome(event)

    def _set_page(self) -> None:
        self.console_page = self._hook.server.console_page(self.queue_name, "jobs", self.job_id)


class QueueEventSensor(_QueueSensor):
    """Waits for the first event of a queue that happens after the sensor has started; the event is its result.

    The queue stores the sensor's position, and keeps the events after it. So none is missed between two looks, or while
    the triggerer restarts.

    Args:
        queue_name: The queue. Templated, as ``events`` and ``job_names`` are.
        events: Types of events: ``completed``, ``failed``, ``added`` and others of the queue.
        job_names: Names of jobs; empty for any. Jobs that are removed as soon as they finish have no name.
        arguments: As for :class:`JobSensor`.

    Raises:
        InvalidNameError: No queue can have this name.
        InvalidOptionError: Another argument is invalid.
    """

    template_fields: Sequence[str] = ("queue_name", "events", "job_names")

    def __init__(
        self,
        *,
        queue_name: str,
        events: Collection[str] = ("completed",),
        job_names: Collection[str] = (),
        **arguments: Any,
    ) -> None:
        super().__init__(queue_name=queue_name, **arguments)
        self.events = events
        self.job_names = job_names
        if not is_open([queue_name, events, job_names]):
            self._wanted()

    def _wanted(self) -> EventFilter:
        return EventFilter.of(self.queue_name, self.events, self.job_names)

    async def _find(self, reader: str) -> dict[str, Any] | None:
        """Return the first event, and let the queue forget the sensor; None if it has not happened yet."""
        async with open_feed(self._hook, self._wanted(), reader) as feed:
            while True:
                before = feed.position
                found = await find_event(feed, 0)
                if found is not None or feed.position == before:
                    return found

    def poke(self, context: Context) -> PokeReturnValue:
        """Return whether the event has happened, and the event."""
        return self._poke(TaskAttempt.of(context).id)

    def _poke(self, reader: str) -> PokeReturnValue:
        _ = self._hook.server  # read here, since an event loop must not wait for Airflow
        found = asyncio.run(self._find(reader))
        if found is not None:
            self._forget(reader)
        return PokeReturnValue(is_done=found is not None, xcom_value=found)

    def _forget(self, reader: str) -> None:
        async def end() -> None:
            async with open_feed(self._hook, self._wanted(), reader) as feed:
                await feed.end()

        _ = self._hook.server
        asyncio.run(end())

    def execute(self, context: Context) -> Any:
        """Wait for the event."""
        if not self.deferrable:
            return super().execute(context)
        reader = TaskAttempt.of(context).id
        with self._skipped_instead():
            found = self._poke(reader)
        if found:
            return found.xcom_value
        wanted = self._wanted()
        trigger = FirstEventTrigger(
            wanted.queue_name, wanted.events, wanted.job_names, reader, self.queue_conn_id, earliest_event()
        )
        raise TaskDeferred(trigger=trigger, method_name="execute_complete", timeout=self.timeout)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Return the event."""
        found = read_outcome(event)
        self._forget(TaskAttempt.of(context).id)
        return found
