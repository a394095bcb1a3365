"""Check arguments before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import TypeVar

from orchestration_queue.errors import UsageError
from orchestration_queue.server.clock import epoch_ms
from orchestration_queue.states import TERMINAL, JobState

__all__ = [
    "check_count",
    "check_day",
    "check_finished",
    "check_flag",
    "check_items",
    "check_kind",
    "check_limit",
    "check_one_of",
    "check_page",
    "check_span",
    "check_state",
    "check_text",
]

T = TypeVar("T")
_LATEST_MS = 2**53


def check_text(value: str, name: str) -> str:
    """Return a name or an id.

    Raises:
        UsageError: It is empty, or not a string.
    """
    if not isinstance(value, str) or not value:
        raise UsageError(f"`{name}` must be a non-empty string, got {value!r}.")
    return value


def check_flag(value: bool, name: str) -> bool:
    """Return a flag.

    Raises:
        UsageError: It is neither True nor False.
    """
    if not isinstance(value, bool):
        raise UsageError(f"`{name}` must be True or False, got {value!r}.")
    return value


def check_kind(kind: str, state: JobState | None) -> str:
    """Return a kind of failure for selecting jobs in a state; None for any state.

    Raises:
        UsageError: It is empty or not a string, or jobs in that state have not failed.
    """
    if state is JobState.COMPLETED:
        raise UsageError("Jobs that are completed have no kind of failure; pass `state='failed'`.")
    return check_text(kind, "kind")


def check_span(since: datetime | None, until: datetime | None, state: JobState | None) -> tuple[int, int] | None:
    """Return a time as epoch milliseconds: its begin, and the moment after its end; None without one.

    Raises:
        UsageError: One is no time with a zone, or jobs in this state have not ended.
    """
    if since is None and until is None:
        return None
    if state not in TERMINAL:
        raise UsageError("Only completed and failed jobs are found by when they ended; pass `state='failed'`.")
    return 0 if since is None else epoch_ms(since), _LATEST_MS if until is None else epoch_ms(until)


def check_limit(value: int | None, name: str = "limit") -> int | None:
    """Return a maximum number; None for all.

    Raises:
        UsageError: It is negative, or not an integer.
    """
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise UsageError(f"`{name}` must be a whole number >= 0, or None for all; got {value!r}.")
    return value


def check_one_of(given: Mapping[T, str | None], what: str) -> tuple[T, str]:
    """Return the only name that is given, with its key.

    Args:
        given: The names; None for each that is not given.
        what: What they are.

    Raises:
        UsageError: None or several are given, or it is empty or not a string.
    """
    named = [(key, value) for key, value in given.items() if value is not None]
    if len(named) != 1:
        raise UsageError(f"Pass exactly one of {what}; {len(named) or 'none'} were given.")
    ((key, value),) = named
    return key, check_text(value, "name")


def check_page(limit: int | None, offset: int) -> tuple[int, int]:
    """Return the first and the last index of a page, both inclusive, as the server counts: -1 is the last of all.

    Raises:
        UsageError: One of them is negative, or not an integer.
    """
    if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
        raise UsageError(f"`offset` must be a whole number >= 0, got {offset!r}.")
    if check_limit(limit) == 0:
        return 1, 0  # an empty range
    return offset, -1 if limit is None else offset + limit - 1


def check_items(values: Iterable[T], kind: type[T], name: str) -> list[T]:
    """Return a list of values of one type.

    Raises:
        UsageError: It is not a list, or one of its items is of another type.
    """
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise UsageError(f"`{name}` must be a list of {kind.__name__}, got {values!r}.")
    items = list(values)
    for place, item in enumerate(items):
        if not isinstance(item, kind):
            raise UsageError(f"`{name}` must be a list of {kind.__name__}, got {item!r} at position {place}.")
    return items


def check_state(state: JobState | str) -> JobState:
    """Return the state with this name.

    Raises:
        UsageError: It does not exist.
    """
    try:
        return JobState(state)
    except ValueError:
        raise UsageError(f"`state` must be one of {', '.join(JobState)}; got {state!r}.") from None


def check_finished(state: JobState | str, what: str) -> JobState:
    """Return the state with this name, in which jobs have finished.

    Raises:
        UsageError: It does not exist, or jobs in it have not finished.
    """
    if (finished := check_state(state)) not in TERMINAL:
        raise UsageError(f"Jobs that are {finished} have not finished; only completed or failed ones {what}.")
    return finished


def check_day(day: date) -> date:
    """Return a day.

    Raises:
        UsageError: It is not a date, or also has a time.
    """
    if not isinstance(day, date) or isinstance(day, datetime):
        raise UsageError(f"`day` must be a date in UTC, got {day!r}; pass `date(2026, 1, 31)`.")
    return day


def check_count(count: int) -> int:
    """Return a number of items.

    Raises:
        UsageError: It is negative, or not an integer.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise UsageError(f"`count` must be a whole number >= 0, got {count!r}.")
    return count
