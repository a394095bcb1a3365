"""Option values: frozen, and validated when they are created.

Times are :class:`~datetime.timedelta`; a plain number means seconds. Only :meth:`JobOptions.wire` uses the wire's
milliseconds.
"""

from orchestration_queue.options.alert import AlertKind, AlertRule
from orchestration_queue.options.base import (
    FORBIDDEN_IN_NAMES,
    MAX_NAME_LENGTH,
    MAX_PRIORITY,
    Options,
    name_problem,
)
from orchestration_queue.options.checks import (
    MAX_TAGS,
    check_pool,
    check_pool_slots,
    check_share,
    check_share_weight,
    check_tag,
    check_tags,
    pools_from_wire,
    share_from_wire,
    tags_from_wire,
)
from orchestration_queue.options.durations import MAX_DURATION, Duration, as_timedelta, milliseconds, seconds
from orchestration_queue.options.job import (
    DECLARED,
    MAX_HEADER_LENGTH,
    Backoff,
    Deduplication,
    Fallback,
    JobOptions,
    Ordering,
    RateLimit,
    Retention,
    TokenBucket,
)
from orchestration_queue.options.queue import QueueSettings
from orchestration_queue.options.step import StepOptions
from orchestration_queue.options.usage import Budget, Usage, plain_number
from orchestration_queue.options.wire import (
    backoff_from_wire,
    fallback_from_wire,
    headers_from_wire,
    placement_from_wire,
    retention_from_wire,
    wire_number,
)
from orchestration_queue.options.worker import Batch, TokenLimit, WorkerOptions

__all__ = [
    "DECLARED",
    "FORBIDDEN_IN_NAMES",
    "MAX_DURATION",
    "MAX_HEADER_LENGTH",
    "MAX_NAME_LENGTH",
    "MAX_PRIORITY",
    "MAX_TAGS",
    "AlertKind",
    "AlertRule",
    "Backoff",
    "Batch",
    "Budget",
    "Deduplication",
    "Duration",
    "Fallback",
    "JobOptions",
    "Options",
    "Ordering",
    "QueueSettings",
    "RateLimit",
    "Retention",
    "StepOptions",
    "TokenBucket",
    "TokenLimit",
    "Usage",
    "WorkerOptions",
    "as_timedelta",
    "backoff_from_wire",
    "check_pool",
    "check_pool_slots",
    "check_share",
    "check_share_weight",
    "check_tag",
    "check_tags",
    "fallback_from_wire",
    "headers_from_wire",
    "milliseconds",
    "name_problem",
    "placement_from_wire",
    "plain_number",
    "pools_from_wire",
    "retention_from_wire",
    "seconds",
    "share_from_wire",
    "tags_from_wire",
    "wire_number",
]
