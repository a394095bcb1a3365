"""A bounded number of a queue's jobs, compared with the queue's lists."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from orchestration_queue.flows.stored import outcome_of
from orchestration_queue.protocol.call import Call, Conversation, all_good, chunks, texts
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import job_records, queue_state
from orchestration_queue.protocol.operations.keyspace import FIRST_PAGE, queue_pattern, scan_page, some_jobs
from orchestration_queue.protocol.operations.notifications import Notification
from orchestration_queue.protocol.operations.repairs import StalledGroup, stalled_groups
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.states import TERMINAL, JobState

__all__ = ["MOST_JOBS", "Sample", "Survey", "sample_jobs", "survey", "take_sample"]

MOST_JOBS = 10_000
"""Maximum number of jobs inspected in one queue."""
_MOST_SAMPLED = 200_000
"""Maximum number of jobs inspected when all queues are checked."""
MOST_LISTED = 100_000
"""Maximum number of entries read from its lists."""
_MOST_AWAITED = 1000
"""Parents with more dependencies are skipped: reconcilers cover them."""
_LISTED = (JobState.WAITING, JobState.ACTIVE, JobState.DELAYED, JobState.SUSPENDED)
_FINDABLE = frozenset({*_LISTED, JobState.PRIORITIZED})

Sample: TypeAlias = tuple[list[str], bool]
"""Ids of jobs of a queue, and whether these are all."""


@dataclass(frozen=True, slots=True)
class Survey:
    """A snapshot of a queue's jobs.

    Attributes:
        jobs: Number of inspected jobs.
        is_whole: Whether these are all jobs of the queue.
        states: State of each job by id.
        nowhere: Jobs that belong to a list but are in no list; None when the lists are too long.
        waiting_in_vain: Jobs whose dependencies have all ended, with their pending notifications.
        stalled_groups: Ordering groups that are blocked; empty when not all jobs were read.
    """

    jobs: int
    is_whole: bool
    states: Mapping[str, str]
    nowhere: tuple[str, ...] | None
    waiting_in_vain: Mapping[str, tuple[Notification, ...]]
    stalled_groups: tuple[StalledGroup, ...]


def survey(keys: QueueKeys, sample: Sample | None = None) -> Conversation[Survey]:
    """Inspect up to 10,000 jobs. Suspects are read twice, as jobs move on meanwhile.

    About 30 exchanges for 10,000 jobs, of about 1,000 reads each, and without a sample a scan of all keys.
    """
    ids, is_whole = (yield from _some_ids(keys)) if sample is None else sample
    records = yield from _records(keys, ids, "state", "groupKey")
    states = {record.id: record.state or "" for record in records}
    counts = yield from queue_state.counts(keys)
    is_short = counts.waiting + counts.active + counts.delayed + counts.suspended <= MOST_LISTED
    suspects = {job_id: state for job_id, state in states.items() if state in _FINDABLE}
    for _ in range(2):
        if suspects and is_short:
            listed = yield from _read_listed(keys)
            again = yield from _states(keys, [job_id for job_id in suspects if job_id not in listed])
            suspects = {job_id: state for job_id, state in again.items() if state == suspects[job_id]}
    parents = [job_id for job_id, state in states.items() if state == JobState.WAITING_CHILDREN]
    pending = yield from _in_vain(keys, parents)
    states_now = yield from _states(keys, list(pending))
    in_vain = {job_id: pending[job_id] for job_id, state in states_now.items() if state == JobState.WAITING_CHILDREN}
    names = {record.fields.get("groupKey", "") for record in records if record.state == JobState.GROUP_WAITING}
    stalled = (yield from stalled_groups(keys, names, _all_ids(keys))) if names and is_whole else []
    return Survey(len(states), is_whole, states, tuple(suspects) if is_short else None, in_vain, tuple(stalled))


def sample_jobs(prefix: str) -> Conversation[tuple[dict[str, set[str]], bool]]:
    """Return ids of jobs of one server by queue, about 10,000 of each and 200,000 of all, and whether that is all."""
    return (yield from some_jobs(prefix, MOST_JOBS, _MOST_SAMPLED))


def take_sample(ids: Collection[str], *, has_scanned_all: bool) -> Sample:
    """Return what is inspected of these jobs of a queue."""
    return sorted(ids)[:MOST_JOBS], has_scanned_all and len(ids) <= MOST_JOBS


def _all_ids(keys: QueueKeys) -> Conversation[list[str]]:
    """Return the ids of all jobs; none when the queue holds more than :data:`MOST_JOBS`."""
    ids, is_whole = yield from _some_ids(keys)
    return ids if is_whole else []


def _some_ids(keys: QueueKeys) -> Conversation[Sample]:
    found: set[str] = set()
    cursor = FIRST_PAGE
    start = len(keys.job(""))
    while True:
        page, cursor = yield from scan_page(queue_pattern(keys, "job:*"), cursor, keys.stream)
        found.update(key[start:] for key in page)
        if cursor == FIRST_PAGE or len(found) >= MOST_JOBS:
            return take_sample(found, has_scanned_all=cursor == FIRST_PAGE)


def _records(keys: QueueKeys, ids: Sequence[str], *fields: str) -> Conversation[list[JobRecord]]:
    records = yield from job_records.jobs([(keys, job_id) for job_id in ids], fields)
    return [record for record in records if record is not None]


def _states(keys: QueueKeys, ids: Sequence[str]) -> Conversation[dict[str, str]]:
    records = yield from _records(keys, ids, "state")
    return {record.id: record.state or "" for record in records}


def _read_listed(keys: QueueKeys) -> Conversation[frozenset[str]]:
    """Return the ids of all jobs that some list holds."""
    found: set[str] = set()
    for state in _LISTED:
        found.update((yield from job_records.job_ids(keys, state)))
    return frozenset(found)


def _in_vain(keys: QueueKeys, parents: list[str]) -> Conversation[dict[str, tuple[Notification, ...]]]:
    """Return the parents whose dependencies have all ended in this queue, with the outcomes as notifications."""
    found = {}
    for piece in chunks(parents):
        sizes = all_good((yield [Call("SCARD", (keys.deps(job_id),)) for job_id in piece]))
        for job_id, size in zip(piece, sizes, strict=True):
            if 0 < size <= _MOST_AWAITED:
                (reply,) = all_good((yield [Call("SMEMBERS", (keys.deps(job_id),))]))
                if outcomes := (yield from _ends(keys, job_id, texts(reply))):
                    found[job_id] = outcomes
    return found


def _ends(keys: QueueKeys, parent: str, members: list[str]) -> Conversation[tuple[Notification, ...]]:
    """Return a parent's notifications; none unless all its dependencies are jobs of this queue that have ended."""
    here = f"{keys.base}:"
    if not all(member.startswith(here) for member in members):
        return ()
    ids = [member.removeprefix(here) for member in members]
    records = yield from _records(keys, ids, "state", "outcome", "failedReason")
    if len(records) < len(members) or not all(record.state in TERMINAL for record in records):
        return ()
    outcomes = {record.id: outcome_of(record) for record in records}
    return tuple(
        Notification(keys.queue, parent, keys.member(job_id), "success" if outcome == JobState.COMPLETED else outcome)
        for job_id, outcome in outcomes.items()
    )
