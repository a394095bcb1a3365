"""The executor: the steps of a run are jobs on a queue, run by the workers of ``oq dagster worker``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import dagster as dg

from orchestration_queue.dagster._compat import (
    ExecutionPlan,
    IStepContext,
    KnownExecutionState,
    PlanOrchestrationContext,
    RetryMode,
    SerializableErrorInfo,
    StepDelegatingExecutor,
    StepDependencyConfig,
    StepRetryData,
    check_captured_interrupt,
    get_retries_config,
    get_step_dependency_config_field,
    get_tag_concurrency_limits_config,
)
from orchestration_queue.dagster.job_health import Cause
from orchestration_queue.dagster.steps.database import sqlite_kept_open
from orchestration_queue.dagster.steps.step_handler import ExecutorOptions, QueueStepHandler
from orchestration_queue.dagster.steps.work_item import Isolation
from orchestration_queue.protocol.keys import DEFAULT_PREFIX

__all__ = ["QueueExecutor", "queue_executor"]

_FLOOR_S = 2.0
"""The longest time between two reads of Dagster's log while no event arrives from the queue."""
_SLICE_S = 0.25
"""The longest time between two checks for an interrupt of the run."""
_IDLE_S = 0.1
"""The pause while no step runs because all wait for their retries, or for slots of pools."""
_SOON_S = 0.05
"""The pause before a suspected step is checked again."""
_HEALTH_CHECK_EVERY_S = 1
"""How often to read the jobs of the running steps: one exchange for all of them."""
_DURATIONS = ("step_timeout", "unclaimed_timeout", "lease")
"""The options in seconds."""


class QueueExecutor(StepDelegatingExecutor):
    """Runs steps as jobs on a queue.

    Dagster's own loop decides which steps run next. The executor wakes it when the queue has events, instead of every
    second, and retries steps whose worker was lost without counting against their retry policy.

    Args:
        options: The configuration.
        retries: Whether steps are retried.
        tag_concurrency_limits: Maximum concurrent steps of a run with a tag.
        step_dependency_config: When a step may start, in relation to its upstream steps.
    """

    def __init__(
        self,
        options: ExecutorOptions,
        retries: RetryMode,
        tag_concurrency_limits: list[dict[str, Any]] | None = None,
        step_dependency_config: StepDependencyConfig | None = None,
    ) -> None:
        self._options = options
        self._handler = QueueStepHandler(options)
        self._must_read_now = True
        self._has_waited = False
        self._retry_at = float("inf")
        super().__init__(
            self._handler,
            retries,
            max_concurrent=options.max_concurrent,
            tag_concurrency_limits=tag_concurrency_limits,
            step_dependency_config=step_dependency_config or StepDependencyConfig.default(),
        )

    def execute(
        self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan
    ) -> Iterator[dg.DagsterEvent]:
        """Run the plan's steps.

        Raises:
            InvalidOptionError: A tag of the run, or of a step, is invalid; no step was started.
        """
        for step in execution_plan.get_all_steps_in_topo_order():
            self._handler.route(step.tags or {}, plan_context.dagster_run)
        self._handler.begin(plan_context.run_id)
        self._must_read_now = True
        try:
            with sqlite_kept_open(plan_context.instance):
                yield from super().execute(plan_context, execution_plan)
        finally:
            self._handler.close()

    # Dagster's loop reads the following attributes where it would sleep.

    @property
    def _sleep_seconds(self) -> float:
        """The pause between two steps of Dagster's loop: none after a wait for events."""
        has_waited, self._has_waited = self._has_waited, False
        return 0.0 if has_waited else _IDLE_S

    @_sleep_seconds.setter
    def _sleep_seconds(self, value: float) -> None:
        """Ignore Dagster's default of a second."""

    @property
    def _check_step_health_interval_seconds(self) -> int:
        return 0 if self._handler.watch.has_suspects else _HEALTH_CHECK_EVERY_S

    @_check_step_health_interval_seconds.setter
    def _check_step_health_interval_seconds(self, value: int) -> None:
        """Ignore Dagster's default of 20 seconds."""

    def _pop_events(
        self, instance: dg.DagsterInstance, run_id: str, seen_storage_ids: set[int]
    ) -> Sequence[dg.DagsterEvent]:
        """Return the next events of the run after an event of the queue."""
        if not self._must_read_now:
            self._await_events()
        self._must_read_now = False
        self._has_waited = True
        events = super()._pop_events(instance, run_id, seen_storage_ids)
        if len(events) >= self._pop_events_limit:
            self._must_read_now = True
        for event in events:
            self._handle(event)
        return events

    def _await_events(self) -> None:
        """Wait for queue events of the run's steps, at most until a retry is due or the longest pause is over."""
        deadline = min(time.monotonic() + _FLOOR_S, self._retry_at)
        while (left_s := deadline - time.monotonic()) > 0 and not check_captured_interrupt():
            if self._handler.watch.wait(min(left_s, _SOON_S if self._handler.watch.has_suspects else _SLICE_S)):
                return
            if self._handler.watch.has_suspects:
                return
        if self._retry_at <= time.monotonic():
            self._retry_at = float("inf")

    def _handle(self, event: dg.DagsterEvent) -> None:
        if event.is_step_success or event.is_step_failure or event.is_step_up_for_retry:
            self._handler.ended(str(event.step_key))
        if event.is_step_up_for_retry:
            data = event.step_retry_data
            # Retries of lost and crashed steps are marked in Dagster's log, and counted from it after a resume.
            for cause in (Cause.LOST, Cause.CRASHED):
                if data.error is not None and data.error.cls_name == cause.value:
                    self._handler.losses[str(event.step_key), cause] += 1
            if data.seconds_to_wait:
                self._retry_at = min(self._retry_at, time.monotonic() + data.seconds_to_wait)

    def log_failure_or_retry_event_after_error(
        self, step_context: IStepContext, err_info: SerializableErrorInfo, known_state: KnownExecutionState
    ) -> dg.DagsterEvent:
        """Log the failure or retry of a step that could not log it itself."""
        self._must_read_now = True  # the queue has no event for this
        key = step_context.step.key
        verdict = self._handler.verdicts.pop(key, None)
        if (
            verdict is not None
            and self.retries.enabled
            and self._handler.losses[key, verdict.cause] < self._retries_of(verdict.cause, step_context)
        ):
            error = err_info._replace(cls_name=verdict.cause.value)
            return dg.DagsterEvent.step_retry_event(step_context, StepRetryData(error=error, seconds_to_wait=0))
        return super().log_failure_or_retry_event_after_error(
            step_context, err_info, self._handler.without_losses(known_state)
        )

    def _retries_of(self, cause: Cause, step_context: IStepContext) -> int:
        """Return how often to retry a step for this cause, in addition to its retry policy."""
        route = self._handler.route(step_context.step.tags or {}, step_context.dagster_run)
        match cause:
            case Cause.LOST:
                return route.worker_lost_retries
            case Cause.CRASHED:
                return route.crash_retries
            case Cause.FAILED:
                return 0


