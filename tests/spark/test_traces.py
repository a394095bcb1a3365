"""A trace goes from who adds a Spark job to the Spark application that does it."""

from __future__ import annotations

from datetime import timedelta

import pytest
import redis

from orchestration_queue.client import AsyncQueue
from orchestration_queue.spark.connect.address import ServerState
from orchestration_queue.telemetry.tracing import Tracing, trace_jobs
from tests.integration.test_tracing import Spans
from tests.spark.connect_work import tasks
from tests.workers import working

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SOON = timedelta(seconds=100)


@pytest.mark.parametrize("task", ["query", "query_in_process"])
async def test_the_span_of_a_run_holds_one_of_spark(
    task: str, server_url: str, queue_name: str, raw: redis.Redis, connect_state: ServerState
) -> None:
    spans = Spans()
    async with (
        AsyncQueue(queue_name, url=server_url) as queue,
        working(queue, tasks, server_url, middleware=[Tracing(spans.provider)]),
    ):
        with trace_jobs(spans.provider), spans.tracer.start_as_current_span("request"):
            job = await queue.add(task, {"sql": "select 7"})
        assert await job.wait(SOON) == 1
    request, create, process = (
        spans.one(name) for name in ("request", f"create {queue_name}", f"process {queue_name}")
    )
    (of_spark,) = [span for span in spans.exporter.get_finished_spans() if span.name.startswith("spark ")]
    assert create.parent is not None
    assert create.parent.span_id == request.context.span_id
    assert [link.context.span_id for link in process.links] == [create.context.span_id]
    assert of_spark.parent is not None
    assert of_spark.parent.span_id == process.context.span_id
    said = dict(of_spark.attributes or {})
    assert str(said.pop("spark.application.id")).startswith(("local-", "app-", "spark-"))
    if task == "query":
        assert said.pop("spark.session.id")
    assert said == {"spark.runtime": "connect" if task == "query" else "process"}
