"""The executor: the steps of a run are jobs on a queue, run by the workers of ``oq dagster worker``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import dagster as dg

from orchestration_queue.dagster._compat import (
    ActiveExecution,
    ExecutionPlan,
    PlanOrchestrationContext,
    RetryMode,
    StepDependencyConfig,
    get_retries_config,
    get_step_dependency_config_field,
    get_tag_concurrency_limits_config,
)
from orchestration_queue.dagster.steps.database import sqlite_kept_open
from orchestration_queue.dagster.steps.pools import PoolSlots
from orchestration_queue.dagster.steps.run_log import refuse_memory
from orchestration_queue.dagster.steps.run_loop import RunLoop
from orchestration_queue.dagster.steps.step_handler import ExecutorOptions, QueueStepHandler
from orchestration_queue.options.isolation import Isolation
from orchestration_queue.protocol.keys import DEFAULT_PREFIX

__all__ = ["QueueExecutor", "queue_executor"]

_DURATIONS = ("step_timeout", "unclaimed_timeout", "lease")
"""The options in seconds."""


class QueueExecutor(dg.Executor):
    """Runs steps as jobs on a queue.

    Dagster's own state of a run decides which steps run next, as in Dagster's other executors. This one reacts when the
    queue has events, instead of every second, and retries steps whose worker was lost without counting against their
    retry policy.

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
        self._retries = retries
        self._tag_concurrency_limits = tag_concurrency_limits
        self._step_dependency_config = step_dependency_config or StepDependencyConfig.default()

    @property
    def retries(self) -> RetryMode:
        """Whether steps are retried."""
        return self._retries

    @property
    def step_dependency_config(self) -> StepDependencyConfig:
        """When a step may start, in relation to its upstream steps."""
        return self._step_dependency_config

    def execute(
        self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan
    ) -> Iterator[dg.DagsterEvent]:
        """Run the plan's steps.

        Raises:
            InvalidOptionError: A tag of the run, or of a step, is invalid; no step was started.
            UsageError: The instance keeps data in memory, where no worker can read it; no step was started.
        """
        refuse_memory(plan_context.instance)
        for step in execution_plan.get_all_steps_in_topo_order():
            self._handler.route(step.tags or {}, plan_context.dagster_run)
        self._handler.begin(plan_context.run_id)
        try:
            with (
                sqlite_kept_open(plan_context.instance),
                PoolSlots(plan_context.instance, plan_context.dagster_run) as slots,
                ActiveExecution(
                    execution_plan,
                    retry_mode=self._retries,
                    max_concurrent=self._options.max_concurrent,
                    tag_concurrency_limits=self._tag_concurrency_limits,
                    instance_concurrency_context=slots,
                    step_dependency_config=self._step_dependency_config,
                ) as state,
            ):
                yield from RunLoop(
                    plan_context,
                    state,
                    slots,
                    self._handler,
                    self._retries,
                    self._options.max_concurrent,
                    self.log_failure_or_retry_event_after_error,
                ).run()
        finally:
            self._handler.close()


def _config() -> dict[str, dg.Field]:
    def field(kind: object, description: str, default: object = None) -> dg.Field:
        if default is None:
            return dg.Field(kind, is_required=False, description=description)
        return dg.Field(kind, is_required=False, default_value=default, description=description)

    return {
        "url": field(dg.StringSource, "The server; default OQ_URL, else the embedded server of the run's directory."),
        "prefix": field(dg.StringSource, "First part of every key.", DEFAULT_PREFIX),
        "queue": field(dg.StringSource, "The queue whose workers run the steps, unless tags name another.", "dagster"),
        "max_concurrent": field(dg.IntSource, "Maximum concurrent steps of a run; default, or 0, no limit."),
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
    if options.get("max_concurrent") == 0:  # what multiprocess_executor takes for no limit of its own
        del options["max_concurrent"]
    options |= {name: timedelta(seconds=options[name]) for name in _DURATIONS if name in options}
    options.setdefault("code_version", os.environ.get("OQ_CODE_VERSION", ""))
    retries = RetryMode.from_config(config["retries"])
    return QueueExecutor(
        ExecutorOptions(**options),
        retries or RetryMode.ENABLED,
        config.get("tag_concurrency_limits"),
        StepDependencyConfig.from_config(config.get("step_dependency_config")),
    )
