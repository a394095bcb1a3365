"""Explain the state of a job: one sentence, and the facts behind it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from orchestration_queue.options import milliseconds
from orchestration_queue.options.wire import lease_from_wire
from orchestration_queue.protocol.call import Call, Conversation, all_good, optional_text
from orchestration_queue.protocol.keys import HOLD, QueueKeys
from orchestration_queue.protocol.operations import (
    job_records,
    pools,
    queue_settings,
    queue_state,
    shares,
    worker_registry,
)
from orchestration_queue.protocol.operations.steps import COUNTER, JobStep, StepKind, find_pending, read_steps
from orchestration_queue.protocol.record import JobRecord, pairs, when, whole_number
from orchestration_queue.states import TERMINAL, FailureKind, JobState

__all__ = ["Explanation", "explain"]

_LATE_MS = 10_000
_MOST_NAMED = 10
_DEFAULT_LEASE_MS = 30_000


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of a job's state.

    Attributes:
        job_id: The job's id.
        state: Its state.
        sentence: The reason, as text.
        action: What to do about it; None if nothing needs to be done.
        facts: The facts behind the sentence, by name.
    """

    job_id: str
    state: JobState
    sentence: str
    action: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.sentence


_Reason: TypeAlias = tuple[str, str | None, dict[str, Any]]
_Asking: TypeAlias = Conversation[_Reason]
_PENDING_KINDS = {
    JobState.DELAYED: StepKind.SLEEPS,
    JobState.SUSPENDED: StepKind.WAITS,
    JobState.WAITING_CHILDREN: StepKind.CALLS,
}
"""States in which a step may sleep or wait, and the kind of such a step."""


def explain(keys: QueueKeys, job_id: str, now_ms: int) -> Conversation[Explanation | None]:
    """Explain the state of a job; None if it does not exist. Two or three exchanges, and one scan for workers or steps.

    Args:
        keys: The job's queue.
        job_id: The job.
        now_ms: Epoch milliseconds.
    """
    (record,) = yield from job_records.jobs([(keys, job_id)])
    if record is None:
        return None
    step = None
    if COUNTER in record.fields and record.state in _PENDING_KINDS:
        stored = yield from read_steps(keys, job_id)
        step = find_pending([one for one in stored if one.kind is _PENDING_KINDS[record.state]], now_ms)
    if step is not None and step.kind is StepKind.CALLS:
        sentence, action, facts = yield from _explain_waiting_children(keys, record, now_ms)
        sentence = f"Its step {step.name!r} waits for the job that it called. {sentence}"
        facts |= {"step": step.name, "since": step.ended_at}
    elif step is not None:
        sentence, action, facts = _explain_step(keys, record, step)
    elif known := _BY_RECORD.get(record.state):
        sentence, action, facts = known(keys, record, now_ms)
    else:
        sentence, action, facts = yield from _BY_ASKING.get(record.state, _ready)(keys, record, now_ms)
    return Explanation(job_id, record.state, sentence, action, facts)


def _ready(keys: QueueKeys, record: JobRecord, now_ms: int) -> _Asking:
    settings = ("paused", "globalConcurrency", "rateLimitMax", "rateLimitDuration")
    meta, window = all_good((yield [Call("HMGET", (keys.meta,), settings), Call("HGETALL", (keys.rate,))]))
    counts = yield from queue_state.counts(keys)
    workers = yield from worker_registry.workers(keys)
    paused, most, rate_max, rate_ms = map(optional_text, meta)
    facts: dict[str, Any] = {
        "workers": [worker.id for worker in workers],
        "ready": counts.waiting,
        "active": counts.active,
        "priority": record.priority,
    }
    if paused == "1":
        return "The queue is paused.", f"oq queue resume {keys.queue}", facts
    if not workers:
        return "No worker serves the queue.", f"oq worker module:tasks --queue {keys.queue}", facts
    if all(worker.is_paused for worker in workers):
        sentence = f"Every worker of the queue is paused: {_list_text([worker.id for worker in workers])}."
        return sentence, f"oq worker resume {keys.queue} --all", facts
    if record.name not in (known := _list_known_tasks(workers, record.name)):
        facts["tasks"] = known
        sentence = f"No worker of the queue knows task {record.name!r}, so the worker that takes the job will fail it; "
        return f"{sentence}known: {_list_text(known)}.", "start a worker that has the task", facts
    limit = whole_number(most) or 0
    if 0 < limit <= counts.active:
        facts["global_concurrency"] = limit
        return f"All {limit:,} jobs that may run at a time in the whole queue are running.", None, facts
    rate = queue_settings.stored_rate_limit(whole_number(rate_max) or 0, whole_number(rate_ms) or 0)
    stored = pairs(window)
    ends_ms = (whole_number(stored.get("windowStart")) or 0) + (whole_number(rate_ms) or 0)
    if rate and (whole_number(stored.get("count")) or 0) >= rate.max and ends_ms > now_ms:
        facts["until"] = when(ends_ms)
        return f"The queue's rate limit of {rate.max:,} starts is used up until {_time(ends_ms)}.", None, facts
    if record.share is not None and (wait := (yield from shares.wait_of(keys, record.id, record.share))) is not None:
        return _describe_share(keys, wait, facts)
    return (
        f"It is ready and waits for a free slot: {_count(counts.waiting, 'ready job')}, "
        f"{_count(counts.active, 'running job')}, {_count(len(workers), 'worker')}.",
        "start more workers, or raise their concurrency" if counts.active else None,
        facts,
    )


