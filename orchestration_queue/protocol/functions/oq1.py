"""The server functions of the library `orchestration_queue_1`, a call each.

Generated from the headers in lua/orchestration_queue_1/; do not edit. Regenerate with: python tools/bundle_lua.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.keys import QueueKeys

__all__ = [
    "AttemptNote",
    "BulkJob",
    "Claim",
    "DayCount",
    "Delivered",
    "DependsOff",
    "DependsOn",
    "EntryUpdate",
    "FailureNote",
    "FieldName",
    "ForeignDependency",
    "ForeignDependent",
    "ForeignOutcome",
    "GraphEdge",
    "HandBack",
    "Held",
    "JobForm",
    "Known",
    "MissedRun",
    "MovedField",
    "MovedLine",
    "MovedParent",
    "MovedSignal",
    "NewJob",
    "NodeRule",
    "Parked",
    "PoolLease",
    "Revived",
    "RunOrigin",
    "Settled",
    "Skipped",
    "TagAdded",
    "TagRemoved",
    "UsageField",
    "acquire_pools",
    "add_bulk",
    "add_children",
    "clean",
    "clean_jobs",
    "count_jobs",
    "depends",
    "drain",
    "due_schedulers",
    "end_move",
    "exchange",
    "fire",
    "follow_events",
    "hold_nodes",
    "land_job",
    "mend_group",
    "move_in",
    "move_out",
    "note_attempts",
    "note_failures",
    "propagate",
    "put_back",
    "put_scheduler",
    "read_jobs",
    "reclaim",
    "release_graph",
    "release_job",
    "release_pools",
    "relist",
    "remove_job",
    "remove_pool",
    "remove_unneeded",
    "rename_dependency",
    "renew",
    "renew_pools",
    "replace_scheduler",
    "report_progress",
    "report_usage",
    "retag",
    "retry_job",
    "retry_nodes",
    "revoke",
    "set_pool",
    "skip_waiters",
    "start_parked",
    "submit_graph",
    "tagged",
    "tick",
    "track",
    "update_data",
    "version",
    "wake",
    "wake_due",
    "wake_one",
    "watch",
]


class Claim(NamedTuple):
    """Slots of one pool.

    Attributes:
        pool: The pool.
        weight: How many slots of it, at least 1.
    """

    pool: str
    weight: int


class JobForm(NamedTuple):
    """Fields that some of the jobs share.

    Attributes:
        job_name: What kind of job it is.
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
        lifo: Put it on the LIFO list.
        parent_queue: Name of the parent's queue.
        scheduler_name: Repeat-after-complete scheduler that created it.
    """

    job_name: str
    opts: str
    timestamp_ms: int
    delay_ms: int = 0
    priority: int = 0
    parent_id: str = ""
    max_attempts: int = 0
    ordering_key: str = ""
    group_concurrency: int = 0
    group_rate_max: int = 0
    group_rate_duration_ms: int = 0
    tb_capacity: int = 0
    tb_refill_rate: int = 0
    cost: int = 0
    ttl_ms: int = 0
    lifo: bool = False
    parent_queue: str = ""
    scheduler_name: str = ""


class BulkJob(NamedTuple):
    """A job to create.

    Attributes:
        form: Which of the forms it has, from 0.
        data: Payload, as the serializer wrote it.
        opts: The caller's options, stored verbatim; empty for those of the form.
        custom_id: The caller's id; empty for an automatic one.
    """

    form: int
    data: str
    opts: str
    custom_id: str


class NewJob(NamedTuple):
    """A job of the graph, with a custom id and without a parent; it comes before those it waits for.

    Attributes:
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
    """

    job_name: str
    data: str
    opts: str
    timestamp_ms: int
    delay_ms: int = 0
    priority: int = 0
    parent_id: str = ""
    max_attempts: int = 0
    ordering_key: str = ""
    group_concurrency: int = 0
    group_rate_max: int = 0
    group_rate_duration_ms: int = 0
    tb_capacity: int = 0
    tb_refill_rate: int = 0
    cost: int = 0
    ttl_ms: int = 0
    custom_id: str = ""
    lifo: bool = False
    parent_queue: str = ""
    scheduler_name: str = ""


class DayCount(NamedTuple):
    """What to add to one field.

    Attributes:
        field: The field, such as `run:n:TASK`.
        by: A number.
    """

    field: str
    by: str


class DependsOn(NamedTuple):
    """A job that it waits for from now on.

    Attributes:
        job_id: The job.
    """

    job_id: str


class DependsOff(NamedTuple):
    """A job that it waits for no more.

    Attributes:
        job_id: The job.
    """

    job_id: str


class Settled(NamedTuple):
    """An attempt that ended.

    Attributes:
        kind: `c` completed, `f` failed, `d` delayed, `w` waits for its children, `s` suspended, `g` its group is held
            back.
        job_id: The job.
        entry_id: Its stream entry; empty when it came from a list.
        taken_ms: Its `processedOn`, as its activation wrote it.
        stalled_count: Its `stalledCount` at that time; 0 without one.
        payload: `c` its result, as the serializer wrote it; `f` or `s` why; `d` its new payload, empty keeps it; `g`
            where it goes: `front` or `back` of its group, or `fail`.
        wait_ms: `f` how long before the retry; `d` epoch ms until which it waits, never before now; `s` how long at
            most, 0 forever; `g` how long the group is held back.
        max_attempts: `f` attempts allowed; 0 and 1 both mean no retry.
        extend: `g` a later end already set stays.
        remove_mode: Retention: `true`, `count`, `age_count`, or `0` to keep all.
        remove_count: Jobs with this outcome to keep.
        remove_age_s: Seconds to keep them.
    """

    kind: str
    job_id: str
    entry_id: str
    taken_ms: int
    stalled_count: int
    payload: str
    wait_ms: int
    max_attempts: int
    extend: bool
    remove_mode: str
    remove_count: int
    remove_age_s: int


class HandBack(NamedTuple):
    """A delivered job to return to the end of the stream, unstarted.

    Attributes:
        job_id: The job.
        entry_id: Its stream entry.
    """

    job_id: str
    entry_id: str


class Delivered(NamedTuple):
    """A delivered job to start.

    Attributes:
        job_id: The job.
        entry_id: Its stream entry.
    """

    job_id: str
    entry_id: str


class RunOrigin(NamedTuple):
    """What the job in the same place is made for.

    Attributes:
        name: The scheduler.
        due_ms: When the run was due.
        previous: The job of the run before; empty when that does not matter.
        overlap: What to do while that has not ended: `allow`, `skip`, `queue_one` or `replace`.
    """

    name: str
    due_ms: int
    previous: str
    overlap: str


class EntryUpdate(NamedTuple):
    """An entry to store.

    Attributes:
        name: The scheduler.
        entry: Its entry; `drop` to drop it, empty to leave it.
        look_ms: When it is due for evaluation.
        held_entry: Likewise, if its run was held back; empty when it cannot be.
        held_look_ms: Likewise.
    """

    name: str
    entry: str
    look_ms: int
    held_entry: str = ""
    held_look_ms: int = 0


class MissedRun(NamedTuple):
    """A run that is left out.

    Attributes:
        name: The scheduler.
        due_ms: When it was due.
    """

    name: str
    due_ms: int


class MovedField(NamedTuple):
    """A field of its record.

    Attributes:
        name: Its name.
        value: Its value.
    """

    name: str
    value: str


class MovedLine(NamedTuple):
    """A line of its log.

    Attributes:
        line: The line.
    """

    line: str


class MovedSignal(NamedTuple):
    """A signal that it received.

    Attributes:
        signal: The signal, as JSON.
    """

    signal: str


class MovedParent(NamedTuple):
    """A job that waits for it.

    Attributes:
        member: Its queue's keys begin so, and its id.
    """

    member: str


class AttemptNote(NamedTuple):
    """An attempt that ended.

    Attributes:
        job_id: The job.
        taken_ms: Its `processedOn`, as its activation wrote it.
        stalled_count: Its `stalledCount` at that time; 0 without one.
        kind: What failed: a word of the client, stored as `failureKind`; empty for an attempt that completed.
        error: The error's qualified class; empty without one.
        reason: The error's message.
        traceback: Where, stored as `traceback`; empty when nothing is known.
    """

    job_id: str
    taken_ms: int
    stalled_count: int
    kind: str
    error: str
    reason: str
    traceback: str


class FailureNote(NamedTuple):
    """An attempt that failed.

    Attributes:
        job_id: The job.
        taken_ms: Its `processedOn`, as its activation wrote it.
        stalled_count: Its `stalledCount` at that time; 0 without one.
        kind: What failed: a word of the client, stored as `failureKind`.
        traceback: Where, stored as `traceback`; empty when nothing is known.
    """

    job_id: str
    taken_ms: int
    stalled_count: int
    kind: str
    traceback: str


class ForeignOutcome(NamedTuple):
    """An ended job of another queue, and its dependent here.

    Attributes:
        dependent: The job that waits.
        member: The ended job's name among what it waits for.
        outcome: `success`, `failed`, `upstream_failed` or `skipped`.
    """

    dependent: str
    member: str
    outcome: str


class FieldName(NamedTuple):
    """A field of each job's hash.

    Attributes:
        name: As it is there.
    """

    name: str


class Known(NamedTuple):
    """A job that it knows of.

    Attributes:
        job_id: The job.
    """

    job_id: str


class Held(NamedTuple):
    """A lease to renew.

    Attributes:
        job_id: The job.
        taken_ms: Its `processedOn`, as its activation wrote it.
        stalled_count: Its `stalledCount` at that time; 0 without one.
    """

    job_id: str
    taken_ms: int
    stalled_count: int


class PoolLease(NamedTuple):
    """Slots of one pool that an attempt holds.

    Attributes:
        token: The job, as in `oq1_acquirePools`.
        taken_ms: Its `processedOn` at that time.
        lease_ms: How long it holds them from now on.
        pool: The pool.
        weight: How many slots of it, at least 1.
    """

    token: str
    taken_ms: int
    lease_ms: int
    pool: str
    weight: int


class UsageField(NamedTuple):
    """A part of the report.

    Attributes:
        name: `model`, `provider`, `tokens`, `totalTokens`, `costs`, `totalCost`, `costUnit`, `latencyMs` or `cached`.
        value: As the job's hash holds it.
    """

    name: str
    value: str


class TagAdded(NamedTuple):
    """A tag to add.

    Attributes:
        name: The tag.
    """

    name: str


class TagRemoved(NamedTuple):
    """A tag to take off.

    Attributes:
        name: The tag.
    """

    name: str


class Revived(NamedTuple):
    """A job of another queue that runs again, and its dependent here.

    Attributes:
        dependent: The job that waits.
        member: The other's name among what it waits for.
    """

    dependent: str
    member: str


class Skipped(NamedTuple):
    """A job that waits for slots.

    Attributes:
        token: The job, as in `oq1_acquirePools`.
        gone: It has ended or was removed; otherwise it keeps its place for later.
    """

    token: str
    gone: bool


class Parked(NamedTuple):
    """A job that waits for slots.

    Attributes:
        job_id: The job.
    """

    job_id: str


class GraphEdge(NamedTuple):
    """One job waits for another.

    Attributes:
        dependent: Place of the job that waits among the nodes, from 1.
        dependency: Place of the job it waits for.
        weak: It counts as completed with any outcome.
    """

    dependent: int
    dependency: int
    weak: bool = False


class ForeignDependency(NamedTuple):
    """One job waits for another that is not in this call.

    Attributes:
        dependent: Place of the job that waits among the nodes, from 1.
        member: The job it waits for, `prefix:{queue}:id`.
        weak: It counts as completed with any outcome.
    """

    dependent: int
    member: str
    weak: bool = False


class ForeignDependent(NamedTuple):
    """A job that is not in this call waits for one of these.

    Attributes:
        dependency: Place of the job it waits for among the nodes, from 1.
        queue_name: Its queue.
        job_id: Its id.
    """

    dependency: int
    queue_name: str
    job_id: str


class NodeRule(NamedTuple):
    """A job that does not wait for the success of all.

    Attributes:
        place: Its place among the nodes, from 1.
        rule: Its trigger rule, such as `all_done`.
    """

    place: int
    rule: str


def acquire_pools(
    *,
    slots_key: str,
    claims: Sequence[Claim] = (),
    now_ms: int,
    token: str,
    taken_ms: int,
    lease_ms: int,
) -> Call:
    """Take slots of pools for one attempt of a job, all of them or none, in order of arrival.

    Args:
        slots_key: Hash; how many slots each pool has.
        claims: Each slots of one pool.
        now_ms: Epoch ms.
        token: The job: what the keys of its queue begin with, and its id.
        taken_ms: Its `processedOn`, as its activation wrote it.
        lease_ms: How long it holds the slots without a renewal.

    Returns:
        The call. Its reply (array): 1: `held`, `wait` (it is noted as waiting), `unknown` (a pool is not defined), or
        `late` (a later attempt holds them); 2: ms after which to ask again at the latest, or the unknown pool; 3:
        tokens of jobs to wake, for which there are slots now.

    The server refuses it when the slots key does not end in `:slots`; `OQ_BAD_ARGUMENT` for no claims, more than 8, a
    weight below 1 or a lease of 0.

    Cost: O(H) for H holders of the pools, at most 1,000 each, and O(log N) per waiting job ahead of it while slots are
    free, at most 1,000.
    """
    return Call(
        "oq1_acquirePools",
        (slots_key,),
        (
            now_ms,
            token,
            taken_ms,
            lease_ms,
            len(claims),
            *[word for item in claims for word in (item.pool, item.weight)],
        ),
        is_function=True,
    )


def add_bulk(
    keys: QueueKeys,
    *,
    forms: Sequence[JobForm] = (),
    jobs: Sequence[BulkJob] = (),
    skip_events: bool,
) -> Call:
    """Create jobs of one queue, each as `glidemq_addJob` does.

    Args:
        keys: The queue, for its `id`, `stream`, `scheduled`, `events`.
        forms: Each fields that some of the jobs share.
        jobs: Each a job to create.
        skip_events: Emit no `added` event.

    Returns:
        The call. Its reply (texts): per job its id, `duplicate`, `ERR:COST_EXCEEDS_CAPACITY` or `ERR:ID_EXHAUSTED`;
        only with an id was that job written.

    The server refuses it when the id key does not end in `:id`; `OQ_BAD_ARGUMENT` for a form that is not there.

    Cost: O(log N) per delayed or prioritized job, else O(1) per job.
    """
    return Call(
        "oq1_addBulk",
        (
            keys.id,
            keys.stream,
            keys.scheduled,
            keys.events,
        ),
        (
            int(skip_events),
            len(forms),
            len(jobs),
            *[
                word
                for item in forms
                for word in (
                    item.job_name,
                    item.opts,
                    item.timestamp_ms,
                    item.delay_ms,
                    item.priority,
                    item.parent_id,
                    item.max_attempts,
                    item.ordering_key,
                    item.group_concurrency,
                    item.group_rate_max,
                    item.group_rate_duration_ms,
                    item.tb_capacity,
                    item.tb_refill_rate,
                    item.cost,
                    item.ttl_ms,
                    int(item.lifo),
                    item.parent_queue,
                    item.scheduler_name,
                )
            ],
            *[word for item in jobs for word in (item.form, item.data, item.opts, item.custom_id)],
        ),
        is_function=True,
    )


def add_children(
    keys: QueueKeys,
    *,
    jobs: Sequence[NewJob] = (),
    job_id: str,
    taken_ms: int,
    stalled_count: int,
    now_ms: int,
    until_ended: bool,
) -> Call:
    """Add children to a running job, in its queue, for which it can wait; only for the holder of its lease.

    Args:
        keys: The queue, for its `id`, `stream`, `scheduled`, `failed`, `events`, `metrics_failed`, `ratelimited`.
        jobs: Each a child, with a custom id and without a parent.
        job_id: The running job.
        taken_ms: Its `processedOn`, as its activation wrote it.
        stalled_count: Its `stalledCount` at that time; 0 without one.
        now_ms: Epoch ms.
        until_ended: It waits until all have ended, however that was; else for their success.

    Returns:
        The call. Its reply (texts): per job its id; or `duplicate` when it was there, and is a child from now on, too;
        or `ERR:COST_EXCEEDS_CAPACITY`, and then it was not added; or the one text `lost` when the running job is gone,
        ended, revoked or leased to another worker, and nothing was written.

    The server refuses it when the id key does not end in `:id`; or when a job has no custom id, a parent, or the id of
    the running job.

    Cost: O(log N) per delayed or prioritized job, else O(1) per job, about 20 us.
    """
    return Call(
        "oq1_addChildren",
        (
            keys.id,
            keys.stream,
            keys.scheduled,
            keys.failed,
            keys.events,
            keys.metrics_failed,
            keys.ratelimited,
        ),
        (
            job_id,
            taken_ms,
            stalled_count,
            now_ms,
            int(until_ended),
            len(jobs),
            *[
                word
                for item in jobs
                for word in (
                    item.job_name,
                    item.data,
                    item.opts,
                    item.timestamp_ms,
                    item.delay_ms,
                    item.priority,
                    item.parent_id,
                    item.max_attempts,
                    item.ordering_key,
                    item.group_concurrency,
                    item.group_rate_max,
                    item.group_rate_duration_ms,
                    item.tb_capacity,
                    item.tb_refill_rate,
                    item.cost,
                    item.ttl_ms,
                    item.custom_id,
                    int(item.lifo),
                    item.parent_queue,
                    item.scheduler_name,
                )
            ],
        ),
        is_function=True,
    )


def clean(
    keys: QueueKeys,
    *,
    finished_key: str,
    cutoff_ms: int,
    limit: int,
) -> Call:
    """Remove old finished jobs and all their keys, as `glidemq_clean` does; also on a full server.

    Args:
        keys: The queue, for its `events`, `id`.
        finished_key: Zset; `completed` or `failed` jobs by time.
        cutoff_ms: Remove what finished at this epoch ms or before.
        limit: Most jobs to remove; 0 removes none.

    Returns:
        The call. Its reply (texts): ids of the removed jobs, oldest first.

    The server refuses it when the id key does not end in `:id`.

    Cost: O(log N + M) for M removed jobs.
    """
    return Call(
        "oq1_clean",
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


def clean_jobs(
    keys: QueueKeys,
    *,
    finished_key: str,
    job_ids: Sequence[str] = (),
) -> Call:
    """Remove jobs that are still in a set of finished ones, and all their keys; also on a full server.

    Args:
        keys: The queue, for its `events`, `id`.
        finished_key: Zset; `completed` or `failed` jobs by time.
        job_ids: Jobs.

    Returns:
        The call. Its reply (texts): ids of the removed jobs, in the order asked for.

    The server refuses it when the id key does not end in `:id`.

    Cost: O(log N) per job.
    """
    return Call(
        "oq1_cleanJobs",
        (
            finished_key,
            keys.events,
            keys.id,
        ),
        (
            len(job_ids),
            *job_ids,
        ),
        is_function=True,
    )


def count_jobs(
    keys: QueueKeys,
    *,
    counts: Sequence[DayCount] = (),
    day: str,
) -> Call:
    """Add a worker's counts to a queue's statistics of one day.

    Args:
        keys: The queue, for its `stream`.
        counts: Each what to add to one field.
        day: The day in UTC, as `2026-01-31`.

    Returns:
        The call. Its reply (int): how many fields were added to: beyond 10,000, new ones are left out.

    The server refuses it when the stream key does not end in `:stream`; `OQ_BAD_ARGUMENT` for another day, or for what
    is not a number.

    Cost: O(1) per field.
    """
    return Call(
        "oq1_countJobs",
        (keys.stream,),
        (
            day,
            len(counts),
            *[word for item in counts for word in (item.field, item.by)],
        ),
        is_function=True,
    )


def depends(
    keys: QueueKeys,
    *,
    on: Sequence[DependsOn] = (),
    off: Sequence[DependsOff] = (),
    job_id: str,
    now_ms: int,
) -> Call:
    """Change which jobs of its queue a job waits for, while it waits and has not run.

    Args:
        keys: The queue, for its `id`, `stream`, `scheduled`, `failed`, `events`, `metrics_failed`, `ratelimited`.
        on: Each a job that it waits for from now on.
        off: Each a job that it waits for no more.
        job_id: The job.
        now_ms: Epoch ms.

    Returns:
        The call. Its reply (array): 1: `ok`; `not_found`; `not_waiting` when it does not wait for others or has run;
        `missing` when a job to wait for does not exist, `circle` when that waits for it in turn, `too_deep` when more
        than 1,000 jobs would have to be read to know: and then nothing was changed; 2: the job of `on` that this is
        about, else empty; 3: queue, dependent, member, outcome per job elsewhere to be told through `oq1_propagate`; 4:
        ended jobs whose dependents remain to be told through it.

    The server refuses it when the id key does not end in `:id`.

    Cost: O(1) per job, and per job that those of `on` wait for, at most 1,000.
    """
    return Call(
        "oq1_depends",
        (
            keys.id,
            keys.stream,
            keys.scheduled,
            keys.failed,
            keys.events,
            keys.metrics_failed,
            keys.ratelimited,
        ),
        (
            job_id,
            now_ms,
            len(on),
            len(off),
            *[item.job_id for item in on],
            *[item.job_id for item in off],
        ),
        is_function=True,
    )


def drain(
    keys: QueueKeys,
    *,
    drain_delayed: bool,
    group: str,
    limit: int,
) -> Call:
    """Remove some of the jobs that have not started. As `glidemq_drain`, but bounded, so that no call blocks the server
    for long. Jobs that are left may start meanwhile.

    Args:
        keys: The queue, for its `stream`, `scheduled`, `events`, `lifo`, `priority`.
        drain_delayed: Delayed and prioritized jobs, too.
        group: Consumer group; what it holds is active and stays.
        limit: Most jobs to remove; 0 removes none.

    Returns:
        The call. Its reply (int): jobs removed; 0 when no more are there.

    The server refuses it when the stream key does not end in `:stream`.

    Cost: O(log N) per job, and O(1) per active job.
    """
    return Call(
        "oq1_drain",
        (
            keys.stream,
            keys.scheduled,
            keys.events,
            keys.lifo,
            keys.priority,
        ),
        (
            int(drain_delayed),
            group,
            limit,
        ),
        is_function=True,
    )


def due_schedulers(
    keys: QueueKeys,
    *,
    now_ms: int,
    limit: int,
) -> Call:
    """Read the scheduler entries that are due for evaluation.

    Args:
        keys: The queue, for its `schedulers`, `schedulers_due`, `schedulers_looked`, `stream`, `scheduled`.
        now_ms: Epoch ms.
        limit: How many at most.

    Returns:
        The call. Its reply (array): 1: 1 if all entries need evaluation, since other clients may have changed them; 2:
        per entry its name, its text, the state of the job it waits for (`open`, `ended`, `gone`; empty for none), and
        when that ended.

    The server refuses it when the schedulers key does not end in `:schedulers`; `OQ_BAD_ARGUMENT` for a limit of 0.

    Cost: O(log N) per entry; for one that waits for a job it does not name, O(1) per unfinished job, at most 5,000.
    """
    return Call(
        "oq1_dueSchedulers",
        (
            keys.schedulers,
            keys.schedulers_due,
            keys.schedulers_looked,
            keys.stream,
            keys.scheduled,
        ),
        (
            now_ms,
            limit,
        ),
        is_function=True,
    )


def end_move(
    keys: QueueKeys,
    *,
    job_id: str,
    token: str,
    arrived: bool,
    digest: str,
    now_ms: int,
) -> Call:
    """Drop a job that another queue holds, or put back one that was refused there.

    Args:
        keys: The queue, for its `stream`, `scheduled`, `failed`, `priority`, `lifo`, `events`, `metrics_failed`,
            `tracked`, `moving`.
        job_id: The job.
        token: Names the move.
        arrived: Drop it; else put it back.
        digest: Of what the other queue holds.
        now_ms: Epoch ms.

    Returns:
        The call. Its reply (text): `dropped`; `changed` when it is not what the digest says, and has to be carried
        again; `removed` when it was removed meanwhile, or that was a week ago; `put_back`; or `over` when that move had
        ended.

    The server refuses it when the stream key does not end in `:stream`.

    Cost: O(log N) per tag, and O(S) for a job of size S.
    """
    return Call(
        "oq1_endMove",
        (
            keys.stream,
            keys.scheduled,
            keys.failed,
            keys.priority,
            keys.lifo,
            keys.events,
            keys.metrics_failed,
            keys.tracked,
            keys.moving,
        ),
        (
            job_id,
            token,
            int(arrived),
            digest,
            now_ms,
        ),
        is_function=True,
    )


def exchange(
    keys: QueueKeys,
    *,
    settlements: Sequence[Settled] = (),
    hand_backs: Sequence[HandBack] = (),
    deliveries: Sequence[Delivered] = (),
    now_ms: int,
    group: str,
    consumer: str,
    want: int,
    honor_pause: bool,
    cluster: bool,
    dead_letter: str,
    skip_events: bool,
    skip_metrics: bool,
) -> Call:
    """Serve one exchange of a worker: settle jobs that ended, return or start delivered ones, take more.

    Args:
        keys: The queue, for its `stream`, `completed`, `failed`, `scheduled`, `events`, `metrics_completed`,
            `metrics_failed`, `priority`, `lifo`, `list_active`, `ratelimited`, `meta`.
        settlements: Each an attempt that ended.
        hand_backs: Each a delivered job to return to the end of the stream, unstarted.
        deliveries: Each a delivered job to start.
        now_ms: Epoch ms.
        group: Consumer group.
        consumer: Who takes jobs.
        want: Jobs to start beyond the delivered ones; delayed and prioritized ones that are due too.
        honor_pause: Start nothing while the queue is paused; deliveries go back.
        cluster: Keys of other queues may be on other servers: notify their jobs by notices.
        dead_letter: Queue to which a letter goes about each job that fails for good; empty for none.
        skip_events: Emit no `completed` event, nor a `failed` one of a job that costs too much.
        skip_metrics: Count no completions.

    Returns:
        The call. Its reply (array): 1: a letter per settlement, `c` completed, `r` to be retried, `f` failed, `d`
        delayed, `w` waits for its children, `a` ready again, all its children having completed, `s` suspended, `g`
        parked with its group, `l` lease lost and nothing changed; 2: job id, entry id (empty from a list), [field,
        value, ...] per started job; 3: queue, dependent, member, outcome per job that waits for one that ended, to be
        told there through `oq1_propagate`; 4: why no more jobs were taken: `enough` (there may be more), `empty`,
        `full` (global concurrency), `paused`, or empty text when no more were wanted, though `enough` where jobs wait
        in shares; 5: the dead letters that this call could not add, `[queue, id, name, data]` in JSON each, which the
        caller adds and then takes out of the sorted set `outbox`; 6: failed jobs whose dependents remain to be told
        through `oq1_propagate`.

    The server refuses it when the stream key does not end in `:stream`; or when a kind, an entry id, a retention mode
    or a job's destination is unknown.

    Cost: O(log N) per job, and O(1) per removed, notified or skipped job; it inspects at most 3 * want + 10 jobs, and
    changes at most 100 that wait for jobs that failed.
    """
    return Call(
        "oq1_exchange",
        (
            keys.stream,
            keys.completed,
            keys.failed,
            keys.scheduled,
            keys.events,
            keys.metrics_completed,
            keys.metrics_failed,
            keys.priority,
            keys.lifo,
            keys.list_active,
            keys.ratelimited,
            keys.meta,
        ),
        (
            now_ms,
            group,
            consumer,
            want,
            int(honor_pause),
            int(cluster),
            dead_letter,
            int(skip_events),
            int(skip_metrics),
            len(settlements),
            len(hand_backs),
            len(deliveries),
            *[
                word
                for item in settlements
                for word in (
                    item.kind,
                    item.job_id,
                    item.entry_id,
                    item.taken_ms,
                    item.stalled_count,
                    item.payload,
                    item.wait_ms,
                    item.max_attempts,
                    int(item.extend),
                    item.remove_mode,
                    item.remove_count,
                    item.remove_age_s,
                )
            ],
            *[word for item in hand_backs for word in (item.job_id, item.entry_id)],
            *[word for item in deliveries for word in (item.job_id, item.entry_id)],
        ),
        is_function=True,
    )


def fire(
    keys: QueueKeys,
    *,
    lock_key: str,
    jobs: Sequence[NewJob] = (),
    runs: Sequence[RunOrigin] = (),
    updates: Sequence[EntryUpdate] = (),
    misses: Sequence[MissedRun] = (),
    token: str,
    now_ms: int,
    looked_ms: int,
) -> Call:
    """Write what a tick of the schedulers decided, if it still holds their lock: jobs, changed and removed entries.

    Args:
        keys: The queue, for its `schedulers`, `schedulers_due`, `schedulers_looked`, `id`, `stream`, `scheduled`,
            `failed`, `events`.
        lock_key: String; the schedulers' lock.
        jobs: Each a job to create.
        runs: Each what the job in the same place is made for.
        updates: Each an entry to store.
        misses: Each a run that is left out.
        token: What the holder wrote into the lock.
        now_ms: Epoch ms.
        looked_ms: All entries were evaluated, and the next full evaluation is due after this time; 0 if not.

    Returns:
        The call. Its reply (texts): per job what `glidemq_addJob` replies, or `held`; or the one text `lost` when
        another holds the lock, and nothing was written.

    The server refuses it when the id key does not end in `:id`; `OQ_BAD_ARGUMENT` when there is not a run per job.

    Cost: O(log N) per job and entry; O(N) to revoke a waiting job.
    """
    return Call(
        "oq1_fire",
        (
            lock_key,
            keys.schedulers,
            keys.schedulers_due,
            keys.schedulers_looked,
            keys.id,
            keys.stream,
            keys.scheduled,
            keys.failed,
            keys.events,
        ),
        (
            token,
            now_ms,
            looked_ms,
            len(jobs),
            len(runs),
            len(updates),
            len(misses),
            *[
                word
                for item in jobs
                for word in (
                    item.job_name,
                    item.data,
                    item.opts,
                    item.timestamp_ms,
                    item.delay_ms,
                    item.priority,
                    item.parent_id,
                    item.max_attempts,
                    item.ordering_key,
                    item.group_concurrency,
                    item.group_rate_max,
                    item.group_rate_duration_ms,
                    item.tb_capacity,
                    item.tb_refill_rate,
                    item.cost,
                    item.ttl_ms,
                    item.custom_id,
                    int(item.lifo),
                    item.parent_queue,
                    item.scheduler_name,
                )
            ],
            *[word for item in runs for word in (item.name, item.due_ms, item.previous, item.overlap)],
            *[
                word
                for item in updates
                for word in (
                    item.name,
                    item.entry,
                    item.look_ms,
                    item.held_entry,
                    item.held_look_ms,
                )
            ],
            *[word for item in misses for word in (item.name, item.due_ms)],
        ),
        is_function=True,
    )


def follow_events(
    keys: QueueKeys,
    *,
    reader: str,
    after: str,
    lease_ms: int,
) -> Call:
    """Keep the events that a reader has not read, until its lease ends.

    Args:
        keys: The queue, for its `events`.
        reader: Its name; not empty.
        after: The last event that it needs no more, or `$` for the newest.
        lease_ms: How long to keep them unless the reader calls again; at most a week.

    Returns:
        The call. Its reply (text): the event after which it reads.

    The server refuses it when the events key does not end in `:events`; or when the name is empty, the position is no
    event, or the lease is not from 1 ms to a week.

    Cost: O(R) for R readers.
    """
    return Call(
        "oq1_followEvents",
        (keys.events,),
        (
            reader,
            after,
            lease_ms,
        ),
        is_function=True,
    )


def hold_nodes(
    keys: QueueKeys,
    *,
    job_ids: Sequence[str] = (),
) -> Call:
    """Keep jobs of a graph that still wait for others from starting, until `oq1_releaseGraph` names them.

    Args:
        keys: The queue, for its `stream`.
        job_ids: Jobs; one that has no dependencies left, has run or has ended is not held.

    Returns:
        The call. Its reply (texts): those that are held now.

    The server refuses it when the stream key does not end in `:stream`.

    Cost: O(1) per job, about 3 us.
    """
    return Call(
        "oq1_holdNodes",
        (keys.stream,),
        (
            len(job_ids),
            *job_ids,
        ),
        is_function=True,
    )


def land_job(
    keys: QueueKeys,
    *,
    job_id: str,
    token: str,
    kept: bool,
    now_ms: int,
) -> Call:
    """Place a job that is held at the end of a move, or remove it. Repeating it changes nothing more.

    Args:
        keys: The queue, for its `stream`, `scheduled`, `failed`, `priority`, `lifo`, `events`, `metrics_failed`,
            `tracked`, `moving`.
        job_id: The job.
        token: Names the move.
        kept: Its source has dropped it; else it was removed there, and is here.
        now_ms: Epoch ms.

    Returns:
        The call. Its reply (int): 1, or 0 when it is not held for that move.

    The server refuses it when the stream key does not end in `:stream`.

    Cost: O(log N) per tag.
    """
    return Call(
        "oq1_landJob",
        (
            keys.stream,
            keys.scheduled,
            keys.failed,
            keys.priority,
            keys.lifo,
            keys.events,
            keys.metrics_failed,
            keys.tracked,
            keys.moving,
        ),
        (
            job_id,
            token,
            int(kept),
            now_ms,
        ),
        is_function=True,
    )


def mend_group(
    keys: QueueKeys,
    *,
    name: str,
    seen_active: int,
    seen_next_seq: int,
    active: int,
    next_seq: int,
    now_ms: int,
) -> Call:
    """Correct the counts of a group of ordered jobs, if they are unchanged, and release its parked jobs.

    Args:
        keys: The queue, for its `stream`, `ratelimited`, `events`, `failed`, `metrics_failed`.
        name: The group.
        seen_active: Jobs of it that it counted as active when the caller read it.
        seen_next_seq: Whose turn it said it was.
        active: Jobs that were active in truth.
        next_seq: Whose turn it was in truth.
        now_ms: Epoch ms.

    Returns:
        The call. Its reply (int): jobs that are ready now; -1 when the group has changed since.

    The server refuses it when the stream key does not end in `:stream`.

    Cost: O(log N) per job that becomes ready, at most 1,000.
    """
    return Call(
        "oq1_mendGroup",
        (
            keys.stream,
            keys.ratelimited,
            keys.events,
            keys.failed,
            keys.metrics_failed,
        ),
        (
            name,
            seen_active,
            seen_next_seq,
            active,
            next_seq,
            now_ms,
        ),
        is_function=True,
    )


def move_in(
    keys: QueueKeys,
    *,
    fields: Sequence[MovedField] = (),
    lines: Sequence[MovedLine] = (),
    signals: Sequence[MovedSignal] = (),
    parents: Sequence[MovedParent] = (),
    job_id: str,
    token: str,
    source: str,
    now_ms: int,
    state: str,
    due_ms: int,
    delay: str,
    reads: int,
    deps: Sequence[str] = (),
) -> Call:
    """Hold the job of a move, unless another job has its id. Repeated within a week, it returns the first reply.

    Args:
        keys: The queue, for its `id`, `moving`.
        fields: Each a field of its record.
        lines: Each a line of its log.
        signals: Each a signal that it received.
        parents: Each a job that waits for it.
        job_id: The job.
        token: Names the move.
        source: The queue that it comes from.
        now_ms: Epoch ms.
        state: Its state there: `waiting`, `delayed`, `prioritized` or `failed`.
        due_ms: Epoch ms at which it is due, or failed.
        delay: Milliseconds until it is due; empty for the state that it had.
        reads: The number of the reading that this is from; an older one changes nothing.
        deps: Members of the jobs that it waited for.

    Returns:
        The call. Its reply (text): `ok`, or `taken` when another job has its id.

    The server refuses it when the id key does not end in `:id`; `OQ_BAD_ARGUMENT` for another state or a malformed
    delay.

    Cost: O(S) for a job of size S.
    """
    return Call(
        "oq1_moveIn",
        (
            keys.id,
            keys.moving,
        ),
        (
            job_id,
            token,
            source,
            now_ms,
            state,
            due_ms,
            delay,
            reads,
            len(fields),
            len(lines),
            len(signals),
            len(parents),
            len(deps),
            *[word for item in fields for word in (item.name, item.value)],
            *[item.line for item in lines],
            *[item.signal for item in signals],
            *[item.member for item in parents],
            *deps,
        ),
        is_function=True,
    )


def move_out(
    keys: QueueKeys,
    *,
    job_id: str,
    now_ms: int,
    target: str,
    token: str,
    delay: str,
    group: str,
) -> Call:
    """Take a job that is not active out of its state, and hold it until another queue has it.

    Args:
        keys: The queue, for its `stream`, `scheduled`, `failed`, `priority`, `lifo`, `moving`.
        job_id: The job.
        now_ms: Epoch ms.
        target: The other queue's name.
        token: Names the move; of a job on the move the first one counts.
        delay: Milliseconds from its arrival until it is due; empty to keep its state.
        group: Consumer group of its entry.

    Returns:
        The call. Its reply (array): 1: `ok`, or why not: `not_found`, `moving`, `state`, `in_flow`, `ordered`,
        `no_delay` or `not_found_there`; 2: the token, or what that is about; with `ok` 3: its state; 4: its time; 5:
        the delay; 6: name, value per field; 7: log lines; 8: signals; 9: who waits for it; 10: what it waited for; 11:
        the digest of 6 to 10; 12: the number of this reading.

    The server refuses it when the stream key does not end in `:stream`; `OQ_BAD_ARGUMENT` for a malformed target or
    delay.

    Cost: O(log N + S) for a job of size S.
    """
    return Call(
        "oq1_moveOut",
        (
            keys.stream,
            keys.scheduled,
            keys.failed,
            keys.priority,
            keys.lifo,
            keys.moving,
        ),
        (
            job_id,
            now_ms,
            target,
            token,
            delay,
            group,
        ),
        is_function=True,
    )


def note_attempts(
    keys: QueueKeys,
    *,
    attempts: Sequence[AttemptNote] = (),
    worker: str,
    host: str,
    now_ms: int,
) -> Call:
    """Record details of failed attempts, as `oq1_noteFailures` does, and add them and completed attempts of tracked
    jobs to the histories of their jobs. Sent before the exchange that settles them.

    Args:
        keys: The queue, for its `stream`.
        attempts: Each an attempt that ended.
        worker: The worker's name.
        host: Its machine.
        now_ms: Epoch ms.

    Returns:
        The call. Its reply (int): how many were noted: an attempt whose lease is lost is not.

    The server refuses it when the stream key does not end in `:stream`.

    Cost: O(1) per attempt: the last 20 entries of a job are kept, in at most 32 KiB.
    """
    return Call(
        "oq1_noteAttempts",
        (keys.stream,),
        (
            worker,
            host,
            now_ms,
            len(attempts),
            *[
                word
                for item in attempts
                for word in (
                    item.job_id,
                    item.taken_ms,
                    item.stalled_count,
                    item.kind,
                    item.error,
                    item.reason,
                    item.traceback,
                )
            ],
        ),
        is_function=True,
    )


def note_failures(
    keys: QueueKeys,
    *,
    failures: Sequence[FailureNote] = (),
) -> Call:
    """Record details of failed attempts that their settlement does not carry. Sent before the exchange that settles
    them.

    Args:
        keys: The queue, for its `stream`.
        failures: Each an attempt that failed.

    Returns:
        The call. Its reply (int): how many were noted: an attempt whose lease is lost is not.

    The server refuses it when the stream key does not end in `:stream`.

    Cost: O(1) per failure.
    """
    return Call(
        "oq1_noteFailures",
        (keys.stream,),
        (
            len(failures),
            *[
                word
                for item in failures
                for word in (
                    item.job_id,
                    item.taken_ms,
                    item.stalled_count,
                    item.kind,
                    item.traceback,
                )
            ],
        ),
        is_function=True,
    )


def propagate(
    keys: QueueKeys,
    *,
    news: Sequence[ForeignOutcome] = (),
    now_ms: int,
    limit: int,
    job_ids: Sequence[str] = (),
) -> Call:
    """Notify dependents of the outcomes of ended jobs, and run or end each as its trigger rule says.

    Args:
        keys: The queue, for its `stream`, `failed`, `events`, `metrics_failed`, `ratelimited`.
        news: Each an ended job of another queue, and its dependent here.
        now_ms: Epoch ms.
        limit: At least 1; how many jobs that wait to change, those named by `news` not counted.
        job_ids: Jobs that ended; one that is gone, or has another attempt, is passed over.

    Returns:
        The call. Its reply (array): 1: job id, verdict per decided job, `run`, `upstream_failed` or `skipped`; 2:
        queue, dependent, member, outcome per job that waits in another queue, to be told there as `news`; 3: jobs to
        call again with until there are none.

    The server refuses it when the stream key does not end in `:stream`; or when the limit is 0, or an outcome none.

    Cost: O(1) per job that waits for an ended one; for one that some let down and others did not, once O(what it waits
    for).
    """
    return Call(
        "oq1_propagate",
        (
            keys.stream,
            keys.failed,
            keys.events,
            keys.metrics_failed,
            keys.ratelimited,
        ),
        (
            now_ms,
            limit,
            len(news),
            len(job_ids),
            *[word for item in news for word in (item.dependent, item.member, item.outcome)],
            *job_ids,
        ),
        is_function=True,
    )


def put_back(
    keys: QueueKeys,
    *,
    job_id: str,
    now_ms: int,
    limit: int,
) -> Call:
    """Put back a job whose state is ready or delayed, but which is in no structure, where no worker would find it.

    Args:
        keys: The queue, for its `stream`, `scheduled`, `priority`, `lifo`, `list_active`.
        job_id: The job.
        now_ms: Epoch ms.
        limit: Most entries of the stream, or of a list, that may be looked through.

    Returns:
        The call. Its reply (text): `put_back`; or why not: `not_found`, `elsewhere` (it says so itself), `listed`,
        `held` (a worker of another kind may have it) or `too_many`.

    The server refuses it when the stream key does not end in `:stream`.

    Cost: O(limit).
    """
    return Call(
        "oq1_putBack",
        (
            keys.stream,
            keys.scheduled,
            keys.priority,
            keys.lifo,
            keys.list_active,
        ),
        (
            job_id,
            now_ms,
            limit,
        ),
        is_function=True,
    )


def put_scheduler(
    keys: QueueKeys,
    *,
    name: str,
    entry: str,
    look_ms: int,
) -> Call:
    """Store or remove the entry of a repeatable job. The scheduler leader evaluates it next.

    Args:
        keys: The queue, for its `schedulers`, `schedulers_due`.
        name: The scheduler.
        entry: Its entry; `drop` to drop it.
        look_ms: When it is due for evaluation, epoch ms.

    Returns:
        The call. Its reply (int): 1, or 0 when there was none to drop.

    The server refuses it when the schedulers key does not end in `:schedulers`.

    Cost: O(log N).
    """
    return Call(
        "oq1_putScheduler",
        (
            keys.schedulers,
            keys.schedulers_due,
        ),
        (
            name,
            entry,
            look_ms,
        ),
        is_function=True,
    )


def read_jobs(
    keys: QueueKeys,
    *,
    fields: Sequence[FieldName] = (),
    most_bytes: int,
    job_ids: Sequence[str] = (),
) -> Call:
    """Read some fields of many jobs.

    Args:
        keys: The queue, for its `stream`.
        fields: Each a field of each job's hash.
        most_bytes: Bytes of values after which the remaining jobs are left to another call.
        job_ids: Jobs.

    Returns:
        The call. Its reply (array): per job the values of its fields, one job after the other; nil for what it has not,
        and for all of one that is gone.

    The server refuses it when the stream key does not end in `:stream`; `OQ_BAD_ARGUMENT` for no field.

    Cost: O(F) per job for F fields, about 8 us for 16.
    """
    return Call(
        "oq1_readJobs",
        (keys.stream,),
        (
            most_bytes,
            len(fields),
            len(job_ids),
            *[item.name for item in fields],
            *job_ids,
        ),
        is_function=True,
        only_reads=True,
    )


def reclaim(
    keys: QueueKeys,
    *,
    now_ms: int,
    group: str,
    consumer: str,
    limit: int,
    min_idle_ms: int,
    max_stalled_count: int,
    lock_duration_ms: int,
    dead_letter: str,
    cluster: bool,
) -> Call:
    """Take over stalled jobs, which become ready, or fail if they stalled too often; and fail suspended jobs whose
    timeout has expired. Dead letters that were not added are returned again.

    Args:
        keys: The queue, for its `stream`, `failed`, `events`, `metrics_failed`, `priority`, `lifo`, `list_active`,
            `ratelimited`, `suspended`.
        now_ms: Epoch ms.
        group: Consumer group.
        consumer: Who looks.
        limit: At least 1; how many idle entries to inspect, and how many list jobs to take back.
        min_idle_ms: Entries idle for less are left alone.
        max_stalled_count: Stalls forgiven per job.
        lock_duration_ms: Silence forgiven when the job names none; 0 means min_idle_ms.
        dead_letter: Queue to which a letter goes about each job that fails; empty for none.
        cluster: Keys of other queues may be on other servers: leave letters, and jobs there that wait, to the caller.

    Returns:
        The call. Its reply (array): 1: how many jobs are ready again; 2: ids of those that failed, without expired
        ones; 3: 1 if there may be more, else 0; 4: the dead letters that this call could not add, and some of those
        kept for longer than `min_idle_ms`, as `oq1_exchange` returns them; 5: queue, dependent, member, outcome per job
        that waits for one that failed or expired, to be told there through `oq1_propagate`; 6: such jobs whose
        dependents remain to be told through `oq1_propagate`; 7: how many suspended jobs failed, at most 100.

    The server refuses it when the stream key does not end in `:stream`; or when the limit is 0, or the dead letter
    queue none.

    Cost: O(log N) per entry, at most `limit`; O(A) for A active list jobs; a scan of the keys when another library
    activated some.
    """
    return Call(
        "oq1_reclaim",
        (
            keys.stream,
            keys.failed,
            keys.events,
            keys.metrics_failed,
            keys.priority,
            keys.lifo,
            keys.list_active,
            keys.ratelimited,
            keys.suspended,
        ),
        (
            now_ms,
            group,
            consumer,
            limit,
            min_idle_ms,
            max_stalled_count,
            lock_duration_ms,
            dead_letter,
            int(cluster),
        ),
        is_function=True,
    )


def release_graph(
    keys: QueueKeys,
    *,
    now_ms: int,
    limit: int,
    job_ids: Sequence[str] = (),
) -> Call:
    """Release held jobs of a graph: start those without other dependencies, and decide the others by their rules.

    Args:
        keys: The queue, for its `stream`, `scheduled`, `failed`, `events`, `metrics_failed`, `ratelimited`.
        now_ms: Epoch ms.
        limit: At least 1; how many jobs that wait may change beyond those named.
        job_ids: Held jobs; one that is gone, or is not held, is passed over.

    Returns:
        The call. Its reply (array): 1: job id, verdict per decided job, `run`, `upstream_failed` or `skipped`; 2:
        queue, dependent, member, outcome per job that waits in another queue, to be told there through `oq1_propagate`;
        3: jobs to call `oq1_propagate` with until there are none.

    The server refuses it when the stream key does not end in `:stream`; or when the limit is 0.

    Cost: O(log N) per job, about 15 us; and as of `oq1_propagate` where one must not run.
    """
    return Call(
        "oq1_releaseGraph",
        (
            keys.stream,
            keys.scheduled,
            keys.failed,
            keys.events,
            keys.metrics_failed,
            keys.ratelimited,
        ),
        (
            now_ms,
            limit,
            len(job_ids),
            *job_ids,
        ),
        is_function=True,
    )


def release_job(
    keys: QueueKeys,
    *,
    job_id: str,
    now_ms: int,
    group: str,
) -> Call:
    """Take an active job from its worker and make it ready again, without counting an attempt.

    Args:
        keys: The queue, for its `stream`, `events`, `priority`, `lifo`, `list_active`, `ratelimited`.
        job_id: The job.
        now_ms: Epoch ms.
        group: Consumer group of its entry.

    Returns:
        The call. Its reply (text): `ok`, `not_found`, `not_active`, or `not_in_stream` when its entry was not among the
        1,000 oldest, and then nothing was changed.

    The server refuses it when the stream key does not end in `:stream`.

    Cost: O(log N); it reads up to 1,000 entries if the record does not name the job's.
    """
    return Call(
        "oq1_releaseJob",
        (
            keys.stream,
            keys.events,
            keys.priority,
            keys.lifo,
            keys.list_active,
            keys.ratelimited,
        ),
        (
            job_id,
            now_ms,
            group,
        ),
        is_function=True,
    )


def release_pools(
    *,
    slots_key: str,
    claims: Sequence[Claim] = (),
    now_ms: int,
    token: str,
    taken_ms: int,
) -> Call:
    """Release the slots of pools that one attempt of a job holds. Those of a later attempt stay.

    Args:
        slots_key: Hash; how many slots each pool has.
        claims: Each slots of one pool.
        now_ms: Epoch ms.
        token: The job, as in `oq1_acquirePools`.
        taken_ms: Its `processedOn` at that time.

    Returns:
        The call. Its reply (array): tokens of jobs to wake, for which there are slots now.

    The server refuses it when the slots key does not end in `:slots`; `OQ_BAD_ARGUMENT` for no claims, more than 8 or a
    weight below 1.

    Cost: O(H) for H holders of the pools, at most 1,000 each, and O(log N) per waiting job that it visits, at most
    1,000.
    """
    return Call(
        "oq1_releasePools",
        (slots_key,),
        (
            now_ms,
            token,
            taken_ms,
            len(claims),
            *[word for item in claims for word in (item.pool, item.weight)],
        ),
        is_function=True,
    )


def relist(
    keys: QueueKeys,
    *,
    known: Sequence[Known] = (),
    now_ms: int,
    consumer: str,
) -> Call:
    """Put jobs back on their lists that were delivered to a worker in a lost reply.

    Args:
        keys: The queue, for its `stream`, `priority`, `lifo`, `list_active`.
        known: Each a job that it knows of.
        now_ms: Epoch ms.
        consumer: The worker.

    Returns:
        The call. Its reply (int): how many it did not know of.

    The server refuses it when the stream key does not end in `:stream`.

    Cost: O(A) for A active list jobs, and O(log N) per job that goes back.
    """
    return Call(
        "oq1_relist",
        (
            keys.stream,
            keys.priority,
            keys.lifo,
            keys.list_active,
        ),
        (
            now_ms,
            consumer,
            len(known),
            *[item.job_id for item in known],
        ),
        is_function=True,
    )


def remove_job(
    keys: QueueKeys,
    *,
    job_id: str,
    group: str,
) -> Call:
    """Remove a job and all its keys, as `glidemq_removeJob` does, and its entry on the stream.

    Args:
        keys: The queue, for its `stream`, `scheduled`, `completed`, `failed`, `events`.
        job_id: The job.
        group: Consumer group of its entry; empty to leave the entry to the caller.

    Returns:
        The call. Its reply (int): 1, or 0 when it does not exist.

    The server refuses it when the stream key does not end in `:stream`.

    Cost: O(log N).
    """
    return Call(
        "oq1_removeJob",
        (
            keys.stream,
            keys.scheduled,
            keys.completed,
            keys.failed,
            keys.events,
        ),
        (
            job_id,
            group,
        ),
        is_function=True,
    )


def remove_pool(
    *,
    slots_key: str,
    now_ms: int,
    pool: str,
) -> Call:
    """Remove a pool that no job holds or waits for.

    Args:
        slots_key: Hash; how many slots each pool has.
        now_ms: Epoch ms.
        pool: The pool.

    Returns:
        The call. Its reply (text): `removed`, `not_found`, or `in_use`.

    The server refuses it when the slots key does not end in `:slots`.

    Cost: O(H) for H holders, at most 1,000.
    """
    return Call(
        "oq1_removePool",
        (slots_key,),
        (
            now_ms,
            pool,
        ),
        is_function=True,
    )


def remove_unneeded(
    keys: QueueKeys,
    *,
    job_id: str,
    group: str,
) -> Call:
    """Remove a job as `oq1_removeJob` does, unless it has not ended and other jobs wait for it.

    Args:
        keys: The queue, for its `stream`, `scheduled`, `completed`, `failed`, `events`.
        job_id: The job.
        group: Consumer group of its entry.

    Returns:
        The call. Its reply (int): 1, or 0 when it does not exist, or -1 when it was left because others wait for it.

    The server refuses it when the stream key does not end in `:stream`.

    Cost: O(log N); O(D) for D jobs that wait for it.
    """
    return Call(
        "oq1_removeUnneeded",
        (
            keys.stream,
            keys.scheduled,
            keys.completed,
            keys.failed,
            keys.events,
        ),
        (
            job_id,
            group,
        ),
        is_function=True,
    )


def rename_dependency(
    keys: QueueKeys,
    *,
    old: str,
    new: str,
    job_ids: Sequence[str] = (),
) -> Call:
    """Let jobs wait for a moved job under its new name. Repeating it changes nothing more.

    Args:
        keys: The queue, for its `stream`.
        old: The member of the moved job so far.
        new: Its member from now on.
        job_ids: The jobs that wait for it.

    Returns:
        The call. Its reply (int): how many waited for it by its old name.

    The server refuses it when the stream key does not end in `:stream`.

    Cost: O(1) per job.
    """
    return Call(
        "oq1_renameDependency",
        (keys.stream,),
        (
            old,
            new,
            len(job_ids),
            *job_ids,
        ),
        is_function=True,
    )


def renew(
    keys: QueueKeys,
    *,
    leases: Sequence[Held] = (),
    now_ms: int,
) -> Call:
    """Renew the leases of running jobs, each only for its holder.

    Args:
        keys: The queue, for its `stream`.
        leases: Each a lease to renew.
        now_ms: Epoch ms.

    Returns:
        The call. Its reply (ints): per lease 1 renewed, 2 renewed but the job is revoked, 0 lost: the job is gone,
        ended or leased to another worker.

    The server refuses it when the stream key does not end in `:stream`.

    Cost: O(1) per lease.
    """
    return Call(
        "oq1_renew",
        (keys.stream,),
        (
            now_ms,
            len(leases),
            *[word for item in leases for word in (item.job_id, item.taken_ms, item.stalled_count)],
        ),
        is_function=True,
    )


def renew_pools(
    *,
    slots_key: str,
    leases: Sequence[PoolLease] = (),
    now_ms: int,
) -> Call:
    """Renew the leases that running jobs have on slots of pools, and restore those that were lost.

    Args:
        slots_key: Hash; how many slots each pool has.
        leases: Each slots of one pool that an attempt holds.
        now_ms: Epoch ms.

    Returns:
        The call. Its reply (ints): per lease 1 renewed or restored, 0 not: a later attempt holds them, or the pool is
        not defined.

    The server refuses it when the slots key does not end in `:slots`; `OQ_BAD_ARGUMENT` for more than 100 leases, a
    weight below 1 or a lease of 0.

    Cost: O(H) per lease for H holders of its pool, at most 1,000.
    """
    return Call(
        "oq1_renewPools",
        (slots_key,),
        (
            now_ms,
            len(leases),
            *[word for item in leases for word in (item.token, item.taken_ms, item.lease_ms, item.pool, item.weight)],
        ),
        is_function=True,
    )


def replace_scheduler(
    keys: QueueKeys,
    *,
    lock_key: str,
    name: str,
    read: str,
    entry: str,
    look_ms: int,
) -> Call:
    """Store or remove the entry of a repeatable job, if it is still what the caller read and no lock is held.

    Args:
        keys: The queue, for its `schedulers`, `schedulers_due`.
        lock_key: String; the schedulers' lock.
        name: The scheduler.
        read: Its entry as it was read; empty when there was none.
        entry: Its new entry; `drop` to drop it.
        look_ms: When it is due for evaluation, epoch ms.

    Returns:
        The call. Its reply (text): `ok`, or, with nothing written, `locked` or `changed`.

    The server refuses it when the schedulers key does not end in `:schedulers`.

    Cost: O(log N).
    """
    return Call(
        "oq1_replaceScheduler",
        (
            lock_key,
            keys.schedulers,
            keys.schedulers_due,
        ),
        (
            name,
            read,
            entry,
            look_ms,
        ),
        is_function=True,
    )


def report_progress(
    keys: QueueKeys,
    *,
    job_id: str,
    progress: str,
) -> Call:
    """Store how far a job is, and emit it as an event.

    Args:
        keys: The queue, for its `events`.
        job_id: The job.
        progress: How far it is.

    Returns:
        The call. Its reply (int): 1.

    The server refuses it when the events key does not end in `:events`.

    Cost: O(1).
    """
    return Call(
        "oq1_reportProgress",
        (keys.events,),
        (
            job_id,
            progress,
        ),
        is_function=True,
    )


def report_usage(
    keys: QueueKeys,
    *,
    fields: Sequence[UsageField] = (),
    job_id: str,
    minute_ms: int,
    told: str,
) -> Call:
    """Store what a job used, replacing an earlier report, and count it in this minute instead of the earlier one.

    Args:
        keys: The queue, for its `events`.
        fields: Each a part of the report.
        job_id: The job.
        minute_ms: When this minute began, epoch ms.
        told: The report as listeners get it.

    Returns:
        The call. Its reply (text): `ok`; `missing` when there is no such job, or `locked` while another client is half-
        way through a report, and then nothing was written.

    The server refuses it when the events key does not end in `:events`; or when a field has another name.

    Cost: O(C) for C categories.
    """
    return Call(
        "oq1_reportUsage",
        (keys.events,),
        (
            job_id,
            minute_ms,
            told,
            len(fields),
            *[word for item in fields for word in (item.name, item.value)],
        ),
        is_function=True,
    )


def retag(
    *,
    job_key: str,
    added: Sequence[TagAdded] = (),
    removed: Sequence[TagRemoved] = (),
    job_id: str,
    now_ms: int,
) -> Call:
    """Add and remove tags of a job.

    Args:
        job_key: Hash; the job; must end in `job:` and its id.
        added: Each a tag to add.
        removed: Each a tag to take off.
        job_id: The job.
        now_ms: Epoch ms.

    Returns:
        The call. Its reply (text): `ok`, `not_found`, or `too_many` when it would have more than 20, and then nothing
        was changed.

    The server refuses it when the job key does not end in `job:` and the id.

    Cost: O(log N) per tag.
    """
    return Call(
        "oq1_retag",
        (job_key,),
        (
            job_id,
            now_ms,
            len(added),
            len(removed),
            *[item.name for item in added],
            *[item.name for item in removed],
        ),
        is_function=True,
    )


def retry_job(
    keys: QueueKeys,
    *,
    job_key: str,
    job_id: str,
    now_ms: int,
) -> Call:
    """Retry one failed job, due immediately and with all attempts.

    Args:
        keys: The queue, for its `failed`, `scheduled`.
        job_key: Hash; the job; must end in `job:` and its id.
        job_id: The job.
        now_ms: Epoch ms.

    Returns:
        The call. Its reply (text): `ok`, `not_found` or `not_failed`.

    The server refuses it when the job key does not end in `job:` and the id.

    Cost: O(log N).
    """
    return Call(
        "oq1_retryJob",
        (
            job_key,
            keys.failed,
            keys.scheduled,
        ),
        (
            job_id,
            now_ms,
        ),
        is_function=True,
    )


def retry_nodes(
    keys: QueueKeys,
    *,
    news: Sequence[Revived] = (),
    now_ms: int,
    held: bool,
    job_ids: Sequence[str] = (),
) -> Call:
    """Retry failed jobs of a graph: they become ready, or wait for others that are retried, too.

    Args:
        keys: The queue, for its `stream`, `scheduled`, `failed`, `events`, `metrics_failed`, `ratelimited`.
        news: Each a job of another queue that runs again, and its dependent here.
        now_ms: Epoch ms.
        held: Nothing starts before `oq1_releaseGraph` names it.
        job_ids: Jobs; one that has not failed is passed over.

    Returns:
        The call. Its reply (array): 1: those that failed and have not now; 2: queue, dependent, member per job of
        another queue that waits for one of these, to be told there as `news`; 3: queue, dependent, member, outcome per
        job to be told through `oq1_propagate`; 4: jobs whose dependents remain to be told through `oq1_propagate`.

    The server refuses it when the stream key does not end in `:stream`.

    Cost: O(log N) per job, O(1) per edge to or from it: about 30 us and 10 us, so 100 take some 3 ms.
    """
    return Call(
        "oq1_retryNodes",
        (
            keys.stream,
            keys.scheduled,
            keys.failed,
            keys.events,
            keys.metrics_failed,
            keys.ratelimited,
        ),
        (
            now_ms,
            int(held),
            len(news),
            len(job_ids),
            *[word for item in news for word in (item.dependent, item.member)],
            *job_ids,
        ),
        is_function=True,
    )


def revoke(
    keys: QueueKeys,
    *,
    job_id: str,
    now_ms: int,
    group: str,
) -> Call:
    """Cancel a job as `glidemq_revoke` does, and decide its dependents if it will never run.

    Args:
        keys: The queue, for its `stream`, `scheduled`, `failed`, `events`, `metrics_failed`, `ratelimited`.
        job_id: The job.
        now_ms: Epoch ms.
        group: Consumer group of its entry.

    Returns:
        The call. Its reply (text): `revoked`, `flagged` or `not_found`.

    The server refuses it when the stream key does not end in `:stream`.

    Cost: O(log N); it changes at most 100 jobs that wait.
    """
    return Call(
        "oq1_revoke",
        (
            keys.stream,
            keys.scheduled,
            keys.failed,
            keys.events,
            keys.metrics_failed,
            keys.ratelimited,
        ),
        (
            job_id,
            now_ms,
            group,
        ),
        is_function=True,
    )


def set_pool(
    *,
    slots_key: str,
    now_ms: int,
    pool: str,
    count: int,
) -> Call:
    """Define a pool, or change how many slots it has. Jobs that hold slots beyond the new number keep them until they
    end.

    Args:
        slots_key: Hash; how many slots each pool has.
        now_ms: Epoch ms.
        pool: The pool.
        count: How many slots, 0 to 1,000; 0 starts no more jobs.

    Returns:
        The call. Its reply (array): tokens of jobs to wake, for which there are slots now.

    The server refuses it when the slots key does not end in `:slots`; `OQ_BAD_ARGUMENT` for an empty name, one with
    `{`, `}` or `:`, or more than 1,000 slots.

    Cost: as `oq1_releasePools`.
    """
    return Call(
        "oq1_setPool",
        (slots_key,),
        (
            now_ms,
            pool,
            count,
        ),
        is_function=True,
    )


def skip_waiters(
    *,
    slots_key: str,
    waiters: Sequence[Skipped] = (),
    now_ms: int,
) -> Call:
    """Record that jobs woken for slots of pools don't take them now, so that jobs behind them can.

    Args:
        slots_key: Hash; how many slots each pool has.
        waiters: Each a job that waits for slots.
        now_ms: Epoch ms.

    Returns:
        The call. Its reply (array): tokens of jobs to wake, for which there are slots now.

    The server refuses it when the slots key does not end in `:slots`; `OQ_BAD_ARGUMENT` for more than 100 waiters.

    Cost: O(log N) per job, and as `oq1_releasePools`.
    """
    return Call(
        "oq1_skipWaiters",
        (slots_key,),
        (
            now_ms,
            len(waiters),
            *[word for item in waiters for word in (item.token, int(item.gone))],
        ),
        is_function=True,
    )


def start_parked(
    keys: QueueKeys,
    *,
    jobs: Sequence[Parked] = (),
) -> Call:
    """Make jobs ready that wait for slots of pools, before all jobs of the same priority that came later.

    Args:
        keys: The queue, for its `stream`, `scheduled`, `events`, `priority`.
        jobs: Each a job that waits for slots.

    Returns:
        The call. Its reply (text): a letter per job: `r` ready, `g` gone or ended, `a` still active, so that it has to
        be asked again soon, `l` it starts later, as the queue is paused or the job waits for something else.

    The server refuses it when the stream key does not end in `:stream`; `OQ_BAD_ARGUMENT` for more than 100 jobs.

    Cost: O(log N) per job.
    """
    return Call(
        "oq1_startParked",
        (
            keys.stream,
            keys.scheduled,
            keys.events,
            keys.priority,
        ),
        (
            len(jobs),
            *[item.job_id for item in jobs],
        ),
        is_function=True,
    )


def submit_graph(
    keys: QueueKeys,
    *,
    flow_key: str,
    nodes: Sequence[NewJob] = (),
    edges: Sequence[GraphEdge] = (),
    foreign: Sequence[ForeignDependency] = (),
    outside: Sequence[ForeignDependent] = (),
    rules: Sequence[NodeRule] = (),
    now_ms: int,
    held: bool,
    flow_id: str,
    record: str,
) -> Call:
    """Submit a graph of one queue, or a part of one: jobs, and which of them wait for which others, all or nothing.

    Args:
        keys: The queue, for its `id`, `stream`, `scheduled`, `failed`, `events`, `metrics_failed`, `ratelimited`,
            `flows`.
        flow_key: Hash; the flow's record.
        nodes: Each a job of the graph, with a custom id and without a parent; it comes before those it waits for.
        edges: Each one job waits for another.
        foreign: Each one job waits for another that is not in this call.
        outside: Each a job that is not in this call waits for one of these.
        rules: Each a job that does not wait for the success of all.
        now_ms: Epoch ms.
        held: Nothing starts before `oq1_releaseGraph` names it.
        flow_id: What the jobs belong to; empty for none.
        record: What the flow's record says of its plan; empty to write no record.

    Returns:
        The call. Its reply (array): 1: per node its id, or `duplicate` if it existed, and only its dependents were
        notified; 2: queue, dependent, member, outcome per job of another queue that waits for one that has ended, to be
        told there through `oq1_propagate`; 3: ended jobs whose dependents remain to be told through `oq1_propagate`.

    The server refuses it when the id key does not end in `:id`; or when a node has no custom id, a parent, or another's
    id; or when an edge does not lead to a later node, or what is outside has no sensible name, or a rule is unknown;
    `OQ_TOO_EXPENSIVE` when a node costs more than its token bucket holds.

    Cost: O(log N) per node, O(1) per edge: about 25 us a node and 3 us an edge, so 100 nodes take some 3 ms.
    """
    return Call(
        "oq1_submitGraph",
        (
            keys.id,
            keys.stream,
            keys.scheduled,
            keys.failed,
            keys.events,
            keys.metrics_failed,
            keys.ratelimited,
            flow_key,
            keys.flows,
        ),
        (
            now_ms,
            int(held),
            flow_id,
            record,
            len(nodes),
            len(edges),
            len(foreign),
            len(outside),
            len(rules),
            *[
                word
                for item in nodes
                for word in (
                    item.job_name,
                    item.data,
                    item.opts,
                    item.timestamp_ms,
                    item.delay_ms,
                    item.priority,
                    item.parent_id,
                    item.max_attempts,
                    item.ordering_key,
                    item.group_concurrency,
                    item.group_rate_max,
                    item.group_rate_duration_ms,
                    item.tb_capacity,
                    item.tb_refill_rate,
                    item.cost,
                    item.ttl_ms,
                    item.custom_id,
                    int(item.lifo),
                    item.parent_queue,
                    item.scheduler_name,
                )
            ],
            *[word for item in edges for word in (item.dependent, item.dependency, int(item.weak))],
            *[word for item in foreign for word in (item.dependent, item.member, int(item.weak))],
            *[word for item in outside for word in (item.dependency, item.queue_name, item.job_id)],
            *[word for item in rules for word in (item.place, item.rule)],
        ),
        is_function=True,
    )


def tagged(
    keys: QueueKeys,
    *,
    tag: str,
    offset: int,
    limit: int,
) -> Call:
    """List jobs of a tag, oldest first, and remove from its index those that no longer exist.

    Args:
        keys: The queue, for its `stream`.
        tag: The tag.
        offset: How many jobs to skip.
        limit: Most jobs to list, at most 1,000.

    Returns:
        The call. Its reply (array): 1: ids of jobs; 2: 1 when there may be more, else 0.

    The server refuses it when the stream key does not end in `:stream`; `OQ_BAD_ARGUMENT` for a limit of 0 or above
    1,000.

    Cost: O(log N) per job, of which it checks at most 1,500.
    """
    return Call(
        "oq1_tagged",
        (keys.stream,),
        (
            tag,
            offset,
            limit,
        ),
        is_function=True,
    )


def tick(
    keys: QueueKeys,
    *,
    now_ms: int,
    heal: bool,
) -> Call:
    """Promote due jobs of a queue, and return what its workers read periodically.

    Args:
        keys: The queue, for its `scheduled`, `stream`, `events`, `ratelimited`, `meta`, `schedulers`, `schedulers_due`,
            `schedulers_looked`.
        now_ms: Epoch ms.
        heal: Also correct the count of active list jobs.

    Returns:
        The call. Its reply (ints): jobs made ready, epoch ms of the next one due or -1, repeatable jobs, 1 if paused,
        rate limit or 0, its window in ms, the server's own time in epoch ms, epoch ms at which repeatable jobs are due
        for evaluation or -1.

    The server refuses it when the scheduled key does not end in `:scheduled`.

    Cost: O(log N) per job made ready and per priority in use; at most 100 jobs and 100 groups; what remains due is the
    next one due.
    """
    return Call(
        "oq1_tick",
        (
            keys.scheduled,
            keys.stream,
            keys.events,
            keys.ratelimited,
            keys.meta,
            keys.schedulers,
            keys.schedulers_due,
            keys.schedulers_looked,
        ),
        (
            now_ms,
            int(heal),
        ),
        is_function=True,
    )


def track(
    keys: QueueKeys,
    *,
    job_id: str,
    now_ms: int,
    is_tracked: bool,
    limit: int,
) -> Call:
    """Track a job, which retention then keeps, or stop tracking it.

    Args:
        keys: The queue, for its `id`, `tracked`, `completed`, `failed`.
        job_id: The job.
        now_ms: Epoch ms.
        is_tracked: Track it; else track it no more.
        limit: At least 1; most tracked jobs of the queue, at most 1,000.

    Returns:
        The call. Its reply (text): `ok`; `not_found`; or `too_many` when as many are tracked, and then nothing was
        changed.

    The server refuses it when the id key does not end in `:id`; or when the limit is 0 or above 1,000.

    Cost: O(log N); O(T) for T tracked jobs when there are as many as the limit.
    """
    return Call(
        "oq1_track",
        (
            keys.id,
            keys.tracked,
            keys.completed,
            keys.failed,
        ),
        (
            job_id,
            now_ms,
            int(is_tracked),
            limit,
        ),
        is_function=True,
    )


def update_data(
    *,
    job_key: str,
    data: str,
) -> Call:
    """Replace the payload of an existing job; a running attempt keeps its own.

    Args:
        job_key: Hash; the job.
        data: Its new payload, as the serializer wrote it.

    Returns:
        The call. Its reply (int): 1; or 0 when there is no such job.

    Cost: O(1).
    """
    return Call(
        "oq1_updateData",
        (job_key,),
        (data,),
        is_function=True,
    )


def version() -> Call:
    """Return the revision of this library. The major version is in its name.

    Returns:
        The call. Its reply (text): the number of its text, which grows with every change.

    Cost: O(1).
    """
    return Call(
        "oq1_version",
        (),
        (),
        is_function=True,
    )


def wake(
    keys: QueueKeys,
) -> Call:
    """Wake all workers of a queue, because it was resumed, or something else changed that concerns each of them.

    Args:
        keys: The queue, for its `stream`.

    Returns:
        The call. Its reply (int): 1.

    The server refuses it when the stream key does not end in `:stream`.

    Cost: O(1).
    """
    return Call(
        "oq1_wake",
        (keys.stream,),
        (),
        is_function=True,
    )


def wake_due(
    keys: QueueKeys,
    *,
    now_ms: int,
) -> Call:
    """Wake one idle worker of a queue, if one is needed for jobs that became due, or ready in a list.

    Args:
        keys: The queue, for its `stream`, `scheduled`, `ratelimited`, `priority`, `lifo`, `watch`, `wake_one`.
        now_ms: Epoch ms.

    Returns:
        The call. Its reply (int): 1 if one was woken; 0 if no list holds a job, and a worker looks when the next one is
        due.

    The server refuses it when the stream key does not end in `:stream`.

    Cost: O(log N) per priority in use.
    """
    return Call(
        "oq1_wakeDue",
        (
            keys.stream,
            keys.scheduled,
            keys.ratelimited,
            keys.priority,
            keys.lifo,
            keys.watch,
            keys.wake_one,
        ),
        (now_ms,),
        is_function=True,
    )


def wake_one(
    keys: QueueKeys,
) -> Call:
    """Wake one idle worker of a queue: a job was added to a list, which no stream entry announces.

    Args:
        keys: The queue, for its `stream`.

    Returns:
        The call. Its reply (int): 1.

    The server refuses it when the stream key does not end in `:stream`.

    Cost: O(1).
    """
    return Call(
        "oq1_wakeOne",
        (keys.stream,),
        (),
        is_function=True,
    )


def watch(
    keys: QueueKeys,
    *,
    now_ms: int,
    consumer: str,
    until_ms: int,
    fires: bool,
) -> Call:
    """Return when a worker must next promote due jobs. Two workers watch for that; the others tick at their usual time.

    Args:
        keys: The queue, for its `stream`, `scheduled`, `ratelimited`, `schedulers`, `schedulers_due`,
            `schedulers_looked`, `watch`, `watch_schedulers`, `wake_one`.
        now_ms: Epoch ms.
        consumer: The worker.
        until_ms: Epoch ms of its usual time; 0 when it leaves.
        fires: It evaluates repeatable jobs.

    Returns:
        The call. Its reply (int): epoch ms at which it must tick; -1 for its usual time.

    The server refuses it when the stream key does not end in `:stream`.

    Cost: O(log N) per priority in use.
    """
    return Call(
        "oq1_watch",
        (
            keys.stream,
            keys.scheduled,
            keys.ratelimited,
            keys.schedulers,
            keys.schedulers_due,
            keys.schedulers_looked,
            keys.watch,
            keys.watch_schedulers,
            keys.wake_one,
        ),
        (
            now_ms,
            consumer,
            until_ms,
            int(fires),
        ),
        is_function=True,
    )
