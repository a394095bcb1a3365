"""List, replay and remove a queue's dead letters."""

from __future__ import annotations

from collections.abc import Sequence

from orchestration_queue.errors import UsageError
from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.functions import chasquimq as functions
from orchestration_queue.wires.chasquimq._async.client import AsyncChasquiClient
from orchestration_queue.wires.chasquimq.checks import check_count, check_letter_id
from orchestration_queue.wires.chasquimq.entries import ChasquiDeadLetter, read_dead_letters, replayable
from orchestration_queue.wires.chasquimq.jobs import MAX_LENGTH

__all__ = ["AsyncChasquiDeadLetters"]

_PAGE = 100


class AsyncChasquiDeadLetters(AsyncChasquiClient):
    """The dead-letter methods of a queue."""

    _max_length = MAX_LENGTH

    async def dead_letters(self, limit: int = 20, *, after: str | None = None) -> list[ChasquiDeadLetter]:
        """List the dead letters, oldest first.

        Args:
            limit: At most this many.
            after: List those that follow the dead letter with this id.

        Raises:
            UsageError: A value is invalid; nothing was sent.
        """
        start = "-" if after is None else f"({check_letter_id(after, 'after')}"
        args = (start, "+", "COUNT", check_count(limit, "limit"))
        return read_dead_letters(await self._execute(Call("XRANGE", (self.keys.dead_letters,), args), repeatable=True))

    async def find_dead_letter(self, letter_id: str) -> ChasquiDeadLetter | None:
        """Return a dead letter; None if it does not exist.

        Raises:
            UsageError: It is not an id; nothing was sent.
        """
        found = check_letter_id(letter_id, "letter_id")
        reply = await self._execute(Call("XRANGE", (self.keys.dead_letters,), (found, found)), repeatable=True)
        return next(iter(read_dead_letters(reply)), None)

    async def replay_dead_letters(
        self, limit: int | None = None, *, ids: Sequence[str] | None = None, reason: str | None = None
    ) -> int:
        """Make dead jobs ready again, oldest first, with all their attempts. Unreadable ones stay.

        Args:
            limit: At most this many; None for no limit.
            ids: Only the dead letters with these ids.
            reason: Only those that failed for this reason.

        Returns:
            How many jobs run again.

        Raises:
            UsageError: A value is invalid; nothing was sent.
        """
        left = None if limit is None else check_count(limit, "limit", 0)
        if isinstance(ids, str) or not isinstance(ids, Sequence | None):
            raise UsageError(f"`ids` must be a list of ids of dead letters, got {ids!r}; pass `[letter.id]`.")
        for letter_id in ids or ():
            check_letter_id(letter_id, "ids")
        if not isinstance(reason, str | None):
            raise UsageError(f"`reason` must be a string, got {reason!r}; pass `reason='retries_exhausted'`.")
        replayed, after = 0, None
        while (left is None or replayed < left) and (page := await self.dead_letters(_PAGE, after=after)):
            after = page[-1].id
            wanted = [
                letter
                for letter in page
                if (ids is None or letter.id in ids) and (reason is None or letter.reason == reason)
            ]
            letters = replayable(wanted)[: None if left is None else left - replayed]
            if letters:
                call = functions.replay(
                    dead_letters_key=self.keys.dead_letters,
                    stream_key=self.keys.stream,
                    letters=letters,
                    max_length=self._max_length,
                )
                replayed += int(await self._execute(call))
        return replayed

    async def purge_dead_letters(self) -> int:
        """Remove all dead letters and return how many there were."""
        length, _ = await self._pipeline(
            [Call("XLEN", (self.keys.dead_letters,)), Call("DEL", (self.keys.dead_letters,))]
        )
        return int(length)