def _describe_share(keys: QueueKeys, wait: shares.ShareWait, facts: dict[str, Any]) -> _Reason:
    share = wait.share
    facts["share"] = {"name": share.name, "weight": share.weight, "waiting": share.waiting}
    facts |= {"before": wait.before, "shares": wait.shares, "turn": wait.turn}
    turn = f"has had its part, and {_count(wait.turn, 'share')} must catch up" if wait.turn else "is served next"
    return (
        f"It waits in share {share.name!r} of weight {share.weight:,} behind "
        f"{_count(wait.before, 'job')}; of {_count(wait.shares, 'share')} that wait, it {turn}.",
        f"oq share set {keys.queue} {share.name} WEIGHT gives the share more",
        facts,
    )


def _list_known_tasks(workers: Sequence[worker_registry.WorkerInfo], name: str) -> list[str]:
    """Return the tasks that the workers know, with this name if one of them may know more than it reports."""
    reported = {task for worker in workers for task in worker.tasks}
    says_all = all(0 < len(worker.tasks) < worker_registry.MOST_TASKS for worker in workers)
    return sorted(reported if says_all and len(name) <= worker_registry.NAME_LENGTH else {*reported, name})


def _explain_scheduled(keys: QueueKeys, record: JobRecord, now_ms: int) -> _Asking:
    (due_ms,) = yield from job_records.due_times_ms(keys, [record.id])
    if due_ms is None:
        return "It is in no list of the queue, so no worker finds it.", "oq doctor --fix", {}
    if record.pools and (reason := (yield from _explain_pool(keys, record, now_ms))) is not None:
        return reason
    if due_ms <= now_ms - _LATE_MS or (record.state is JobState.PRIORITIZED and due_ms <= now_ms):
        sentence, action, facts = yield from _ready(keys, record, now_ms)
        return sentence, action, {**facts, "due_at": when(due_ms)}
    facts = {"due_at": when(due_ms), "failed_attempts": record.attempts_made}
    if record.attempts_made:
        sentence = (
            f"Attempt {record.attempts_made} of {max(1, record.max_attempts)} failed ({record.failed_reason}); "
            f"the next starts at {_time(due_ms)}."
        )
        return sentence, f"oq job promote {keys.queue} {record.id} starts it now", facts
    return f"It is delayed until {_time(due_ms)}.", f"oq job promote {keys.queue} {record.id} starts it now", facts


def _explain_pool(keys: QueueKeys, record: JobRecord, now_ms: int) -> Conversation[_Reason | None]:
    """Name the pool that the job waits for and the holders of its slots; None if it waits for none."""
    wait = pools.wait_of(keys, record.id)
    (reply,) = all_good((yield [wait.call]))
    weights = wait.read(reply)
    found = (yield from pools.states(keys, now_ms, list(weights))) if weights else []
    if not found:
        return None
    tightest = min(found, key=lambda pool: pool.slots - pool.used - weights[pool.name])
    facts: dict[str, Any] = {
        "pools": {
            pool.name: {"needed": weights[pool.name], "slots": pool.slots, "used": pool.used, "waiting": pool.waiting}
            for pool in found
        },
        "holders": [{"queue": each.queue, "id": each.job_id, "slots": each.slots} for each in tightest.holders],
    }
    needed, name = _count(weights[tightest.name], "slot"), tightest.name
    if weights[name] > tightest.slots:
        sentence = f"It needs {needed} of pool {name!r}, which has {tightest.slots:,}."
        return sentence, f"oq pool set {name} {weights[name]}", facts
    held = _list_text([f"{each.queue}/{each.job_id} ({each.slots})" for each in tightest.holders])
    by = f" by {held}" if held else ""
    return (
        f"It waits for {needed} of pool {name!r}: {tightest.used:,} of {tightest.slots:,} are held{by}; "
        f"jobs that wait: {tightest.waiting:,}.",
        f"oq pool show {name}",
        facts,
    )


