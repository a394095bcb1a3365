"""The server functions of the library `chasquimq`, a call each.

Generated from the headers in lua/chasquimq/; do not edit. Regenerate with: python tools/bundle_lua.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from orchestration_queue.protocol.call import Call

__all__ = [
    "Replayed",
    "acknowledge",
    "add",
    "bury",
    "cancel",
    "claim",
    "delay",
    "drop_spec",
    "due",
    "finish",
    "fire",
    "promote",
    "put_spec",
    "reject_spec",
    "release",
    "renew",
    "replay",
    "report",
    "retry",
    "version",
]


class Replayed(NamedTuple):
    """A dead letter to run again.

    Attributes:
        entry_id: Its entry in the dead-letter queue.
        envelope: The job, without failed attempts.
        job_name: Its name; may be empty.
    """

    entry_id: str
    envelope: bytes
    job_name: str


def acknowledge(
    *,
    stream_key: str,
    group: str,
    entry_ids: Sequence[str] = (),
) -> Call:
    """Remove completed jobs from the stream.

    Args:
        stream_key: Stream; ready and running jobs.
        group: The consumer group.
        entry_ids: The delivered entries.

    Returns:
        The call. Its reply (int): how many this call took.

    Cost: O(1) per entry.
    """
    return Call(
        "chasquimq_acknowledge",
        (stream_key,),
        (
            group,
            len(entry_ids),
            *entry_ids,
        ),
        is_function=True,
    )


def add(
    *,
    stream_key: str,
    marker_key: str,
    ttl_s: int,
    max_length: int,
    job_name: str,
    envelope: bytes,
) -> Call:
    """Add a ready job, unless its id is taken.

    Args:
        stream_key: Stream; ready and running jobs.
        marker_key: String; marks the job's id as taken.
        ttl_s: How long the id stays taken.
        max_length: About how many jobs the stream may hold.
        job_name: The job's name; may be empty.
        envelope: The job.

    Returns:
        The call. Its reply (int): 1, or 0 when the id is taken.

    Cost: O(1).
    """
    return Call(
        "chasquimq_add",
        (
            stream_key,
            marker_key,
        ),
        (
            ttl_s,
            max_length,
            job_name,
            envelope,
        ),
        is_function=True,
    )


def bury(
    *,
    stream_key: str,
    dead_letters_key: str,
    group: str,
    entry_id: str,
    max_dead: int,
    envelope: bytes,
    job_name: str,
    reason: str,
    detail: str,
) -> Call:
    """Move a job that failed for good to the dead-letter queue.

    Args:
        stream_key: Stream; ready and running jobs.
        dead_letters_key: Stream; the dead-letter queue.
        group: The consumer group.
        entry_id: The delivered entry.
        max_dead: About how many dead letters are kept.
        envelope: The job.
        job_name: Its name; may be empty.
        reason: Why.
        detail: The error; may be empty.

    Returns:
        The call. Its reply (int): 1, or 0 when another worker settled the job.

    Cost: O(1).
    """
    return Call(
        "chasquimq_bury",
        (
            stream_key,
            dead_letters_key,
        ),
        (
            group,
            entry_id,
            max_dead,
            envelope,
            job_name,
            reason,
            detail,
        ),
        is_function=True,
    )


def cancel(
    *,
    delayed_key: str,
    index_key: str,
    marker_key: str,
) -> Call:
    """Remove a delayed job.

    Args:
        delayed_key: Zset; jobs that wait for their time.
        index_key: String; the job's member of `delayed`.
        marker_key: String; marks the job's id as taken.

    Returns:
        The call. Its reply (int): 1, or 0 when it does not wait, or was added without an id.

    Cost: O(log N).
    """
    return Call(
        "chasquimq_cancel",
        (
            delayed_key,
            index_key,
            marker_key,
        ),
        (),
        is_function=True,
    )


def claim(
    *,
    stream_key: str,
    group: str,
    consumer: str,
    idle_ms: int,
    most: int,
) -> Call:
    """Take over jobs whose workers stopped renewing their leases.

    Args:
        stream_key: Stream; ready and running jobs.
        group: The consumer group.
        consumer: The caller.
        idle_ms: How long a lease lasts.
        most: At most this many jobs.

    Returns:
        The call. Its reply (list): per job its entry id, its fields, and how often it had been delivered.

    Cost: O(log N) per job.
    """
    return Call(
        "chasquimq_claim",
        (stream_key,),
        (
            group,
            consumer,
            idle_ms,
            most,
        ),
        is_function=True,
    )


def delay(
    *,
    marker_key: str,
    delayed_key: str,
    index_key: str,
    ttl_s: int,
    run_at_ms: int,
    member: bytes,
) -> Call:
    """Add a delayed job, unless its id is taken.

    Args:
        marker_key: String; marks the job's id as taken.
        delayed_key: Zset; jobs that wait for their time.
        index_key: String; the job's member of `delayed`.
        ttl_s: How long the id stays taken.
        run_at_ms: When it may run, epoch ms.
        member: The job, after its name.

    Returns:
        The call. Its reply (int): 1, or 0 when the id is taken.

    Cost: O(log N).
    """
    return Call(
        "chasquimq_delay",
        (
            marker_key,
            delayed_key,
            index_key,
        ),
        (
            ttl_s,
            run_at_ms,
            member,
        ),
        is_function=True,
    )


def drop_spec(
    *,
    repeats_key: str,
    spec_key: str,
    name: str,
) -> Call:
    """Remove a repeatable job.

    Args:
        repeats_key: Zset; repeatable jobs by their next fire.
        spec_key: Hash; the job's spec, and how often it fired.
        name: Its name among the repeatable jobs.

    Returns:
        The call. Its reply (int): 1, or 0 when there was none.

    Cost: O(log N).
    """
    return Call(
        "chasquimq_dropSpec",
        (
            repeats_key,
            spec_key,
        ),
        (name,),
        is_function=True,
    )


def due(
    *,
    repeats_key: str,
    lock_key: str,
    holder: str,
    ttl_s: int,
    now_ms: int,
    most: int,
) -> Call:
    """List the repeatable jobs that are due, if the caller leads.

    Args:
        repeats_key: Zset; repeatable jobs by their next fire.
        lock_key: String; names the leader.
        holder: The caller.
        ttl_s: How long the caller leads from now on.
        now_ms: Epoch ms.
        most: At most this many.

    Returns:
        The call. Its reply (list): 0 or 1 for leading, the next fire in epoch ms or -1, then per due job its name, fire
        and packed spec.

    Cost: O(most + log N).
    """
    return Call(
        "chasquimq_due",
        (
            repeats_key,
            lock_key,
        ),
        (
            holder,
            ttl_s,
            now_ms,
            most,
        ),
        is_function=True,
    )


def finish(
    *,
    stream_key: str,
    result_key: str,
    group: str,
    entry_id: str,
    ttl_s: int,
    value: bytes,
) -> Call:
    """Remove a completed job from the stream and store its result. A full server keeps no result, but loses no
    completion.

    Args:
        stream_key: Stream; ready and running jobs.
        result_key: String; what the handler returned.
        group: The consumer group.
        entry_id: The delivered entry.
        ttl_s: How long the result is kept.
        value: The result.

    Returns:
        The call. Its reply (int): 1, or 0 when another worker settled the job.

    Cost: O(1).
    """
    return Call(
        "chasquimq_finish",
        (
            stream_key,
            result_key,
        ),
        (
            group,
            entry_id,
            ttl_s,
            value,
        ),
        is_function=True,
    )


def fire(
    *,
    stream_key: str,
    repeats_key: str,
    spec_key: str,
    name: str,
    score: str,
    next_ms: int,
    fire_limit: int,
    max_length: int,
    job_name: str,
    envelopes: Sequence[bytes] = (),
) -> Call:
    """Add the jobs of a repeatable job's due runs, and set its next one. Nothing happens if another scheduler was
    faster.

    Args:
        stream_key: Stream; ready and running jobs.
        repeats_key: Zset; repeatable jobs by their next fire.
        spec_key: Hash; the job's spec, and how often it fired.
        name: Its name among the repeatable jobs.
        score: The fire that the caller evaluated, as `due` returned it.
        next_ms: Its next fire, epoch ms; 0 for none.
        fire_limit: After how many fires it ends; 0 for no limit.
        max_length: About how many jobs the stream may hold.
        job_name: The name of its jobs; may be empty.
        envelopes: A job per fire.

    Returns:
        The call. Its reply (int): how many jobs were added; -1 when another scheduler was faster.

    Cost: O(log N) and O(1) per fire.
    """
    return Call(
        "chasquimq_fire",
        (
            stream_key,
            repeats_key,
            spec_key,
        ),
        (
            name,
            score,
            next_ms,
            fire_limit,
            max_length,
            job_name,
            len(envelopes),
            *envelopes,
        ),
        is_function=True,
    )


def promote(
    *,
    delayed_key: str,
    stream_key: str,
    dead_letters_key: str,
    lock_key: str,
    holder: str,
    ttl_s: int,
    most: int,
    max_length: int,
    max_dead: int,
) -> Call:
    """Promote due jobs, if the caller leads. Members that cannot be read become dead letters.

    Args:
        delayed_key: Zset; jobs that wait for their time.
        stream_key: Stream; ready and running jobs.
        dead_letters_key: Stream; the dead-letter queue.
        lock_key: String; names the leader.
        holder: The caller.
        ttl_s: How long the caller leads from now on.
        most: At most this many jobs.
        max_length: About how many jobs the stream may hold.
        max_dead: About how many dead letters are kept.

    Returns:
        The call. Its reply (list): 0 or 1 for leading, jobs left in `delayed`, then the envelopes of the promoted jobs.

    Cost: O(most * log N).
    """
    return Call(
        "chasquimq_promote",
        (
            delayed_key,
            stream_key,
            dead_letters_key,
            lock_key,
        ),
        (
            holder,
            ttl_s,
            most,
            max_length,
            max_dead,
        ),
        is_function=True,
    )


def put_spec(
    *,
    repeats_key: str,
    spec_key: str,
    next_ms: int,
    name: str,
    packed: bytes,
) -> Call:
    """Store a repeatable job.

    Args:
        repeats_key: Zset; repeatable jobs by their next fire.
        spec_key: Hash; the job's spec, and how often it fired.
        next_ms: Its next fire, epoch ms.
        name: Its name among the repeatable jobs.
        packed: Its spec.

    Returns:
        The call. Its reply (int): 1.

    Cost: O(log N).
    """
    return Call(
        "chasquimq_putSpec",
        (
            repeats_key,
            spec_key,
        ),
        (
            next_ms,
            name,
            packed,
        ),
        is_function=True,
    )


def reject_spec(
    *,
    repeats_key: str,
    dead_letters_key: str,
    name: bytes,
    packed: bytes,
    max_dead: int,
    detail: str,
) -> Call:
    """Move a repeatable job whose spec cannot be read to the dead-letter queue.

    Args:
        repeats_key: Zset; repeatable jobs by their next fire.
        dead_letters_key: Stream; the dead-letter queue.
        name: Its name among the repeatable jobs.
        packed: Its spec, as the caller read it.
        max_dead: About how many dead letters are kept.
        detail: What is wrong with it.

    Returns:
        The call. Its reply (int): 1, or 0 when it is gone or has changed.

    Cost: O(log N).
    """
    return Call(
        "chasquimq_rejectSpec",
        (
            repeats_key,
            dead_letters_key,
        ),
        (
            name,
            packed,
            max_dead,
            detail,
        ),
        is_function=True,
    )


def release(
    *,
    lock_key: str,
    holder: str,
) -> Call:
    """Stop leading.

    Args:
        lock_key: String; names the leader.
        holder: The caller.

    Returns:
        The call. Its reply (int): 1, or 0 when another leads.

    Cost: O(1).
    """
    return Call(
        "chasquimq_release",
        (lock_key,),
        (holder,),
        is_function=True,
    )


def renew(
    *,
    stream_key: str,
    group: str,
    consumer: str,
    entry_ids: Sequence[str] = (),
) -> Call:
    """Renew the leases of running jobs that are still the caller's.

    Args:
        stream_key: Stream; ready and running jobs.
        group: The consumer group.
        consumer: The caller.
        entry_ids: The delivered entries.

    Returns:
        The call. Its reply (ints): per entry 1, or 0 when it is no longer the caller's.

    Cost: O(log N) per entry.
    """
    return Call(
        "chasquimq_renew",
        (stream_key,),
        (
            group,
            consumer,
            len(entry_ids),
            *entry_ids,
        ),
        is_function=True,
    )


def replay(
    *,
    dead_letters_key: str,
    stream_key: str,
    letters: Sequence[Replayed] = (),
    max_length: int,
) -> Call:
    """Make dead jobs ready again.

    Args:
        dead_letters_key: Stream; the dead-letter queue.
        stream_key: Stream; ready and running jobs.
        letters: Each a dead letter to run again.
        max_length: About how many jobs the stream may hold.

    Returns:
        The call. Its reply (int): how many were still there.

    Cost: O(1) per letter.
    """
    return Call(
        "chasquimq_replay",
        (
            dead_letters_key,
            stream_key,
        ),
        (
            max_length,
            len(letters),
            *[word for item in letters for word in (item.entry_id, item.envelope, item.job_name)],
        ),
        is_function=True,
    )


def report(
    *,
    events_key: str,
    max_length: int,
    packed: bytes,
) -> Call:
    """Add events to the queue's event stream.

    Args:
        events_key: Stream; what happened.
        max_length: About how many events are kept.
        packed: The events as MessagePack: a list of each one's fields and values.

    Returns:
        The call. Its reply (int): how many were added.

    Cost: O(1) per event.
    """
    return Call(
        "chasquimq_report",
        (events_key,),
        (
            max_length,
            packed,
        ),
        is_function=True,
    )


def retry(
    *,
    stream_key: str,
    delayed_key: str,
    group: str,
    entry_id: str,
    backoff_ms: int,
    member: bytes,
) -> Call:
    """Delay a failed job until its next attempt.

    Args:
        stream_key: Stream; ready and running jobs.
        delayed_key: Zset; jobs that wait for their time.
        group: The consumer group.
        entry_id: The delivered entry.
        backoff_ms: How long it waits, on the server's clock.
        member: The job after its failed attempt, after its name.

    Returns:
        The call. Its reply (int): 1, or 0 when another worker settled the job.

    Cost: O(log N).
    """
    return Call(
        "chasquimq_retry",
        (
            stream_key,
            delayed_key,
        ),
        (
            group,
            entry_id,
            backoff_ms,
            member,
        ),
        is_function=True,
    )


def version() -> Call:
    """Return the revision of this library.

    Returns:
        The call. Its reply (text): the number of its text, which grows with every change.

    Cost: O(1).
    """
    return Call(
        "chasquimq_version",
        (),
        (),
        is_function=True,
    )
