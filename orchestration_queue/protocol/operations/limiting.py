"""What keeps a worker from starting jobs: the rate of the queue, and the tokens of a window."""

from __future__ import annotations

import math

from orchestration_queue.options import RateLimit, milliseconds
from orchestration_queue.protocol.call import Call, Operation, Reply, integer, optional_text
from orchestration_queue.protocol.functions import glidemq
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.record import stored_number

__all__ = ["ask_to_start", "reported_tokens", "spend_tokens", "tokens_spent"]


def ask_to_start(keys: QueueKeys, limit: RateLimit, now_ms: int) -> Operation[int]:
    """Count a start, if the rate allows it; returns 0, or how many ms to wait before asking again."""
    call = glidemq.rate_limit(
        rate_key=keys.rate,
        meta_key=keys.meta,
        max_starts=limit.max,
        window_ms=milliseconds(limit.duration),
        now_ms=now_ms,
    )
    return Operation(call, integer)


def tokens_spent(keys: QueueKeys, window: int) -> Operation[float]:
    """Tokens that all workers of the queue spent in a window."""
    return Operation(Call("GET", (keys.tokens(window),)), lambda reply: stored_number(optional_text(reply)))


def spend_tokens(keys: QueueKeys, window: int, tokens: int, duration_ms: int) -> list[Call]:
    """Count spent tokens, in a count that lasts as long as its window. To be sent as one transaction."""
    key = keys.tokens(window)
    return [Call("INCRBY", (key,), (tokens,)), Call("PEXPIRE", (key,), (duration_ms, "NX"))]


def reported_tokens(keys: QueueKeys, job_id: str) -> Operation[int]:
    """Tokens that a job says it spent: in its usage, or as a plain number, whichever is more."""

    def read(reply: Reply) -> int:
        return math.ceil(max(stored_number(optional_text(value)) for value in reply))

    return Operation(Call("HMGET", (keys.job(job_id),), ("usage:totalTokens", "tpmTokens")), read)