def _active(keys: QueueKeys, record: JobRecord, now_ms: int) -> _Asking:
    settings = queue_settings.stored_settings(keys)
    stored = settings.read(all_good((yield [settings.call]))[0])
    workers = yield from worker_registry.workers(keys)
    holder = next((worker for worker in workers if any(job.id == record.id for job in worker.jobs)), None)
    own_ms = None if holder is None or holder.lease is None else milliseconds(holder.lease)
    lease_ms = lease_from_wire(record.options.get("lockDuration")) or stored.lease_ms or own_ms or _DEFAULT_LEASE_MS
    heard_ms = whole_number(record.fields.get("lastActive")) or whole_number(record.fields.get("processedOn")) or now_ms
    ends_ms = int(heard_ms + lease_ms)
    facts: dict[str, Any] = {
        "started_at": record.started_at,
        "renewed_at": when(heard_ms),
        "lease_ends_at": when(ends_ms),
        "worker": holder and holder.id,
        "host": holder and holder.host,
        "pid": holder and holder.pid,
        "attempt": record.attempts,
        "progress": record.progress,
    }
    who = "A worker" if holder is None else f"Worker {holder.id!r} on {holder.host} (process {holder.pid})"
    since = "" if record.started_at is None else f" since {record.started_at:%Y-%m-%d %H:%M:%S} UTC"
    if now_ms > ends_ms:
        return (
            f"{who} has been running it{since}, but has not renewed the lease for {(now_ms - heard_ms) / 1000:,.0f} s; "
            f"the lease ended at {_time(ends_ms)}, and another worker will take it over.",
            "start a worker if none is running",
            facts,
        )
    attempt = f"attempt {record.attempts}"
    return (
        f"{who} has been running it{since}, {attempt}; if the worker is lost, another takes over at {_time(ends_ms)}.",
        None,
        facts,
    )


def _group_waiting(keys: QueueKeys, record: JobRecord, now_ms: int) -> _Asking:
    name = record.group or ""
    calls = [Call("HGETALL", (keys.group(name),)), Call("ZSCORE", (keys.ratelimited,), (name,))]
    stored, until = all_good((yield calls))
    group = pairs(stored)
    until_ms = int(float(optional_text(until) or 0))
    active, most = (whole_number(group.get(key)) or 0 for key in ("active", "maxConcurrency"))
    turn, own = whole_number(group.get("nextSeq")) or 0, whole_number(record.fields.get("orderingSeq")) or 0
    facts: dict[str, Any] = {"group": name, "active": active, "max_concurrency": most, "turn": turn, "own_turn": own}
    if until_ms > now_ms:
        facts["until"] = when(until_ms)
        return f"Ordering group {name!r} starts no job until {_time(until_ms)}: its rate limit is used up.", None, facts
    if most and active >= most:
        return f"Ordering group {name!r} runs {active:,} of {most:,} jobs at a time.", None, facts
    if own > turn:
        return f"It is job {own:,} of ordering group {name!r}, and job {turn:,} comes first.", None, facts
    return f"Ordering group {name!r} should let it run.", "oq doctor --fix, if it stays", facts


def _explain_waiting_children(keys: QueueKeys, record: JobRecord, _: int) -> _Asking:
    continued = "a worker of either queue continues the move after 10 s, if its caller has died"
    if target := record.fields.get("movingTo"):
        return f"It is on the move to queue {target!r}.", continued, {"target": target}
    if "movedBy" in record.fields:
        source = record.fields.get("movedFrom", "")
        return f"It is on the move from queue {source!r}.", continued, {"source": source}
    waits_for = yield from job_records.children(keys, record.id)
    refs = [ref for ref in waits_for if ref.job_id != HOLD]
    held = (yield from _hold(keys, record)) if len(refs) < len(waits_for) else None
    records = yield from job_records.jobs([(ref.keys, ref.job_id) for ref in refs], ("state", "name"))
    open_jobs = [
        (ref.keys.queue, ref.job_id, str(child.state) if child else "gone")
        for ref, child in zip(refs, records, strict=True)
        if child is None or child.state not in TERMINAL
    ]
    names = ("queue", "id", "state")
    facts = {"dependencies": len(refs), "open": [dict(zip(names, job, strict=True)) for job in open_jobs]}
    if held is not None:
        facts["flow"] = record.fields.get("flow")
    if held is not None and not open_jobs:
        sentence, action = held
        return f"{sentence}.", action, facts
    if not open_jobs:
        return (
            f"All {len(refs):,} jobs that it waits for have ended, but it was not notified.",
            "a worker of this package notifies it within seconds; else oq doctor --fix",
            facts,
        )
    named = _list_text([f"{job_id} ({state})" for _, job_id, state in open_jobs])
    queue, first, _state = open_jobs[0]
    also = "" if held is None else f"; {held[0][0].lower()}{held[0][1:]}"
    return (
        f"It waits for {len(open_jobs):,} of {len(refs):,} jobs: {named}{also}.",
        f"oq job why {queue} {first}",
        facts,
    )


