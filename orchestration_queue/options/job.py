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
    HashableDict,
    OnWire,
    Options,
    name_problem,
    suggestion,
)
from orchestration_queue.options.checks import (
    MAX_POOL_SLOTS,
    MAX_TAGS,
    PoolWeights,
    check_job_share,
    check_tags,
    check_weights,
    pools_from_wire,
    share_from_wire,
    tags_from_wire,
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

__all__ = [
    "DECLARED",
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
    """What a retry should use instead, such as another model. It is only stored; the handler applies it."""

    model: Annotated[str, Field(min_length=1)]
    """What to use."""
    provider: Annotated[str, Field(min_length=1)] | None = None
    """The provider of the model."""
    metadata: dict[str, JsonValue] | None = None
    """Further information for the handler."""

    def __hash__(self) -> int:
        # Compare as text: 1 and True are equal, but not on the wire.
        return hash((self.model, self.provider, json.dumps(self.metadata)))

    def wire(self) -> dict[str, Any]:
        """Return the fallback as it is stored on the wire."""
        wire = {"model": self.model, "provider": self.provider, "metadata": self.metadata}
        return {name: value for name, value in wire.items() if value is not None}


MAX_HEADER_LENGTH = 4096
MIN_TOKENS, MAX_TOKENS = 0.001, 1e12
_Tokens = Annotated[float, Field(ge=MIN_TOKENS, le=MAX_TOKENS)]
"""A number of tokens. The wire stores thousandths, as integers."""


class Headers(HashableDict[str]):
    """Strings by name."""


PARENT_RUN_HEADER: Final = "openlineage.parent"
"""The header that names the run which added the job, as OpenLineage's ``NAMESPACE/JOB/RUN``."""

BACKOFF_TYPES = ("fixed", "exponential")
"""The types that don't need a strategy of the worker."""


class Backoff(Options):
    """How long to wait before the next attempt."""

    type: Annotated[str, Field(min_length=1)] = "exponential"
    """``fixed`` waits ``delay`` each time, ``exponential`` doubles it; other names are strategies of the worker."""
    delay: NonNegative = timedelta(seconds=1)
    """The pause after the first failure."""
    jitter: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Up to this fraction of the pause is added at random, so that retries don't coincide."""

    @field_validator("type")
    @classmethod
    def _is_no_misspelling(cls, name: str) -> str:
        if name not in BACKOFF_TYPES and (close := suggestion(name.lower(), BACKOFF_TYPES)):
            raise InvalidOptionError(
                f"Backoff has no type {name!r}{close} Strategies of a worker need names that cannot be taken for these."
            )
        return name

    def wait_ms(self, failures: int, chance: float) -> int:
        """Return the milliseconds to wait after a number of failures; ``chance`` in [0, 1) determines the jitter."""
        doublings = failures - 1 if self.type == "exponential" else 0
        longest = milliseconds(MAX_DURATION)
        # Bounded: the count is what any client stored, and a shift by two billion bits takes 250 MB.
        base = min(milliseconds(self.delay) << min(doublings, longest.bit_length()), longest)
        return min(round(base + base * self.jitter * chance), longest)


class RateLimit(Options):
    """At most ``max`` job starts in each window of ``duration``."""

    max: Annotated[int, Field(gt=0, le=MAX_COUNT)]
    duration: Positive


class TokenBucket(Options):
    """Job starts pay tokens from a bucket that refills steadily."""

    capacity: _Tokens
    """Maximum tokens in the bucket."""
    refill_rate: _Tokens
    """Tokens per second."""


class Ordering(Options):
    """Jobs with the same key start in the order in which they were added, at most ``concurrency`` at a time."""

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
    """Don't add a job if one with the same deduplication id exists."""

    id: Annotated[str, Field(min_length=1)]
    mode: Literal["simple", "throttle", "debounce"] = "simple"
    """``simple``: while it is unfinished; ``throttle``: within ``ttl``; ``debounce``: replace it while delayed."""
    ttl: NonNegative = timedelta(0)


class Retention(Options):
    """Which finished jobs to keep. Jobs that exceed either limit are removed, oldest first."""

    count: Annotated[int, Field(ge=0, le=MAX_COUNT)] | None = None
    """Keep at most this many; 0 keeps none; None sets no limit."""
    age: Positive | None = None
    """Keep them for this long; None sets no limit."""

    @property
    def wire_arguments(self) -> tuple[str, int, int]:
        """Return the three retention arguments of the wire: mode, count, age in seconds."""
        if self.count == 0:
            return ("true", 0, 0)
        if self.age is None:
            return ("0", 0, 0) if self.count is None else ("count", self.count, 0)
        # The wire counts whole seconds, and takes 0 for no limit.
        return ("age_count", self.count or 0, max(1, int(seconds(self.age))))

    @property
    def wire_option(self) -> bool | int | dict[str, int]:
        """Return the retention in the form of Node's ``removeOnComplete``."""
        mode, count, age_s = self.wire_arguments
        if mode == "age_count":
            return {"age": age_s, "count": count} if count else {"age": age_s}
        return mode == "true" or (count if mode == "count" else False)


_TAGS = OnWire(
    "tags",
    tags_from_wire,
    {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": MAX_TAGS},
    write=lambda tags: list(tags) or None,
)
_POOLS = OnWire(
    "pools",
    pools_from_wire,
    {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1, "maximum": MAX_POOL_SLOTS}},
    write=lambda pools: dict(pools) or None,
)
_SHARE = OnWire("share", share_from_wire, {"type": "string", "minLength": 1}, metavar="NAME")


class JobOptions(Options):
    """How one job is placed, retried, limited and kept."""

    job_id: str | None = None
    """Your own id: adding the same id again adds no job. Up to 256 characters, without ``:`` ``{`` ``}``."""
    delay: NonNegative = timedelta(0)
    """Start the job this long after adding at the earliest."""
    delay_until: Annotated[AwareDatetime, Field(strict=True)] | None = None
    """Start the job at this time at the earliest, instead of ``delay``; a time in the past means immediately."""
    priority: Annotated[int, Field(ge=0, le=MAX_PRIORITY)] = 0
    """From 1, the most urgent, to 2048; 0 means no priority: the job goes to the plain queue."""
    lifo: bool = False
    """Start it before older jobs."""
    attempts: Annotated[int, Field(ge=0, le=MAX_COUNT)] = 0
    """Maximum attempts; 0 and 1 both mean no retry."""
    backoff: Backoff | None = None
    """The pause before a retry; None retries immediately."""
    timeout: Positive | None = None
    """How long the handler may run."""
    ttl: NonNegative = timedelta(0)
    """Fail the job as ``expired`` if it has not started this long after adding; 0 means never."""
    lease: Annotated[DurationField, Field(ge=timedelta(seconds=1), le=timedelta(days=1))] | None = None
    """How long this job may go without a renewed lease before another worker takes it over; None: the worker's."""
    ordering: Ordering | None = None
    cost: Annotated[float, Field(ge=0, le=MAX_TOKENS)] = 0
    """Tokens it pays from its ordering key's bucket; 0 means the default of one."""
    deduplication: Deduplication | None = None
    remove_on_complete: Retention | None = None
    remove_on_fail: Retention | None = None
    fallbacks: tuple[Fallback, ...] = ()
    """What its retries should use instead, one after the other; handlers read it as ``job.fallback``."""

    headers: Annotated[Mapping[str, Annotated[str, Field(max_length=MAX_HEADER_LENGTH)]], AfterValidator(Headers)] = (
        Headers()
    )
    """Strings stored with the job, such as a trace context; handlers read them as ``job.headers``."""
    tags: Annotated[Sequence[str], BeforeValidator(check_tags), _TAGS] = ()
    """At most 20 strings, such as ``tenant:acme``, by which jobs are found, cancelled, retried and removed together."""
    pools: Annotated[Mapping[str, int], BeforeValidator(check_weights), AfterValidator(PoolWeights), _POOLS] = (
        PoolWeights()
    )
    """Slots that it holds while it runs, by pool: ``{"warehouse": 2}``. At most 8 pools. See ``Queue.pools``."""
    share: Annotated[str | None, BeforeValidator(check_job_share), _SHARE] = None
    """The share that it belongs to, such as a tenant.

    Shares with waiting jobs start them in proportion to their weights. Within a share, jobs start by ``priority`` and
    then in order. See ``Queue.shares``.
    """

    @model_validator(mode="after")
    def _agree(self) -> JobOptions:
        if self.job_id is not None and (problem := name_problem(self.job_id)):
            raise InvalidOptionError(
                f"Job id {self.job_id!r} {problem}, which the wire uses for its own keys; "
                "use letters, digits, '.', '-' and '_'."
            )
        if self.delay_until is not None and self.delay:
            raise InvalidOptionError("`delay` and `delay_until` are both given; pass only one.")
        if 0 < self.cost < MIN_TOKENS:
            raise ValueError(
                f"the wire counts tokens in thousandths, so a cost of {self.cost:g} would count as one token; "
                "pass 0.001 or more"
            )
        if timedelta(0) < as_timedelta(self.ttl) < timedelta(milliseconds=1):
            raise ValueError(
                "the wire counts milliseconds, so a ttl below one would mean never; pass 1 ms or more, or 0"
            )
        if self.lifo and self.ordering is not None:
            raise ValueError("lifo and ordering.key cannot be used together; drop one of them")
        if self.share is not None and (self.lifo or self.ordering is not None):
            raise ValueError(
                "a share determines the order of its jobs, so lifo and ordering.key can't apply; drop them or the share"
            )
        bucket = self.ordering.token_bucket if self.ordering else None
        if bucket and (self.cost or 1) > bucket.capacity:
            raise ValueError(
                f"the job's cost exceeds token bucket capacity ({self.cost or 1:g} > {bucket.capacity:g}), so it could "
                "never start; lower the cost or raise the capacity"
            )
        return self

    def at(self, now_ms: int) -> JobOptions:
        """Return the options of a job that is added now, with ``delay`` instead of ``delay_until``.

        Raises:
            InvalidOptionError: ``delay_until`` is too far in the future for the wire.
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
        """Return the options as Node stores them in the job: only those that differ from the defaults, in milliseconds.

        Raises:
            InvalidOptionError: ``delay_until`` is given, which becomes a delay only when the job is added.
        """
        if self.delay_until is not None:
            raise InvalidOptionError("`delay_until` can't be stored for jobs that are added later; pass `delay`.")
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
            **{on_wire.name: on_wire.write(getattr(self, name)) for name, on_wire in DECLARED.items()},
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


DECLARED: Final = {
    name: kind for name, field in JobOptions.model_fields.items() for kind in field.metadata if isinstance(kind, OnWire)
}
"""Options of this package alone, by field, as they are stored: the next one is declared in its field alone."""
NO_OPTIONS: Final = JobOptions()
"""The options of a job added without options."""
