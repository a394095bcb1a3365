"""Option values: frozen, validated where they are written, and readable as what they do.

Times are :class:`~datetime.timedelta`; a plain number means seconds. The wire's milliseconds appear only in
:meth:`JobOptions.wire`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from orchestration_queue.errors import InvalidOptionError, UsageError

__all__ = [
    "Backoff",
    "Deduplication",
    "JobOptions",
    "Options",
    "Ordering",
    "RateLimit",
    "Retention",
    "TokenBucket",
    "WorkerOptions",
    "milliseconds",
]

MAX_PRIORITY = 2048
MAX_NAME_LENGTH = 256
FORBIDDEN_IN_NAMES = frozenset("{}:")

LONGEST = timedelta(days=3650)
"""The longest delay: the wire's scores have room for a few decades beside the priority."""

_NonNegative = Annotated[timedelta, Field(ge=timedelta(0), le=LONGEST)]
_Positive = Annotated[timedelta, Field(gt=timedelta(0), le=LONGEST)]


def milliseconds(duration: timedelta) -> int:
    """The whole milliseconds of a duration, as the wire counts time."""
    return duration // timedelta(milliseconds=1)


def name_problem(name: str) -> str | None:
    """Why the wire cannot carry this name of a queue or job; None when it can."""
    if not name:
        return "is empty"
    if len(name) > MAX_NAME_LENGTH:
        return f"is longer than {MAX_NAME_LENGTH} characters"
    if bad := next((c for c in name if c in FORBIDDEN_IN_NAMES or ord(c) < 0x20 or ord(c) == 0x7F), None):
        return f"contains {bad!r}"
    return None


class Options(BaseModel):
    """Base of all option values: frozen, strict about unknown names, one-sentence errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise InvalidOptionError(_sentence(type(self).__name__, error)) from None


def _sentence(owner: str, error: ValidationError) -> str:
    """The first problem of a validation error, as one sentence."""
    problem = error.errors()[0]
    if problem["type"] == "value_error" and isinstance(cause := problem["ctx"]["error"], UsageError):
        return str(cause)
    where = ".".join(str(part) for part in problem["loc"])
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        return f"{owner} has no option {where!r}; check its spelling."
    given = "" if problem["type"] == "missing" or not where else f" (given {problem['input']!r})"
    return f"{owner}.{where}{given}: {message}." if where else f"{owner}: {message}."


class Backoff(Options):
    """How long to wait before the next attempt."""

    type: str = "exponential"
    """``fixed`` waits ``delay`` each time, ``exponential`` doubles it; other names are strategies of the worker."""
    delay: _NonNegative = timedelta(seconds=1)
    """The wait after the first failure."""
    jitter: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Up to this fraction of the wait is added at random, so that failures do not return in step."""

    def wait_ms(self, failures: int, chance: float) -> int:
        """Milliseconds to wait after the given number of failures; ``chance`` in [0, 1) feeds the jitter."""
        doublings = failures - 1 if self.type == "exponential" else 0
        longest = milliseconds(LONGEST)
        base = min(milliseconds(self.delay) << min(doublings, longest.bit_length()), longest)
        return min(round(base + base * self.jitter * chance), longest)


class RateLimit(Options):
    """At most ``max`` starts in each window of ``duration``."""

    max: Annotated[int, Field(gt=0)]
    duration: _Positive


class TokenBucket(Options):
    """Starts pay tokens; the bucket refills steadily."""

    capacity: Annotated[float, Field(gt=0)]
    """Most tokens it holds."""
    refill_rate: Annotated[float, Field(gt=0)]
    """Tokens per second."""


class Ordering(Options):
    """Jobs of one key start in the order they were added, at most ``concurrency`` at a time."""

    key: Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH)]
    concurrency: Annotated[int, Field(ge=1)] = 1
    rate_limit: RateLimit | None = None
    token_bucket: TokenBucket | None = None

    @model_validator(mode="after")
    def _key_is_no_sentinel(self) -> Ordering:
        if self.key == "__":
            raise ValueError("the key '__' means 'none' on the wire; choose another")
        return self


