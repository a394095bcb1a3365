"""Traces by OpenTelemetry's conventions for messaging: a span when a job is added, and one for each run, linked to it.

The context is in the job's headers, which Node clients keep unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from orchestration_queue._extras import named_extra
from orchestration_queue._version import __version__
from orchestration_queue.client import headers
from orchestration_queue.protocol.record import JobRecord
from orchestration_queue.worker import JobInterrupt
from orchestration_queue.worker.interfaces import CallNext
from orchestration_queue.worker.observability import Attributes, tracing_to

with named_extra():
    from opentelemetry import propagate, trace
    from opentelemetry.trace import Link, SpanKind, Status, StatusCode, Tracer, TracerProvider

__all__ = ["Tracing", "trace_jobs"]

_SYSTEM = "orchestration_queue"
_DAGSTER = "dagster."
"""Prefix of headers that name the Dagster run of a job."""


class TracedJob(Protocol):
    """A running job of any protocol."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def queue(self) -> str:
        """Its queue."""

    @property
    def record(self) -> JobRecord:
        """Its name, and how many of its attempts failed."""


def _tracer(provider: TracerProvider | None) -> Tracer:
    return trace.get_tracer(_SYSTEM, __version__, provider)


def _attributes(operation: str, queue: str, task: str) -> dict[str, str]:
    return {
        "messaging.system": _SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
        "orchestration_queue.task": task,
    }


@contextmanager
def trace_jobs(provider: TracerProvider | None = None) -> Iterator[None]:
    """During the block, give every job that this process adds a span in the current trace.

    Args:
        provider: The tracer provider; default: OpenTelemetry's global one.
    """
    tracer = _tracer(provider)

    def created(queue: str, task: str) -> Mapping[str, str]:
        attributes = _attributes("create", queue, task)
        carrier: dict[str, str] = {}
        with tracer.start_as_current_span(f"create {queue}", kind=SpanKind.PRODUCER, attributes=attributes):
            propagate.inject(carrier)
        return carrier

    headers.sources.append(created)
    try:
        yield
    finally:
        headers.sources.remove(created)


class Tracing:
    """Middleware: a span for each run of a job, linked to the one in which the job was added.

    Also for the workers of ChasquiMQ's and qless's queues. Their jobs have no headers, so their spans have no link.

    It is the current span while the handler runs, also in threads, so the handler's own spans are within it. Spark
    tasks have a span within it, with the ids of application and session; jobs that a Dagster step added name its run
    and asset.

    Args:
        provider: The tracer provider; default: OpenTelemetry's global one.

    Examples:
        >>> Worker("orders", handle, middleware=[Tracing()])  # doctest: +SKIP
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = _tracer(provider)

    async def __call__(self, job: TracedJob, call_next: CallNext) -> Any:
        """Run the job in a span."""
        record, carrier = job.record, getattr(job, "headers", {})
        made_in = trace.get_current_span(propagate.extract(carrier)).get_span_context()
        attributes = _attributes("process", job.queue, record.name) | {
            "messaging.message.id": job.id,
            "messaging.consumer.group.name": "workers",
            **{name: value for name, value in carrier.items() if name.startswith(_DAGSTER)},
        }
        with self._tracer.start_as_current_span(
            f"process {job.queue}",
            kind=SpanKind.CONSUMER,
            attributes={**attributes, "orchestration_queue.attempt": record.attempts_made + 1},
            links=[Link(made_in)] if made_in.is_valid else [],
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                with tracing_to(self):
                    return await call_next()
            except JobInterrupt:
                raise  # it runs again later, which is not a failure
            except BaseException as error:
                span.record_exception(error)
                span.set_attribute("error.type", type(error).__qualname__)
                span.set_status(Status(StatusCode.ERROR, str(error)))
                raise

    @contextmanager
    def span(self, name: str, attributes: Attributes) -> Iterator[None]:
        """Trace a part of a run."""
        with self._tracer.start_as_current_span(name, attributes=dict(attributes)):
            yield

    def annotate(self, attributes: Attributes) -> None:
        """Add attributes to the current span."""
        trace.get_current_span().set_attributes(dict(attributes))
