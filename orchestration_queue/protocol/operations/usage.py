"""Usage that jobs report: stored with each job, and summed by minute, queue and flow."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from orchestration_queue.errors import JobNotFoundError, UsageError
from orchestration_queue.options import Usage, plain_number, wire_number
from orchestration_queue.protocol.call import (
    Call,
    Conversation,
    Operation,
    Reply,
    all_good,
    chunks,
    optional_text,
    text,
    texts,
)
from orchestration_queue.protocol.codec import dump_json
from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.placement import ParentRef
from orchestration_queue.protocol.record import pairs, stored_number, when

__all__ = [
    "UsageSummary",
    "UsageTotals",
    "by_category",
    "existing_jobs",
    "flow_jobs",
    "name_queue",
    "of_flow",
    "read_amounts",
    "report",
    "report_tokens",
    "summary",
]

_MINUTE_MS = 60_000

_KEPT_MS = 30 * 24 * 60 * _MINUTE_MS

_MOST_READS = 100_000

_FIELDS = ("usage:model", "usage:tokens", "usage:costs", "usage:totalTokens", "usage:totalCost", "usage:costUnit")


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """The total usage of several jobs.

    Attributes:
        jobs: How many jobs reported.
        tokens: Their tokens.
        cost: Their costs.
        cost_unit: The unit of costs; None if none was set. Units are not converted.
        tokens_by: Tokens by category.
        cost_by: Costs by category.
        models: How many jobs used each model.
    """

    jobs: int = 0
    tokens: float = 0
    cost: float = 0
    cost_unit: str | None = None
    tokens_by: Mapping[str, float] = field(default_factory=dict)
    cost_by: Mapping[str, float] = field(default_factory=dict)
    models: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, parts: Iterable[UsageTotals]) -> UsageTotals:
        """Return the sum of several totals."""
        parts = list(parts)
        return cls(
            jobs=sum(part.jobs for part in parts),
            tokens=plain_number(math.fsum(part.tokens for part in parts)),
            cost=plain_number(math.fsum(part.cost for part in parts)),
            cost_unit=next((part.cost_unit for part in reversed(parts) if part.cost_unit), None),
            tokens_by=_add_by_category(part.tokens_by for part in parts),
            cost_by=_add_by_category(part.cost_by for part in parts),
            models={model: int(jobs) for model, jobs in _add_by_category(part.models for part in parts).items()},
        )


def _add_by_category(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the sums of amounts by category, without those that are zero."""
    amounts: dict[str, list[float]] = {}
    for part in parts:
        for name, amount in part.items():
            amounts.setdefault(name, []).append(amount)
    added = {name: plain_number(math.fsum(given)) for name, given in sorted(amounts.items())}
    return {name: amount for name, amount in added.items() if amount > 0}


@dataclass(frozen=True, slots=True)
class UsageSummary:
    """The usage of some queues' jobs within a period.

    Attributes:
        start: The start of the first minute.
        end: The end of the last minute.
        total: The total of all queues.
        queues: The totals of each queue with any usage.
    """

    start: datetime
    end: datetime
    total: UsageTotals
    queues: Mapping[str, UsageTotals]


def read_amounts(stored: str | None, otherwise: float = 0) -> dict[str, float]:
    """Return amounts by category, as any client stored them; invalid ones count as ``otherwise``."""
    try:
        found = json.loads(stored or "{}")
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: wire_number(amount) if _is_amount(amount) else otherwise for name, amount in found.items() if name}


