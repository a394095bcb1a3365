"""Conversations of flows, held without a server: the records of the jobs are given, and what is asked for is noted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from orchestration_queue.flows.record import FlowRecord, RecordedNode
from orchestration_queue.flows.stored import StoredFlow
from orchestration_queue.protocol.call import Call, Conversation, Reply
from orchestration_queue.protocol.keys import QueueKeys

__all__ = ["Stored", "chain", "hold", "named", "talk"]

T = TypeVar("T")

Stored = dict[str, dict[str, str] | None]
"""The jobs' fields by node; None where the job is gone."""


def chain(*names: str, queues: Sequence[str] = ("q",)) -> StoredFlow:
    """Return a flow of nodes of which each waits for the one before, on the queues in turn."""
    nodes = [
        RecordedNode(name, queues[place % len(queues)], names[max(0, place - 1) : place], name)
        for place, name in enumerate(names)
    ]
    return StoredFlow.of("f", QueueKeys("q"), FlowRecord("f", {node.name: node for node in nodes}))


def hold(
    conversation: Conversation[T],
    stored: Stored,
    answer: Callable[[Call], Reply] = lambda _: 1,
    calls_to: list[Call] | None = None,
) -> tuple[T, list[Call]]:
    """Hold a conversation with these records.

    Args:
        conversation: The conversation.
        stored: The records of the jobs.
        answer: What is replied to calls that do not read these, and for which there is no empty reply.
        calls_to: The list to which calls are added before they are answered; default a new one.

    Returns:
        Its result, and the calls that wanted more than to read the records.
    """
    written: list[Call] = [] if calls_to is None else calls_to

    def reply_to(call: Call) -> Reply:
        of_flow = call.name in ("HMGET", "HGET") and call.keys[0].endswith((":flow:f", ":flow-ends:f"))
        if of_flow and call.keys[0] not in stored:
            return (
                [None] * len(call.args) if call.name == "HMGET" else answer(call) if call.args == ("state",) else None
            )
        if call.name == "HMGET":
            fields = stored[call.keys[0].rpartition("f.")[2]] or {}
            return [fields[name].encode() if name in fields else None for name in map(str, call.args)]
        if call.name == "SMEMBERS":
            return [f"{QueueKeys('q').member('f.m')}[{index}]".encode() for index in (1, 0)]
        if call.name == "TIME":
            return [b"1700000000", b"0"]
        written.append(call)
        if call.name in ("oq1_propagate", "oq1_releaseGraph"):
            return [[], [], []]
        return [[], [], [], []] if call.name == "oq1_retryNodes" else answer(call)

    return talk(conversation, reply_to), written


def talk(conversation: Conversation[T], answer: Callable[[Call], Reply]) -> T:
    """Hold a conversation in which each call is answered by this function, and return its result."""
    replies: list[Reply] | None = None
    while True:
        try:
            calls = next(conversation) if replies is None else conversation.send(replies)
        except StopIteration as end:
            result: T = end.value
            return result
        replies = [answer(call) for call in calls]


def named(calls: Sequence[Call], name: str) -> list[Call]:
    return [call for call in calls if call.name == name]
