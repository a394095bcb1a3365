"""Cancel, pause, retry or remove a flow as a whole. Each conversation can be interrupted at any point and repeated."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from orchestration_queue.flows.elements import element_names, forget_maps, maps, with_elements
from orchestration_queue.flows.node import TriggerRule
from orchestration_queue.flows.plan_calls import PlannedCall
from orchestration_queue.flows.stored import (
    RETRIED,
    FlowJob,
    FlowState,
    StoredFlow,
    is_removed,
    outcome_of,
    removed_record,
    schedule_check,
)
from orchestration_queue.flows.submit import HELD
from orchestration_queue.protocol.call import (
    Call,
    Conversation,
    Operation,
    Reply,
    all_good,
    chunks,
    optional_text,
    text,
)
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import additions, control, graphs, job_records, notifications
from orchestration_queue.protocol.operations.notifications import Propagated
from orchestration_queue.protocol.record import JobRecord

__all__ = [
    "STATE_FIELDS",
    "cancel",
    "find_ends",
    "find_misinformed",
    "find_pending_notifications",
    "noted_end",
    "pause",
    "propagate",
    "release",
    "remove",
    "retry",
    "survey",
    "undo",
]

STATE_FIELDS = ("state", "outcome", "failedReason", "finishedOn")
"""Fields of a job's record that say whether and how it ended."""

_CREATING = ("glidemq_addJob", "glidemq_addFlow")

_RETRIED_AT_ONCE = 100
"""Nodes that one call retries, so that it blocks the server for about 4 ms."""

_CASCADES = 4
"""How often to look for nodes made ready by revoking others; workers refuse those that become ready later."""


def survey(flow: StoredFlow, fields: Sequence[str] = STATE_FIELDS) -> Conversation[dict[str, JobRecord | None]]:
    """Return what is known of the nodes: their jobs' records, or how they ended if these were removed since.

    One exchange per thousand, and one more if some were removed. None for a node of which nothing is known.
    """
    wanted = [(job.keys, job.job_id) for job in flow.jobs.values()]
    records = dict(zip(flow.jobs, (yield from job_records.jobs(wanted, fields)), strict=True))
    return records | (yield from find_ends(flow, [name for name, record in records.items() if record is None]))


def find_ends(flow: StoredFlow, gone: Collection[str]) -> Conversation[dict[str, JobRecord]]:
    """Return how nodes ended whose records are gone, as far as something proves it. One exchange per thousand.

    Proof is what the server's functions noted when they removed the record, what a dependent counted, or that the
    flow's end was recorded as a success.
    """
    found: dict[str, JobRecord] = {}
    if not gone:
        return found
    dependents = _dependents(flow)
    questions = [Call("HMGET", (flow.keys.flow(flow.id),), ("state", "finishedAt"))]
    for name in gone:
        job = flow.jobs[name]
        questions.append(noted_end(job.keys, flow.id, job.job_id).call)
        member = job.keys.member(job.job_id)
        questions += [
            Call("HMGET", (other.keys.job(other.job_id),), (f"depend:{member}", f"depdone:{member}"))
            for other in dependents.get(name, ())
        ]
    answers: list[Reply] = []
    for piece in chunks(questions):
        answers += all_good((yield piece))
    replies = iter(answers)
    state, finished_at = next(replies)
    is_known_success = finished_at is not None and text(state) == FlowState.COMPLETED
    for name in gone:
        job_id = flow.jobs[name].job_id
        noted = noted_end(flow.jobs[name].keys, flow.id, job_id).read(next(replies))
        counted = [_read_outcome(name, other, next(replies)) for other in dependents.get(name, ())]
        outcome = next(filter(None, counted), "completed" if is_known_success else "")
        if noted is not None:
            found[name] = noted
        elif outcome:
            found[name] = removed_record(job_id, outcome)
    return found


def noted_end(keys: QueueKeys, flow_id: str, job_id: str) -> Operation[JobRecord | None]:
    """Return how a node ended, as noted when its record was removed; None without a note."""

    def read(reply: Reply) -> JobRecord | None:
        note = optional_text(reply)
        return None if note is None else removed_record(job_id, *note.split(" ", 2))

    return Operation(Call("HGET", (keys.flow_ends(flow_id),), (job_id,)), read)


def _dependents(flow: StoredFlow) -> dict[str, list[FlowJob]]:
    found: dict[str, list[FlowJob]] = {}
    for job in flow.jobs.values():
        for dep in job.node.waits_for:
            found.setdefault(dep, []).append(job)
    return found


