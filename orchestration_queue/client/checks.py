"""What callers pass to a queue, checked before anything is sent."""

from __future__ import annotations

from datetime import datetime

from orchestration_queue.errors import UsageError
from orchestration_queue.states import TERMINAL, JobState

__all__ = ["checked_count", "checked_finished", "checked_state", "epoch_ms"]


def checked_state(state: JobState | str) -> JobState:
    """The state of that name.

    Raises:
        UsageError: There is none.
    """
    try:
        return JobState(state)
    except ValueError:
        raise UsageError(f"{state!r} is no state of a job; the states are {', '.join(JobState)}.") from None


def checked_finished(state: JobState | str, what: str) -> JobState:
    """The state of that name, in which jobs have finished.

    Raises:
        UsageError: There is none, or jobs in it have not finished.
    """
    if (finished := checked_state(state)) not in TERMINAL:
        raise UsageError(f"Jobs that are {finished} have not finished; only completed or failed ones {what}.")
    return finished


def checked_count(count: int) -> int:
    """A number of jobs.

    Raises:
        UsageError: It is negative, or no whole number.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise UsageError(f"{count!r} is no number of jobs; count must be a non-negative integer.")
    return count


def epoch_ms(at: datetime) -> int:
    """A time as the wire counts it.

    Raises:
        UsageError: It is no time, or has no time zone.
    """
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise UsageError(f"{at!r} does not say which moment it is; pass a datetime with a time zone.")
    return int(at.timestamp() * 1000)
