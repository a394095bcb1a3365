"""Convert jobs, events, schedulers and usage to the JSON of glide-mq's proxy. Members without a value are left out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from orchestration_queue.client import BudgetState, DeadLetter, SuspendInfo, UsageTotals, WorkerInfo
from orchestration_queue.errors import PayloadError
from orchestration_queue.options import milliseconds, plain_number
from orchestration_queue.protocol.operations.event_log import Event
from orchestration_queue.protocol.record import JobRecord, stored_number
from orchestration_queue.schedules import SchedulerEntry
from orchestration_queue.server.clock import epoch_ms

__all__ = [
    "budget_shape",
    "dead_letter_shape",
    "event_shape",
    "job_shape",
    "scheduler_shape",
    "suspend_shape",
    "totals_shape",
    "usage_shape",
    "worker_shape",
]


def _present(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _ms(at: datetime | None) -> int | None:
    return None if at is None else epoch_ms(at)


def job_shape(record: JobRecord, *, state: str | None = None, with_data: bool = True) -> dict[str, Any]:
    """Return a job; ``state`` replaces the stored one."""
    shape: dict[str, Any] = {"id": record.id, "name": record.name}
    if with_data:
        shape["data"] = _data(record)
    shape |= {
        "opts": record.options,
        "timestamp": _ms(record.added_at) or 0,
        "attemptsMade": record.attempts_made,
        "state": state or record.fields.get("state", "unknown"),
        "progress": _progress(record.fields.get("progress")),
    }
    if with_data and "returnvalue" in record.fields:
        shape["returnvalue"] = _result(record)
    return shape | _present(
        {
            "failedReason": record.failed_reason,
            "finishedOn": _ms(record.finished_at),
            "processedOn": _ms(record.started_at),
            "parentId": record.parent_id,
            "parentQueue": record.parent_queue,
            "usage": (usage_shape(record.fields) or None) if with_data else None,
        }
    )


def _data(record: JobRecord) -> Any:
    try:
        return record.data
    except PayloadError:
        return {}


def _result(record: JobRecord) -> Any:
    try:
        return record.result
    except PayloadError:
        return record.fields["returnvalue"]


def _progress(stored: str | None) -> Any:
    if stored is None:
        return 0
    try:
        return json.loads(stored)
    except (ValueError, RecursionError):
        prefix = re.match(r"\s*[+-]?[0-9]+", stored)
        return int(prefix[0]) if prefix else 0


def usage_shape(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the usage that a job reported, from its record."""
    shape: dict[str, Any] = {}
    for name in ("model", "provider", "tokens", "totalTokens", "costs", "totalCost", "costUnit", "latencyMs", "cached"):
        stored = fields.get(f"usage:{name}")
        if stored is None:
            continue
        if name in ("tokens", "costs"):
            shape[name] = _object(stored)
        elif name == "cached":
            shape[name] = stored in ("1", "true")
        else:
            shape[name] = stored if name in ("model", "provider", "costUnit") else plain_number(stored_number(stored))
    return shape


def _object(stored: str) -> dict[str, Any]:
    try:
        found = json.loads(stored)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def totals_shape(totals: UsageTotals) -> dict[str, Any]:
    """Return the total usage of several jobs."""
    return {
        "tokens": dict(totals.tokens_by),
        "totalTokens": totals.tokens,
        "costs": dict(totals.cost_by),
        "totalCost": totals.cost,
        **_present({"costUnit": totals.cost_unit}),
        "jobCount": totals.jobs,
        "models": dict(totals.models),
    }


def budget_shape(state: BudgetState) -> dict[str, Any]:
    """Return a flow's budget, and how much of it is used."""
    budget = state.budget
    limits = {
        "maxTotalTokens": budget.max_tokens,
        "maxTokens": dict(budget.max_tokens_by) or None,
        "tokenWeights": dict(budget.token_weights) or None,
        "maxTotalCost": budget.max_cost,
        "maxCosts": dict(budget.max_cost_by) or None,
        "costUnit": budget.cost_unit,
    }
    return _present(limits) | {
        "usedTokens": state.tokens,
        "usedCost": state.cost,
        "exceeded": state.is_exceeded,
        "onExceeded": budget.on_exceeded,
    }


def dead_letter_shape(letter: DeadLetter) -> dict[str, Any]:
    """Return a dead letter."""
    return {
        "attemptsMade": letter.attempts_made,
        "data": letter.data,
        "failedReason": letter.failed_reason,
        "id": letter.id,
        "name": letter.name,
        "originalJobId": letter.original_job_id,
        "originalQueue": letter.original_queue,
        "timestamp": _ms(letter.added_at) or 0,
    }


def suspend_shape(info: SuspendInfo) -> dict[str, Any]:
    """Return why and since when a job is suspended."""
    signals = [
        {"name": signal.name, "data": signal.data, "receivedAt": _ms(signal.received_at)} for signal in info.signals
    ]
    timeout = None if info.timeout is None else milliseconds(info.timeout)
    members = {"reason": info.reason, "suspendedAt": _ms(info.suspended_at), "timeout": timeout, "signals": signals}
    return _present(members)


_SCHEDULER = ("pattern", "every", "repeatAfterComplete", "tz", "startDate", "endDate", "limit", "iterationCount",
              "template", "lastRun")  # fmt: skip


def scheduler_shape(entry: SchedulerEntry) -> dict[str, Any]:
    """Return a scheduler's entry."""
    shape = {name: entry.members[name] for name in _SCHEDULER if name in entry.members}
    return shape | {"iterationCount": entry.iteration_count, "nextRun": entry.next_run}


def worker_shape(worker: WorkerInfo, now_ms: int) -> dict[str, Any]:
    """Return a worker that is alive."""
    started = epoch_ms(worker.started_at)
    return {
        "id": worker.id,
        "addr": worker.host,
        "pid": worker.pid,
        "startedAt": started,
        "age": max(0, now_ms - started),
        "activeJobs": worker.active_jobs,
    }


def event_shape(event: Event) -> dict[str, Any]:
    """Return an event's fields, decoded where glide-mq's proxy decodes them."""
    shape: dict[str, Any] = {"jobId": event.job_id} if event.job_id else {}
    for name, stored in event.fields.items():
        shape[name] = stored
        if name in ("returnvalue", "data"):
            try:
                shape[name] = json.loads(stored)
            except (ValueError, RecursionError):
                continue
        elif name in ("delay", "attemptsMade"):
            try:
                shape[name] = plain_number(float(stored))
            except (ValueError, OverflowError):
                continue
    return shape