def _read_outcome(name: str, dependent: FlowJob, reply: Sequence[bytes | None]) -> str:
    """Return how a node ended by what a dependent counted; empty if that doesn't say it.

    A dependent with another rule, or for which the node is optional, counts it as done once that no longer matters.
    """
    ended, done = reply
    if ended is not None:
        return ended.decode()
    is_strict = dependent.node.rule is TriggerRule.ALL_SUCCESS and name in dependent.node.deps
    return "completed" if done is not None and is_strict else ""


def propagate(flow: StoredFlow, jobs: Sequence[FlowJob], now_ms: int) -> Conversation[None]:
    """Notify the dependents of these ended jobs."""
    by_queue = flow.by_queue(jobs)
    yield from notifications.notify_all(
        [(keys, notifications.PendingNotifications(job_ids=tuple(ids))) for keys, ids in by_queue.items()], now_ms
    )


def release(flow: StoredFlow, now_ms: int) -> Conversation[None]:
    """Release jobs held by the submission, a pause or a retry, dependents first."""
    flow = yield from with_elements(flow)
    jobs = sorted(flow.jobs.values(), key=lambda job: -job.depth)
    operations: list[tuple[QueueKeys, Operation[Propagated]]] = [
        (keys, graphs.release(keys, piece, now_ms))
        for keys, ids in flow.by_queue(jobs).items()
        for piece in chunks(ids, graphs.MOST_NODES)
    ]
    replies = all_good((yield [operation.call for _, operation in operations]))
    left = [(keys, operation.read(reply).pending) for (keys, operation), reply in zip(operations, replies, strict=True)]
    yield from notifications.notify_all(left, now_ms)
    # Last: until then, a reconciler repeats the release if this process dies.
    all_good((yield [Call("HDEL", (flow.keys.flow(flow.id),), (HELD, "paused"))]))


def cancel(
    flow: StoredFlow,
    reason: str,
    now_ms: int,
    *,
    is_held: bool = False,
    is_recorded: bool = True,
    spare: Collection[str] = (),
) -> Conversation[list[str]]:
    """Cancel what has not finished.

    Ready nodes fail immediately, running ones are stopped by their worker's next heartbeat, and for their dependents
    the trigger rule decides, or workers refuse to start them.

    Args:
        flow: The flow.
        reason: Why; stored in its record.
        now_ms: Epoch milliseconds by the caller's clock.
        is_held: Whether jobs are held; they are released first so that they can end.
        is_recorded: Whether the flow has a record.
        spare: Nodes to leave alone.

    Returns:
        Names of the nodes that will not run, or not to their end.
    """
    if is_recorded:
        # First: if this process dies, a reconciler reads it and cancels the rest.
        all_good((yield [Call("HSET", (flow.keys.flow(flow.id),), ("stopped", reason))]))
    stopped, revoked = yield from _cancel_unfinished(flow, spare, now_ms)
    # After the nodes were cancelled, so that none of them starts when it is released.
    if is_held:
        yield from release(flow, now_ms)
    for _ in range(_CASCADES):
        yield from propagate(flow, revoked, now_ms)
        again, revoked = yield from _cancel_unfinished(flow, spare, now_ms)
        stopped = {**stopped, **again}
        if not revoked:
            break
    if is_recorded:
        all_good((yield [schedule_check(flow.keys, flow.id, now_ms)]))
    return [name for name in flow.jobs if name in stopped]


def pause(flow: StoredFlow) -> Conversation[None]:
    """Hold the nodes that wait for others."""
    # First: reconcilers release what a flow holds that is not paused.
    all_good((yield [Call("HSET", (flow.keys.flow(flow.id),), ("paused", 1))]))
    jobs = sorted(flow.jobs.values(), key=lambda job: -job.depth)
    pieces = [(keys, piece) for keys, ids in flow.by_queue(jobs).items() for piece in chunks(ids, graphs.MOST_NODES)]
    all_good((yield [graphs.hold_nodes(keys, piece).call for keys, piece in pieces]))