def _config() -> dict[str, dg.Field]:
    def field(kind: object, description: str, default: object = None) -> dg.Field:
        if default is None:
            return dg.Field(kind, is_required=False, description=description)
        return dg.Field(kind, is_required=False, default_value=default, description=description)

    return {
        "url": field(dg.StringSource, "The server; default OQ_URL, else the embedded server of the run's directory."),
        "prefix": field(dg.StringSource, "First part of every key.", DEFAULT_PREFIX),
        "queue": field(dg.StringSource, "The queue whose workers run the steps, unless tags name another.", "dagster"),
        "max_concurrent": field(dg.IntSource, "Maximum concurrent steps of a run; default no limit."),
        "tag_concurrency_limits": get_tag_concurrency_limits_config(),
        "retries": get_retries_config(),
        "step_dependency_config": get_step_dependency_config_field(),
        "isolation": field(
            dg.Enum("StepIsolation", [dg.EnumValue(str(kind)) for kind in Isolation]),
            "The process of a step: a fork of a process that has the code loaded (fork), such a process itself "
            "(in_process), a new one (spawn), or a fork if the loaded code allows one, else a new one (auto).",
            str(Isolation.AUTO),
        ),
        "step_timeout": field(float, "Time limit of a step in seconds; default none."),
        "unclaimed_timeout": field(
            float, "Seconds that a step may wait on a queue without a worker that may run it; default no limit."
        ),
        "lease": field(float, "Seconds without a heartbeat after which a step's worker counts as lost.", 30.0),
        "worker_lost_retries": field(
            dg.IntSource, "How often to retry a step after its worker was lost, in addition to its retry policy.", 2
        ),
        "crash_retries": field(
            dg.IntSource, "How often to retry a step after its process crashed, in addition to its retry policy.", 0
        ),
        "env": field(
            {str: dg.StringSource}, "Environment variables of the steps. They go through the queue: no secrets.", {}
        ),
        "code_version": field(
            dg.StringSource,
            "The code version of workers that run the steps; default OQ_CODE_VERSION of the run's process (a worker "
            "with a version sets it), else any.",
        ),
    }


@dg.executor(name="queue", config_schema=_config(), requirements=dg.multiple_process_executor_requirements())
def queue_executor(init_context: dg.InitExecutorContext) -> QueueExecutor:
    """Run each step as a job on a queue, in a separate process, on any machine with a worker.

    Start workers with ``oq dagster worker -m your.definitions``. Steps can have these tags:
    ``orchestration_queue/queue``, ``orchestration_queue/priority`` (or ``dagster/priority``; higher priorities start
    earlier), ``orchestration_queue/isolation``, ``orchestration_queue/timeout`` in seconds, and
    ``orchestration_queue/config``: JSON with the fields of :class:`StepConfig`. The tags of dagster-celery have the
    same meaning as there.

    Examples:
        >>> import dagster as dg
        >>> defs = dg.Definitions(executor=queue_executor.configured({"queue": "etl", "max_concurrent": 8}))
    """
    config: Mapping[str, Any] = init_context.executor_config
    options = {name: config[name] for name in ExecutorOptions.model_fields if config.get(name) is not None}
    options |= {name: timedelta(seconds=options[name]) for name in _DURATIONS if name in options}
    options.setdefault("code_version", os.environ.get("OQ_CODE_VERSION", ""))
    retries = RetryMode.from_config(config["retries"])
    return QueueExecutor(
        ExecutorOptions(**options),
        retries or RetryMode.ENABLED,
        config.get("tag_concurrency_limits"),
        StepDependencyConfig.from_config(config.get("step_dependency_config")),
    )
