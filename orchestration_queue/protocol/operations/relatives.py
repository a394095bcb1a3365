"""The jobs around one job: those it waits for, and those that wait for it."""

from __future__ import annotations

from typing import Any

from orchestration_queue.protocol import codec
from orchestration_queue.protocol.call import Call, Operation, integer, optional_text, texts
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.steps import Steps, all_good, chunks
from orchestration_queue.protocol.placement import ParentRef

__all__ = ["children", "children_values", "count_children", "parents"]


def children(keys: QueueKeys, job_id: str) -> Steps[list[ParentRef]]:
    """The jobs that this one waits for, or waited for, in the order of their names."""
    (reply,) = all_good((yield [Call("SMEMBERS", (keys.deps(job_id),))]))
    return [ref for ref in map(ParentRef.of_member, sorted(texts(reply))) if ref is not None]


def count_children(keys: QueueKeys, job_id: str) -> Operation[int]:
    """How many these are."""
    return Operation(Call("SCARD", (keys.deps(job_id),)), integer)


def children_values(keys: QueueKeys, job_id: str) -> Steps[list[tuple[ParentRef, Any]]]:
    """What these jobs returned; those without a result, or not there any more, are left out."""
    values: list[tuple[ParentRef, Any]] = []
    refs = yield from children(keys, job_id)
    for piece in chunks(refs):
        replies = all_good((yield [Call("HGET", (ref.keys.job(ref.job_id),), ("returnvalue",)) for ref in piece]))
        stored = zip(piece, map(optional_text, replies), strict=True)
        values += [(ref, codec.decode(text, "The child's result")) for ref, text in stored if text is not None]
    return values


def parents(keys: QueueKeys, job_id: str) -> Steps[list[ParentRef]]:
    """The jobs that wait for this one, in the order of their names."""
    members, named = all_good(
        (
            yield [
                Call("SMEMBERS", (keys.parents(job_id),)),
                Call("HMGET", (keys.job(job_id),), ("parentId", "parentQueue")),
            ]
        )
    )
    if found := [ref for ref in map(ParentRef.of_member, sorted(texts(members))) if ref is not None]:
        return found
    parent_id, queue = map(optional_text, named)
    return [ParentRef(QueueKeys(queue or keys.queue, keys.prefix), parent_id)] if parent_id else []
