"""Traces go from who adds a job, through the queue, to what its handler does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from orchestration_queue.client import FlowProducer, NewJob, Queue
from orchestration_queue.errors import InvalidOptionError, JobFailedError
from orchestration_queue.flows import Dag, DagBuilder, Node
from orchestration_queue.options import JobOptions
from orchestration_queue.telemetry.tracing import Tracing, trace_jobs
from orchestration_queue.worker import ActiveJob, AsyncActiveJob, Worker
from tests.waiting import wait_until

SOON = timedelta(seconds=60)


class Spans:
    """What was traced."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("tests")

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (found,) = self.named(name)
        return found


@pytest.fixture
def spans() -> Iterator[Spans]:
    """Spans of this test alone."""
    made = Spans()
    yield made
    made.provider.shutdown()


@pytest.fixture
def queue(server_url: str, queue_name: str) -> Iterator[Queue]:
    """A queue of the test's own."""
    with Queue(queue_name, url=server_url) as made:
        yield made


async def run(queue: Queue, spans: Spans, handler: Any, jobs: int) -> None:
    """Let a traced worker run this number of jobs."""
    worker = Worker(queue.name, handler, url=str(queue.url), middleware=[Tracing(spans.provider)])
    running = asyncio.ensure_future(worker.run())
    await wait_until(lambda: len(spans.named(f"process {queue.name}")) == jobs, "all runs to end", 60)
    worker.stop()
    await running


