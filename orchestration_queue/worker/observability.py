"""What is recorded of a running job: its fields in log records, and the hooks of its traces."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Protocol

from orchestration_queue._logging import Lines
from orchestration_queue.protocol.record import JobRecord

__all__ = [
    "Attributes",
    "JsonFormatter",
    "TracingHooks",
    "about",
    "annotate",
    "bound_to",
    "is_traced",
    "list_ids",
    "span",
    "tracing_to",
]

_FIELDS = "oq"
"""The attribute of a log record that holds its fields."""
_JOB: ContextVar[tuple[str, JobRecord] | None] = ContextVar("orchestration_queue_logged_job", default=None)
_NAME_LENGTH = 100
_DAGSTER = {"dagster.run_id": "dagster_run_id", "dagster.step_key": "dagster_step", "dagster.job_name": "dagster_job"}
Attributes = Mapping[str, str | int]
_spans: ContextVar[TracingHooks | None] = ContextVar("orchestration_queue_spans", default=None)


def _fields_of(queue: str, job: JobRecord) -> dict[str, Any]:
    """Return a job's log fields: its queue, id and attempt, and the flow and Dagster run it belongs to."""
    fields: dict[str, Any] = {
        "queue": queue,
        "job": job.id,
        "task": job.name[:_NAME_LENGTH],
        "attempt": job.attempts_made + 1,
    }
    if flow := job.fields.get("flow"):
        fields["flow"] = flow
    # Most jobs have no headers; a search spares parsing their options for each record.
    if "headers" in job.fields.get("opts", ""):
        headers = job.headers
        fields.update({field: headers[header] for header, field in _DAGSTER.items() if header in headers})
    return fields


@contextmanager
def bound_to(queue: str, job: JobRecord) -> Iterator[None]:
    """Add the job's fields to every record that is logged in this context, also by the handler."""
    token = _JOB.set((queue, job))
    try:
        yield
    finally:
        _JOB.reset(token)


def about(queue: str, job: JobRecord, **fields: Any) -> dict[str, Any]:
    """Return the ``extra`` of a record about a job, with further fields."""
    return {_FIELDS: {**_fields_of(queue, job), **fields}}


def list_ids(ids: Sequence[str], most: int = 20) -> str:
    """Return the first ids, and how many more there are."""
    more = f" and {len(ids) - most} more" if len(ids) > most else ""
    return ", ".join(ids[:most]) + more


class JsonFormatter(logging.Formatter):
    """Formats each record as one line of JSON: time, level, logger, message, and the job it is about."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        own = getattr(record, _FIELDS, None) or {}
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **(_fields_of(*bound) if (bound := _JOB.get()) else {}),
            **own,
        }
        if traceback := own.get("traceback"):
            line["message"] = line["message"].removesuffix(f"\n{Lines(traceback)!s}")
        elif record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TracingHooks(Protocol):
    """Receives spans."""

    def span(self, name: str, attributes: Attributes) -> AbstractContextManager[Any]:
        """Return a context manager: a span within the current one."""

    def annotate(self, attributes: Attributes) -> None:
        """Add attributes to the current span."""


def is_traced() -> bool:
    """Whether a sink is installed."""
    return _spans.get() is not None


@contextmanager
def span(name: str, attributes: Attributes) -> Iterator[None]:
    """Make a block a span of the running job's trace."""
    if (spans := _spans.get()) is None:
        yield
        return
    with spans.span(name, attributes):
        yield


def annotate(attributes: Attributes) -> None:
    """Add attributes to the current span."""
    if (spans := _spans.get()) is not None:
        spans.annotate(attributes)


@contextmanager
def tracing_to(spans: TracingHooks) -> Iterator[None]:
    """Install a sink during the block, also for threads started with its context."""
    token = _spans.set(spans)
    try:
        yield
    finally:
        _spans.reset(token)
