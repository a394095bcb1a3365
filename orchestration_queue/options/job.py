"""How one job is placed, retried, limited and kept."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field, JsonValue, field_validator, model_validator

from orchestration_queue.errors import InvalidOptionError
from orchestration_queue.options.base import (
    MAX_COUNT,
    MAX_NAME_LENGTH,
    MAX_PRIORITY,
    Options,
    name_problem,
    suggestion,
)
from orchestration_queue.options.durations import (
    MAX_DURATION,
    DurationField,
    NonNegative,
    Positive,
    as_timedelta,
    milliseconds,
    seconds,
)
from orchestration_queue.options.pools import PoolWeights, checked_weights
from orchestration_queue.options.shares import checked_job_share
from orchestration_queue.options.tags import checked_tags

__all__ = [
    "NO_OPTIONS",
    "Backoff",
    "Deduplication",
    "Fallback",
    "Headers",
    "JobOptions",
    "Ordering",
    "RateLimit",
    "Retention",
    "TokenBucket",
]


class Fallback(Options):
    """What one retry of a job is to use instead, such as another model. The wire carries it; the handler heeds it."""

    model: Annotated[str, Field(min_length=1)]
    """What to use."""
    provider: Annotated[str, Field(min_length=1)] | None = None
    """Whose it is."""
    metadata: dict[str, JsonValue] | None = None
    """Anything else that the handler has to know."""

    def __hash__(self) -> int:
        # By the text: 1 and True are equal, but not on the wire.
        return hash((self.model, self.provider, json.dumps(self.metadata)))

    def wire(self) -> dict[str, Any]:
        """As every client of this wire stores it."""
        wire = {"model": self.model, "provider": self.provider, "metadata": self.metadata}
        return {name: value for name, value in wire.items() if value is not None}


_LONGEST_HEADER = 4096
MIN_TOKENS, MAX_TOKENS = 0.001, 1e12
_Tokens = Annotated[float, Field(ge=MIN_TOKENS, le=MAX_TOKENS)]
"""A number of tokens. The wire counts in thousandths, as whole numbers."""


class Headers(dict[str, str]):
    """Short texts by name, as a value: never changed, so that what holds them can be a key."""

    def __hash__(self) -> int:  # type: ignore[override]  # of a dict that stays as it is
        return hash(frozenset(self.items()))


BACKOFF_TYPES = ("fixed", "exponential")
"""The types that need no strategy of the worker."""


class Backoff(Options):
    """How long to wait before the next attempt."""

    type: Annotated[str, Field(min_length=1)] = "exponential"
    """``fixed`` waits ``delay`` each time, ``exponential`` doubles it; other names are strategies of the worker."""
    delay: NonNegative = timedelta(seconds=1)
    """The wait after the first failure."""
    jitter: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Up to this fraction of the wait is added at random, so that failures do not return in step."""

    @field_validator("type")
    @classmethod
    def _is_no_misspelling(cls, name: str) -> str:
        if name not in BACKOFF_TYPES and (close := suggestion(name.lower(), BACKOFF_TYPES)):
            raise InvalidOptionError(
                f"Backoff has no type {name!r}{close} Strategies of a worker need names that cannot be taken for these."
            )
        return name

    def wait_ms(self, failures: int, chance: float) -> int:
        """Milliseconds to wait after the given number of failures; ``chance`` in [0, 1) feeds the jitter."""
        doublings = failures - 1 if self.type == "exponential" else 0
        longest = milliseconds(MAX_DURATION)
        base = min(milliseconds(self.delay) << min(doublings, longest.bit_length()), longest)
        return min(round(base + base * self.jitter * chance), longest)


class RateLimit(Options):
    """At most ``max`` starts in each window of ``duration``."""

    max: Annotated[int, Field(gt=0, le=MAX_COUNT)]
    duration: Positive


class TokenBucket(Options):
    """Starts pay tokens; the bucket refills steadily."""

    capacity: _Tokens
    """Most tokens it holds."""
    refill_rate: _Tokens
    """Tokens per second."""


class Ordering(Options):
    """Jobs of one key start in the order they were added, at most ``concurrency`` at a time."""

    key: Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH)]
    concurrency: Annotated[int, Field(ge=1, le=MAX_COUNT)] = 1
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
    ttl: NonNegative = timedelta(0)


