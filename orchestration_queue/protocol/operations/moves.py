"""Moves of jobs to other queues, in steps that may each be repeated, so that anyone can go on with a move."""

from __future__ import annotations

import logging
import secrets
from itertools import groupby

from orchestration_queue.errors import JobNotFoundError, ServerError, StateError, UsageError
from orchestration_queue.protocol.call import Call, Reply, integer, optional_text, text, texts
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import GROUP, QueueKeys
from orchestration_queue.protocol.operations.conversation import Conversation, all_good

__all__ = ["finish_moves", "move"]

log = logging.getLogger("orchestration_queue.moves")

_OVERDUE_MS = 10_000
"""How long the caller of a move may take before a worker goes on with it."""
_MOVES_A_ROUND = 20


def move(
    keys: QueueKeys, target: QueueKeys, job_id: str, now_ms: int, delay_ms: int | None = None
) -> Conversation[None]:
    """Move a job to another queue: it is held here, created there, and dropped here. Four exchanges.

    Raises:
        JobNotFoundError: It is in neither queue.
        StateError: It cannot be moved, and was left as it is.
    """
    if keys.base == target.base:
        raise UsageError(f"Job {job_id!r} is in queue {keys.queue!r} already; name another queue.")
    out = oq1.move_out(
        keys,
        job_id=job_id,
        now_ms=now_ms,
        target=target.queue,
        token=secrets.token_hex(16),
        delay="" if delay_ms is None else str(delay_ms),
        group=GROUP,
    )
    reply, came_from = all_good((yield [out, Call("HGET", (target.job(job_id),), ("movedFrom",))]))
    word = text(reply[0])
    if word == "not_found" and optional_text(came_from) == keys.queue:
        return  # an earlier call moved it, whose reply was lost
    if word != "ok":
        raise _refusal(keys, target, job_id, word, text(reply[1]))
    yield from _carry(keys, target, job_id, now_ms, reply)


def _carry(keys: QueueKeys, target: QueueKeys, job_id: str, now_ms: int, reply: Reply) -> Conversation[None]:
    token, parents = text(reply[1]), texts(reply[8])
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
        fields=[oq1.MovedField(name, value) for name, value in zip(fields[::2], fields[1::2], strict=True)],
        lines=[oq1.MovedLine(line) for line in reply[6]],
        signals=[oq1.MovedSignal(signal) for signal in reply[7]],
        parents=[oq1.MovedParent(member) for member in parents],
        deps=reply[9],
    )
    # Dependents first: one that is notified under a name that it does not know would count the job a second time.
    old, new = keys.member(job_id), target.member(job_id)
    yield from _rename(keys, parents, old, new)
    (decision,) = all_good((yield [arrive]))
    has_arrived = text(decision) == "ok"
    if not has_arrived:
        yield from _rename(keys, parents, new, old)
    all_good((yield [oq1.end_move(keys, job_id=job_id, token=token, arrived=has_arrived)]))
    if not has_arrived:
        raise StateError(
            f"Job {job_id!r} of queue {keys.queue!r} was left where it is: queue {target.queue!r} has another job of "
            "this id; remove that one, or add the job there under a new id."
        )


def _rename(keys: QueueKeys, parents: list[str], old: str, new: str) -> Conversation[None]:
    """Have the jobs that wait for a moved one wait for it by its new name."""
    located = sorted(
        (base[base.index("{") + 1 : -1], job_id) for base, _, job_id in (p.rpartition(":") for p in parents)
    )
    calls = [
        oq1.rename_dependency(QueueKeys(queue, keys.prefix), old=old, new=new, job_ids=[job_id for _, job_id in jobs])
        for queue, jobs in groupby(located, key=lambda each: each[0])
    ]
    if calls:
        all_good((yield calls))


def finish_moves(keys: QueueKeys, now_ms: int) -> Conversation[None]:
    """Go on with moves out of a queue that are 10 s old, at most 20. Costs one command when none are due."""
    overdue = Call("ZRANGEBYSCORE", (keys.moving,), ("-inf", now_ms - _OVERDUE_MS, "LIMIT", 0, _MOVES_A_ROUND))
    (found,) = all_good((yield [overdue]))
    for job_id in texts(found):
        (target,) = all_good((yield [Call("HGET", (keys.job(job_id),), ("movingTo",))]))
        if target is None:  # it was removed meanwhile
            all_good((yield [Call("ZREM", (keys.moving,), (job_id,))]))
            continue
        try:
            yield from move(keys, QueueKeys(text(target), keys.prefix), job_id, now_ms)
            log.warning("Job %s of queue %s was on the move to %s, and has arrived", job_id, keys.queue, text(target))
        except (JobNotFoundError, StateError, ServerError) as error:
            log.warning("Job %s of queue %s could not be moved: %s", job_id, keys.queue, error)
            all_good((yield [Call("ZADD", (keys.moving,), ("XX", now_ms, job_id))]))  # after the others


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