def _hold(keys: QueueKeys, record: JobRecord) -> Conversation[tuple[str, str | None]]:
    """Return why the job's flow holds it, and the command that releases it."""
    flow = record.fields.get("flow", "")
    (paused,) = all_good((yield [Call("HGET", (keys.flow(flow),), ("paused",))]))
    if paused is not None:
        return f"Its flow {flow!r} is paused", f"oq flow resume {keys.queue} {flow}"
    return f"Its flow {flow!r} holds it until its submission, retry or pause is over", None


def _explain_suspended(keys: QueueKeys, record: JobRecord, _: int) -> _Asking:
    (score,) = all_good((yield [Call("ZSCORE", (keys.suspended,), (record.id,))]))
    deadline = when(int(float(optional_text(score) or 0)) or None)
    reason = record.fields.get("suspendReason") or None
    because = f" ({reason})" if reason else ""
    until = f" until {deadline:%Y-%m-%d %H:%M:%S} UTC, when it fails" if deadline and deadline.year < 9999 else ""
    return (
        f"Its handler suspended it{because}; it waits for a signal{until}.",
        f"oq job signal {keys.queue} {record.id} NAME",
        {"reason": reason, "deadline": deadline},
    )


def _explain_step(keys: QueueKeys, record: JobRecord, step: JobStep) -> _Reason:
    facts: dict[str, Any] = {"step": step.name, "since": step.ended_at, "until": step.until}
    until = f" until {step.until:%Y-%m-%d %H:%M:%S} UTC" if step.until else ""
    if step.kind is StepKind.SLEEPS:
        return f"Its step {step.name!r} sleeps{until}, also if the job is started early.", None, facts
    after = ", when it continues without it" if until else ""
    sentence = f"Its step {step.name!r} waits for a signal of this name{until}{after}."
    return sentence, f"oq job signal {keys.queue} {record.id} {shlex.quote(step.name)}", facts


def _explain_completed(_: QueueKeys, record: JobRecord, _now_ms: int) -> _Reason:
    at = "" if record.finished_at is None else f" at {record.finished_at:%Y-%m-%d %H:%M:%S} UTC"
    return f"It completed{at}.", None, {"finished_at": record.finished_at, "attempts": record.attempts}


def _explain_failed(keys: QueueKeys, record: JobRecord, _: int) -> _Reason:
    facts: dict[str, Any] = {
        "reason": record.failed_reason,
        "kind": record.fields.get("failureKind") or None,
        "attempts": record.attempts_made,
        "finished_at": record.finished_at,
    }
    reason = f": {record.failed_reason}" if record.failed_reason else ""
    attempts = _count(max(1, record.attempts_made), "attempt")
    hint = ""
    if record.failure_kind == FailureKind.STALLED:
        hint = (
            " The worker processes that ran it died, or its handler held Python's GIL for longer than the lease; "
            "make the handler sandboxed."
        )
    return f"It failed for good after {attempts}{reason}.{hint}", f"oq job retry {keys.queue} {record.id}", facts


_BY_RECORD: Mapping[JobState, Callable[[QueueKeys, JobRecord, int], _Reason]] = {
    JobState.COMPLETED: _explain_completed,
    JobState.FAILED: _explain_failed,
}
"""States that the job's record alone explains."""
_BY_ASKING: Mapping[JobState, Callable[[QueueKeys, JobRecord, int], _Asking]] = {
    JobState.ACTIVE: _active,
    JobState.DELAYED: _explain_scheduled,
    JobState.PRIORITIZED: _explain_scheduled,
    JobState.GROUP_WAITING: _group_waiting,
    JobState.WAITING_CHILDREN: _explain_waiting_children,
    JobState.SUSPENDED: _explain_suspended,
}
"""States that further keys of the queue explain."""


def _time(at_ms: int) -> str:
    at = when(at_ms)
    return "an unknown time" if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _list_text(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
