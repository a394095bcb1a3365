"""Schedules as users write them: frozen values, checked when they are created."""

from __future__ import annotations

from abc import abstractmethod
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Literal, TypedDict, Unpack

from pydantic import ValidationError, ValidatorFunctionWrapHandler, field_validator, model_validator

from orchestration_queue.errors import InvalidOptionError, ScheduleError
from orchestration_queue.options import Options, milliseconds
from orchestration_queue.options.durations import Duration, DurationField, NonNegative
from orchestration_queue.schedules.cron import CronPattern, known_zone, with_numbers
from orchestration_queue.schedules.policies import MissedRuns, Overlap, Policies
from orchestration_queue.schedules.timing import MAX_SAFE_INTEGER, Timing

__all__ = ["Cron", "Every", "RepeatAfterComplete", "Schedule"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _epoch_ms(at: datetime | None) -> int | None:
    return None if at is None else milliseconds(at - _EPOCH)


class PolicyOptions(TypedDict, total=False):
    """The policies of all schedules; :class:`Schedule` describes them."""

    jitter: Duration
    missed: MissedRuns | Literal["skip", "fire_once"]
    overlap: Overlap | Literal["allow", "skip", "queue_one", "replace"]


class Schedule(Options):
    """When jobs are added: a :class:`Cron`, :class:`Every` or :class:`RepeatAfterComplete`."""

    start: datetime | None = None
    """No run before this time."""
    end: datetime | None = None
    """No run after this time."""
    limit: int | None = None
    """Add this many jobs, then remove the schedule."""
    jitter: NonNegative = timedelta(0)
    """Run up to this much later than planned, by an amount derived from the scheduler's name and the due time."""
    missed: MissedRuns = MissedRuns()
    """What happens to missed runs."""
    overlap: Overlap = Overlap.ALLOW
    """What a run does while the previous run's job has not ended."""

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except InvalidOptionError as error:
            raise ScheduleError(str(error)) from None

    @field_validator("start", "end", mode="before")
    @classmethod
    def _is_an_instant(cls, value: object, info: Any) -> object:
        if value is None or (isinstance(value, datetime) and value.tzinfo is not None):
            return value
        raise ScheduleError(
            f"{info.field_name}Date must be a valid Date or timestamp, and {value!r} names no instant; "
            "pass a datetime with a time zone."
        )

    @field_validator("limit", mode="before")
    @classmethod
    def _is_a_count(cls, value: object) -> object:
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
            return value
        raise ScheduleError(f"limit must be a positive integer, and {value!r} is not; pass None for no limit.")

    @field_validator("missed", mode="before")
    @classmethod
    def _may_be_named(cls, value: object) -> object:
        return {"mode": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _starts_before_it_ends(self) -> Schedule:
        if self.start is not None and self.end is not None and self.start > self.end:
            raise ScheduleError(
                "startDate must be less than or equal to endDate, and "
                f"{self.start.isoformat()} is after {self.end.isoformat()}; swap them."
            )
        return self

    @property
    @abstractmethod
    def timing(self) -> Timing:
        """The schedule's times in the wire's units."""

    @property
    def policies(self) -> Policies:
        """Its policies for late and overlapping runs, as stored."""
        missed = self.missed
        return Policies(missed.mode, missed.max or 1, self.overlap, milliseconds(self.jitter))

    def next_run(self, after: datetime) -> datetime | None:
        """Return the first run strictly after a time, if the schedule were set then; None beyond its end.

        Raises:
            ScheduleError: It never occurs.
        """
        after_ms = milliseconds(after - _EPOCH)
        run_ms = self.timing.first_run(after_ms)
        if run_ms is not None and run_ms <= after_ms:
            run_ms = self.timing.following_run(run_ms, after_ms)
        return None if run_ms is None else _EPOCH + timedelta(milliseconds=run_ms)


class Cron(Schedule):
    """Run at the times of a cron pattern: minute, hour, day of month, month, day of week.

    Each field is a list of ``*``, numbers, ranges ``a-b`` and steps ``*/s`` or ``a-b/s``; 0 is Sunday. Names (``MON``,
    ``JAN``) and nicknames (``@daily``) are stored as the numbers that every client reads. With six fields, the first is
    seconds, an extension that Node clients ignore.

    Examples:
        >>> Cron("30 9 * * MON-FRI", tz="Europe/Berlin").pattern
        '30 9 * * 1-5'

    Args:
        pattern: The pattern.
        tz: The IANA name of the pattern's time zone; None for UTC.
        start: No run before this time; None for no limit.
        end: No run after this time; None for no limit.
        limit: Add this many jobs; None for no limit.
        day_or: For a pattern that restricts both days of month and days of week: True if one of them is enough, as in
            crontab(5), False if both must match, as other clients of the wire read it. Without it, such a pattern is
            refused. Node clients can't run one with True, and ignore it.
        policies: ``jitter``, ``missed`` and ``overlap``, see :class:`Schedule`.

    Raises:
        ScheduleError: The pattern is invalid, or this machine doesn't know the time zone.
    """

    pattern: str
    tz: str | None = None
    day_or: bool | None = None

    def __init__(
        self,
        pattern: str,
        tz: str | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        limit: int | None = None,
        *,
        day_or: bool | None = None,
        **policies: Unpack[PolicyOptions],
    ) -> None:
        super().__init__(pattern=pattern, tz=tz, start=start, end=end, limit=limit, day_or=day_or, **policies)

    @field_validator("pattern")
    @classmethod
    def _is_a_pattern(cls, value: str) -> str:
        numbers = with_numbers(value.strip())
        CronPattern.parse(numbers)
        return numbers

    @model_validator(mode="after")
    def _says_which_days(self) -> Cron:
        if self.day_or is None and CronPattern.parse(self.pattern).restricts_both_days:
            raise ScheduleError(
                f"The cron pattern {self.pattern!r} restricts both day of month and day of week, and crons differ in "
                "what that means; pass `day_or=True` if one of them is enough, or `day_or=False` if both must match."
            )
        return self

    @field_validator("tz")
    @classmethod
    def _is_a_zone(cls, value: str | None) -> str | None:
        known_zone(value)
        return value

    @property
    def timing(self) -> Timing:
        """The schedule's times in the wire's units."""
        return Timing(
            pattern=self.pattern,
            tz=self.tz,
            start_date=_epoch_ms(self.start),
            end_date=_epoch_ms(self.end),
            day_or=bool(self.day_or),
        )


class _Interval(Schedule):
    """A schedule with a fixed interval.

    Its subclasses have their own ``__init__``: for a model without one, type checkers derive one with keywords only.
    """

    _wire_name: ClassVar[str]

    interval: DurationField

    @field_validator("interval", mode="wrap")
    @classmethod
    def _is_positive(cls, value: object, handler: ValidatorFunctionWrapHandler) -> timedelta:
        try:
            interval: timedelta = handler(value)
            if 0 < milliseconds(interval) <= MAX_SAFE_INTEGER:
                return interval
        except ValidationError:
            pass
        raise ScheduleError(
            f"{cls._wire_name} must be a positive safe integer of milliseconds, got {value!r}; "
            "pass a timedelta or seconds, 0.001 or more."
        )


class Every(_Interval):
    """Run at a fixed interval, counted from ``start`` or from now. Missed runs don't change the phase.

    Args:
        interval: Time between runs: a duration, or seconds.
        start: The first run; None for one interval from now.
        end: No run after this time; None for no limit.
        limit: Add this many jobs; None for no limit.
        policies: ``jitter``, ``missed`` and ``overlap``, see :class:`Schedule`.

    Raises:
        ScheduleError: The interval is shorter than a millisecond.
    """

    _wire_name = "every"

    def __init__(
        self,
        interval: Duration,
        start: datetime | None = None,
        end: datetime | None = None,
        limit: int | None = None,
        **policies: Unpack[PolicyOptions],
    ) -> None:
        super().__init__(interval=interval, start=start, end=end, limit=limit, **policies)

    @property
    def timing(self) -> Timing:
        """The schedule's times in the wire's units."""
        return Timing(every=milliseconds(self.interval), start_date=_epoch_ms(self.start), end_date=_epoch_ms(self.end))


class RepeatAfterComplete(_Interval):
    """Run once now, and again some time after each job has completed or failed for good, so that runs never overlap.

    Args:
        interval: Pause between two jobs: a duration, or seconds.
        start: The first run; None for now.
        end: No run after this time; None for no limit.
        limit: Add this many jobs; None for no limit.
        policies: ``jitter``, ``missed`` and ``overlap``, see :class:`Schedule`.

    Raises:
        ScheduleError: The interval is shorter than a millisecond.
    """

    _wire_name = "repeatAfterComplete"

    def __init__(
        self,
        interval: Duration,
        start: datetime | None = None,
        end: datetime | None = None,
        limit: int | None = None,
        **policies: Unpack[PolicyOptions],
    ) -> None:
        super().__init__(interval=interval, start=start, end=end, limit=limit, **policies)

    @property
    def timing(self) -> Timing:
        """The schedule's times in the wire's units."""
        return Timing(
            repeat_after_complete=milliseconds(self.interval),
            start_date=_epoch_ms(self.start),
            end_date=_epoch_ms(self.end),
        )
