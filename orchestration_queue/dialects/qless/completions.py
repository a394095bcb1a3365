"""Completing many jobs with few commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from orchestration_queue.dialects.qless.commands import command
from orchestration_queue.errors import ServerError
from orchestration_queue.protocol.call import Call, Reply, texts

__all__ = ["CompletionBatch", "QlessCompletion", "completion_batches"]

_AT_ONCE = 20
"""A command of 20 holds the server 0.4 ms, and takes half as long as 20 commands."""


class QlessCompletion(NamedTuple):
    """A job to complete."""

    jid: str
    queue: str
    encoded: str


@dataclass(frozen=True, slots=True)
class CompletionBatch:
    """Jobs of one queue that one command completes.

    Attributes:
        queue: The queue.
        completions: The jobs, each by its place among all.
    """

    queue: str
    completions: Mapping[int, QlessCompletion]

    def call(self, worker: str) -> Call:
        """Return the command."""
        words = (word for job in self.completions.values() for word in (job.jid, job.encoded))
        return command("multicomplete", worker, self.queue, *words)

    def outcomes(self, reply: Reply) -> dict[int, str | Exception]:
        """Return each job's state, or why it was refused, by its place."""
        if isinstance(reply, Exception):
            return dict.fromkeys(self.completions, reply)
        return {
            place: text if text == "complete" else ServerError(text)
            for place, text in zip(self.completions, texts(reply), strict=True)
        }


def completion_batches(completions: Sequence[QlessCompletion]) -> list[CompletionBatch]:
    """Return the commands that complete jobs."""
    return list(_batches(completions))


def _batches(completions: Sequence[QlessCompletion]) -> Iterator[CompletionBatch]:
    places: dict[str, list[int]] = {}
    for place, completion in enumerate(completions):
        places.setdefault(completion.queue, []).append(place)
    for queue, found in places.items():
        for first in range(0, len(found), _AT_ONCE):
            yield CompletionBatch(queue, {place: completions[place] for place in found[first : first + _AT_ONCE]})