def retry(flow: StoredFlow, now_ms: int, only: Collection[str] | None = None) -> Conversation[list[str]]:
    """Run failed nodes again, and those that did not run because of them; return their names.

    The record first says that nodes may be held, so that a worker releases them if this is interrupted. ``only`` leaves
    other nodes unchanged.
    """
    whole = yield from with_elements(flow)
    if not _to_retry(whole, (yield from survey(whole)), only):
        return []
    (server_time,) = all_good((yield [Call("TIME")]))
    all_good((yield _reopen(flow, now_ms, int(server_time[0]) * 1000)))
    # Until the record said so, reconcilers continued, and more nodes may have failed.
    records = yield from survey(whole)
    failed = _to_retry(whole, records, only)
    revived: dict[QueueKeys, list[graphs.Revived]] = {}
    left: list[tuple[QueueKeys, notifications.PendingNotifications]] = []
    for keys, ids in flow.by_queue(failed).items():
        for piece in chunks(ids, _RETRIED_AT_ONCE):
            retrying = graphs.retry_nodes(keys, piece, now_ms, held=True)
            retried = retrying.read(all_good((yield [retrying.call]))[0])
            left.append((keys, retried.pending))
            for one in retried.revived:
                revived.setdefault(QueueKeys(one.queue, keys.prefix), []).append(one)
    known = _find_known_elsewhere(whole, failed, records)
    for job, dep in known:
        revived.setdefault(job.keys, []).append(graphs.Revived(job.keys.queue, job.job_id, dep.keys.member(dep.job_id)))
    for keys, news in revived.items():
        for some in chunks(news):
            all_good((yield [graphs.retry_nodes(keys, (), now_ms, revived=some).call]))
    yield from notifications.notify_all(left, now_ms)
    yield from propagate(flow, list({dep.name: dep for _, dep in known}.values()), now_ms)
    yield from release(flow, now_ms)
    return [job.name for job in failed]


def _find_known_elsewhere(
    flow: StoredFlow, failed: Sequence[FlowJob], records: Mapping[str, JobRecord | None]
) -> list[tuple[FlowJob, FlowJob]]:
    """Return nodes to retry, each with a dependency in another queue that is not retried.

    Such a node knows the dependency only by its notifications, one of which may report an end before a retry.
    """
    names = {job.name for job in failed}
    return [
        (job, flow.jobs[dep])
        for job in failed
        for dep in job.node.waits_for
        if dep not in names and records[dep] is not None and flow.jobs[dep].keys != job.keys
    ]


def find_misinformed(flow: StoredFlow, records: Mapping[str, JobRecord | None]) -> list[str]:
    """Return names of nodes that ended as ``upstream_failed`` although none of their dependencies has failed.

    A notification from another queue about an end before a retry can arrive after the retry.
    """
    found: list[str] = []
    for name, job in flow.jobs.items():  # dependencies come before dependents
        record = records[name]
        if record is None or outcome_of(record) != "upstream_failed" or maps(job):
            continue
        known = {dep: records[dep] for dep in job.node.waits_for}
        if known and all(its and (its.state != "failed" or dep in found) for dep, its in known.items()):
            found.append(name)
    return found


def _to_retry(flow: StoredFlow, records: Mapping[str, JobRecord | None], only: Collection[str] | None) -> list[FlowJob]:
    """Return nodes that failed, or did not run because of that; skipped ones only if they wait for such a node.

    Elements of a completed node have been read, and are unchanged.
    """
    found: dict[str, FlowJob] = {}
    settled = {
        name
        for job in flow.jobs.values()
        if maps(job) and (its := records[job.name]) is not None and its.state == "completed"
        for name in element_names(job)
    }
    for name, job in flow.jobs.items():  # dependencies come before dependents
        record = records[name]
        if record is None or record.state != "failed" or name in settled or (only is not None and name not in only):
            continue
        if is_removed(record):
            continue  # it can't run again
        if outcome_of(record) != "skipped" or any(dep in found for dep in job.node.waits_for):
            found[name] = job
    return list(found.values())


def _cancel_unfinished(
    flow: StoredFlow, spare: Collection[str], now_ms: int
) -> Conversation[tuple[dict[str, FlowJob], list[FlowJob]]]:
    """Revoke unfinished nodes, dependents first; return them by name, and those that ended immediately.

    Elements are read each time: a mapped node adds more until it is revoked itself.
    """
    flow = yield from with_elements(flow)
    records = yield from survey(flow, ("state",))
    unfinished = {
        name: flow.jobs[name]
        for name, record in reversed(records.items())
        if record is not None and not record.is_finished and name not in spare
    }
    revoked: list[FlowJob] = []
    for piece in chunks(list(unfinished.values()), control.MOST_WITHDRAWN):
        calls = [control.cancel(job.keys, job.job_id, now_ms).call for job in piece]
        replies = all_good((yield calls))
        revoked += [job for job, reply in zip(piece, replies, strict=True) if text(reply) == "revoked"]
    return unfinished, revoked