class Retention(Options):
    """Which finished jobs to keep. Whatever exceeds either bound is removed, oldest first."""

    count: Annotated[int, Field(ge=0, le=MAX_COUNT)] | None = None
    """Keep at most this many; 0 keeps none; None sets no bound."""
    age: Positive | None = None
    """Keep them this long; None sets no bound."""

    @property
    def wire_arguments(self) -> tuple[str, int, int]:
        """The three retention arguments of the wire: mode, count, age in seconds."""
        if self.count == 0:
            return ("true", 0, 0)
        if self.age is None:
            return ("0", 0, 0) if self.count is None else ("count", self.count, 0)
        return ("age_count", self.count or 0, max(1, int(seconds(self.age))))

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
    delay: NonNegative = timedelta(0)
    """Start no earlier than this long after adding."""
    delay_until: Annotated[AwareDatetime, Field(strict=True)] | None = None
    """Start no earlier than this instant, instead of ``delay``; when it is past, at once."""
    priority: Annotated[int, Field(ge=0, le=MAX_PRIORITY)] = 0
    """1 is the most urgent, 2048 the least; 0 is outside the order, in the plain queue."""
    lifo: bool = False
    """Newest first."""
    attempts: Annotated[int, Field(ge=0, le=MAX_COUNT)] = 0
    """Tries in all; 0 and 1 both mean no retry."""
    backoff: Backoff | None = None
    """The pause before a retry; None retries at once."""
    timeout: Positive | None = None
    """The handler's time limit."""
    ttl: NonNegative = timedelta(0)
    """Fail the job as ``expired`` when it has not started this long after adding; 0 means never."""
    lease: Annotated[DurationField, Field(ge=timedelta(seconds=1), le=timedelta(days=1))] | None = None
    """How long this job may go without a heartbeat before another worker takes it; None takes the worker's."""
    ordering: Ordering | None = None
    cost: Annotated[float, Field(ge=0, le=MAX_TOKENS)] = 0
    """Tokens it pays from its group's bucket; 0 means the default of one."""
    deduplication: Deduplication | None = None
    remove_on_complete: Retention | None = None
    remove_on_fail: Retention | None = None
    fallbacks: tuple[Fallback, ...] = ()
    """What its retries are to use instead, one after the other; handlers see theirs as ``job.fallback``."""

    headers: Annotated[Mapping[str, Annotated[str, Field(max_length=_LONGEST_HEADER)]], AfterValidator(Headers)] = (
        Headers()
    )
    """Short texts that travel with the job, such as a trace's context; handlers find them as ``job.headers``."""
    tags: Annotated[Sequence[str], BeforeValidator(checked_tags)] = ()
    """At most 20 short texts by which jobs are found, cancelled, retried and removed together: ``tenant:acme``."""
    pools: Annotated[Mapping[str, int], BeforeValidator(checked_weights), AfterValidator(PoolWeights)] = PoolWeights()
    """Slots that it holds while it runs, by pool, of at most 8 pools: ``{"warehouse": 2}``. See ``Queue.pools``."""
    share: Annotated[str | None, BeforeValidator(checked_job_share)] = None
    """The share it starts from, such as a tenant: while several have jobs, each gets its part of the starts, by weight.
    Within a share, jobs start by ``priority`` and then in order. See ``Queue.shares``."""

    @model_validator(mode="after")
    def _agree(self) -> JobOptions:
        if self.job_id is not None and (problem := name_problem(self.job_id)):
            raise InvalidOptionError(
                f"Job id {self.job_id!r} {problem}, which the wire uses for its own keys; "
                "use letters, digits, '.', '-' and '_'."
            )
        if self.delay_until is not None and self.delay:
            raise InvalidOptionError("`delay` and `delay_until` are both given; pass either.")
        if 0 < self.cost < MIN_TOKENS:
            raise ValueError(
                f"the wire counts tokens in thousandths, and a cost of {self.cost:g} would count as one token"
            )
        if timedelta(0) < as_timedelta(self.ttl) < timedelta(milliseconds=1):
            raise ValueError(
                "the wire counts milliseconds, and a ttl below one would mean never; pass 1 ms or more, or 0"
            )
        if self.lifo and self.ordering is not None:
            raise ValueError("lifo and ordering.key cannot be used together; drop one of them")
        if self.share is not None and (self.lifo or self.ordering is not None):
            raise ValueError(
                "a share starts its jobs in an order of its own, which lifo and ordering.key contradict; "
                "drop them, or the share"
            )
        bucket = self.ordering.token_bucket if self.ordering else None
        if bucket and (self.cost or 1) > bucket.capacity:
            raise ValueError(
                f"the job's cost exceeds token bucket capacity ({self.cost or 1:g} > {bucket.capacity:g}); "
                "it could never start"
            )
        return self

    def at(self, now_ms: int) -> JobOptions:
        """Return the options of a job that is added now: with ``delay`` for ``delay_until``.

        Raises:
            InvalidOptionError: The instant is further away than the wire can count.
        """
        if self.delay_until is None:
            return self
        delay = self.delay_until - (datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=now_ms))
        if delay > MAX_DURATION:
            raise InvalidOptionError(
                f"`delay_until` must be at most {MAX_DURATION.days} days away, got {self.delay_until.isoformat()}; "
                "pass an earlier instant."
            )
        return self.model_copy(update={"delay_until": None, "delay": max(delay, timedelta(0))})

    def wire(self) -> dict[str, Any]:
        """Return the options as Node writes them into the job: only what differs from the defaults, in milliseconds.

        Raises:
            InvalidOptionError: ``delay_until`` is given, which means a delay only when the job is added.
        """
        if self.delay_until is not None:
            raise InvalidOptionError("`delay_until` cannot be kept for jobs that are added later; pass `delay`.")
        wire: dict[str, Any] = {
            "jobId": self.job_id,
            "delay": milliseconds(self.delay) or None,
            "priority": self.priority or None,
            "lifo": self.lifo or None,
            "attempts": self.attempts or None,
            "timeout": milliseconds(self.timeout) if self.timeout else None,
            "ttl": milliseconds(self.ttl) or None,
            "lockDuration": milliseconds(self.lease) if self.lease else None,
            "cost": self.cost or None,
            "headers": dict(self.headers) or None,
            "tags": list(self.tags) or None,
            "pools": dict(self.pools) or None,
            "share": self.share,
            "removeOnComplete": self.remove_on_complete and self.remove_on_complete.wire_option,
            "removeOnFail": self.remove_on_fail and self.remove_on_fail.wire_option,
        }
        if self.backoff:
            wire["backoff"] = {"type": self.backoff.type, "delay": milliseconds(self.backoff.delay)}
            if self.backoff.jitter:
                wire["backoff"]["jitter"] = self.backoff.jitter
        if self.ordering:
            wire["ordering"] = _wire_ordering(self.ordering)
        if self.fallbacks:
            wire["fallbacks"] = [fallback.wire() for fallback in self.fallbacks]
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


NO_OPTIONS: Final = JobOptions()
"""Those of a job that was given none."""
