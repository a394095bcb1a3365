"""Moves of jobs to other queues, in steps that can be repeated, so that any process can continue a move."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import JobNotFoundError, ServerError, StateError, UsageError
from orchestration_queue.protocol.call import (
    Call,
    Conversation,
    Reply,
    all_good,
    chunks,
    integer,
    optional_text,
    text,
    texts,
    together,
)
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import GROUP, QueueKeys
from orchestration_queue.protocol.operations.control import MOST_WITHDRAWN
from orchestration_queue.protocol.operations.steps import COUNTER, copy_steps

__all__ = ["MovedJobs", "finish_moves", "move", "move_all"]

log = get_logger("orchestration_queue.moves")

_OVERDUE_MS = 10_000
"""How old a move must be before a worker continues it."""
_MOVES_A_ROUND = 20
_REMEMBERED_MS = 6 * 86_400_000
"""How long the source certainly remembers that a job was removed; after that, the job is placed nevertheless."""
_MOST_READINGS = 20
"""How often to copy a job that changes while it is copied."""


@dataclass(frozen=True, slots=True)
class MovedJobs:
    """The result of moving jobs.

    Attributes:
        moved: The ids of the jobs that are in the other queue.
        left: The reason for each job that is not, by id.
    """

    moved: tuple[str, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict)


def move(
    keys: QueueKeys, target: QueueKeys, job_id: str, now_ms: int, delay_ms: int | None = None
) -> Conversation[None]:
    """Move a job to another queue: it is held here, held there, dropped here, and placed there. Four exchanges.

    One more if jobs wait for it, and three or more if it has durable steps. Changes to it meanwhile move with it.

    Raises:
        JobNotFoundError: It is in neither queue.
        StateError: It can't be moved and is unchanged; or it changes faster than it can be copied, and a worker
            continues the move.
    """
    if keys.base == target.base:
        raise UsageError(f"Job {job_id!r} is already in queue {keys.queue!r}; name another queue.")
    out = oq1.move_out(
        keys,
        job_id=job_id,
        now_ms=now_ms,
        target=target.queue,
        token=secrets.token_hex(16),
        delay="" if delay_ms is None else str(delay_ms),
        group=GROUP,
    )
    there = Call("HMGET", (target.job(job_id),), ("movedFrom", "movedBy", "movedAt"))
    for _ in range(_MOST_READINGS):
        reply, (came_from, held_by, held_ms) = all_good((yield [out, there]))
        word, about = text(reply[0]), text(reply[1])
        if word == "not_found" and optional_text(came_from) == keys.queue:
            # An earlier call moved it, but its reply was lost, or it was interrupted.
            if token := optional_text(held_by):
                yield from _resume(keys, target, job_id, now_ms, token, integer(held_ms))
            return
        if word != "ok":
            raise _refusal(keys, target, job_id, word, about)
        if (end := (yield from _carry(keys, target, job_id, now_ms, reply))) != "changed":
            yield from _land(keys, target, job_id, now_ms, about, is_removed=end == "removed")
            return
    raise StateError(
        f"Job {job_id!r} of queue {keys.queue!r} changed {_MOST_READINGS} times while it was moved to queue "
        f"{target.queue!r}; a worker of {keys.queue!r} continues the move."
    )


def move_all(
    keys: QueueKeys, target: QueueKeys, job_ids: Sequence[str], now_ms: int, delay_ms: int | None = None
) -> Conversation[MovedJobs]:
    """Move jobs to another queue, 10 per four exchanges. Jobs that can't be moved are skipped."""
    problems: list[str | None] = []
    for some in chunks(job_ids, MOST_WITHDRAWN):
        problems += yield from together([_attempt(keys, target, job_id, now_ms, delay_ms) for job_id in some])
    outcomes = list(zip(job_ids, problems, strict=True))
    return MovedJobs(
        tuple(job_id for job_id, problem in outcomes if problem is None),
        {job_id: problem for job_id, problem in outcomes if problem is not None},
    )


def _attempt(
    keys: QueueKeys, target: QueueKeys, job_id: str, now_ms: int, delay_ms: int | None
) -> Conversation[str | None]:
    """Move one job, or return why not."""
    try:
        yield from move(keys, target, job_id, now_ms, delay_ms)
    except (JobNotFoundError, StateError, ServerError) as error:
        return str(error)
    return None


def _carry(keys: QueueKeys, target: QueueKeys, job_id: str, now_ms: int, reply: Reply) -> Conversation[str]:
    token, parents, digest = text(reply[1]), texts(reply[8]), text(reply[10])
    fields: list[Reply] = reply[5]
    arrive = oq1.move_in(
        target,
        job_id=job_id,
        token=token,
        source=keys.queue,
        now_ms=now_ms,
        state=text(reply[2]),
        due_ms=integer(reply[3]),
        delay=text(reply[4]),
        reads=integer(reply[11]),
        fields=[oq1.MovedField(name, value) for name, value in zip(fields[::2], fields[1::2], strict=True)],
        lines=[oq1.MovedLine(line) for line in reply[6]],
        signals=[oq1.MovedSignal(signal) for signal in reply[7]],
        parents=[oq1.MovedParent(member) for member in parents],
        deps=reply[9],
    )
    (decision,) = all_good((yield [arrive]))
    has_arrived = text(decision) == "ok"
    if has_arrived:
        if COUNTER.encode() in fields[::2]:
            yield from copy_steps(keys, target, job_id, token)
        # Before it is placed: a dependent that is notified under a name that it does not know would count it twice.
        yield from _rename(parents, keys.member(job_id), target.member(job_id), keys.prefix)
    end = oq1.end_move(keys, job_id=job_id, token=token, arrived=has_arrived, digest=digest, now_ms=now_ms)
    (ended,) = all_good((yield [end]))
    if not has_arrived:
        raise StateError(
            f"Job {job_id!r} of queue {keys.queue!r} was not moved: queue {target.queue!r} has another job with "
            "this id; remove that one, or add the job there with a new id."
        )
    return text(ended)