def _reopen(flow: StoredFlow, now_ms: int, server_ms: int) -> list[Call]:
    """Record that a flow continues, and since when its nodes may be held."""
    key = flow.keys.flow(flow.id)
    return [
        Call("HSET", (key,), ("state", FlowState.RUNNING, HELD, server_ms, RETRIED, 1)),
        Call("HDEL", (key,), ("finishedAt", "stopped")),
        Call("ZREM", (flow.keys.flows_ended,), (flow.id,)),
        schedule_check(flow.keys, flow.id, now_ms),
    ]


def remove(flow: StoredFlow, now_ms: int) -> Conversation[None]:
    """Remove all jobs, dependents first, and the record last, so that an interrupted removal can be continued."""
    own = flow.keys
    all_good((yield [Call("HSET", (own.flow(flow.id),), ("removing", 1)), schedule_check(own, flow.id, now_ms)]))
    # Elements are removed before the nodes by which they are found.
    whole = yield from with_elements(flow)
    jobs = sorted(whole.jobs.values(), key=lambda job: (job.name in flow.jobs, -job.depth))
    for piece in chunks(jobs, control.MOST_WITHDRAWN):
        all_good((yield [control.remove(job.keys, job.job_id).call for job in piece]))
    ends = [Call("DEL", (keys.flow_ends(flow.id),)) for keys in flow.by_queue(list(flow.jobs.values()))]
    all_good((yield [*forget_maps(flow), *ends, *_forget(own, flow.id)]))


def undo(flow: StoredFlow, planned: Sequence[PlannedCall], replies: Sequence[Reply], now_ms: int) -> Conversation[None]:
    """Remove what a transaction created if one of its calls was refused. An older job with the same id stays.

    Args:
        flow: The flow that was submitted.
        planned: The transaction's calls; the flow's record comes first.
        replies: The server's reply to each.
        now_ms: Epoch milliseconds by the caller's clock.
    """
    record = planned[0].call.args
    if replies[0] != len(record) // 2:
        return  # nothing was executed, or the record belongs to an earlier submission
    created_at = str(record[record.index("createdAt") + 1])
    older: set[str] = set()
    unsure: list[FlowJob] = []
    for each, reply in zip(planned, replies, strict=True):
        if each.call.name not in _CREATING:
            continue
        if isinstance(reply, Exception):
            unsure.append(flow.jobs[each.node])
        elif text(reply) in additions.DUPLICATE:
            older.add(each.node)
    # A failed call may have left part of a job, with the record's time; calls after it, fields without an id.
    found = yield from job_records.jobs([(job.keys, job.job_id) for job in unsure], ("id", "timestamp"))
    for job, known in zip(unsure, found, strict=True):
        fields = known.fields if known else {}
        if "id" in fields and fields.get("timestamp") != created_at:
            older.add(job.name)
    yield from remove(replace(flow, jobs={name: job for name, job in flow.jobs.items() if name not in older}), now_ms)


def _forget(keys: QueueKeys, flow_id: str) -> Iterable[Call]:
    for key in (keys.budget(flow_id), keys.named(f"group:flow.{flow_id}"), keys.flow(flow_id)):
        yield Call("DEL", (key,))
    for index in (keys.flows, keys.flows_ended, keys.flows_due):
        yield Call("ZREM", (index,), (flow_id,))


def find_pending_notifications(flow: StoredFlow, records: Mapping[str, JobRecord | None]) -> tuple[set[str], set[str]]:
    """Return names of nodes that ended, or whose job was removed, and that a waiting dependent may not know of."""
    ended: set[str] = set()
    gone: set[str] = set()
    for name, record in records.items():
        waits_for = flow.record.nodes[name].waits_for
        if record is None or record.state != "waiting-children" or not waits_for:
            continue
        found = [dep for dep in waits_for if (dep_record := records[dep]) is None or dep_record.is_finished]
        if len(found) == len(waits_for) or any(_may_decide(records[dep]) for dep in found) or _is_eager(flow, name):
            for dep in found:
                (ended if (known := records[dep]) is not None and not is_removed(known) else gone).add(dep)
    return ended, gone


def _may_decide(record: JobRecord | None) -> bool:
    return record is None or record.state == "failed"


def _is_eager(flow: StoredFlow, name: str) -> bool:
    return flow.record.nodes[name].rule in ("one_success", "one_failed", "all_failed", "always")
