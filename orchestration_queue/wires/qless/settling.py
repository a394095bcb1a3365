"""Outcomes on their way to the server, many in one exchange."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from orchestration_queue._logging import get_logger
from orchestration_queue.errors import OrchestrationQueueError, ServerError, TransportError
from orchestration_queue.protocol.call import Call, Reply, texts
from orchestration_queue.server import AsyncConnection
from orchestration_queue.wires.qless.commands import command

__all__ = ["CompletionBatch", "QlessCompletion", "QlessSettler", "completion_batches"]

log = get_logger("orchestration_queue.qless")

_AT_ONCE = 20
"""A command of 20 holds the server 0.4 ms, and takes half as long as 20 commands."""
_BATCH = 256
_PAUSE_S = 0.2


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


class QlessSettler:
    """Sends outcomes. An outage delays them; a job whose lock is lost meanwhile runs again elsewhere.

    Args:
        connection: Where to.
        worker: The worker's name.
    """

    def __init__(self, connection: AsyncConnection, worker: str) -> None:
        self._connection = connection
        self._worker = worker
        self._pending: list[tuple[str, QlessCompletion | Call]] = []
        self._task: asyncio.Task[None] | None = None

    def settle(self, jid: str, outcome: QlessCompletion | Call) -> None:
        """Send an outcome soon: a plain completion, or any other command."""
        self._pending.append((jid, outcome))
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._send())

    async def flush(self) -> None:
        """Wait until all outcomes are sent."""
        if self._task is not None:
            await self._task

    async def _send(self) -> None:
        # After the event loop's other callbacks, so that jobs that end together are sent together.
        await asyncio.sleep(0)
        while self._pending:
            batch = self._pending[:_BATCH]
            try:
                refusals = await self._exchange(batch)
            except TransportError as error:
                log.warning("%d outcomes wait for the server: %s", len(batch), error)
                await asyncio.sleep(_PAUSE_S)
                continue
            except OrchestrationQueueError as error:
                refusals = {jid: error for jid, _ in batch}
            del self._pending[: len(batch)]
            # Sent twice after an outage, they are refused the second time.
            for jid, why in refusals.items():
                log.warning("The outcome of job %s was refused: %s", jid, why)

    async def _exchange(self, batch: list[tuple[str, QlessCompletion | Call]]) -> dict[str, Exception]:
        """Send outcomes. Return the errors of those that were refused."""
        completions = [outcome for _, outcome in batch if isinstance(outcome, QlessCompletion)]
        batches = completion_batches(completions)
        others = [(jid, outcome) for jid, outcome in batch if isinstance(outcome, Call)]
        calls = [part.call(self._worker) for part in batches]
        replies = await self._connection.pipeline(calls + [call for _, call in others])
        refusals = {jid: reply for (jid, _), reply in zip(others, replies[len(calls) :], strict=True)}
        for part, reply in zip(batches, replies, strict=False):
            refusals |= {completions[place].jid: outcome for place, outcome in part.outcomes(reply).items()}
        return {jid: reply for jid, reply in refusals.items() if isinstance(reply, ServerError)}
