"""Taking jobs without being a worker: how to begin, and whether any worker looks for forgotten jobs."""

from __future__ import annotations

from dataclasses import dataclass

from orchestration_queue.errors import ServerError
from orchestration_queue.protocol.call import Call, integer, text
from orchestration_queue.protocol.keys import GROUP, TAKER, QueueKeys
from orchestration_queue.protocol.operations import queue_settings, worker_registry
from orchestration_queue.protocol.operations.conversation import Conversation, all_good

__all__ = ["USUAL_LEASE_MS", "Opening", "has_worker", "open_queue"]

USUAL_LEASE_MS = 30_000
"""The lease of workers whose options name no other."""


@dataclass(frozen=True, slots=True)
class Opening:
    """What a taker must know of a queue before its first job.

    Attributes:
        dead_letter_queue: Where the queue's workers put jobs that fail for good; empty for nowhere.
        server_ms: The server's time, epoch ms.
    """

    dead_letter_queue: str
    server_ms: int


def open_queue(keys: QueueKeys) -> Conversation[Opening]:
    """Create the workers' group if needed, and read what takers must know. One exchange."""
    stored = queue_settings.stored_dead_letter_queue(keys)
    began, letters, time = yield [worker_registry.create_group(keys), stored.call, Call("TIME", near=keys.stream)]
    if isinstance(began, ServerError) and began.code != "BUSYGROUP":
        raise began
    letters, time = all_good([letters, time])
    seconds, microseconds = map(integer, time)
    return Opening(stored.read(letters) or "", seconds * 1000 + microseconds // 1000)


def has_worker(keys: QueueKeys) -> Conversation[bool]:
    """Whether any consumer of the stream is registered as a worker: such look for forgotten jobs themselves."""
    (described,) = yield [Call("XINFO", args=("CONSUMERS", keys.stream, GROUP), near=keys.stream)]
    if isinstance(described, ServerError):
        return False
    consumers = [dict(zip(facts[::2], facts[1::2], strict=True)) for facts in described]
    names = {text(facts[b"name"]) for facts in consumers} - {TAKER}
    if not names:
        return False
    (registered,) = all_good((yield [Call("EXISTS", tuple(map(keys.worker, sorted(names))))]))
    return integer(registered) > 0
