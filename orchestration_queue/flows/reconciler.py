"""Reconcile flows: re-send lost notifications, enforce timeouts, record completion.

Every action is derived from the records and safe to repeat: a reconciler that dies leaves its flows due, and the lock
only keeps several reconcilers from doing the same work. A queue without open flows costs one command per round.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TypeVar

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import ServerError
from orchestration_queue.flows import control
from orchestration_queue.flows.called import caller_of, reconcile_calls
from orchestration_queue.flows.elements import with_elements
from orchestration_queue.flows.stored import (
    FAIL_FAST,
    TIMEOUT,
    FlowSnapshot,
    FlowState,
    StoredFlow,
    derive_state,
    due,
    epoch_ms,
    outcome_of,
    read_flow,
    retention_age,
    schedule_check,
)
from orchestration_queue.options import milliseconds
from orchestration_queue.protocol.call import (
    Call,
    Conversation,
    Operation,
    Reply,
    all_good,
    optional_text,
    read_time,
    texts,
    together,
)
from orchestration_queue.protocol.functions import glidemq
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.moves import finish_moves
from orchestration_queue.protocol.operations.notifications import Notification, PendingNotifications, notify_all
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.states import JobState

__all__ = ["FlowReconciler"]

log = get_logger("orchestration_queue.flows")

T = TypeVar("T")

_INTERVAL, _PATIENCE = timedelta(seconds=5), timedelta(minutes=5)
"""The same as a worker's defaults for ``flow_interval`` and ``abandon_flows_after``."""
_FLOWS_A_ROUND = 20
_PAGES_A_ROUND = 50
"""How often a round reads which are due: so it checks up to 1,000 jobs that wait for called ones, in about a second."""
_REMOVED_AT_ONCE = 100
_LOCK_MS = 5_000
_CONFIRM_MS = 60_000
"""When to check an end again: a caller may have retried a node while it was being recorded."""
_UNREADABLE_MS = 3_600_000
_NOTIFIED = {"completed": "success", "gone": "failed"}
"""The outcomes that notifications call otherwise."""
_NODE_MS = 5
"""How much later a flow is checked again for each of its nodes, so that large ones cost no more than small ones."""