def _is_amount(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


def by_category(fields: Mapping[str, str], kind: str) -> dict[str, float]:
    """Return amounts by category from fields named by ``kind`` and category."""
    return {name.removeprefix(kind): stored_number(amount) for name, amount in fields.items() if name.startswith(kind)}


def report(keys: QueueKeys, job_id: str, usage: Usage, now_ms: int) -> Operation[bool]:
    """Store what a job used, replacing an earlier report.

    Returns:
        False while a client in another language holds the usage lock of the same job: retry soon.

    Raises:
        JobNotFoundError: The job no longer exists.
    """

    def read(reply: Reply) -> bool:
        if (word := text(reply)) == "missing":
            raise JobNotFoundError(keys.queue, job_id)
        return word == "ok"

    wire = usage.wire()
    call = oq1.report_usage(
        keys,
        fields=[oq1.UsageField(name=name, value=_field_text(value)) for name, value in wire.items()],
        job_id=job_id,
        minute_ms=now_ms // _MINUTE_MS * _MINUTE_MS,
        told=dump_json(wire),
    )
    return Operation(call, read)


def _field_text(value: object) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return value if isinstance(value, str) else dump_json(value)


def name_queue(keys: QueueKeys) -> Call:
    """Add a queue to the list of those whose jobs report usage."""
    return Call("SADD", (keys.usage_queues,), (keys.queue,))


def report_tokens(keys: QueueKeys, job_id: str, tokens: int) -> Call:
    """Store how many tokens a job spent, for the workers' token limit.

    Raises:
        UsageError: It is not a number of tokens.
    """
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
        raise UsageError(f"`tokens` must be a whole number >= 0, got {tokens!r}.")
    return Call("HSET", (keys.job(job_id),), ("tpmTokens", tokens))


def summary(prefix: str, queues: Sequence[str] | None, start_ms: int, end_ms: int) -> Conversation[UsageSummary]:
    """Sum what queues used from one minute to another, both included; all queues by default.

    Costs one exchange for the names of the queues, and one per 1,000 minutes of a queue.

    Raises:
        UsageError: The end precedes the start, or the period is too long for this number of queues.
    """
    start_ms = max(start_ms, end_ms - _KEPT_MS) // _MINUTE_MS * _MINUTE_MS
    if start_ms > end_ms:
        raise UsageError("The summary would end before it starts; pass a start before the end.")
    if queues is None:
        (names,) = all_good((yield [Call("SMEMBERS", (QueueKeys("-", prefix).usage_queues,))]))
        queues = sorted(texts(names))
    wanted = [QueueKeys(name, prefix) for name in dict.fromkeys(queues)]
    minutes = range(start_ms, end_ms + 1, _MINUTE_MS)
    if len(wanted) * len(minutes) > _MOST_READS:
        raise UsageError(
            f"The summary would read {len(wanted) * len(minutes):,} minutes of {len(wanted)} queues, more than the "
            f"{_MOST_READS:,} that it may read; choose fewer queues or a shorter period."
        )
    used: dict[str, UsageTotals] = {}
    for keys in wanted:
        found: list[UsageTotals] = []
        for piece in chunks(minutes):
            replies = all_good((yield [Call("HGETALL", (keys.usage(minute),)) for minute in piece]))
            found += [_of_minute(reply) for reply in replies if reply]
        if (total := UsageTotals.of(found)).jobs > 0:
            used[keys.queue] = total
    return UsageSummary(_time(start_ms), _time(minutes[-1] + _MINUTE_MS), UsageTotals.of(used.values()), used)


def _time(at_ms: int) -> datetime:
    return when(at_ms) or datetime.fromtimestamp(0, UTC)


def _of_minute(reply: Reply) -> UsageTotals:
    fields = pairs(reply)
    return UsageTotals(
        jobs=int(stored_number(fields.get("jobCount"))),
        tokens=stored_number(fields.get("totalTokens")),
        cost=stored_number(fields.get("totalCost")),
        cost_unit=fields.get("costUnit"),
        tokens_by=by_category(fields, "tokens:"),
        cost_by=by_category(fields, "costs:"),
        models={model: int(jobs) for model, jobs in by_category(fields, "models:").items()},
    )


def flow_jobs(root: ParentRef) -> Conversation[list[ParentRef]]:
    """Return a flow's jobs: its root, the root's dependencies, and so on, each once. One exchange per level."""
    found = {root: None}
    level = [root]
    while level:
        members: list[str] = []
        for piece in chunks(level):
            replies = all_good((yield [Call("SMEMBERS", (ref.keys.deps(ref.job_id),)) for ref in piece]))
            members += [member for reply in replies for member in sorted(texts(reply))]
        level = [ref for member in members if (ref := ParentRef.of_member(member)) and ref not in found]
        found.update(dict.fromkeys(level))
        level = list(dict.fromkeys(level))
    return list(found)


def existing_jobs(root: ParentRef) -> Conversation[list[ParentRef]]:
    """Return a flow's jobs that exist. One exchange more than the flow has levels."""
    refs = yield from flow_jobs(root)
    existing: list[ParentRef] = []
    for piece in chunks(refs):
        replies = all_good((yield [Call("EXISTS", (ref.keys.job(ref.job_id),)) for ref in piece]))
        existing += [ref for ref, exists in zip(piece, replies, strict=True) if exists]
    return existing


def of_flow(root: ParentRef) -> Conversation[UsageTotals]:
    """Sum the usage of a flow's jobs, as far as they exist. One exchange more than the flow has levels."""
    refs = yield from flow_jobs(root)
    used: list[UsageTotals] = []
    for piece in chunks(refs):
        replies = all_good((yield [Call("HMGET", (ref.keys.job(ref.job_id),), _FIELDS) for ref in piece]))
        used += [_of_job(reply) for reply in replies if any(value is not None for value in reply)]
    return UsageTotals.of(used)


def _of_job(reply: Reply) -> UsageTotals:
    model, tokens, costs, total_tokens, total_cost, cost_unit = map(optional_text, reply)
    return UsageTotals(
        jobs=1,
        tokens=stored_number(total_tokens),
        cost=stored_number(total_cost),
        cost_unit=cost_unit,
        tokens_by=read_amounts(tokens),
        cost_by=read_amounts(costs),
        models={model: 1} if model else {},
    )
