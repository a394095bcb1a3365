"""Check arguments before anything is sent."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, get_args

from orchestration_queue.errors import InvalidNameError, InvalidOptionError, UsageError
from orchestration_queue.options import Duration
from orchestration_queue.options.checks import check_count, is_utf8
from orchestration_queue.wires.chasquimq.envelope import BackoffSpec, RetryOverride
from orchestration_queue.wires.chasquimq.packing import pack
from orchestration_queue.wires.chasquimq.repeat import (
    ChasquiCron,
    EveryPattern,
    MissedFires,
    Pattern,
    RepeatSpec,
)

__all__ = [
    "build_spec",
    "check_count",
    "check_cursor",
    "check_id",
    "check_ids",
    "check_key",
    "check_letter_id",
    "check_name",
    "duration_ms",
    "moment_ms",
    "retry_override",
]

# The original's producers accept no more, either.
MAX_NAME_BYTES = 256
# Times are scores of sorted sets: doubles, exact up to this.
_MAX_MS = 2**53
_CURSOR = re.compile(r"\$|\d+(-\d+)?")


def check_name(name: object) -> str:
    """Return a job's name.

    Raises:
        InvalidNameError: It is not text, or longer than 256 bytes.
    """
    if not isinstance(name, str) or not is_utf8(name):
        raise InvalidNameError(
            f"A job's name must be a string that UTF-8 can encode, got {name!r}; pass `name='send'`."
        )
    if (size := len(name.encode())) > MAX_NAME_BYTES:
        raise InvalidNameError(f"A job's name must have at most {MAX_NAME_BYTES} bytes, got {size}; shorten it.")
    return name


def check_id(job_id: object) -> str:
    """Return a job's id.

    Raises:
        InvalidNameError: It is not text, or blank.
    """
    if not isinstance(job_id, str) or not job_id.strip() or not is_utf8(job_id):
        raise InvalidNameError(
            f"A job's id must be a non-blank string that UTF-8 can encode, got {job_id!r}; pass `job_id='42'`."
        )
    return job_id


def check_ids(job_ids: object) -> list[str]:
    """Return the ids of many jobs.

    Raises:
        UsageError: It is not a list.
        InvalidNameError: One is not a string, or blank.
    """
    if not isinstance(job_ids, Sequence) or isinstance(job_ids, str | bytes):
        raise UsageError(f"`job_ids` must be a list of ids, got {job_ids!r}; pass `[job.id]`.")
    return [check_id(job_id) for job_id in job_ids]


def check_key(key: object) -> str:
    """Return the key of a repeatable job.

    Raises:
        InvalidOptionError: It is not text.
    """
    if not isinstance(key, str) or not is_utf8(key):
        raise InvalidOptionError(f"`key` must be a string that UTF-8 can encode, got {key!r}; pass `key='nightly'`.")
    return key


def check_cursor(after: object) -> str:
    """Return where to begin reading events.

    Raises:
        UsageError: It is not an event id, ``0`` or ``$``.
    """
    if isinstance(after, str) and _CURSOR.fullmatch(after):
        return after
    raise UsageError(f"`after` must be an event's id, got {after!r}; pass '0' for all events or '$' for new ones.")


def check_letter_id(letter_id: object, option: str) -> str:
    """Return the id of a dead letter.

    Raises:
        UsageError: It is not one.
    """
    if isinstance(letter_id, str) and letter_id != "$" and _CURSOR.fullmatch(letter_id):
        return letter_id
    raise UsageError(f"`{option}` must be a dead letter's id, got {letter_id!r}; pass one like '1700000000000-0'.")


def duration_ms(duration: object, option: str, least: int = 0) -> int:
    """Return a duration, or a number of seconds, in whole milliseconds.

    Raises:
        InvalidOptionError: It is neither, or outside the limits.
    """
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and math.isfinite(seconds):
        # The product is just below a whole number for some floats, such as 1.001.
        milliseconds = math.floor(seconds * 1000 + 1e-6)
        if least <= milliseconds <= _MAX_MS:
            return milliseconds
    raise InvalidOptionError(
        f"`{option}` must be a timedelta or seconds >= {least / 1000:g}, got {duration!r}; pass `{option}=5`."
    )


def moment_ms(moment: object, option: str) -> int:
    """Return a moment in epoch milliseconds.

    Raises:
        InvalidOptionError: It is not a datetime with a time zone.
    """
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise InvalidOptionError(
            f"`{option}` must be a datetime with a time zone, got {moment!r}; pass `datetime.now(UTC) + delay`."
        )
    return int(moment.timestamp() * 1000)


def retry_override(attempts: int | None, backoff: BackoffSpec | Duration | None) -> RetryOverride | None:
    """Return a job's own retry rules; None if it has none.

    Raises:
        InvalidOptionError: A value is out of range.
    """
    if attempts is None and backoff is None:
        return None
    if backoff is None or isinstance(backoff, BackoffSpec):
        return RetryOverride(attempts, backoff and backoff.checked())
    return RetryOverride(attempts, BackoffSpec.fixed(duration_ms(backoff, "backoff")))


def build_spec(
    name: str,
    data: Any,
    every: Duration | None,
    cron: str | None,
    tz: str | None,
    key: str,
    limit: int | None,
    start: datetime | None,
    end: datetime | None,
    missed_fires: MissedFires,
    max_catchup: int,
) -> RepeatSpec:
    """Check a repeatable job.

    Raises:
        UsageError: A value is invalid.
    """
    if missed_fires not in get_args(MissedFires):
        known = ", ".join(get_args(MissedFires))
        raise InvalidOptionError(
            f"`missed_fires` must be one of {known}, got {missed_fires!r}; pass `missed_fires='skip'`."
        )
    return RepeatSpec(
        check_name(name),
        _pattern(every, cron, tz),
        pack(data),
        check_key(key),
        None if limit is None else check_count(limit, "limit"),
        None if start is None else moment_ms(start, "start"),
        None if end is None else moment_ms(end, "end"),
        missed_fires,
        check_count(max_catchup, "max_catchup"),
    )


def _pattern(every: Duration | None, cron: str | None, tz: str | None) -> Pattern:
    if (every is None) is (cron is None):
        raise UsageError("A schedule needs either `every` or `cron`; pass `every=60` or `cron='0 2 * * *'`.")
    if every is not None:
        return EveryPattern(duration_ms(every, "every", 1))
    if not isinstance(cron, str) or not isinstance(tz, str | None):
        raise InvalidOptionError(
            f"`cron` and `tz` must be strings, got {cron!r} and {tz!r}; pass `cron='0 2 * * *', tz='UTC'`."
        )
    return ChasquiCron(cron, tz)
