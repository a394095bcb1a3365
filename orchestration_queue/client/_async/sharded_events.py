"""Read the events of a queue's shards on one connection."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Self

from orchestration_queue.client._async.client import AsyncClient
from orchestration_queue.client._async.events import AsyncEventReader, checked_cursor, gap_in
from orchestration_queue.client.values import Deadline
from orchestration_queue.errors import UsageError
from orchestration_queue.options import Duration
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import event_log
from orchestration_queue.protocol.operations.conversation import all_good
from orchestration_queue.protocol.operations.event_log import Event
from orchestration_queue.server import AsyncConnection

__all__ = ["AsyncShardedEvents"]


class AsyncShardedEvents(AsyncClient):
    """The events of all shards, on one connection: an endless iterator of pairs of a shard's name and an event.

    The events of one shard come in order; those of different shards don't. A ``gap`` replaces events of its shard that
    were dropped before they were read. :meth:`AsyncShardedQueue.events` returns this.
    """

    def __init__(self, connection: AsyncConnection, shards: Sequence[QueueKeys], after: Mapping[str, str]) -> None:
        super().__init__(None, connection)
        names = {keys.queue for keys in shards}
        if not isinstance(after, Mapping) or not names.issuperset(after):
            raise UsageError(
                f"`after` must map shards' names to events' ids, got {after!r}; pass the `cursors` of a reader."
            )
        self._after = {keys: checked_cursor(after.get(keys.queue, "$")) for keys in shards}
        self._whole = {keys for keys, cursor in self._after.items() if cursor != "$"}
        self._reader: AsyncEventReader | None = None
        self._ahead: deque[tuple[str, Event]] = deque()

    @property
    def cursors(self) -> dict[str, str]:
        """By shard, the event after which the next read continues; ``$`` before the first."""
        after = self._after if self._reader is None else self._reader.cursors
        return {keys.queue: cursor for keys, cursor in after.items()}

    async def __aenter__(self) -> Self:
        await self._started()
        return self

    async def _started(self) -> AsyncEventReader:
        if self._reader is None:
            new = [keys for keys, cursor in self._after.items() if cursor == "$"]
            asked = [event_log.last_event_id(keys) for keys in new]
            replies = all_good(await self._connection.pipeline([one.call for one in asked], repeatable=True))
            self._after |= {keys: one.read(reply) for keys, one, reply in zip(new, asked, replies, strict=True)}
            self._reader = AsyncEventReader(self._connection, self._after)
        return self._reader

    async def read(self, timeout: Duration | None = 0) -> list[tuple[str, Event]]:  # noqa: ASYNC109  both faces have it
        """Return the next events, each with its shard's name; an empty list if the timeout expired.

        Args:
            timeout: How long to wait for the first: a duration, or seconds; None waits forever.
        """
        if self._ahead:
            ahead, self._ahead = list(self._ahead), deque()
            return ahead
        deadline = Deadline(timeout)
        reader = await self._started()
        while True:
            before = dict(reader.cursors)
            found = await reader.read(deadline.left)
            pairs: list[tuple[str, Event]] = []
            for keys, here in groupby(found, key=itemgetter(0)):
                events = [event for _, event in here]
                wants_all = keys in self._whole
                gap = await gap_in(self._connection, keys, before[keys], events, wants_all=wants_all)
                pairs += [(keys.queue, event) for event in ([gap, *events] if gap else events)]
            if pairs or deadline.has_passed:
                return pairs

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[str, Event]:
        if not self._ahead:
            self._ahead.extend(await self.read(None))
        return self._ahead.popleft()

    async def aclose(self) -> None:
        """Stop reading and close the connection."""
        if self._reader is not None:
            await self._reader.aclose()
        await super().aclose()