class Deduplication(Options):
    """Do not add a job that is already there under the same id."""

    id: Annotated[str, Field(min_length=1)]
    mode: Literal["simple", "throttle", "debounce"] = "simple"
    """``simple``: while one is unfinished; ``throttle``: within ``ttl``; ``debounce``: replaces a delayed one."""
    ttl: _NonNegative = timedelta(0)


class Retention(Options):
    """Which finished jobs to keep. Whatever exceeds either bound is removed, oldest first."""

    count: Annotated[int, Field(ge=0)] | None = None
    """Keep at most this many; 0 keeps none; None sets no bound."""
    age: _Positive | None = None
    """Keep them this long; None sets no bound."""

    @property
    def wire_arguments(self) -> tuple[str, int, int]:
        """The three retention arguments of the wire: mode, count, age in seconds."""
        if self.count == 0:
            return ("true", 0, 0)
        if self.age is None:
            return ("0", 0, 0) if self.count is None else ("count", self.count, 0)
        return ("age_count", self.count or 0, max(1, int(self.age.total_seconds())))

    @property
    def wire_option(self) -> bool | int | dict[str, int]:
        """The same, in the form that Node's ``removeOnComplete`` takes."""
        mode, count, age_s = self.wire_arguments
        if mode == "age_count":
            return {"age": age_s, "count": count} if count else {"age": age_s}
        return mode == "true" or (count if mode == "count" else False)


class JobOptions(Options):
    """How one job is placed, retried, limited and kept."""

    job_id: str | None = None
    """Your own id: adding it twice adds it once. Up to 256 characters, without ``:`` ``{`` ``}``."""
    delay: _NonNegative = timedelta(0)
    """Start no earlier than this long after adding."""
    priority: Annotated[int, Field(ge=0, le=MAX_PRIORITY)] = 0
    """1 is the most urgent, 2048 the least; 0 stands outside the order, in the plain queue."""
    lifo: bool = False
    """Newest first."""
    attempts: Annotated[int, Field(ge=0)] = 0
    """Tries in all; 0 and 1 both mean no retry."""
    backoff: Backoff | None = None
    """The pause before a retry; None retries at once."""
    timeout: _Positive | None = None
    """The handler's time limit."""
    ttl: _NonNegative = timedelta(0)
    """Fail the job as ``expired`` when it has not started this long after adding; 0 means never."""
    lock_duration: Annotated[timedelta, Field(ge=timedelta(seconds=1), le=timedelta(days=1))] | None = None
    """How long this job may go without a heartbeat before another worker takes it; None takes the worker's."""
    ordering: Ordering | None = None
    cost: Annotated[float, Field(ge=0)] = 0
    """Tokens it pays from its group's bucket; 0 means the default of one."""
    deduplication: Deduplication | None = None
    remove_on_complete: Retention | None = None
    remove_on_fail: Retention | None = None

    @model_validator(mode="after")
    def _agree(self) -> JobOptions:
        if self.job_id is not None and (problem := name_problem(self.job_id)):
            raise InvalidOptionError(
                f"Job id {self.job_id!r} {problem}, which the wire uses for its own keys; "
                "use letters, digits, '.', '-' and '_'."
            )
        if self.lifo and self.ordering is not None:
            raise ValueError("lifo and ordering.key cannot be used together; drop one of them")
        bucket = self.ordering.token_bucket if self.ordering else None
        if bucket and (self.cost or 1) > bucket.capacity:
            raise ValueError(
                f"the job's cost exceeds token bucket capacity ({self.cost or 1:g} > {bucket.capacity:g}); "
                "it could never start"
            )
        return self

    def wire(self) -> dict[str, Any]:
        """The options as Node writes them into the job: only what differs from the defaults, in milliseconds."""
        wire: dict[str, Any] = {
            "jobId": self.job_id,
            "delay": milliseconds(self.delay) or None,
            "priority": self.priority or None,
            "lifo": self.lifo or None,
            "attempts": self.attempts or None,
            "timeout": milliseconds(self.timeout) if self.timeout else None,
            "ttl": milliseconds(self.ttl) or None,
            "lockDuration": milliseconds(self.lock_duration) if self.lock_duration else None,
            "cost": self.cost or None,
            "removeOnComplete": self.remove_on_complete and self.remove_on_complete.wire_option,
            "removeOnFail": self.remove_on_fail and self.remove_on_fail.wire_option,
        }
        if self.backoff:
            wire["backoff"] = {"type": self.backoff.type, "delay": milliseconds(self.backoff.delay)}
            if self.backoff.jitter:
                wire["backoff"]["jitter"] = self.backoff.jitter
        if self.ordering:
            wire["ordering"] = _wire_ordering(self.ordering)
        if dedup := self.deduplication:
            wire["deduplication"] = {"id": dedup.id, "mode": dedup.mode, "ttl": milliseconds(dedup.ttl)}
        return {name: value for name, value in wire.items() if value is not None}