class FlowReconciler:
    """Reconciles the flows of a queue, in rounds. A worker or a client sends its calls.

    Args:
        keys: The queue's keys.
        now_ms: Returns the time, in epoch milliseconds; None asks the server at the start of each round.
        interval: The usual time between two checks of a flow.
        patience: How long a submission may take before it is abandoned.
    """

    def __init__(
        self,
        keys: QueueKeys,
        now_ms: Callable[[], int] | None = None,
        *,
        interval: timedelta = _INTERVAL,
        patience: timedelta = _PATIENCE,
    ) -> None:
        self._keys = keys
        self._asks_server = now_ms is None
        self._server_ms = 0
        self._now_ms = now_ms or (lambda: self._server_ms)
        self._interval_ms = milliseconds(interval)
        self._patience_ms = milliseconds(patience)
        self._gone: dict[str, set[str]] = {}

    def round(self) -> Conversation[None]:
        """Reconcile the flows and moves that are due, about 20 of each. One exchange if there are none.

        Asking the server for the time takes another.
        """
        if self._asks_server:
            self._server_ms = read_time((yield from _send(Call("TIME"))))
        yield from together([self.reconcile_flows(secrets.token_hex(8)), finish_moves(self._keys, self._now_ms())])

    def reconcile_flows(self, token: str) -> Conversation[None]:
        """Reconcile the flows that are due, about 20, and up to 1,000 jobs that called others.

        One command if there are none.

        Args:
            token: Identifies this round as the holder of the lock.
        """
        if not (yield from self._due()):
            return
        lock = glidemq.try_lock(lock_key=self._keys.flows_lock, token=token, ttl_ms=_LOCK_MS)
        if (yield from _send(lock)) != 1:
            return
        # Read again under the lock, since its last holder may have reconciled them.
        yield from self._look_all()
        # If the round is interrupted, the lock expires.
        yield from _send(glidemq.unlock(lock_key=self._keys.flows_lock, token=token))

    def _look_all(self) -> Conversation[None]:
        """Reconcile flows one by one, and jobs that wait for called ones together: these are many, and cheap."""
        flows_left = _FLOWS_A_ROUND
        for _ in range(_PAGES_A_ROUND):
            found = yield from self._due()
            callers = [one for one in found if caller_of(one) is not None]
            yield from together([self._look(one) for one in callers])
            for flow_id in found:
                if flow_id not in callers:
                    yield from self._look(flow_id)
            flows_left -= len(found) - len(callers)
            if flows_left <= 0 or len(found) < _FLOWS_A_ROUND:
                return

    def _due(self) -> Conversation[list[str]]:
        return (yield from _run(due(self._keys, self._now_ms(), _FLOWS_A_ROUND)))

    def _look(self, flow_id: str) -> Conversation[None]:
        """Reconcile one flow, or the called jobs of one job. An error doesn't delay the others."""
        try:
            if (caller := caller_of(flow_id)) is not None:
                next_ms = yield from reconcile_calls(self._keys, caller, self._now_ms())
                done = Call("ZREM", (self._keys.flows_due,), (flow_id,))
                yield from _send(done if next_ms is None else schedule_check(self._keys, flow_id, next_ms))
                return
            snapshot = yield from _run(read_flow(self._keys, flow_id))
            if snapshot is None:
                yield from self._forget(flow_id)
            else:
                yield from self._reconcile_flow(snapshot)
        except ServerError as error:
            log.error("Flow %s of queue %s can't be reconciled: %s", flow_id, self._keys.queue, error)
            yield from self._look_again(flow_id, self._now_ms() + _UNREADABLE_MS)

    def _reconcile_flow(self, snapshot: FlowSnapshot) -> Conversation[None]:
        flow, at_ms = snapshot.flow, self._now_ms()
        if snapshot.is_removing:
            yield from control.remove(flow, at_ms)
        elif snapshot.state is FlowState.SUBMITTING:
            yield from self._sweep(snapshot, at_ms)
        elif snapshot.state.is_final and _has_expired(snapshot, at_ms):
            yield from self._remove(flow, "its retention says so")
        else:
            if snapshot.held_ms is not None:
                patient_ms = max(_created_ms(snapshot), snapshot.held_ms) + self._interval_ms
                if at_ms <= patient_ms:  # the process that holds its jobs is about to release them
                    yield from self._look_again(flow.id, patient_ms)
                    return
                if not snapshot.is_paused:
                    log.warning("The process that held jobs of flow %s died; they are released now", flow.id)
                    yield from control.release(flow, at_ms)
            records = yield from control.survey(flow)
            misled = control.find_misinformed(flow, records) if snapshot.was_retried and not snapshot.stopped else ()
            if misled:
                log.warning(
                    "Nodes %s of flow %s were notified of a failure before a retry; they wait again", misled, flow.id
                )
                yield from control.retry(flow, at_ms, misled)
                yield from self._look_again(flow.id, at_ms + self._interval_ms)
                return
            state = derive_state(snapshot, records)
            yield from self._end(snapshot, state, records) if state.is_final else self._keep(snapshot, records, at_ms)

    def _sweep(self, snapshot: FlowSnapshot, at_ms: int) -> Conversation[None]:
        abandoned_ms = _created_ms(snapshot) + self._patience_ms
        if at_ms >= abandoned_ms:
            yield from self._remove(snapshot.flow, "its submission was abandoned")
        else:
            # Soon: the submitter may have finished since the record was read, and would not report it again.
            yield from self._look_again(snapshot.flow.id, min(abandoned_ms, at_ms + self._interval_ms))

    def _keep(self, snapshot: FlowSnapshot, records: Mapping[str, JobRecord | None], at_ms: int) -> Conversation[None]:
        """Re-send lost notifications, and stop what must be stopped."""
        flow = snapshot.flow
        if snapshot.state.is_final:
            # Its end was recorded, but a node has been retried since.
            yield from _send(Call("HSET", (self._keys.flow(flow.id),), ("state", FlowState.RUNNING)))
        whole = yield from with_elements(flow)
        if len(whole.jobs) > len(flow.jobs):
            yield from self._reconcile(whole, (yield from control.survey(whole)), at_ms)
        else:
            yield from self._reconcile(flow, records, at_ms)
        reason = _reason_to_stop(snapshot, records, at_ms)
        if reason is not None and snapshot.stopped is None:
            log.warning("Flow %s is stopped: %s", flow.id, reason)
        reason = snapshot.stopped or reason
        if reason is not None:
            # Again at each check: the process that did it before may have died halfway.
            callbacks = () if snapshot.is_cancelled else flow.record.options.callbacks
            is_held = snapshot.is_held or snapshot.is_paused
            yield from control.cancel(flow, reason, at_ms, is_held=is_held, spare=callbacks)
        next_ms = at_ms + max(self._interval_ms, _NODE_MS * len(whole.jobs))
        deadline_ms = snapshot.deadline_ms if reason is None else None
        yield from self._look_again(flow.id, next_ms if deadline_ms is None else min(next_ms, deadline_ms))

    def _reconcile(self, flow: StoredFlow, records: Mapping[str, JobRecord | None], at_ms: int) -> Conversation[None]:
        """Notify waiting nodes of ended ones: the worker that ended them may have died, or not know trigger rules.

        A job that is not kept notified its dependents when it ended, if at all. If nothing says how it ended, at the
        next check either, it counts as failed.
        """
        ended, gone = control.find_pending_notifications(flow, records)
        yield from control.propagate(flow, [flow.jobs[name] for name in ended], at_ms)
        unknown = {name for name in gone if records[name] is None}
        lost, self._gone[flow.id] = (gone - unknown) | (unknown & self._gone.get(flow.id, set())), unknown
        outcomes = {name: _NOTIFIED.get(how := outcome_of(records[name]), how) for name in lost}
        news = tuple(
            Notification(job.keys.queue, job.job_id, flow.jobs[dep].keys.member(flow.jobs[dep].job_id), outcomes[dep])
            for job in flow.jobs.values()
            for dep in job.node.waits_for
            if dep in lost
        )
        yield from notify_all([(self._keys, PendingNotifications(news))], at_ms)

    def _end(
        self, snapshot: FlowSnapshot, state: FlowState, records: Mapping[str, JobRecord | None]
    ) -> Conversation[None]:
        """Record the end, check it once more, and then stop checking the flow until its retention ends."""
        flow, keys, at_ms = snapshot.flow, self._keys, self._now_ms()
        self._gone.pop(flow.id, None)
        ends = [record.finished_at for record in records.values() if record is not None and record.finished_at]
        ended_ms = epoch_ms(max(ends)) if ends else at_ms
        keep = retention_age(snapshot)
        kept_ms = None if keep is None else ended_ms + milliseconds(keep)
        is_known = snapshot.state is state and snapshot.finished_at is not None
        if is_known:
            is_over = Call("ZREM", (keys.flows_due,), (flow.id,))
            calls = [is_over if kept_ms is None else schedule_check(keys, flow.id, kept_ms)]
        else:
            next_ms = at_ms + _CONFIRM_MS
            calls = [
                Call("HSET", (keys.flow(flow.id),), ("state", state, "finishedAt", ended_ms)),
                Call("ZADD", (keys.flows_ended,), (ended_ms, flow.id)),
                schedule_check(keys, flow.id, next_ms if kept_ms is None else min(next_ms, kept_ms)),
            ]
        replies = all_good((yield [*calls, Call("HGET", (keys.flow(flow.id),), ("state",))]))
        if optional_text(replies[-1]) != state:  # it was retried meanwhile
            yield from self._look_again(flow.id, at_ms)
            return
        if not is_known:
            log.info("Flow %s of queue %s has ended: %s", flow.id, keys.queue, state)
        yield from self._retain(flow)

    def _retain(self, flow: StoredFlow) -> Conversation[None]:
        """Remove finished flows beyond the number that retention keeps, oldest first."""
        retention = flow.record.options.retention
        if retention is None or retention.count is None:
            return
        page = (retention.count, retention.count + _REMOVED_AT_ONCE - 1)
        older = Call("ZREVRANGE", (self._keys.flows_ended,), page)
        for flow_id in texts((yield from _send(older))):
            snapshot = yield from _run(read_flow(self._keys, flow_id))
            if snapshot is None:
                yield from self._forget(flow_id)
            else:
                yield from self._remove(snapshot.flow, "newer ones have ended")

    def _remove(self, flow: StoredFlow, why: str) -> Conversation[None]:
        log.info("Flow %s of queue %s is removed: %s", flow.id, self._keys.queue, why)
        self._gone.pop(flow.id, None)
        yield from control.remove(flow, self._now_ms())

    def _forget(self, flow_id: str) -> Conversation[None]:
        """Remove a flow without a record from the index."""
        indexes = (self._keys.flows, self._keys.flows_due, self._keys.flows_ended)
        calls = [Call("ZREM", (index,), (flow_id,)) for index in indexes]
        all_good((yield calls))

    def _look_again(self, flow_id: str, at_ms: int) -> Conversation[None]:
        yield from _send(schedule_check(self._keys, flow_id, at_ms))


def _send(call: Call) -> Conversation[Reply]:
    (reply,) = all_good((yield [call]))
    return reply


def _run(operation: Operation[T]) -> Conversation[T]:
    return operation.read((yield from _send(operation.call)))


def _created_ms(snapshot: FlowSnapshot) -> int:
    return 0 if snapshot.created_at is None else epoch_ms(snapshot.created_at)


def _has_expired(snapshot: FlowSnapshot, at_ms: int) -> bool:
    keep = retention_age(snapshot)
    return keep is not None and snapshot.finished_at is not None and at_ms >= epoch_ms(snapshot.finished_at + keep)


def _reason_to_stop(snapshot: FlowSnapshot, records: Mapping[str, JobRecord | None], at_ms: int) -> str | None:
    if snapshot.deadline_ms is not None and at_ms >= snapshot.deadline_ms:
        return TIMEOUT
    callbacks = snapshot.flow.record.options.callbacks
    has_failed = any(
        record is not None and record.state is JobState.FAILED and outcome_of(record) == "failed"
        for name, record in records.items()
        if name not in callbacks
    )
    return FAIL_FAST if has_failed and snapshot.flow.record.options.fail_fast else None
