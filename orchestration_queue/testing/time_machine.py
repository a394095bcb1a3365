"""Time travel: delayed jobs, backoffs and schedules are due when the test says so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import ClassVar, Self

from orchestration_queue.errors import UsageError
from orchestration_queue.options import Duration
from orchestration_queue.protocol.record import when
from orchestration_queue.server import clock

__all__ = ["TimeMachine"]

_EARLIEST = datetime(1970, 1, 2, tzinfo=UTC)
_LATEST = datetime(2100, 1, 1, tzinfo=UTC)
"""The wire's scores allow some more years, which delays may need."""


class TimeMachine:
    """The clock of this process's queues, under a test's control. A context manager that sets the clock back.

    All times of the wire come from its clients, so these follow: delayed jobs, pauses before retries, schedules,
    ``ttl``, the windows of rate limits and deduplication, retention by age, and every time in a record. Workers of this
    process wake immediately. Time continues to pass at the new time.

    What does not follow: other processes; keys that the server itself expires, such as the schedulers' lock; the search
    for stalled jobs, which asks the server how long a delivery was idle; a handler's ``timeout`` and its own sleeps. To
    other workers, a job that runs during a jump looks as if its worker had been unreachable for that time.

    Examples:
        >>> with TimeMachine() as clock:
        ...     before = clock.now()
        ...     clock.travel(timedelta(days=30)) - before >= timedelta(days=30)
        True
    """

    _open: ClassVar[int] = 0

    def __enter__(self) -> Self:
        self._home = clock.ahead()
        TimeMachine._open += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        TimeMachine._open -= 1
        clock.travel(self._home)

    @classmethod
    def is_open(cls) -> bool:
        """Whether any time machine will set the clock back later."""
        return cls._open > 0

    def now(self) -> datetime:
        """Return the time for the queues of this process, in UTC."""
        now = when(clock.now_ms())
        assert now is not None  # noqa: S101  the epoch itself is out of reach
        return now

    def travel(self, distance: Duration) -> datetime:
        """Travel forward by a duration, or seconds; backward if it is negative.

        Returns:
            The new time.

        Raises:
            UsageError: It is out of the wire's range.
        """
        return self.travel_to(self.moment(distance))

    def travel_to(self, moment: datetime) -> datetime:
        """Travel to a time, past or future.

        Returns:
            The new time.

        Raises:
            UsageError: It has no time zone, or is out of the wire's range.
        """
        clock.travel(clock.ahead() + (self.moment(moment) - self.now()))
        return self.now()

    def moment(self, where: datetime | Duration) -> datetime:
        """Return a time, from a datetime, or from a duration or seconds from now.

        Raises:
            UsageError: It has no time zone, or is out of the wire's range.
        """
        if not isinstance(where, datetime):
            try:
                moment = self.now() + (where if isinstance(where, timedelta) else timedelta(seconds=where))
            except (OverflowError, ValueError):  # out of datetime's reach, or no number
                raise _out_of_reach(f"{where} from now") from None
        elif where.tzinfo is None:
            raise UsageError(
                f"The moment {where} has no time zone, so it names no instant; "
                "pass an aware datetime, such as datetime(2030, 1, 1, tzinfo=UTC)."
            )
        else:
            moment = where
        if not _EARLIEST <= moment <= _LATEST:
            raise _out_of_reach(str(moment))
        return moment


def _out_of_reach(where: str) -> UsageError:
    return UsageError(f"The wire cannot count as far as {where}; stay between 1970 and 2100.")
