"""The loop that executes a run: launch the steps that are ready, read their events, and check their health."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator

import dagster as dg

from orchestration_queue.dagster._compat import (
    ActiveExecution,
    EngineEventData,
    ErrorSource,
    ExecuteStepArgs,
    ExecutionStep,
    InstanceConcurrencyContext,
    IStepContext,
    KnownExecutionState,
    PlanOrchestrationContext,
    RetryMode,
    SerializableErrorInfo,
    StepFailureData,
    StepHandlerContext,
    StepRetryData,
    check_captured_interrupt,
    current_error,
)
from orchestration_queue.dagster.job_health import Cause
from orchestration_queue.dagster.steps.resumption import DECISIVE, follow, replay, restore_slots
from orchestration_queue.dagster.steps.run_log import RunLog
from orchestration_queue.dagster.steps.step_handler import QueueStepHandler
from orchestration_queue.dagster.steps.step_health import StepVerdict

__all__ = ["RunLoop"]

_FLOOR_S = 2.0
"""The longest time between two reads of Dagster's log while no event arrives from the queue."""
_SLICE_S = 0.25
"""The longest time between two checks for an interrupt of the run."""
_IDLE_S = 0.1
"""The pause while no step runs because all wait for their retries, or for slots of pools."""
_SOON_S = 0.05
"""The pause before a suspected step is checked again."""
_HEALTH_CHECK_EVERY_S = 1.0
"""How often to read the jobs of the running steps: one exchange for all of them."""
_CONFIRM_S = 20.0
"""How long to wait until steps that are stopped have ended."""
_POLL_S = 0.1
_MOST_NAMES = 10
_STARTS = frozenset(
    {
        dg.DagsterEventType.STEP_WORKER_STARTED,
        dg.DagsterEventType.STEP_START,
        dg.DagsterEventType.STEP_RESTARTED,
    }
)
_UNWANTED = (dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED, dg.DagsterRunStatus.FAILURE)
"""The statuses of runs whose steps are no longer needed."""

Fail = Callable[[IStepContext, SerializableErrorInfo, KnownExecutionState], dg.DagsterEvent]


