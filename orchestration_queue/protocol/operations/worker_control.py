"""Commands to the workers of a queue, which hear them beside their other signals, and their replies."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from orchestration_queue.protocol.call import Call, Operation, Reply, text
from orchestration_queue.protocol.codec import dump_json
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.record import pairs

__all__ = [
    "Command",
    "WorkerReply",
    "WorkerVerb",
    "read_command",
    "read_replies",
    "reply",
    "send",
    "unregistered_of",
]

WorkerVerb: TypeAlias = Literal["ping", "pause", "resume", "stop", "concurrency"]

_SIGNALS_KEPT, _SIGNALS_TTL_MS = 1000, 60_000
_REPLIES_TTL_MS = 60_000


@dataclass(frozen=True, slots=True)
class Command:
    """A command to some workers of a queue.

    Attributes:
        id: Names the stream of its replies.
        verb: What to do.
        workers: Who must do it.
        value: The number of slots, for ``concurrency``.
    """

    id: str
    verb: str
    workers: tuple[str, ...]
    value: int | None = None


@dataclass(frozen=True, slots=True)
class WorkerReply:
    """What a worker answered to a command.

    Attributes:
        worker: Its id.
        answered: Whether it answered in time; nothing below is known otherwise.
        problem: Why it did not do what it was told; None when it did.
        is_paused: Whether it takes no jobs now, for whatever reason.
        concurrency: How many jobs it runs at a time.
        active_jobs: How many jobs it runs now.
        latency: How long after the command its answer was here.
    """

    worker: str
    answered: bool = False
    problem: str | None = None
    is_paused: bool = False
    concurrency: int | None = None
    active_jobs: int = 0
    latency: timedelta | None = None

    @property
    def has_obeyed(self) -> bool:
        """Whether it answered that it did what it was told."""
        return self.answered and self.problem is None


def unregistered_of(keys: QueueKeys, workers: Sequence[str]) -> Operation[list[str]]:
    """Those of some worker ids that no worker has."""

    def read(answer: Reply) -> list[str]:
        return [worker for worker, stored in zip(workers, answer, strict=True) if stored is None]

    return Operation(Call("MGET", tuple(map(keys.worker, workers))), read)


def send(keys: QueueKeys, command: Command) -> tuple[Call, Call]:
    """Signal a command to the queue's workers. To be sent as one transaction."""
    told = dump_json([command.id, command.verb, command.workers, command.value])
    entry = ("MAXLEN", "~", _SIGNALS_KEPT, "*", "control", told)
    return Call("XADD", (keys.wake,), entry), Call("PEXPIRE", (keys.wake,), (_SIGNALS_TTL_MS,))


def read_command(stored: str) -> Command | None:
    """Return a command as it was signalled; None when it cannot be read."""
    try:
        id_, verb, workers, value = json.loads(stored)
        return Command(str(id_), str(verb), tuple(map(str, workers)), None if value is None else int(value))
    except (ValueError, TypeError):
        return None


def reply(keys: QueueKeys, command: Command, worker: str, facts: Mapping[str, object]) -> tuple[Call, Call]:
    """Answer a command. To be sent as one transaction."""
    key = keys.replies(command.id)
    return Call("XADD", (key,), ("*", "worker", worker, "facts", dump_json(facts))), Call(
        "PEXPIRE", (key,), (_REPLIES_TTL_MS,)
    )


def read_replies(
    keys: QueueKeys, command: Command, after: str, block_ms: int
) -> Operation[tuple[str, list[WorkerReply]]]:
    """Return the answers after that entry, waiting up to ``block_ms`` for the next, and the last entry read. Blocks."""
    key = keys.replies(command.id)
    args = ("BLOCK", block_ms, "STREAMS", key, after)

    def read(answer: Reply) -> tuple[str, list[WorkerReply]]:
        entries = answer[0][1] if answer else ()
        last = text(entries[-1][0]) if entries else after
        return last, [_read_reply(pairs(fields)) for _, fields in entries]

    return Operation(Call("XREAD", args=args, near=key), read)


def _read_reply(fields: Mapping[str, str]) -> WorkerReply:
    try:
        facts: dict[str, Any] = json.loads(fields.get("facts", "{}"))
        return WorkerReply(
            fields.get("worker", ""),
            answered=True,
            problem=facts.get("problem"),
            is_paused=bool(facts.get("paused")),
            concurrency=facts.get("concurrency"),
            active_jobs=int(facts.get("activeJobs") or 0),
        )
    except (ValueError, TypeError, AttributeError):
        return WorkerReply(fields.get("worker", ""), answered=True, problem="its answer cannot be read")
