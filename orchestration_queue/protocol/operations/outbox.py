"""Dead letters that the server could not add with the failure itself: it keeps them until they are in their queue."""

from __future__ import annotations

import json
from collections.abc import Sequence

from orchestration_queue.protocol.call import Call, Operation, Reply, text
from orchestration_queue.protocol.functions import glidemq
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.steps import Steps, all_good

__all__ = ["add_letter", "overdue", "post"]

_PAGE = 100


def add_letter(there: QueueKeys, letter_id: str, name: str, data: str, now_ms: int) -> Call:
    """Add a dead letter under an id that is the same for each letter about one run: added twice, it is there once."""
    return glidemq.add_job(
        id_key=there.id,
        stream_key=there.stream,
        scheduled_key=there.scheduled,
        events_key=there.events,
        job_name=name,
        data=data,
        opts="{}",
        timestamp_ms=now_ms,
        custom_id=letter_id,
    )


def overdue(keys: QueueKeys, before_ms: int) -> Operation[list[bytes]]:
    """Letters that have been kept since before that time, at most 100: those waiting longest."""
    call = Call("ZRANGEBYSCORE", (keys.outbox,), ("-inf", before_ms, "LIMIT", 0, _PAGE))
    return Operation(call, lambda reply: list(reply))


def post(keys: QueueKeys, letters: Sequence[bytes], now_ms: int) -> Steps[dict[str, str]]:
    """Add kept dead letters to their queues, then strike off those that are there; the others' turn is last again.

    Args:
        keys: The queue that keeps them.
        letters: What :func:`overdue`, `oq1_exchange` and `oq1_reclaim` return of them.
        now_ms: The time.

    Returns:
        By queue, why it did not take a letter.
    """
    added, calls = [], []
    for letter in letters:
        to, letter_id, name, data = json.loads(letter.decode(errors="replace"))
        added.append(to)
        calls.append(add_letter(QueueKeys(to, keys.prefix), letter_id, name, data, now_ms))
    replies = yield calls
    problems = {
        letter: (to, str(reply))
        for letter, to, reply in zip(letters, added, replies, strict=True)
        if _is_refusal(reply)
    }
    rest: list[Call] = []
    if taken := [letter for letter in letters if letter not in problems]:
        rest.append(Call("ZREM", (keys.outbox,), tuple(taken)))
    if problems:
        turns = [word for letter in problems for word in (now_ms, letter)]
        rest.append(Call("ZADD", (keys.outbox,), ("XX", *turns)))
    all_good((yield rest))
    return dict(problems.values())


def _is_refusal(reply: Reply) -> bool:
    return isinstance(reply, Exception) or text(reply).startswith("ERR:")