async def test_a_run_is_linked_to_where_its_job_was_made_and_holds_what_its_handler_does(
    queue: Queue, spans: Spans
) -> None:
    def handle(job: ActiveJob) -> None:  # in a thread, where the span is still current
        with spans.tracer.start_as_current_span("work"):
            assert job.headers["traceparent"]

    with trace_jobs(spans.provider), spans.tracer.start_as_current_span("request"):
        job = queue.add("ship", {"order": 7})
    await run(queue, spans, handle, 1)
    request, create, process, work = (
        spans.one(name) for name in ("request", f"create {queue.name}", f"process {queue.name}", "work")
    )
    assert create.parent is not None
    assert create.parent.span_id == request.context.span_id
    assert (create.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    (link,) = process.links
    assert (link.context.trace_id, link.context.span_id) == (create.context.trace_id, create.context.span_id)
    assert work.parent is not None
    assert work.parent.span_id == process.context.span_id
    assert process.attributes == {
        "messaging.system": "orchestration_queue",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": queue.name,
        "messaging.message.id": job.id,
        "messaging.consumer.group.name": "workers",
        "orchestration_queue.task": "ship",
        "orchestration_queue.attempt": 1,
    }
    assert process.status.status_code is StatusCode.UNSET


async def test_each_attempt_has_its_span_and_a_failed_one_says_why(queue: Queue, spans: Spans) -> None:
    async def handle(_: Any) -> None:
        raise ValueError("no good")

    with trace_jobs(spans.provider):
        job = queue.add("ship", {}, JobOptions(attempts=2))
    await run(queue, spans, handle, 2)
    with pytest.raises(JobFailedError):
        job.wait(SOON)
    attempts = spans.named(f"process {queue.name}")
    assert [span.attributes["orchestration_queue.attempt"] for span in attempts if span.attributes] == [1, 2]
    assert {span.status.status_code for span in attempts} == {StatusCode.ERROR}
    assert {span.attributes["error.type"] for span in attempts if span.attributes} == {"ValueError"}
    job.refresh()
    for span, entry in zip(attempts, job.history, strict=True):
        (told,) = [event.attributes or {} for event in span.events if event.name == "exception"]
        assert (told["exception.type"], told["exception.message"]) == (entry.kind, "no good")
        assert 'raise ValueError("no good")' in str(told["exception.stacktrace"])
        assert 'raise ValueError("no good")' in entry.traceback
    assert len({link.context.span_id for span in attempts for link in span.links}) == 1


async def test_a_job_that_goes_on_later_has_not_failed(queue: Queue, spans: Spans) -> None:
    async def handle(job: Any) -> None:
        if job.data["step"] == "one":
            job.move_to_delayed(timedelta(0), next_step="two")

    queue.add("ship", {"step": "one"})
    await run(queue, spans, handle, 2)
    assert {span.status.status_code for span in spans.named(f"process {queue.name}")} == {StatusCode.UNSET}
    assert all(not span.links for span in spans.named(f"process {queue.name}")), "it was made outside of any trace"


async def test_a_durable_step_that_runs_has_a_span(queue: Queue, spans: Spans) -> None:
    async def on_loop(job: AsyncActiveJob) -> None:
        await job.step("ship", asyncio.sleep, 0)

    def handle(job: ActiveJob) -> None:
        job.step("charge", int)
        if job.attempt == 1:
            raise ValueError("once more")

    queue.add("pay", options=JobOptions(attempts=2))
    await run(queue, spans, handle, 2)
    step = spans.one("step charge")
    assert step.attributes == {"orchestration_queue.step": "charge"}
    first, _ = spans.named(f"process {queue.name}")
    assert step.parent is not None
    assert step.parent.span_id == first.context.span_id
    queue.add("send")
    await run(queue, spans, on_loop, 3)
    assert spans.one("step ship").status.status_code is StatusCode.UNSET


def test_what_the_adder_says_stays_and_only_traced_blocks_trace(queue: Queue, spans: Spans) -> None:
    with trace_jobs(spans.provider):
        mine, other = queue.add_bulk(
            [NewJob("a", {}, JobOptions(headers={"traceparent": "mine", "x": "1"})), NewJob("b")]
        )
    untraced = queue.add("c")
    stored = [queue.get(job.id).record.options.get("headers", {}) for job in (mine, other, untraced)]
    assert stored[0] == {"traceparent": "mine", "x": "1"}
    assert str(stored[1]["traceparent"]).startswith("00-")
    assert stored[2] == {}
    assert len(spans.named(f"create {queue.name}")) == 2


async def test_nodes_of_a_flow_are_linked_to_its_submission_and_may_be_submitted_again(
    queue: Queue, spans: Spans
) -> None:
    dag = Dag("etl", [Node("load"), Node("report", deps=("load",), options=JobOptions(headers={"x": "1"}))], queue.name)
    with FlowProducer(url=str(queue.url)) as flows:
        with trace_jobs(spans.provider), spans.tracer.start_as_current_span("request"):
            first = flows.submit(dag, flow_id="nightly")
            again = flows.submit(dag, flow_id="nightly")
        assert (first.is_new, again.is_new) == (True, False)
        await run(queue, spans, lambda job: job.headers, 2)
        results = first.wait(SOON)
    assert results["report"]["x"] == "1"
    (links,) = zip(*(span.links for span in spans.named(f"process {queue.name}")), strict=True)
    assert {link.context.trace_id for link in links} == {spans.one("request").context.trace_id}
    created = [span.attributes or {} for span in spans.named(f"create {queue.name}")]
    assert [attributes["orchestration_queue.task"] for attributes in created[:2]] == ["load", "report"]


async def test_the_elements_of_a_map_belong_to_the_trace_that_submitted_it(queue: Queue, spans: Spans) -> None:
    etl = DagBuilder("etl", queue=queue.name)
    etl.map("squares", "square", over=etl.node("numbers"), options=JobOptions(headers={"x": "1"}))
    with FlowProducer(url=str(queue.url)) as flows:
        with trace_jobs(spans.provider), spans.tracer.start_as_current_span("request"):
            flow = flows.submit(etl.build())
        await run(queue, spans, lambda job: [1, 2, 3] if job.name == "numbers" else job.headers, 6)
        assert flow.wait(SOON)["squares"] == {"count": 3}
    runs = spans.named(f"process {queue.name}")
    assert [(run.attributes or {})["orchestration_queue.task"] for run in runs].count("square") == 3
    assert {link.context.trace_id for run in runs for link in run.links} == {spans.one("request").context.trace_id}
    elements = [queue.get(f"{flow.id}.squares[{index}]") for index in range(3)]
    assert [job and job.wait(SOON)["x"] for job in elements] == ["1"] * 3


@pytest.mark.parametrize("headers", [{"a": 1}, {"a": "x" * 4097}, ["a"]])
def test_headers_are_short_texts(headers: Any) -> None:
    with pytest.raises(InvalidOptionError, match="headers"):
        JobOptions(headers=headers)


async def test_a_chasquimq_worker_has_a_span_for_each_run(server_url: str, queue_name: str, spans: Spans) -> None:
    from orchestration_queue.wires.chasquimq import AsyncChasquiQueue, ChasquiJob, ChasquiWorker

    async def handle(job: ChasquiJob) -> None:
        with spans.tracer.start_as_current_span("work"):
            if job.attempt == 0:
                raise RuntimeError("once")

    async with AsyncChasquiQueue(queue_name, url=server_url) as queue:
        job = await queue.add("ship", attempts=2, backoff=0)
    worker = ChasquiWorker(queue_name, handle, url=server_url, middleware=[Tracing(spans.provider)])
    running = asyncio.ensure_future(worker.run())
    await wait_until(lambda: len(spans.named(f"process {queue_name}")) == 2, "both attempts to end", 60)
    worker.stop()
    await running
    failed, succeeded = spans.named(f"process {queue_name}")
    for number, span in enumerate((failed, succeeded), 1):
        assert span.kind is SpanKind.CONSUMER
        assert span.attributes is not None
        assert span.attributes["messaging.message.id"] == job.id
        assert span.attributes["orchestration_queue.task"] == "ship"
        assert span.attributes["orchestration_queue.attempt"] == number
        assert not span.links
    assert (failed.status.status_code, succeeded.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    assert [span.parent and span.parent.span_id for span in spans.named("work")] == [
        span.context.span_id for span in (failed, succeeded)
    ]