class RunLoop:
    """Executes the plan of one run.

    Args:
        context: The run.
        state: Which steps wait, run and have ended.
        slots: The slots of pools that its steps hold.
        handler: What launches, watches and stops steps.
        retries: Whether steps are retried.
        max_concurrent: Maximum concurrent steps; None for no limit.
        fail: Stores the failure or the retry of a step, according to its retry policy.
    """

    def __init__(
        self,
        context: PlanOrchestrationContext,
        state: ActiveExecution,
        slots: InstanceConcurrencyContext,
        handler: QueueStepHandler,
        retries: RetryMode,
        max_concurrent: int | None,
        fail: Fail,
    ) -> None:
        self._context = context
        self._instance = context.instance
        self._state = state
        self._slots = slots
        self._handler = handler
        self._retries = retries
        self._max_concurrent = max_concurrent
        self._fail = fail
        self._log = RunLog(self._instance, context.run_id)
        self._running: dict[str, ExecutionStep] = {}
        self._started: set[str] = set()
        self._must_read_now = True
        self._retry_at = float("inf")
        self._checked_at = time.monotonic()

    def run(self) -> Iterator[dg.DagsterEvent]:
        """Execute the plan, and yield the run's events as they are read from its log.

        The order matters: reading events, then asking which steps are ready, then whether all have ended.
        """
        dg.DagsterEvent.engine_event(
            self._context, f"Starting execution with step handler {self._handler.name}.", EngineEventData()
        )
        if self._context.resume_from_failure:
            yield from self._resume()
        try:
            while not self._state.is_complete:
                if self._state.check_for_interrupts():
                    self._state.mark_interrupted()
                    yield from self._interrupt()
                    return
                if self._state.has_in_flight_steps:
                    yield from self._read_next()
                list(self._state.plan_events_iterator(self._context))  # skips, and steps whose dependencies failed
                yield from self._check_health()
                list(self._state.concurrency_event_iterator(self._context))
                self._launch()
                if not self._state.has_in_flight_steps and not self._state.is_complete:
                    time.sleep(_IDLE_S)
        except Exception:
            if self._running:
                dg.DagsterEvent.engine_event(
                    self._context,
                    "Unexpected exception while steps were still in-progress - terminating running steps:",
                    EngineEventData(
                        metadata={"steps_interrupted": dg.MetadataValue.text(str(list(self._running)))},
                        error=current_error(),
                    ),
                )
                yield from self._stop_steps()
            raise
        yield from self._rest()

    def _resume(self) -> Iterator[dg.DagsterEvent]:
        """Continue with the steps that run, and leave those that were never launched to the loop."""
        dg.DagsterEvent.engine_event(self._context, "Resuming execution from failure", EngineEventData())
        events = self._log.read(DECISIVE)
        for event, _ in events:
            self._note(event)
            yield event
        failed = replay(self._state, events)
        restore_slots(self._instance, self._context.run_id, self._state, self._slots)
        for key in sorted(self._state._in_flight):
            step = self._running[key] = self._state.get_step_by_key(key)
            self._handler.resume_step(self._step_handler_context(step))
        unlaunched = sorted(self._state._executable)
        dg.DagsterEvent.engine_event(
            self._context,
            f"{_count(self._running)} in flight, and {_count(unlaunched)} ready that the run's previous process had "
            "not reported as launched; these are launched now, within the run's limits, which is no retry.",
            EngineEventData(metadata={"in_flight": _names(self._running), "ready": _names(unlaunched)}),
        )
        for event in failed.values():
            self._fail_resources(event)
        self._must_read_now = True

    def _launch(self) -> None:
        limit = None if self._max_concurrent is None else max(0, self._max_concurrent - len(self._running))
        for step in self._state.get_steps_to_execute(limit):
            self._running[step.key] = step
            self._handler.launch_step(self._step_handler_context(step))

    def _step_handler_context(self, step: ExecutionStep) -> StepHandlerContext:
        return StepHandlerContext(
            instance=self._instance,
            plan_context=self._context,
            steps=[step],
            execute_step_args=ExecuteStepArgs(
                job_origin=self._context.reconstructable_job.get_python_origin(),
                run_id=self._context.run_id,
                step_keys_to_execute=[step.key],
                instance_ref=self._instance.get_ref(),
                # In the step's process, retries are left to this loop.
                retry_mode=self._retries.for_inner_plan(),
                known_state=self._state.get_known_state(),
                should_verify_step=False,
                print_serialized_events=False,
            ),
            dagster_run=self._context.dagster_run,
        )

    # Events.

    def _read_next(self) -> Iterator[dg.DagsterEvent]:
        """Wait for an event of the queue, and read the log."""
        if not self._must_read_now:
            self._await_events()
        yield from self._read()

    def _await_events(self) -> None:
        """Wait for queue events of the run's steps, at most until a retry is due or the longest pause is over."""
        watch = self._handler.watch
        deadline = min(time.monotonic() + _FLOOR_S, self._retry_at)
        while (left_s := deadline - time.monotonic()) > 0 and not check_captured_interrupt():
            if watch.wait(min(left_s, _SOON_S if watch.has_suspects else _SLICE_S)) or watch.has_suspects:
                return
        if self._retry_at <= time.monotonic():
            self._retry_at = float("inf")

    def _read(self) -> Iterator[dg.DagsterEvent]:
        """Read all new events of the log, and act on them."""
        self._must_read_now = False
        for event, _ in self._log.read():
            self._note(event)
            yield event
            self._act(event)

    def _rest(self) -> Iterator[dg.DagsterEvent]:
        """Read all new events of the log after the last step has ended."""
        for event, _ in self._log.read():
            yield event

    def _note(self, event: dg.DagsterEvent) -> None:
        """Note which steps have started, when a retry is due, and how often steps were lost."""
        key = str(event.step_key)
        if event.event_type in _STARTS:
            self._started.add(key)
        if _is_end(event):
            self._started.discard(key)
            self._handler.ended(key)
        if event.is_step_up_for_retry:
            data = event.step_retry_data
            # Retries of lost and crashed steps are marked in Dagster's log, and counted from it after a resume.
            for cause in (Cause.LOST, Cause.CRASHED):
                if data.error is not None and data.error.cls_name == cause.value:
                    self._handler.losses[key, cause] += 1
            if data.seconds_to_wait:
                self._retry_at = min(self._retry_at, time.monotonic() + data.seconds_to_wait)

    def _act(self, event: dg.DagsterEvent) -> None:
        key = str(event.step_key)
        if event.is_step_skipped or (_is_end(event) and key not in self._running):
            return  # the state has written the skip, and counts only one end of a step
        follow(self._state, event)
        if event.is_resource_init_failure:
            self._fail_resources(event)
        if _is_end(event):
            del self._running[key]

    def _fail_resources(self, event: dg.DagsterEvent) -> None:
        """Store the failure of a step whose resources could not be created."""
        self._must_read_now = True  # the queue has no event for this
        error = event.engine_event_data.error
        if error is not None and (step := self._running.get(str(event.step_key))) is not None:
            self._fail(self._context.for_step(step), error, self._build_known_state())

    def _build_known_state(self) -> KnownExecutionState:
        """Return what steps must know, without the attempts that retry policies don't count."""
        return self._handler.without_losses(self._state.get_known_state())

    # Health.

    def _check_health(self) -> Iterator[dg.DagsterEvent]:
        """Store the failure or retry of steps that will not end on their own."""
        pause_s = 0.0 if self._handler.watch.has_suspects else _HEALTH_CHECK_EVERY_S
        if time.monotonic() - self._checked_at < pause_s:
            return
        self._checked_at = time.monotonic()
        checked = [
            (step, self._handler.check_step(self._step_handler_context(step), has_started=key in self._started))
            for key, step in self._running.items()
        ]
        unhealthy = [(step, verdict) for step, verdict in checked if verdict is not None]
        if unhealthy:
            yield from self._read()  # a step stores its end before its job ends
        for step, verdict in unhealthy:
            if step.key in self._running:
                self._report(step, verdict)

    def _report(self, step: ExecutionStep, verdict: StepVerdict) -> None:
        self._must_read_now = True  # the queue has no event for this
        step_context = self._context.for_step(step)
        message = f"Step {step.key} failed health check: {verdict.reason}"
        if self._retries.enabled and self._handler.losses[step.key, verdict.cause] < self._handler.retries_of(
            verdict.cause, step_context
        ):
            error = SerializableErrorInfo(message, [], verdict.cause.value)
            dg.DagsterEvent.step_retry_event(step_context, StepRetryData(error=error, seconds_to_wait=0))
        else:
            self._fail(step_context, SerializableErrorInfo(message, [], None), self._build_known_state())

    # The end before the end of all steps.

    def _interrupt(self) -> Iterator[dg.DagsterEvent]:
        """Stop the steps, unless the run will be resumed and they may run meanwhile."""
        run = self._instance.get_run_by_id(self._context.run_id)
        is_wanted = run is not None and run.status not in _UNWANTED
        if is_wanted and self._instance.run_will_resume(self._context.run_id):
            dg.DagsterEvent.engine_event(
                self._context,
                "Executor received termination signal, not forwarding to steps because run will be resumed",
                EngineEventData(metadata={"steps_in_flight": dg.MetadataValue.text(str(list(self._running)))}),
            )
        else:
            dg.DagsterEvent.engine_event(
                self._context,
                "Executor received termination signal, forwarding to steps",
                EngineEventData.interrupted(list(self._running)),
            )
            yield from self._stop_steps()
        yield from self._rest()

    def _stop_steps(self) -> Iterator[dg.DagsterEvent]:
        """Stop the running steps, wait for their ends, and store an end of each that was killed."""
        self._handler.stop_steps([self._step_handler_context(step) for step in self._running.values()])
        deadline = time.monotonic() + _CONFIRM_S
        while self._running and time.monotonic() < deadline:
            stopped = {key for key in self._running if self._handler.has_stopped(key)}
            for event, _ in self._log.read():  # after that: a process that has ended has stored its last event
                self._note(event)
                yield event
                if _is_end(event):
                    self._leave(str(event.step_key), "was stopped")
            for key in stopped & self._running.keys():
                if key in self._started:
                    reason = "was killed, because it did not end in time after it was asked to stop"
                    _report_failure(self._context.for_step(self._running[key]), reason)
                    self._leave(key, reason)
                else:
                    self._leave(key, "was stopped before it started")
            if self._running:
                self._handler.watch.wait(_POLL_S)
        for key in list(self._running):
            self._leave(key, f"was asked to stop, but did not report its end within {_CONFIRM_S:.0f} s")
        yield from self._rest()

    def _leave(self, key: str, message: str) -> None:
        if self._running.pop(key, None) is None:
            return
        self._slots.free_step(key)
        self._instance.report_engine_event(f"Step {key!r} {message}.", self._context.dagster_run, step_key=key)


def _report_failure(step_context: IStepContext, reason: str) -> None:
    error = SerializableErrorInfo(f"The step {reason}.", [], None)
    data = StepFailureData(error, user_failure_data=None, error_source=ErrorSource.INTERRUPT)
    dg.DagsterEvent.step_failure_event(step_context, data)


def _is_end(event: dg.DagsterEvent) -> bool:
    return bool(event.is_step_success or event.is_step_failure or event.is_step_up_for_retry)


def _count(keys: Collection[str]) -> str:
    return f"{len(keys):,} {'step is' if len(keys) == 1 else 'steps are'}"


def _names(keys: Collection[str]) -> dg.TextMetadataValue:
    names = sorted(keys)
    return dg.MetadataValue.text(", ".join([*names[:_MOST_NAMES], *(["..."] if len(names) > _MOST_NAMES else [])]))
