"""Payloads of every codec in one queue: what is stored, who reads it, and what those see who cannot."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

import numpy as np
import pytest
import redis
from pydantic import BaseModel

from orchestration_queue import Dag, Every, JobTemplate, Node
from orchestration_queue.client import AsyncFlowProducer, AsyncQueue, NewJob
from orchestration_queue.errors import JobFailedError, PayloadError
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.worker import AsyncActiveJob
from tests.faces import Face
from tests.workers import working

RICH = {"raw": b"\x00\xff", "at": datetime(2013, 1, 31, 12, tzinfo=UTC), "tags": ["a", None, 1.5]}


class Kind(Enum):
    SHIP = "ship"


class Order(BaseModel):
    number: int
    price: Decimal


@pytest.mark.parametrize(
    ("codec", "data", "begins"),
    [("json", {"a": 1}, '{"a":1}'), ("gzip", {"a": "x" * 1000}, "gz:H4sI"), ("msgpack", RICH, "mp:")],
)
async def test_a_payload_is_stored_as_its_codec_says_and_read_by_all(
    face: Face, queue_name: str, raw: redis.Redis, codec: str, data: Any, begins: str
) -> None:
    async with face.queue(queue_name, codec=codec) as queue, face.queue(queue_name) as other:
        job = await queue.add("n", data)
        (bulk,) = await queue.add_bulk([NewJob("n", data)])
        for added in (job, bulk):
            assert str(raw.hget(QueueKeys(queue_name).job(added.id), "data")).startswith(begins)
            assert (await other.get(added.id)).record.data == data


async def test_one_rule_holds_for_data_results_progress_flows_and_schedules(
    queue_name: str, server_url: str, raw: redis.Redis
) -> None:
    value = {"n": np.int64(7), "price": Decimal("1.10"), "at": datetime(2013, 1, 31, tzinfo=UTC), "of": [Kind.SHIP]}
    written = {"n": 7, "price": "1.10", "at": "2013-01-31T00:00:00Z", "of": ["ship"]}

    async def work(job: AsyncActiveJob) -> Any:
        assert job.data == written
        await job.update_progress(value)
        await job.update_data(value)
        return value

    async with AsyncQueue(queue_name, url=server_url) as queue, AsyncFlowProducer(url=server_url) as producer:
        await queue.schedulers.upsert("s", Every(timedelta(hours=1)), JobTemplate(data=value))
        jobs = [await queue.add("n", value), *await queue.add_bulk([NewJob("n", value)])]
        flow = await producer.submit(Dag("d", [Node("n", data=value)], queue_name))
        async with working(queue, work, server_url):
            assert [await job.wait(timedelta(seconds=60)) for job in jobs] == [written, written]
            assert await flow.wait(timedelta(seconds=60)) == {"n": written}
        assert (await queue.get(jobs[0].id)).record.progress == written
        assert (await queue.get(jobs[0].id)).record.data == written
        scheduled = await queue.schedulers.get("s")
        assert json.loads(scheduled.data_text()) == written


async def test_models_are_data_wherever_data_go(face: Face, queue_name: str, raw: redis.Redis) -> None:
    order = Order(number=7, price=Decimal("1.10"))
    async with face.queue(queue_name) as queue:
        job = await queue.add("ship", {"orders": [order]})
        await queue.add("ship", order)
        await job.update_data(order)
        assert (await queue.get(job.id)).record.data == {"number": 7, "price": "1.10"}
    assert Order.model_validate(job.record.data) == order


@pytest.mark.parametrize(
    ("codec", "data", "says"),
    [
        ("json", {"raw": b"\xff"}, "cannot be written as JSON"),
        ("gzip", {"raw": b"\xff"}, "cannot be written as JSON"),
        ("msgpack", {"at": object()}, "cannot be written by the codec 'msgpack'"),
        ("json", "x" * 1_048_576, "exceeds maximum size"),
        ("gzip", "x" * 1_048_576, "exceeds maximum size"),
        ("msgpack", b"x" * 1_000_000, "exceeds maximum size"),
    ],
)
async def test_what_a_codec_cannot_carry_is_refused_and_nothing_written(
    face: Face, queue_name: str, raw: redis.Redis, codec: str, data: Any, says: str
) -> None:
    async with face.queue(queue_name, codec=codec) as queue:
        with pytest.raises(PayloadError, match=says):
            await queue.add("n", data)
        with pytest.raises(PayloadError, match=says):
            await queue.add_bulk([NewJob("n", 1), NewJob("n", data)])
    assert raw.keys("*") == []


async def test_a_worker_meets_all_codecs_and_answers_in_json(
    queue_name: str, server_url: str, raw: redis.Redis
) -> None:
    async def echo(job: AsyncActiveJob) -> Any:
        return Order.model_validate(job.data["order"])

    order = Order(number=7, price=Decimal("1.10"))
    async with AsyncQueue(queue_name, url=server_url) as queue, working(queue, echo, server_url):
        for codec in ("json", "gzip", "msgpack"):
            async with AsyncQueue(queue_name, url=server_url, codec=codec) as adder:
                job = await adder.add("echo", {"order": order})
                assert Order.model_validate(await job.wait(timedelta(seconds=60))) == order
            assert json.loads(str(raw.hget(QueueKeys(queue_name).job(job.id), "returnvalue"))) == order.model_dump(
                mode="json"
            )


async def test_data_that_nobody_here_can_read_fail_the_job_with_the_reason(
    queue_name: str, server_url: str, raw: redis.Redis
) -> None:
    async def read(job: AsyncActiveJob) -> Any:
        return job.data

    async with AsyncQueue(queue_name, url=server_url) as queue:
        job = await queue.add("read", 1)
        raw.hset(QueueKeys(queue_name).job(job.id), "data", "yaml:a: 1")
        async with working(queue, read, server_url):
            with pytest.raises(JobFailedError, match="it was written with another serializer, or is damaged"):
                await job.wait(timedelta(seconds=60))
