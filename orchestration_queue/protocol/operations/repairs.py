"""Repair inconsistent keys of a queue. Each call applies only if the state is still as observed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestration_queue.protocol.call import Call, Conversation, Operation, all_good, integer, text
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import job_records
from orchestration_queue.protocol.record import JobRecord, pairs
from orchestration_queue.states import TERMINAL, JobState

__all__ = ["PUT_BACK", "StalledGroup", "judge_group", "put_back", "repair_group", "stalled_groups"]

PUT_BACK = "put_back"

_MOST_ENTRIES = 10_000


def put_back(keys: QueueKeys, job_id: str, now_ms: int) -> Operation[str]:
    """Make a job due now whose record says that it is or will be ready, but which is in no structure.

    Returns:
        The operation. It reads :data:`PUT_BACK`, or why nothing changed.
    """
    call = oq1.put_back(keys, job_id=job_id, now_ms=now_ms, limit=_MOST_ENTRIES)
    return Operation(call, text)


@dataclass(frozen=True, slots=True)
class StalledGroup:
    """An ordering group whose parked jobs will never be released.

    Attributes:
        name: The ordering key.
        parked: How many jobs wait.
        seen_active: How many jobs it counts as active, although none is.
        seen_turn: The sequence number whose turn it stores.
        turn: The sequence number whose turn it is.
    """

    name: str
    parked: int
    seen_active: int
    seen_turn: int
    turn: int


def stalled_groups(
    keys: QueueKeys, names: Iterable[str], job_ids: Conversation[Sequence[str]]
) -> Conversation[list[StalledGroup]]:
    """Return the groups that are blocked forever.

    Args:
        keys: The queue.
        names: Ordering keys, of which some have parked jobs.
        job_ids: Finds every job of the queue. It runs once the groups have been read: see ``oq1_mendGroup``.
    """
    wanted = sorted(set(names))
    asked = [call for name in wanted for call in _state_of(keys, name)]
    replies = iter(all_good((yield asked)))
    states = {name: (pairs(state), limited) for name, state, limited in zip(wanted, replies, replies, strict=True)}
    every = yield from job_ids
    records = yield from job_records.jobs([(keys, job_id) for job_id in every], ("state", "groupKey", "orderingSeq"))
    members: dict[str, list[JobRecord]] = {name: [] for name in wanted}
    for record in records:
        if record is not None and record.state not in TERMINAL and (name := record.fields.get("groupKey")) in members:
            members[name].append(record)
    judged = (judge_group(name, states[name][0], members[name]) for name in wanted if states[name][1] is None)
    return [group for group in judged if group is not None]


def _state_of(keys: QueueKeys, name: str) -> tuple[Call, Call]:
    return Call("HGETALL", (keys.group(name),)), Call("ZSCORE", (keys.ratelimited,), (name,))


def judge_group(name: str, state: Mapping[str, str], jobs: Sequence[JobRecord]) -> StalledGroup | None:
    """Return a group that waits for no limit as stalled, judged by its fields and unfinished jobs; None if it is not.

    It is not stalled if one of its jobs is active or waits for a retry, and will end, or if the job whose turn it is
    will still arrive, since that need not be parked.
    """
    seen_active, seen_turn = int(state.get("active") or 0), int(state.get("nextSeq") or 0)
    parked = [_sequence(job) for job in jobs if job.state is JobState.GROUP_WAITING]
    others = [_sequence(job) for job in jobs if job.state is not JobState.GROUP_WAITING]
    if not parked or any(sequence < max(seen_turn, 1) for sequence in others):
        return None
    next_turn = seen_turn
    while f"skip:{next_turn}" in state:
        next_turn += 1
    turn = next_turn if min(parked) < next_turn else min([*parked, *others])
    if turn in others and turn == next_turn and seen_active < int(state.get("maxConcurrency") or 1):
        return None
    return StalledGroup(name, len(parked), seen_active, seen_turn, turn)


def _sequence(job: JobRecord) -> int:
    return int(job.fields.get("orderingSeq") or 0)


def repair_group(keys: QueueKeys, group: StalledGroup, now_ms: int) -> Operation[int]:
    """Unblock a stalled group; read how many jobs became ready, or -1 if it was no longer blocked."""
    call = oq1.mend_group(
        keys,
        name=group.name,
        seen_active=group.seen_active,
        seen_next_seq=group.seen_turn,
        active=0,
        next_seq=group.turn,
        now_ms=now_ms,
    )
    return Operation(call, integer)