def _wire_ordering(ordering: Ordering) -> dict[str, Any]:
    wire: dict[str, Any] = {"key": ordering.key, "concurrency": ordering.concurrency}
    if limit := ordering.rate_limit:
        wire["rateLimit"] = {"max": limit.max, "duration": milliseconds(limit.duration)}
    if bucket := ordering.token_bucket:
        wire["tokenBucket"] = {"capacity": bucket.capacity, "refillRate": bucket.refill_rate}
    return wire


def wire_number(stored: object, most: float = 2**53) -> float:
    """A number that a client of any language stored, at most ``most``; 0 for what is none, or negative."""
    if isinstance(stored, bool) or not isinstance(stored, (int, float)) or not stored > 0:
        return 0
    return min(stored, most)


def backoff_from_wire(options: Mapping[str, Any]) -> Backoff | None:
    """The backoff that a job of any language carries in its stored options; None when it has none."""
    stored = options.get("backoff")
    if not isinstance(stored, Mapping):
        return None
    return Backoff(
        type=str(stored.get("type", "fixed")),
        delay=timedelta(milliseconds=wire_number(stored.get("delay"), milliseconds(LONGEST))),
        jitter=wire_number(stored.get("jitter"), 1),
    )


def retention_from_wire(option: object) -> Retention | None:
    """A stored ``removeOnComplete`` or ``removeOnFail`` of any language as a :class:`Retention`."""
    match option:
        case True:
            return Retention(count=0)
        case int(kept) if kept > 0:
            return Retention(count=kept)
        case dict():
            age_s, most = wire_number(option.get("age"), LONGEST.total_seconds()), wire_number(option.get("count"))
            return Retention(count=int(most) or None, age=timedelta(seconds=age_s) if age_s else None)
        case _:
            return None


class WorkerOptions(Options):
    """How a worker takes and keeps jobs."""

    concurrency: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Jobs at a time in this process."""
    lock_duration: Annotated[timedelta, Field(ge=timedelta(seconds=1), le=timedelta(days=1))] = timedelta(seconds=30)
    """A job without a heartbeat for this long is taken by another worker."""
    stalled_interval: Annotated[timedelta, Field(ge=timedelta(milliseconds=100))] = timedelta(seconds=30)
    """How often to look for such jobs."""
    max_stalled: Annotated[int, Field(ge=0)] = 1
    """How often a job may be taken over before it fails."""
    promotion_interval: Annotated[timedelta, Field(ge=timedelta(milliseconds=50))] = timedelta(seconds=5)
    """The longest pause between two looks at delayed jobs and schedules; due ones are met earlier."""
    block: Annotated[timedelta, Field(gt=timedelta(0))] = timedelta(seconds=1)
    """The longest single wait for a new job. LIFO jobs, which end no wait, start within this time on an idle worker."""
    drain: _NonNegative = timedelta(seconds=30)
    """On shutdown, how long running jobs may take to finish before they are left to another worker."""
    honour_pause: bool = True
    """Stop taking jobs while the queue is paused (Node's workers never do)."""
    run_schedulers: bool = True
    """Take part in firing the queue's repeatable jobs."""
