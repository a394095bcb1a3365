"""Rebuild the state of a resumed run from its log.

Dagster's own way repeats the decisions of the process that is gone: it launches what could have been launched before
each event. That goes wrong where these depended on more than the log: on slots of pools, on the order of events that
arrived together, on the time of a retry, or on how far that process came. The log knows what was launched.
"""

from __future__ import annotations

from collections.abc import Iterable

import dagster as dg

from orchestration_queue.dagster._compat import ActiveExecution, InstanceConcurrencyContext, pool_of

__all__ = ["DECISIVE", "follow", "replay", "restore_slots"]

_SIGNS = frozenset(
    {
        dg.DagsterEventType.STEP_WORKER_STARTED,
        dg.DagsterEventType.STEP_START,
        dg.DagsterEventType.STEP_RESTARTED,
        dg.DagsterEventType.STEP_OUTPUT,
        dg.DagsterEventType.STEP_SUCCESS,
        dg.DagsterEventType.STEP_FAILURE,
        dg.DagsterEventType.STEP_UP_FOR_RETRY,
        dg.DagsterEventType.RESOURCE_INIT_FAILURE,
    }
)
"""Events of steps that only a step writes that was launched, before its end."""
DECISIVE = _SIGNS | {dg.DagsterEventType.STEP_WORKER_STARTING, dg.DagsterEventType.STEP_SKIPPED}
"""The events that :func:`replay` needs: about half of a log."""


def replay(state: ActiveExecution, events: Iterable[tuple[dg.DagsterEvent, float]]) -> dict[str, dg.DagsterEvent]:
    """Bring a new state to where the run's log ends. Steps that the log does not mention wait to be launched.

    Args:
        state: The state.
        events: The run's events of the kinds in ``DECISIVE``, with their times; others are ignored.

    Returns:
        The steps in flight whose resources failed, but whose failure was not reported, with the events that say so.
    """
    failed: dict[str, dg.DagsterEvent] = {}
    for event, at in events:
        key = event.step_key
        if key is None:
            continue
        if event.is_step_skipped:
            _skip(state, key)
        elif _is_launched(state, key, event):
            follow(state, event)
            if event.is_resource_init_failure:
                failed[key] = event
            elif key not in state._in_flight:
                failed.pop(key, None)
            if key in state._waiting_to_retry:  # since its failure, not since now
                state._waiting_to_retry[key] = at + (event.step_retry_data.seconds_to_wait or 0)
    state._update()
    return failed


def follow(state: ActiveExecution, event: dg.DagsterEvent) -> None:
    """Bring a state to where it is after an event.

    Outputs of an attempt that is followed by another no longer count. It may have been killed after it had yielded one
    and before it had stored it, and a step that did not wait for its success would find nothing.
    """
    state.handle_event(event)
    if event.is_step_up_for_retry:
        state._step_outputs -= {output for output in state._step_outputs if output.step_key == event.step_key}


def _is_launched(state: ActiveExecution, key: str, event: dg.DagsterEvent) -> bool:
    """Put a step in flight if an event says that it was launched; return whether it is the event of one in flight."""
    if event.event_type is dg.DagsterEventType.STEP_WORKER_STARTING:
        # This is stored after the step was launched, and sometimes after its end: then it is not of the next attempt.
        attempt = event.engine_event_data.metadata.get("attempt")
        is_launch = attempt is None or attempt.value == state.retry_state.get_attempt_count(key) + 1
    else:
        is_launch = event.event_type in _SIGNS
    if is_launch and key not in state._in_flight and _take(state, key):
        state._in_flight.add(key)
        state._prep_for_dynamic_outputs(state.get_step_by_key(key))
    return key in state._in_flight


def _skip(state: ActiveExecution, key: str) -> None:
    if _take(state, key):
        state._in_flight.add(key)
        state._skip_for_dynamic_outputs(state.get_step_by_key(key))
        state.mark_skipped(key)


def _take(state: ActiveExecution, key: str) -> bool:
    """Remove a step from those that wait; return False if it is not one of them, because it has ended."""
    if state._new_dynamic_mappings:
        state._update()
    for waiting in (state._pending, state._waiting_to_retry):
        if key in waiting:
            del waiting[key]
            return True
    for ready in (state._executable, state._pending_skip, state._pending_abandon):
        if key in ready:
            ready.remove(key)
            return True
    return False


def restore_slots(
    instance: dg.DagsterInstance, run_id: str, state: ActiveExecution, slots: InstanceConcurrencyContext
) -> None:
    """Keep the slots of pools that the steps in flight hold, and free those of steps that have ended meanwhile.

    Args:
        instance: The run's instance.
        run_id: The run.
        state: Its state after :func:`replay`.
        slots: What frees a slot when its step ends.
    """
    storage = instance.event_log_storage
    if not storage.supports_global_concurrency_limits:
        return
    ended = state._success | state._failed | state._skipped | state._abandoned | set(state._waiting_to_retry)
    slots._claims.update(state._in_flight)
    pools = {pool for key in ended if (pool := pool_of(state.get_step_by_key(key)))}
    for pool in sorted(pools):
        for slot in storage.get_concurrency_info(pool).claimed_slots:
            if slot.run_id == run_id and slot.step_key in ended:
                storage.free_concurrency_slot_for_step(run_id, slot.step_key)