def _resume(
    keys: QueueKeys, target: QueueKeys, job_id: str, now_ms: int, token: str, held_ms: int
) -> Conversation[None]:
    """Have the target place a job that it holds and the source no longer has. The source remembers it for a week."""
    ask = oq1.end_move(keys, job_id=job_id, token=token, arrived=True, digest="", now_ms=now_ms)
    (end,) = all_good((yield [ask]))
    is_removed = text(end) == "removed" and now_ms - held_ms < _REMEMBERED_MS
    yield from _land(keys, target, job_id, now_ms, token, is_removed=is_removed)


def _land(
    keys: QueueKeys, target: QueueKeys, job_id: str, now_ms: int, token: str, *, is_removed: bool
) -> Conversation[None]:
    """Have the target place the job that it holds, unless it has; or remove it if it was removed during the move."""
    all_good((yield [oq1.land_job(target, job_id=job_id, token=token, kept=not is_removed, now_ms=now_ms)]))
    if is_removed:
        raise JobNotFoundError(keys.queue, job_id)


def _rename(parents: list[str], old: str, new: str, prefix: str) -> Conversation[None]:
    """Rename a moved job in the dependencies of the jobs that wait for it."""
    located = sorted(
        (base[base.index("{") + 1 : -1], job_id) for base, _, job_id in (p.rpartition(":") for p in parents)
    )
    calls = [
        oq1.rename_dependency(QueueKeys(queue, prefix), old=old, new=new, job_ids=[job_id for _, job_id in jobs])
        for queue, jobs in groupby(located, key=lambda each: each[0])
    ]
    if calls:
        all_good((yield calls))


def finish_moves(keys: QueueKeys, now_ms: int) -> Conversation[int]:
    """Continue moves out of and into a queue that are 10 s old, at most 20. One command if none are due.

    Returns:
        How many could not be finished.
    """
    failures = 0
    overdue = Call("ZRANGEBYSCORE", (keys.moving,), ("-inf", now_ms - _OVERDUE_MS, "LIMIT", 0, _MOVES_A_ROUND))
    (found,) = all_good((yield [overdue]))
    for job_id in texts(found):
        noted = Call("HMGET", (keys.job(job_id),), ("movingTo", "movedFrom", "movedBy", "movedAt"))
        (fields,) = all_good((yield [noted]))
        target, source, token, held_ms = map(optional_text, fields)
        if target is None and token is None:  # it was removed meanwhile
            all_good((yield [Call("ZREM", (keys.moving,), (job_id,))]))
            continue
        try:
            if target is not None:
                yield from move(keys, QueueKeys(target, keys.prefix), job_id, now_ms)
                log.warning("Job %s of queue %s was on the move to %s, and has arrived", job_id, keys.queue, target)
            else:
                origin = QueueKeys(source or "", keys.prefix)
                yield from _finish_arrival(origin, keys, job_id, now_ms, token or "", int(held_ms or 0))
        except (JobNotFoundError, StateError, ServerError) as error:
            log.warning("Job %s of queue %s could not be moved: %s", job_id, keys.queue, error)
            all_good((yield [Call("ZADD", (keys.moving,), ("XX", now_ms, job_id))]))  # after the others
            failures += 1
    return failures


def _finish_arrival(
    source: QueueKeys, keys: QueueKeys, job_id: str, now_ms: int, token: str, held_ms: int
) -> Conversation[None]:
    (held_for,) = all_good((yield [Call("HGET", (source.job(job_id),), ("moveToken",))]))
    if optional_text(held_for) == token:  # the source still has it, with all that happened to it since
        yield from move(source, keys, job_id, now_ms)
    else:
        yield from _resume(source, keys, job_id, now_ms, token, held_ms)
    log.warning("Job %s was on the move from queue %s to %s, and has arrived", job_id, source.queue, keys.queue)


def _refusal(keys: QueueKeys, target: QueueKeys, job_id: str, word: str, about: str) -> Exception:
    if word == "not_found":
        return JobNotFoundError(keys.queue, job_id)
    why = {
        "moving": f"is on the move to queue {about!r} already; move it on from there.",
        "state": f"is {about}, and only a job that waits to start or has failed can be moved"
        + ("; release it first." if about == "active" else "."),
        "in_flow": f"belongs to flow {about!r}, whose record names its queue; submit the flow again instead.",
        "ordered": f"has a turn in ordering group {about!r}, which is its queue's; add it again, to {target.queue!r}.",
        "no_delay": "has failed and is not due at any time; move it without a delay, and retry it there.",
        "not_found_there": f"is {about}, but a worker is about to start it; try again.",
    }
    if word in why:
        return StateError(f"Job {job_id!r} of queue {keys.queue!r} {why[word]}")
    return ServerError(
        f"The server answered {word!r} about job {job_id!r} of queue {keys.queue!r}; run `oq library status`."
    )
