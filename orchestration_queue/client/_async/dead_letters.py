"""A queue's dead letters: read, replay and remove the jobs that failed for good."""

from __future__ import annotations

from typing import Literal, TypeAlias

from orchestration_queue.client._async.job import AsyncJob
from orchestration_queue.client._async.producer import AsyncAdder
from orchestration_queue.client.checks import check_limit, check_page, check_text
from orchestration_queue.errors import DeadLetterNotFoundError, UsageError
from orchestration_queue.protocol.call import all_good
from orchestration_queue.protocol.keys import DEFAULT_PREFIX, QueueKeys
from orchestration_queue.protocol.operations import control, dead_letters, queue_settings, worker_registry
from orchestration_queue.protocol.operations.dead_letters import DeadLetter, DeadLetterPage, LetterGroup, group_letters
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.server import AsyncConnection

__all__ = ["AsyncDeadLetters"]

_Letters: TypeAlias = list[DeadLetter]
_Groups: TypeAlias = list[LetterGroup]
_BEGINNING = "0"


class AsyncDeadLetters(AsyncAdder):
    """The dead letters of one queue. They are stored in another queue, which may hold those of several.

    Args:
        name: The queue in which the jobs failed.
        dead_letter_queue: Where its dead letters are stored; default: the queue that its workers (or other clients)
            configured. If given, it is stored for other clients at the first use.
        url: The server; default ``OQ_URL``, or else the embedded server of this directory.
        connection: An open connection to use instead. It stays open on close.
        prefix: First part of every key.

    Raises:
        InvalidNameError: One of the names is invalid.
        UsageError: Both names are the same, or both ``url`` and ``connection`` are given.
    """

    def __init__(
        self,
        name: str,
        dead_letter_queue: str | None = None,
        *,
        url: str | None = None,
        connection: AsyncConnection | None = None,
        prefix: str = DEFAULT_PREFIX,
    ) -> None:
        super().__init__(name, url=url, connection=connection, prefix=prefix)
        self._letters = (
            None if dead_letter_queue is None else dead_letters.dead_letter_keys(self.keys, dead_letter_queue)
        )
        self._is_named = False

    async def _whereabouts(self) -> QueueKeys | None:
        """Return the keys of the dead-letter queue; None if none is configured."""
        if self._letters is None:
            stored = await self._connection.look(queue_settings.stored_dead_letter_queue(self.keys))
            return QueueKeys(stored, self.keys.prefix) if stored else None
        if not self._is_named:
            await self._connection.execute(worker_registry.name_dead_letter_queue(self.keys, self._letters.queue))
            self._is_named = True
        return self._letters

    async def _find(self, letter_id: str) -> tuple[QueueKeys | None, DeadLetter | None, JobRecord | None]:
        """Return the dead-letter queue's keys, one of this queue's dead letters, and its job; None if missing."""
        check_text(letter_id, "letter_id")
        keys = await self._whereabouts()
        found = await self._connection.follow(dead_letters.letter(keys, self.name, letter_id)) if keys else None
        letter, record = found or (None, None)
        return keys, letter, record

    async def find(self, letter_id: str) -> DeadLetter | None:
        """Return the dead letter with this id; None if it does not exist or belongs to another queue."""
        _, letter, _ = await self._find(letter_id)
        return letter

    async def get(self, letter_id: str) -> DeadLetter:
        """Return the dead letter with this id.

        Raises:
            DeadLetterNotFoundError: It does not exist, or belongs to another queue.
        """
        letter = await self.find(letter_id)
        if letter is None:
            raise DeadLetterNotFoundError(self.name, letter_id)
        return letter

    async def remove(self, letter_id: str) -> bool:
        """Remove a dead letter; return False if it does not exist or belongs to another queue."""
        keys, letter, _ = await self._find(letter_id)
        if keys is None or letter is None:
            return False
        return await self._connection.run(control.remove(keys, letter_id))

    async def replay(self, letter_id: str) -> AsyncJob:
        """Run a dead job again, as a new job of its queue with all its attempts, and remove the dead letter.

        Data and options are those of the original job if it still exists (except id, delay, deduplication and parent).
        Otherwise the data are the dead letter's, without options.

        It is safe to call again after a lost reply: the new job's id is derived from the dead letter. Only a replay
        that finished and was not kept could run again.

        Returns:
            The new job; ``is_new`` is False if an earlier call added it.

        Raises:
            DeadLetterNotFoundError: It does not exist, or belongs to another queue.
        """
        keys, _, record = await self._find(letter_id)
        if keys is None or record is None:
            raise DeadLetterNotFoundError(self.name, letter_id)
        (again,) = await self._connection.follow(dead_letters.replays(keys, self.keys, [record]))
        (job,) = await self._jobs([await self._place(again)])
        # Last, so that a call that was interrupted can be repeated.
        await self._connection.run(control.remove(keys, letter_id))
        return job

    async def replay_all(self, limit: int | None = None) -> int:
        """Run dead jobs again, oldest first, each as :meth:`replay` does. 200 per exchange.

        Args:
            limit: At most this many; None for all that exist now.

        Returns:
            How many were replayed.

        Raises:
            UsageError: The limit is negative, or not an integer.
        """
        return await self._each(check_limit(limit), replay=True)

    async def purge(self) -> int:
        """Remove all dead letters that the queue has now; return how many."""
        return await self._each(None, replay=False)

    async def _each(self, limit: int | None, *, replay: bool) -> int:
        if limit == 0:
            return 0
        keys = await self._whereabouts()
        # Jobs that fail during the call are not part of it; otherwise it might never end.
        until = await self._connection.follow(dead_letters.last_entry(keys)) if keys else None
        if keys is None or until is None:
            return 0
        done, after = 0, _BEGINNING
        while True:
            page = await self._connection.follow(dead_letters.dead_letter_page(keys, self.name, after, until))
            wanted = len(page.letters) if limit is None else min(len(page.letters), limit - done)
            done += await self._settle(keys, page, wanted, replay=replay)
            if page.after is None or done == limit:
                return done
            after = page.after

    async def _settle(self, keys: QueueKeys, page: DeadLetterPage, wanted: int, *, replay: bool) -> int:
        """Remove the first dead letters of a page, after replaying them if wanted."""
        if replay:
            await self._place_all(
                await self._connection.follow(dead_letters.replays(keys, self.keys, list(page.records[:wanted])))
            )
        ids = [letter.id for letter in page.letters[:wanted]]
        all_good(
            await self._connection.pipeline(dead_letters.discard(keys, ids, page.entries[:wanted] + page.left_over))
        )
        return wanted

    async def list(self, *, limit: int | None = 100, offset: int = 0) -> _Letters:
        """List the queue's dead letters, oldest first, with their kinds of failure.

        Two exchanges per 200 jobs of the dead-letter queue, and one per 1,000 dead letters in the list.

        Args:
            limit: At most this many; None for all.
            offset: How many of the oldest to skip.

        Raises:
            UsageError: The limit or the offset is negative, or not an integer.
        """
        start, end = check_page(limit, offset)
        keys = await self._whereabouts()
        found: _Letters = []
        after: str | None = _BEGINNING
        while keys and after is not None and (end < 0 or len(found) <= end):
            page = await self._connection.follow(dead_letters.dead_letter_page(keys, self.name, after))
            found += page.letters
            after = page.after
        listed = found[start:] if end < 0 else found[start : end + 1]
        return await self._connection.follow(dead_letters.with_kinds(self.keys, listed))

    async def groups(self, by: Literal["kind", "reason"] = "reason", *, limit: int | None = None) -> _Groups:
        """Group the queue's dead letters by how their jobs failed, the largest group first.

        Args:
            by: ``kind`` for a group per kind of failure; ``reason`` for one per kind, job name and first line of the
                reason.
            limit: Read at most this many dead letters, oldest first; None reads all.

        Raises:
            UsageError: There is no such grouping, or the limit is negative or not an integer.
        """
        if by not in ("kind", "reason"):
            raise UsageError(f"`by` must be 'kind' or 'reason', got {by!r}.")
        return group_letters(await self.list(limit=limit), by)
