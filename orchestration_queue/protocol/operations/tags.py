"""Tags of jobs: on their records, and an index of jobs by tag that is repaired as it is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestration_queue.errors import JobNotFoundError, StateError
from orchestration_queue.options import MAX_TAGS
from orchestration_queue.protocol.call import Call, Operation, Reply, integer, text, texts
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.conversation import Conversation, all_good

__all__ = ["PAGE", "TagCount", "most_used", "page", "retag", "tagged_ids"]

PAGE = 200
"""Jobs of a tag that one call lists."""


@dataclass(frozen=True, slots=True)
class TagCount:
    """How many jobs have a tag.

    Attributes:
        tag: The tag.
        jobs: How many jobs have it. Removed ones may be counted until they are met by a reader or a worker's sweep.
    """

    tag: str
    jobs: int


def retag(
    keys: QueueKeys, job_id: str, now_ms: int, added: Sequence[str] = (), removed: Sequence[str] = ()
) -> Operation[None]:
    """Add tags to a job and take others off it.

    Raises:
        JobNotFoundError: By the operation: it does not exist.
        StateError: By the operation: it would have too many tags, and nothing was changed.
    """
    call = oq1.retag(
        job_key=keys.job(job_id),
        job_id=job_id,
        now_ms=now_ms,
        added=[oq1.TagAdded(tag) for tag in added],
        removed=[oq1.TagRemoved(tag) for tag in removed],
    )

    def read(reply: Reply) -> None:
        word = text(reply)
        if word == "not_found":
            raise JobNotFoundError(keys.queue, job_id)
        if word == "too_many":
            raise StateError(
                f"Job {job_id!r} of queue {keys.queue!r} would have more than {MAX_TAGS} tags, so none was added; "
                "remove some of its tags first."
            )

    return Operation(call, read)


def page(keys: QueueKeys, tag: str, offset: int, limit: int) -> Operation[tuple[list[str], bool]]:
    """Ids of up to ``limit`` jobs of a tag, oldest first, and whether there may be more."""
    call = oq1.tagged(keys, tag=tag, offset=offset, limit=limit)
    return Operation(call, lambda reply: (texts(reply[0]), integer(reply[1]) == 1))


def tagged_ids(keys: QueueKeys, tag: str, limit: int | None, offset: int = 0) -> Conversation[list[str]]:
    """Ids of the jobs of a tag, oldest first. One exchange per 200 jobs."""
    found: list[str] = []
    has_more = limit != 0
    while has_more and (limit is None or len(found) < limit):
        size = PAGE if limit is None else min(PAGE, limit - len(found))
        operation = page(keys, tag, offset + len(found), size)
        ids, has_more = operation.read(*all_good((yield [operation.call])))
        found += ids
    return found


def most_used(keys: QueueKeys, limit: int | None, offset: int = 0) -> Operation[list[TagCount]]:
    """Count the jobs of the tags in use, the most used tag first."""
    last = -1 if limit is None else offset + limit - 1
    places = (1, 0) if limit == 0 else (offset, last)

    def read(reply: Reply) -> list[TagCount]:
        # RESP 3 answers in pairs, RESP 2 flat.
        flat = [word for pair in reply for word in pair] if reply and isinstance(reply[0], list) else reply
        return [TagCount(text(tag), int(float(jobs))) for tag, jobs in zip(flat[::2], flat[1::2], strict=True)]

    return Operation(Call("ZREVRANGE", (keys.tags,), (*places, "WITHSCORES")), read)
