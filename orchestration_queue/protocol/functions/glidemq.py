"""The server functions of the library `glidemq`, a call each.

Generated from the headers in lua/glidemq/; do not edit. Regenerate with: python tools/bundle_lua.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.keys import QueueKeys

__all__ = [
    "FlowChild",
    "add_flow",
    "add_job",
    "change_delay",
    "change_priority",
    "check_budget",
    "check_concurrency",
    "clean",
    "complete",
    "complete_and_fetch_next",
    "complete_child",
    "dedup",
    "defer_active",
    "drain",
    "fail",
    "get_active_list_job_ids",
    "heal_list_active",
    "move_active_to_delayed",
    "move_to_active",
    "move_to_waiting_children",
    "next_due",
    "pause",
    "pop_lists",
    "promote",
    "promote_job",
    "promote_rate_limited",
    "rate_limit",
    "rate_limit_group",
    "rate_limit_group_external",
    "reclaim_stalled",
    "reclaim_stalled_list_jobs",
    "record_usage_and_check_budget",
    "register_parent",
    "remove_job",
    "renew_lock",
    "resume",
    "retry_jobs",
    "revoke",
    "rpop_and_reserve",
    "search_by_name",
    "signal",
    "suspend",
    "sweep_suspended",
    "try_lock",
    "unlock",
    "version",
]


class FlowChild(NamedTuple):
    """A job the parent waits for.

    Attributes:
        keys: The queue, for its `id`, `stream`, `scheduled`, `events`.
        name: What kind of job the child is.
        data: Its payload.
        opts: Its options; ordering, cost, ttl and lifo are read from here.
        delay_ms: How long it waits before it is ready.
        priority: 0 is outside the order; otherwise lower runs first.
        max_attempts: Attempts allowed; 0 means one.
        queue_prefix: Its queue's key prefix, `prefix:{queue}`.
        parent_queue: Name of the parent's queue.
        custom_id: The caller's id; empty for an automatic one.
    """

    keys: QueueKeys
    name: str
    data: str
    opts: str
    delay_ms: int
    priority: int
    max_attempts: int
    queue_prefix: str
    parent_queue: str
    custom_id: str = ""


def add_flow(
    keys: QueueKeys,
    *,
    children: Sequence[FlowChild] = (),
    parent_name: str,
    parent_data: str,
    parent_opts: str,
    timestamp_ms: int,
    parent_delay_ms: int = 0,
    parent_priority: int = 0,
    parent_max_attempts: int = 0,
    parent_custom_id: str = "",
    extra_deps: Sequence[str] = (),
) -> Call:
    """Create a job that waits, and the jobs it waits for, all or none.

    Args:
        keys: The queue, for its `id`, `stream`, `scheduled`, `events`.
        children: Each a job the parent waits for.
        parent_name: What kind of job the parent is.
        parent_data: Its payload.
        parent_opts: Its options; ordering, cost and ttl are read from here.
        timestamp_ms: When all were created, epoch ms.
        parent_delay_ms: Stored only.
        parent_priority: Stored only.
        parent_max_attempts: Attempts allowed; 0 means one.
        parent_custom_id: The caller's id; empty for an automatic one.
        extra_deps: Further members the parent waits for.

    Returns:
        The call. Its reply (json): array of the parent's and the children's ids; `["duplicate"]`;
        `["ERR:ID_EXHAUSTED"]`; or the bare text `ERR:COST_EXCEEDS_CAPACITY`; only with ids was anything written.

    Cost: O(log N) per child.
    """
    return Call(
        "glidemq_addFlow",
        (
            keys.id,
            keys.stream,
            keys.scheduled,
            keys.events,
            *[
                word
                for item in children
                for word in (
                    item.keys.id,
                    item.keys.stream,
                    item.keys.scheduled,
                    item.keys.events,
                )
            ],
        ),
        (
            parent_name,
            parent_data,
            parent_opts,
            timestamp_ms,
            parent_delay_ms,
            parent_priority,
            parent_max_attempts,
            len(children),
            parent_custom_id,
            *[
                word
                for item in children
                for word in (
                    item.name,
                    item.data,
                    item.opts,
                    item.delay_ms,
                    item.priority,
                    item.max_attempts,
                    item.queue_prefix,
                    item.parent_queue,
                    item.custom_id,
                )
            ],
            len(extra_deps),
            *extra_deps,
        ),
        is_function=True,
    )


def add_job(
    keys: QueueKeys,
    *,
    parent_deps_key: str | None = None,
    job_name: str,
    data: str,
    opts: str,
    timestamp_ms: int,
    delay_ms: int = 0,
    priority: int = 0,
    parent_id: str = "",
    max_attempts: int = 0,
    ordering_key: str = "",
    group_concurrency: int = 0,
    group_rate_max: int = 0,
    group_rate_duration_ms: int = 0,
    tb_capacity: int = 0,
    tb_refill_rate: int = 0,
    cost: int = 0,
    ttl_ms: int = 0,
    custom_id: str = "",
    lifo: bool = False,
    parent_queue: str = "",
    scheduler_name: str = "",
    skip_events: bool = False,
) -> Call:
    """Create one job and put it where it belongs: later, among the prioritized, on the LIFO list, or on the stream.

    Args:
        keys: The queue, for its `id`, `stream`, `scheduled`, `events`.
        parent_deps_key: Set; members the parent waits for.
        job_name: What kind of job it is.
        data: Payload, as the serializer wrote it.
        opts: The caller's options, stored verbatim.
        timestamp_ms: When it was created, epoch ms.
        delay_ms: How long it waits before it is ready.
        priority: 0 is outside the order; otherwise lower runs first.
        parent_id: Id of the job that waits for it.
        max_attempts: Attempts allowed; 0 means one.
        ordering_key: Group it belongs to; empty for none.
        group_concurrency: Jobs of the group that may be active at once; 0 means one.
        group_rate_max: Jobs of the group per window; 0 for no limit.
        group_rate_duration_ms: Length of that window.
        tb_capacity: Size of the group's token bucket, millitokens; 0 for none.
        tb_refill_rate: Millitokens per second that flow in.
        cost: Millitokens the job takes; 0 means 1000.
        ttl_ms: How long after creation it may still start; 0 forever.
        custom_id: The caller's id; empty for an automatic one.
        lifo: Put it on the LIFO list.
        parent_queue: Name of the parent's queue.
        scheduler_name: Repeat-after-complete scheduler that created it.
        skip_events: Emit no `added` event.

    Returns:
        The call. Its reply (text): the id, `duplicate`, `ERR:COST_EXCEEDS_CAPACITY` or `ERR:ID_EXHAUSTED`; only with an
        id was anything written.

    The server refuses it when the id key does not end in `:id`.

    Cost: O(log N) for a delayed or prioritized job, else O(1).
    """
    return Call(
        "glidemq_addJob",
        (
            keys.id,
            keys.stream,
            keys.scheduled,
            keys.events,
            *(() if parent_deps_key is None else (parent_deps_key,)),
        ),
        (
            job_name,
            data,
            opts,
            timestamp_ms,
            delay_ms,
            priority,
            parent_id,
            max_attempts,
            ordering_key,
            group_concurrency,
            group_rate_max,
            group_rate_duration_ms,
            tb_capacity,
            tb_refill_rate,
            cost,
            ttl_ms,
            custom_id,
            int(lifo),
            parent_queue,
            scheduler_name,
            int(skip_events),
        ),
        is_function=True,
    )


def change_delay(
    keys: QueueKeys,
    *,
    job_key: str,
    job_id: str,
    delay_ms: int,
    now_ms: int,
    group: str,
) -> Call:
    """Change when a job that has not started is due.

    Args:
        keys: The queue, for its `stream`, `scheduled`, `events`.
        job_key: Hash; the job.
        job_id: The job.
        delay_ms: Counted from now; at least 0.
        now_ms: Epoch ms.
        group: Consumer group of its entry.

    Returns:
        The call. Its reply (text): `ok`, `no_op`, `error:invalid_delay`, `error:not_found`, `error:not_in_stream`,
        `error:not_in_scheduled` or `error:invalid_state`.

    Cost: O(log N).
    """
    return Call(
        "glidemq_changeDelay",
        (
            job_key,
            keys.stream,
            keys.scheduled,
            keys.events,
        ),
        (
            job_id,
            delay_ms,
            now_ms,
            group,
        ),
        is_function=True,
    )


def change_priority(
    keys: QueueKeys,
    *,
    job_key: str,
    job_id: str,
    priority: int,
    group: str,
) -> Call:
    """Change the priority of a job that has not started.

    Args:
        keys: The queue, for its `stream`, `scheduled`, `events`.
        job_key: Hash; the job.
        job_id: The job.
        priority: The new priority; at least 0.
        group: Consumer group of its entry.

    Returns:
        The call. Its reply (text): `ok`, `no_op`, `error:invalid_priority`, `error:not_found`, `error:not_in_stream`,
        `error:not_in_scheduled` or `error:invalid_state`.

    Cost: O(log N).
    """
    return Call(
        "glidemq_changePriority",
        (
            job_key,
            keys.stream,
            keys.scheduled,
            keys.events,
        ),
        (
            job_id,
            priority,
            group,
        ),
        is_function=True,
    )


def check_budget(
    *,
    budget_key: str,
) -> Call:
    """Return whether a flow may spend more.

    Args:
        budget_key: Hash; the flow's budget.

    Returns:
        The call. Its reply (text): `ok`, `exceeded` or `no_budget`.

    Cost: O(1).
    """
    return Call(
        "glidemq_checkBudget",
        (budget_key,),
        (),
        is_function=True,
    )


def check_concurrency(
    keys: QueueKeys,
    *,
    group: str,
) -> Call:
    """Return how many more jobs the queue's concurrency limit allows.

    Args:
        keys: The queue, for its `meta`, `stream`, `list_active`.
        group: Consumer group.

    Returns:
        The call. Its reply (int): -1 without a limit, else at least 0.

    Cost: O(1).
    """
    return Call(
        "glidemq_checkConcurrency",
        (
            keys.meta,
            keys.stream,
            keys.list_active,
        ),
        (group,),
        is_function=True,
    )


def clean(
    keys: QueueKeys,
    *,
    finished_key: str,
    cutoff_ms: int,
    limit: int = 0,
) -> Call:
    """Remove old finished jobs and all their keys.

    Args:
        keys: The queue, for its `events`, `id`.
        finished_key: Zset; `completed` or `failed` jobs by time.
        cutoff_ms: Remove what finished at this epoch ms or before.
        limit: Most jobs to remove; 0 removes none.

    Returns:
        The call. Its reply (texts): ids of the removed jobs, oldest first.

    Cost: O(log N + M) for M removed jobs.
    """
    return Call(
        "glidemq_clean",
        (
            finished_key,
            keys.events,
            keys.id,
        ),
        (
            cutoff_ms,
            limit,
        ),
        is_function=True,
    )


def complete(
    keys: QueueKeys,
    *,
    job_key: str,
    metrics_key: str,
    parent_deps_key: str | None = None,
    parent_job_key: str | None = None,
    parent_stream_key: str | None = None,
    parent_events_key: str | None = None,
    job_id: str,
    entry_id: str,
    returnvalue: str,
    now_ms: int,
    group: str,
    remove_mode: str = "0",
    remove_count: int = 0,
    remove_age_s: int = 0,
    deps_member: str = "",
    parent_id: str = "",
    broadcast: bool = False,
) -> Call:
    """Complete one job: record its result, free its group slot, notify the jobs that wait for it.

    Args:
        keys: The queue, for its `stream`, `completed`, `events`.
        job_key: Hash; the job; must end in `job:` and its id.
        metrics_key: Hash; completions per minute.
        parent_deps_key: Set; members the parent waits for.
        parent_job_key: Hash; the parent.
        parent_stream_key: Stream; the parent's queue.
        parent_events_key: Stream; the parent's queue.
        job_id: The job.
        entry_id: Its stream entry; empty when it came from a list.
        returnvalue: Its result, as the serializer wrote it.
        now_ms: Epoch ms.
        group: Consumer group of the entry.
        remove_mode: Retention: `true`, `count`, `age_count`, or `0` to keep all.
        remove_count: Completed jobs to keep.
        remove_age_s: Seconds to keep them.
        deps_member: The job's name among what its parent waits for; empty without a parent.
        parent_id: The parent; empty without one.
        broadcast: Leave the entry on the stream and retain everything.

    Returns:
        The call. Its reply (int): 1, also for a job that is gone.

    The server refuses it when the job key does not end in `job:` and the id.

    Cost: O(log N), and O(1) per removed or notified job.
    """
    return Call(
        "glidemq_complete",
        (
            keys.stream,
            keys.completed,
            keys.events,
            job_key,
            metrics_key,
            *(() if parent_deps_key is None else (parent_deps_key,)),
            *(() if parent_job_key is None else (parent_job_key,)),
            *(() if parent_stream_key is None else (parent_stream_key,)),
            *(() if parent_events_key is None else (parent_events_key,)),
        ),
        (
            job_id,
            entry_id,
            returnvalue,
            now_ms,
            group,
            remove_mode,
            remove_count,
            remove_age_s,
            deps_member,
            parent_id,
            int(broadcast),
        ),
        is_function=True,
    )


def complete_and_fetch_next(
    keys: QueueKeys,
    *,
    job_key: str,
    metrics_key: str,
    parent_deps_key: str | None = None,
    parent_job_key: str | None = None,
    parent_stream_key: str | None = None,
    parent_events_key: str | None = None,
    job_id: str,
    entry_id: str,
    returnvalue: str,
    now_ms: int,
    group: str,
    consumer: str,
    remove_mode: str = "0",
    remove_count: int = 0,
    remove_age_s: int = 0,
    deps_member: str = "",
    parent_id: str = "",
    ordering_key_hint: str = "",
    ordering_seq_hint: str = "",
    group_key_hint: str = "",
    broadcast: bool = False,
    processed_on_hint: str = "",
    has_parents: str = "",
    skip_events: bool = False,
    skip_metrics: bool = False,
) -> Call:
    """Complete one job and activate the next: by priority, else LIFO, else the oldest of the stream.

    Args:
        keys: The queue, for its `stream`, `completed`, `events`.
        job_key: Hash; the job that completed.
        metrics_key: Hash; completions per minute.
        parent_deps_key: Set; members the parent waits for.
        parent_job_key: Hash; the parent.
        parent_stream_key: Stream; the parent's queue.
        parent_events_key: Stream; the parent's queue.
        job_id: The job that completed.
        entry_id: Its stream entry; empty when it came from a list.
        returnvalue: Its result, as the serializer wrote it.
        now_ms: Epoch ms.
        group: Consumer group.
        consumer: Who takes the next job.
        remove_mode: Retention: `true`, `count`, `age_count`, or `0` to keep all.
        remove_count: Completed jobs to keep.
        remove_age_s: Seconds to keep them.
        deps_member: The job's name among what its parent waits for; empty without a parent.
        parent_id: The parent; empty without one.
        ordering_key_hint: The job's legacy ordering key; `__` when known absent, empty when unknown.
        ordering_seq_hint: Its legacy sequence number; empty when unknown.
        group_key_hint: The job's group; `__` when known absent, empty when unknown.
        broadcast: Leave the entry on the stream, retain everything and fetch nothing.
        processed_on_hint: When the attempt began, epoch ms; empty when unknown.
        has_parents: Ignored: a parent may have been registered while the job ran.
        skip_events: Emit no `completed`, `active` or `failed` event.
        skip_metrics: Count nothing.

    Returns:
        The call. Its reply (texts): `NEXT_NONE`, job id; or `NEXT_REVOKED`, job id, next id, its entry id; or
        `NEXT_HASH`, job id, next id, its entry id (empty from a list), field, value, ....

    Cost: O(log N), and O(1) per removed, notified or skipped job.
    """
    return Call(
        "glidemq_completeAndFetchNext",
        (
            keys.stream,
            keys.completed,
            keys.events,
            job_key,
            metrics_key,
            *(() if parent_deps_key is None else (parent_deps_key,)),
            *(() if parent_job_key is None else (parent_job_key,)),
            *(() if parent_stream_key is None else (parent_stream_key,)),
            *(() if parent_events_key is None else (parent_events_key,)),
        ),
        (
            job_id,
            entry_id,
            returnvalue,
            now_ms,
            group,
            consumer,
            remove_mode,
            remove_count,
            remove_age_s,
            deps_member,
            parent_id,
            ordering_key_hint,
            ordering_seq_hint,
            group_key_hint,
            int(broadcast),
            processed_on_hint,
            has_parents,
            int(skip_events),
            int(skip_metrics),
        ),
        is_function=True,
    )


def complete_child(
    *,
    parent_deps_key: str,
    parent_job_key: str,
    parent_stream_key: str,
    parent_events_key: str,
    deps_member: str,
    parent_id: str,
) -> Call:
    """Notify a waiting job that one of the jobs it waits for has completed.

    Args:
        parent_deps_key: Set; members the parent waits for.
        parent_job_key: Hash; the parent.
        parent_stream_key: Stream; the parent's queue.
        parent_events_key: Stream; the parent's queue.
        deps_member: Which of them.
        parent_id: The parent.

    Returns:
        The call. Its reply (int): members still awaited; a second notification changes nothing.

    Cost: O(1).
    """
    return Call(
        "glidemq_completeChild",
        (
            parent_deps_key,
            parent_job_key,
            parent_stream_key,
            parent_events_key,
        ),
        (
            deps_member,
            parent_id,
        ),
        is_function=True,
    )


def dedup(
    keys: QueueKeys,
    *,
    parent_deps_key: str | None = None,
    dedup_id: str,
    dedup_ttl_ms: int = 0,
    mode: str,
    job_name: str,
    data: str,
    opts: str,
    timestamp_ms: int,
    delay_ms: int = 0,
    priority: int = 0,
    parent_id: str = "",
    max_attempts: int = 0,
    ordering_key: str = "",
    group_concurrency: int = 0,
    group_rate_max: int = 0,
    group_rate_duration_ms: int = 0,
    tb_capacity: int = 0,
    tb_refill_rate: int = 0,
    cost: int = 0,
    ttl_ms: int = 0,
    custom_id: str = "",
    lifo: bool = False,
    parent_queue: str = "",
    skip_events: bool = False,
) -> Call:
    """Create one job unless another holds its deduplication id.

    Args:
        keys: The queue, for its `dedup`, `id`, `stream`, `scheduled`, `events`.
        parent_deps_key: Set; members the parent waits for.
        dedup_id: The deduplication id.
        dedup_ttl_ms: Length of a `throttle` window.
        mode: `simple`: skip while the other is unfinished; `throttle`: skip within the window; `debounce`: replace it
            while it waits for its time.
        job_name: What kind of job it is.
        data: Payload, as the serializer wrote it.
        opts: The caller's options, stored verbatim.
        timestamp_ms: When it was created, epoch ms.
        delay_ms: How long it waits before it is ready.
        priority: 0 is outside the order; otherwise lower runs first.
        parent_id: Id of the job that waits for it.
        max_attempts: Attempts allowed; 0 means one.
        ordering_key: Group it belongs to; empty for none.
        group_concurrency: Jobs of the group that may be active at once; 0 means one.
        group_rate_max: Jobs of the group per window; 0 for no limit.
        group_rate_duration_ms: Length of that window.
        tb_capacity: Size of the group's token bucket, millitokens; 0 for none.
        tb_refill_rate: Millitokens per second that flow in.
        cost: Millitokens the job takes; 0 means 1000.
        ttl_ms: How long after creation it may still start; 0 forever.
        custom_id: The caller's id; empty for an automatic one.
        lifo: Put it on the LIFO list.
        parent_queue: Name of the parent's queue.
        skip_events: Emit no `added` and `removed` event.

    Returns:
        The call. Its reply (text): the id, `skipped`, `duplicate`, `ERR:COST_EXCEEDS_CAPACITY` or `ERR:ID_EXHAUSTED`;
        only with an id was anything written.

    Cost: O(log N) for a delayed or prioritized job, else O(1).
    """
    return Call(
        "glidemq_dedup",
        (
            keys.dedup,
            keys.id,
            keys.stream,
            keys.scheduled,
            keys.events,
            *(() if parent_deps_key is None else (parent_deps_key,)),
        ),
        (
            dedup_id,
            dedup_ttl_ms,
            mode,
            job_name,
            data,
            opts,
            timestamp_ms,
            delay_ms,
            priority,
            parent_id,
            max_attempts,
            ordering_key,
            group_concurrency,
            group_rate_max,
            group_rate_duration_ms,
            tb_capacity,
            tb_refill_rate,
            cost,
            ttl_ms,
            custom_id,
            int(lifo),
            parent_queue,
            int(skip_events),
        ),
        is_function=True,
    )


def defer_active(
    keys: QueueKeys,
    *,
    job_key: str,
    job_id: str,
    entry_id: str,
    group: str,
    broadcast: bool = False,
) -> Call:
    """Return a job that was taken too early to the end of the stream.

    Args:
        keys: The queue, for its `stream`, `list_active`.
        job_key: Hash; the job.
        job_id: The job.
        entry_id: Its stream entry; empty when it came from a list.
        group: Consumer group of the entry.
        broadcast: Leave the entry on the stream.

    Returns:
        The call. Its reply (int): 1, or 0 when the job is gone.

    Cost: O(1).
    """
    return Call(
        "glidemq_deferActive",
        (
            keys.stream,
            job_key,
            keys.list_active,
        ),
        (
            job_id,
            entry_id,
            group,
            int(broadcast),
        ),
        is_function=True,
    )


def drain(
    keys: QueueKeys,
    *,
    drain_delayed: bool = False,
    group: str = "workers",
) -> Call:
    """Remove every job that has not started.

    Args:
        keys: The queue, for its `stream`, `scheduled`, `events`, `id`, `lifo`, `priority`.
        drain_delayed: Delayed and prioritized jobs, too.
        group: Consumer group; what it holds is active and stays.

    Returns:
        The call. Its reply (int): jobs removed.

    Cost: O(N).
    """
    return Call(
        "glidemq_drain",
        (
            keys.stream,
            keys.scheduled,
            keys.events,
            keys.id,
            keys.lifo,
            keys.priority,
        ),
        (
            int(drain_delayed),
            group,
        ),
        is_function=True,
    )


def fail(
    keys: QueueKeys,
    *,
    job_key: str,
    metrics_key: str,
    job_id: str,
    entry_id: str,
    failed_reason: str,
    now_ms: int,
    max_attempts: int = 0,
    backoff_ms: int = 0,
    group: str = "workers",
    remove_mode: str = "0",
    remove_count: int = 0,
    remove_age_s: int = 0,
    broadcast: bool = False,
) -> Call:
    """Record a failed attempt: schedule the retry, or fail the job for good.

    Args:
        keys: The queue, for its `stream`, `failed`, `scheduled`, `events`.
        job_key: Hash; the job; must end in `job:` and its id.
        metrics_key: Hash; failures per minute.
        job_id: The job.
        entry_id: Its stream entry; empty when it came from a list.
        failed_reason: Why.
        now_ms: Epoch ms.
        max_attempts: Attempts allowed; 0 and 1 both mean no retry.
        backoff_ms: How long before the retry.
        group: Consumer group of the entry.
        remove_mode: Retention: `true`, `count`, `age_count`, or `0` to keep all.
        remove_count: Failed jobs to keep.
        remove_age_s: Seconds to keep them.
        broadcast: Leave the entry on the stream, count attempts per consumer group and retain everything.

    Returns:
        The call. Its reply (text): `retrying` or `failed`; `failed` also for a job that is gone.

    The server refuses it when the job key does not end in `job:` and the id.

    Cost: O(log N).
    """
    return Call(
        "glidemq_fail",
        (
            keys.stream,
            keys.failed,
            keys.scheduled,
            keys.events,
            job_key,
            metrics_key,
        ),
        (
            job_id,
            entry_id,
            failed_reason,
            now_ms,
            max_attempts,
            backoff_ms,
            group,
            remove_mode,
            remove_count,
            remove_age_s,
            int(broadcast),
        ),
        is_function=True,
    )


def get_active_list_job_ids(
    keys: QueueKeys,
    *,
    start: int = 0,
    stop: int = -1,
) -> Call:
    """List the jobs that are active from a list.

    Args:
        keys: The queue, for its `id`.
        start: First index.
        stop: Last index, inclusive; negative for no bound.

    Returns:
        The call. Its reply (texts): job ids.

    Cost: O(A) for A active list jobs; a scan of the keys when another library activated some.
    """
    return Call(
        "glidemq_getActiveListJobIds",
        (keys.id,),
        (
            start,
            stop,
        ),
        is_function=True,
    )


def heal_list_active(
    keys: QueueKeys,
) -> Call:
    """Correct the count of jobs that are active from a list.

    Args:
        keys: The queue, for its `id`.

    Returns:
        The call. Its reply (int): by how much the count was too high; negative when too low.

    Cost: O(A) for A active list jobs; a scan of the keys when the count is too high.
    """
    return Call(
        "glidemq_healListActive",
        (keys.id,),
        (),
        is_function=True,
    )


def move_active_to_delayed(
    keys: QueueKeys,
    *,
    job_key: str,
    job_id: str,
    entry_id: str,
    now_ms: int,
    delayed_until_ms: int = 0,
    group: str = "workers",
    new_data: str = "",
    broadcast: bool = False,
) -> Call:
    """Defer an active job until a given time, without counting an attempt.

    Args:
        keys: The queue, for its `stream`, `scheduled`, `events`.
        job_key: Hash; the job.
        job_id: The job.
        entry_id: Its stream entry; empty when it came from a list.
        now_ms: Epoch ms.
        delayed_until_ms: Epoch ms; never before now.
        group: Consumer group of the entry.
        new_data: Replaces its payload; empty keeps it.
        broadcast: Leave the entry on the stream.

    Returns:
        The call. Its reply (text): `ok`, `error:not_found` or `error:not_active`.

    Cost: O(log N).
    """
    return Call(
        "glidemq_moveActiveToDelayed",
        (
            job_key,
            keys.stream,
            keys.scheduled,
            keys.events,
        ),
        (
            job_id,
            entry_id,
            now_ms,
            delayed_until_ms,
            group,
            new_data,
            int(broadcast),
        ),
        is_function=True,
    )


def move_to_active(
    *,
    job_key: str,
    stream_key: str | None = None,
    now_ms: int,
    entry_id: str = "",
    group: str = "",
    job_id: str = "",
    broadcast: bool = False,
) -> Call:
    """Activate one job, if neither its age nor its group forbids it.

    Args:
        job_key: Hash; the job.
        stream_key: Stream; ready jobs.
        now_ms: Epoch ms.
        entry_id: Its stream entry; empty when it came from a list.
        group: Consumer group of the entry.
        job_id: The job; empty to read it off the key.
        broadcast: Leave the entry on the stream.

    Returns:
        The call. Its reply (texts): field, value, ... of the active job; or one text: empty (no such job), `REVOKED`,
        `EXPIRED`, `GROUP_ORDERED`, `GROUP_FULL`, `GROUP_TOKEN_LIMITED`, `GROUP_RATE_LIMITED`,
        `ERR:COST_EXCEEDS_CAPACITY`.

    Cost: O(1), O(log N) in a group.
    """
    return Call(
        "glidemq_moveToActive",
        (
            job_key,
            *(() if stream_key is None else (stream_key,)),
        ),
        (
            now_ms,
            entry_id,
            group,
            job_id,
            int(broadcast),
        ),
        is_function=True,
    )


def move_to_waiting_children(
    keys: QueueKeys,
    *,
    job_key: str,
    job_id: str,
    entry_id: str,
    group: str,
    now_ms: int,
    broadcast: bool = False,
) -> Call:
    """Make an active job wait for its children; it is ready again immediately if all have completed.

    Args:
        keys: The queue, for its `stream`, `events`.
        job_key: Hash; the job.
        job_id: The job.
        entry_id: Its stream entry; empty when it came from a list.
        group: Consumer group of the entry.
        now_ms: Epoch ms.
        broadcast: Leave the entry on the stream.

    Returns:
        The call. Its reply (text): `ok`, `completed` (all children have), `error:not_found` or `error:not_active`.

    Cost: O(1).
    """
    return Call(
        "glidemq_moveToWaitingChildren",
        (
            job_key,
            keys.stream,
            keys.events,
        ),
        (
            job_id,
            entry_id,
            group,
            now_ms,
            int(broadcast),
        ),
        is_function=True,
    )


def next_due(
    keys: QueueKeys,
) -> Call:
    """Return when the next delayed job or rate-limited group is due.

    Args:
        keys: The queue, for its `scheduled`, `ratelimited`.

    Returns:
        The call. Its reply (int): epoch ms, possibly past; -1 when nothing waits.

    Cost: O(log N) per priority in use.
    """
    return Call(
        "glidemq_nextDue",
        (
            keys.scheduled,
            keys.ratelimited,
        ),
        (),
        is_function=True,
    )


def pause(
    keys: QueueKeys,
) -> Call:
    """Mark the queue as paused.

    Args:
        keys: The queue, for its `meta`, `events`.

    Returns:
        The call. Its reply (int): 1.

    Cost: O(1).
    """
    return Call(
        "glidemq_pause",
        (
            keys.meta,
            keys.events,
        ),
        (),
        is_function=True,
    )


def pop_lists(
    keys: QueueKeys,
    *,
    count: int = 1,
) -> Call:
    """Take ready jobs: from the priority list, or from the LIFO list when that is empty.

    Args:
        keys: The queue, for its `priority`, `lifo`.
        count: Most jobs to take.

    Returns:
        The call. Its reply (texts): job ids, possibly none; the caller adds their number to `list-active`.

    Cost: O(count).
    """
    return Call(
        "glidemq_popLists",
        (
            keys.priority,
            keys.lifo,
        ),
        (count,),
        is_function=True,
    )


def promote(
    keys: QueueKeys,
    *,
    now_ms: int,
) -> Call:
    """Make due jobs ready: expired ones fail, others go to the list or stream they belong to.

    Args:
        keys: The queue, for its `scheduled`, `stream`, `events`.
        now_ms: Epoch ms.

    Returns:
        The call. Its reply (int): members consumed, at most 1000; call again when it is 1000.

    Cost: O(log N) per member.
    """
    return Call(
        "glidemq_promote",
        (
            keys.scheduled,
            keys.stream,
            keys.events,
        ),
        (now_ms,),
        is_function=True,
    )


def promote_job(
    keys: QueueKeys,
    *,
    job_key: str,
    job_id: str,
) -> Call:
    """Make a delayed job ready now.

    Args:
        keys: The queue, for its `stream`, `scheduled`, `events`.
        job_key: Hash; the job.
        job_id: The job.

    Returns:
        The call. Its reply (text): `ok`, `error:not_found` or `error:not_delayed`.

    Cost: O(log N).
    """
    return Call(
        "glidemq_promoteJob",
        (
            job_key,
            keys.stream,
            keys.scheduled,
            keys.events,
        ),
        (job_id,),
        is_function=True,
    )


def promote_rate_limited(
    keys: QueueKeys,
    *,
    now_ms: int,
) -> Call:
    """Promote jobs of groups whose rate limit has passed.

    Args:
        keys: The queue, for its `ratelimited`, `stream`.
        now_ms: Epoch ms.

    Returns:
        The call. Its reply (int): jobs moved to the stream.

    Cost: O(log N) per moved job; at most 100 groups.
    """
    return Call(
        "glidemq_promoteRateLimited",
        (
            keys.ratelimited,
            keys.stream,
        ),
        (now_ms,),
        is_function=True,
    )


def rate_limit(
    keys: QueueKeys,
    *,
    max_starts: int,
    window_ms: int,
    now_ms: int,
) -> Call:
    """Count one start against the queue's rate limit.

    Args:
        keys: The queue, for its `rate`, `meta`.
        max_starts: Starts per window; 0 means the queue's own setting.
        window_ms: Length of the window.
        now_ms: Epoch ms.

    Returns:
        The call. Its reply (int): 0 when allowed and counted, else ms to wait.

    Cost: O(1).
    """
    return Call(
        "glidemq_rateLimit",
        (
            keys.rate,
            keys.meta,
        ),
        (
            max_starts,
            window_ms,
            now_ms,
        ),
        is_function=True,
    )


def rate_limit_group(
    keys: QueueKeys,
    *,
    job_key: str,
    job_id: str,
    entry_id: str,
    group: str,
    duration_ms: int,
    now_ms: int,
    broadcast: bool = False,
    current_job: str = "requeue",
    requeue_position: str = "front",
    extend: str = "max",
) -> Call:
    """Delay the group of an active job, and the job with it.

    Args:
        keys: The queue, for its `stream`.
        job_key: Hash; the job.
        job_id: The job.
        entry_id: Its stream entry; empty when it came from a list.
        group: Consumer group of the entry.
        duration_ms: How long.
        now_ms: Epoch ms.
        broadcast: Leave the entry on the stream.
        current_job: `requeue` it or `fail` it.
        requeue_position: `front` or `back` of the group's queue.
        extend: `max` keeps a later end already set, `replace` does not.

    Returns:
        The call. Its reply (text): epoch ms at which the group resumes, `error:not_active` or `error:no_group`.

    Cost: O(log N).
    """
    return Call(
        "glidemq_rateLimitGroup",
        (
            job_key,
            keys.stream,
        ),
        (
            job_id,
            entry_id,
            group,
            duration_ms,
            now_ms,
            int(broadcast),
            current_job,
            requeue_position,
            extend,
        ),
        is_function=True,
    )


def rate_limit_group_external(
    keys: QueueKeys,
    *,
    group_key: str,
    duration_ms: int,
    now_ms: int,
    extend: str = "max",
) -> Call:
    """Delay a group.

    Args:
        keys: The queue, for its `ratelimited`, `events`.
        group_key: The group.
        duration_ms: How long.
        now_ms: Epoch ms.
        extend: `max` keeps a later end already set, `replace` does not.

    Returns:
        The call. Its reply (int): epoch ms at which the group resumes.

    Cost: O(log N).
    """
    return Call(
        "glidemq_rateLimitGroupExternal",
        (
            keys.ratelimited,
            keys.events,
        ),
        (
            group_key,
            duration_ms,
            now_ms,
            extend,
        ),
        is_function=True,
    )


def reclaim_stalled(
    keys: QueueKeys,
    *,
    group: str,
    consumer: str,
    min_idle_ms: int,
    max_stalled_count: int = 1,
    now_ms: int,
    failed_key: str,
    broadcast: bool = False,
    lock_duration_ms: int = 0,
) -> Call:
    """Take over stalled stream jobs, which become ready, or fail if they stalled too often.

    Args:
        keys: The queue, for its `stream`, `events`.
        group: Consumer group.
        consumer: Who looks.
        min_idle_ms: Entries idle for less are left alone.
        max_stalled_count: Stalls forgiven per job.
        now_ms: Epoch ms.
        failed_key: Ignored: the key of failed jobs, which follows from the stream's.
        broadcast: Leave entries on the stream.
        lock_duration_ms: Silence forgiven when the job names none; 0 means min_idle_ms.

    Returns:
        The call. Its reply (int): entries inspected.

    Cost: O(P) for P idle entries, at most 10000.
    """
    return Call(
        "glidemq_reclaimStalled",
        (
            keys.stream,
            keys.events,
        ),
        (
            group,
            consumer,
            min_idle_ms,
            max_stalled_count,
            now_ms,
            failed_key,
            int(broadcast),
            lock_duration_ms,
        ),
        is_function=True,
    )


def reclaim_stalled_list_jobs(
    keys: QueueKeys,
    *,
    min_idle_ms: int,
    max_stalled_count: int = 1,
    now_ms: int,
    failed_key: str,
    lock_duration_ms: int = 0,
) -> Call:
    """Take over stalled list jobs, which become ready, or fail if they stalled too often.

    Args:
        keys: The queue, for its `stream`, `events`.
        min_idle_ms: Silence forgiven when neither job nor worker name one.
        max_stalled_count: Stalls forgiven per job.
        now_ms: Epoch ms.
        failed_key: Ignored: the key of failed jobs, which follows from the stream's.
        lock_duration_ms: Silence forgiven when the job names none; 0 means min_idle_ms.

    Returns:
        The call. Its reply (int): jobs taken back; 0 if an argument is not a number.

    Cost: O(A) for A active list jobs; a scan of the keys when another library activated some.
    """
    return Call(
        "glidemq_reclaimStalledListJobs",
        (
            keys.stream,
            keys.events,
        ),
        (
            min_idle_ms,
            max_stalled_count,
            now_ms,
            failed_key,
            lock_duration_ms,
        ),
        is_function=True,
    )


def record_usage_and_check_budget(
    *,
    budget_key: str,
    tokens: str = "{}",
    costs: str = "{}",
    weighted_tokens: float = 0,
    total_cost: float = 0,
    max_tokens: str = "{}",
    max_costs: str = "{}",
) -> Call:
    """Add usage to a flow's budget, and return whether it may spend more.

    Args:
        budget_key: Hash; the flow's budget.
        tokens: Tokens by category.
        costs: Costs by category.
        weighted_tokens: Tokens that count against the total.
        total_cost: Cost that counts against the total.
        max_tokens: Limits by category.
        max_costs: Limits by category.

    Returns:
        The call. Its reply (text): `ok`, `exceeded` or `no_budget`.

    Cost: O(C) for C categories.
    """
    return Call(
        "glidemq_recordUsageAndCheckBudget",
        (budget_key,),
        (
            tokens,
            costs,
            weighted_tokens,
            total_cost,
            max_tokens,
            max_costs,
        ),
        is_function=True,
    )


def register_parent(
    *,
    job_key: str,
    parents_key: str,
    parent_deps_key: str,
    parent_job_key: str,
    parent_stream_key: str,
    parent_events_key: str,
    job_id: str,
    parent_id: str,
    parent_queue: str,
    deps_member: str,
) -> Call:
    """Make one more job wait for a child.

    Args:
        job_key: Hash; the child.
        parents_key: Set; further jobs that wait for the child.
        parent_deps_key: Set; members the parent waits for.
        parent_job_key: Hash; the parent.
        parent_stream_key: Stream; the parent's queue.
        parent_events_key: Stream; the parent's queue.
        job_id: Ignored: the child's id.
        parent_id: The parent.
        parent_queue: The parent's key prefix, `prefix:{queue}`.
        deps_member: The child's name among what the parent waits for.

    Returns:
        The call. Its reply (text): `ok`, `already_completed` or `error:child_not_found`.

    Cost: O(1).
    """
    return Call(
        "glidemq_registerParent",
        (
            job_key,
            parents_key,
            parent_deps_key,
            parent_job_key,
            parent_stream_key,
            parent_events_key,
        ),
        (
            job_id,
            parent_id,
            parent_queue,
            deps_member,
        ),
        is_function=True,
    )


def remove_job(
    keys: QueueKeys,
    *,
    job_key: str,
    log_key: str,
    job_id: str,
) -> Call:
    """Remove a job in any state, and all its keys.

    Args:
        keys: The queue, for its `stream`, `scheduled`, `completed`, `failed`, `events`.
        job_key: Hash; the job.
        log_key: List; the job's log lines.
        job_id: The job.

    Returns:
        The call. Its reply (int): 1, or 0 when it does not exist.

    Cost: O(log N).
    """
    return Call(
        "glidemq_removeJob",
        (
            job_key,
            keys.stream,
            keys.scheduled,
            keys.completed,
            keys.failed,
            keys.events,
            log_key,
        ),
        (job_id,),
        is_function=True,
    )


def renew_lock(
    *,
    lock_key: str,
    token: str,
    ttl_ms: int = 1000,
) -> Call:
    """Renew a lock, if it is still ours.

    Args:
        lock_key: String; the lock.
        token: Names this holder.
        ttl_ms: From now on.

    Returns:
        The call. Its reply (int): 1 when renewed, else 0.

    Cost: O(1).
    """
    return Call(
        "glidemq_renewLock",
        (lock_key,),
        (
            token,
            ttl_ms,
        ),
        is_function=True,
    )


def resume(
    keys: QueueKeys,
) -> Call:
    """Mark the queue as running.

    Args:
        keys: The queue, for its `meta`, `events`.

    Returns:
        The call. Its reply (int): 1.

    Cost: O(1).
    """
    return Call(
        "glidemq_resume",
        (
            keys.meta,
            keys.events,
        ),
        (),
        is_function=True,
    )


def retry_jobs(
    keys: QueueKeys,
    *,
    count: int = 0,
    now_ms: int,
) -> Call:
    """Retry failed jobs, due immediately and with all attempts.

    Args:
        keys: The queue, for its `failed`, `scheduled`, `events`, `id`.
        count: Most jobs to retry, oldest first; 0 for all.
        now_ms: Epoch ms.

    Returns:
        The call. Its reply (int): jobs retried.

    The server refuses it when invalid timestamp.

    Cost: O(log N) per job.
    """
    return Call(
        "glidemq_retryJobs",
        (
            keys.failed,
            keys.scheduled,
            keys.events,
            keys.id,
        ),
        (
            count,
            now_ms,
        ),
        is_function=True,
    )


def revoke(
    keys: QueueKeys,
    *,
    job_key: str,
    job_id: str,
    now_ms: int,
    group: str,
) -> Call:
    """Cancel a job: fail it if it has not started, otherwise flag it.

    Args:
        keys: The queue, for its `stream`, `scheduled`, `failed`, `events`.
        job_key: Hash; the job.
        job_id: The job.
        now_ms: Epoch ms.
        group: Consumer group of its entry.

    Returns:
        The call. Its reply (text): `revoked`, `flagged` or `not_found`.

    Cost: O(log N).
    """
    return Call(
        "glidemq_revoke",
        (
            job_key,
            keys.stream,
            keys.scheduled,
            keys.failed,
            keys.events,
        ),
        (
            job_id,
            now_ms,
            group,
        ),
        is_function=True,
    )


def rpop_and_reserve(
    keys: QueueKeys,
    *,
    list_key: str,
    group: str,
    count: int = 1,
) -> Call:
    """Take ready jobs from one list, as many as the queue's concurrency limit allows, and count them as active.

    Args:
        keys: The queue, for its `meta`, `stream`, `list_active`.
        list_key: List; `priority` or `lifo`.
        group: Consumer group.
        count: Most jobs to take.

    Returns:
        The call. Its reply (texts): job ids, possibly none.

    Cost: O(count).
    """
    return Call(
        "glidemq_rpopAndReserve",
        (
            keys.meta,
            keys.stream,
            keys.list_active,
            list_key,
        ),
        (
            group,
            count,
        ),
        is_function=True,
    )


def search_by_name(
    *,
    jobs_key: str,
    state_type: str,
    name: str,
    limit: int = 100,
    key_prefix: str,
) -> Call:
    """Find jobs of one state by their name.

    Args:
        jobs_key: Zset; or stream of the state to search.
        state_type: `zset` or `stream`.
        name: The exact name.
        limit: Most ids to return.
        key_prefix: What every key of the queue begins with, trailing colon included.

    Returns:
        The call. Its reply (texts): job ids.

    Cost: O(N) until the limit is reached.
    """
    return Call(
        "glidemq_searchByName",
        (jobs_key,),
        (
            state_type,
            name,
            limit,
            key_prefix,
        ),
        is_function=True,
    )


def signal(
    keys: QueueKeys,
    *,
    job_key: str,
    signals_key: str,
    job_id: str,
    signal_name: str,
    signal_data: str = "",
    now_ms: int,
) -> Call:
    """Send a suspended job a signal, and make it ready.

    Args:
        keys: The queue, for its `stream`, `events`, `suspended`.
        job_key: Hash; the job.
        signals_key: List; signals the job received.
        job_id: The job.
        signal_name: What the signal is.
        signal_data: Its payload; empty for none.
        now_ms: Epoch ms.

    Returns:
        The call. Its reply (text): `ok` or `not_suspended`.

    Cost: O(S + log N) for S signals so far.
    """
    return Call(
        "glidemq_signal",
        (
            job_key,
            keys.stream,
            keys.events,
            keys.suspended,
            signals_key,
        ),
        (
            job_id,
            signal_name,
            signal_data,
            now_ms,
        ),
        is_function=True,
    )


def suspend(
    keys: QueueKeys,
    *,
    job_key: str,
    job_id: str,
    entry_id: str,
    group: str,
    now_ms: int,
    reason: str = "",
    timeout_ms: int = 0,
    broadcast: bool = False,
) -> Call:
    """Suspend an active job until it is signalled.

    Args:
        keys: The queue, for its `stream`, `events`, `suspended`.
        job_key: Hash; the job.
        job_id: The job.
        entry_id: Its stream entry; empty when it came from a list.
        group: Consumer group of the entry.
        now_ms: Epoch ms.
        reason: Why.
        timeout_ms: Fail it when no signal came in this time; 0 waits forever.
        broadcast: Leave the entry on the stream.

    Returns:
        The call. Its reply (text): `ok`, `error:not_found` or `error:not_active`.

    Cost: O(log N).
    """
    return Call(
        "glidemq_suspend",
        (
            job_key,
            keys.stream,
            keys.events,
            keys.suspended,
        ),
        (
            job_id,
            entry_id,
            group,
            now_ms,
            reason,
            timeout_ms,
            int(broadcast),
        ),
        is_function=True,
    )


def sweep_suspended(
    keys: QueueKeys,
    *,
    metrics_key: str,
    now_ms: int,
    key_prefix: str,
) -> Call:
    """Fail suspended jobs whose deadline has passed.

    Args:
        keys: The queue, for its `suspended`, `events`, `failed`.
        metrics_key: Hash; failures per minute.
        now_ms: Epoch ms.
        key_prefix: What every key of the queue begins with, trailing colon included.

    Returns:
        The call. Its reply (int): jobs failed, at most 100 per call.

    Cost: O(log N) per job.
    """
    return Call(
        "glidemq_sweepSuspended",
        (
            keys.suspended,
            keys.events,
            keys.failed,
            metrics_key,
        ),
        (
            now_ms,
            key_prefix,
        ),
        is_function=True,
    )


def try_lock(
    *,
    lock_key: str,
    token: str,
    ttl_ms: int = 1000,
) -> Call:
    """Take a lock unless another owner holds it.

    Args:
        lock_key: String; the lock.
        token: Names this holder.
        ttl_ms: The lock falls free after this.

    Returns:
        The call. Its reply (int): 1 when taken, else 0.

    Cost: O(1).
    """
    return Call(
        "glidemq_tryLock",
        (lock_key,),
        (
            token,
            ttl_ms,
        ),
        is_function=True,
    )


def unlock(
    *,
    lock_key: str,
    token: str,
) -> Call:
    """Release a lock, if it is still ours.

    Args:
        lock_key: String; the lock.
        token: Names this holder.

    Returns:
        The call. Its reply (int): 1 when given back, else 0.

    Cost: O(1).
    """
    return Call(
        "glidemq_unlock",
        (lock_key,),
        (token,),
        is_function=True,
    )


def version(
    *,
    any_key: str | None = None,
    detail: str = "",
) -> Call:
    """Return the protocol version of this library.

    Args:
        any_key: String; any key of the slot, for clients that must name one.
        detail: `revision` for the number of the text, too; glide-mq's own text ignores it.

    Returns:
        The call. Its reply (text): `93`; with the number of the text `93.5`, which grows with every change.

    Cost: O(1).
    """
    return Call(
        "glidemq_version",
        (*(() if any_key is None else (any_key,)),),
        (detail,),
        is_function=True,
    )
