"""What the documents of glide-mq state of clients and workers, on a real server; the functions: `tests/lua`."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncFlowProducer, AsyncQueue
from orchestration_queue.errors import InvalidOptionError, JobFailedError, PayloadError
from orchestration_queue.flows import Dag, Node, tree
from orchestration_queue.options import JobOptions, RateLimit, WorkerOptions
from orchestration_queue.server import Connection
from orchestration_queue.states import JobState
from orchestration_queue.worker import AsyncActiveJob, Worker, WorkerEvent
from orchestration_queue.worker.events import WorkerEventType
from tests.by_hand import HandWorker
from tests.conftest import start_server
from tests.lua.signatures import SIGNATURES
from tests.lua.wire import LIBRARY
from tests.waiting import wait_until
from tests.workers import QUICK, working

SOON = timedelta(seconds=60)


@pytest.fixture
async def queue(server_url: str, queue_name: str, raw: redis.Redis) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        await queue.counts()  # connecting loads the functions
        yield queue


def add(raw: Any, queue: AsyncQueue, options: dict[str, Any], data: str = "{}") -> str:
    """Add a job with these options as a client of another language does, by the document's 17 arguments."""
    keys = [queue.keys.named(name) for name in ("id", "stream", "scheduled", "events")]
    attempts = options.get("attempts", 0)
    words = ["work", data, json.dumps(options), "1709750400000", 0, 0, "", attempts, "", *[0] * 7, ""]
    assert len(words) == 17
    return str(raw.fcall("glidemq_addJob", 4, *keys, *words))


def events_of(raw: Any, queue: AsyncQueue, kind: str) -> list[dict[str, str]]:
    return [fields for _, fields in raw.xrange(queue.keys.events) if fields["event"] == kind]


async def finish(queue: AsyncQueue, job_id: str) -> None:
    """Wait until a job has completed or failed."""
    with suppress(JobFailedError):
        await (await queue.get(job_id)).wait(SOON)


async def boom(_: AsyncActiveJob) -> None:
    raise RuntimeError("boom")


async def nothing(_: AsyncActiveJob) -> None: ...


# -- options that other clients write ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backoff", "waits"),
    [
        ({"type": "fixed", "delay": 20}, [(20, 20)] * 3),
        ({"type": "exponential", "delay": 20}, [(20, 20), (40, 40), (80, 80)]),
        ({"type": "exponential", "delay": 20, "jitter": 0.5}, [(20, 30), (40, 60), (80, 120)]),
        ({"type": "by tens", "delay": 20}, [(10, 10), (20, 20), (30, 30)]),
        (None, [(0, 0)] * 3),
    ],
    ids=["fixed", "exponential", "jitter", "strategy", "none"],
)
async def test_each_backoff_waits_as_stated(
    queue: AsyncQueue, server_url: str, raw: Any, backoff: dict[str, Any] | None, waits: list[tuple[int, int]]
) -> None:
    strategies = {"by tens": lambda failures, _: timedelta(milliseconds=10 * failures)}
    worker = Worker(queue.name, boom, url=server_url, options=QUICK, strategies=strategies)
    running = asyncio.ensure_future(worker.run())
    await finish(queue, add(raw, queue, {"attempts": 4} | ({"backoff": backoff} if backoff else {})))
    worker.stop()
    await running
    told = [int(fields["delay"]) for fields in events_of(raw, queue, "retrying")]
    assert len(told) == len(waits)
    assert all(least <= ms <= most for ms, (least, most) in zip(told, waits, strict=True)), told


@pytest.mark.parametrize(
    ("retention", "kept"),
    [
        (True, []),
        (False, ["old", "1", "2", "3"]),
        (2, ["2", "3"]),
        ({"age": 3600, "count": 2}, ["2", "3"]),
        ({"age": 3600, "count": 9}, ["1", "2", "3"]),
    ],
    ids=str,
)
@pytest.mark.parametrize(("option", "handler"), [("removeOnComplete", nothing), ("removeOnFail", boom)])
async def test_finished_jobs_are_kept_as_stated(
    queue: AsyncQueue, server_url: str, raw: Any, option: str, handler: Any, retention: Any, kept: list[str]
) -> None:
    """A job of long ago is there; then three more finish, one after the other."""
    name = "completed" if option == "removeOnComplete" else "failed"
    raw.zadd(queue.keys.named(name), {"old": 1})
    raw.hset(queue.keys.job("old"), mapping={"id": "old", "state": name, "finishedOn": 1})
    for _ in range(3):
        add(raw, queue, {option: retention})
    if retention is True:  # removes no other job
        kept = ["old"]
    async with working(queue, handler, server_url, concurrency=1):
        await wait_until(lambda: not raw.xlen(queue.keys.stream), "all to finish")
    assert raw.zrange(queue.keys.named(name), 0, -1) == kept
    assert {key.rpartition(":")[2] for key in raw.scan_iter(queue.keys.job("*"))} == set(kept)


async def test_data_compressed_by_another_client_are_read_and_ours_by_it(
    queue: AsyncQueue, server_url: str, raw: Any
) -> None:
    async def echo(job: AsyncActiveJob) -> Any:
        return job.data

    theirs = "gz:" + base64.b64encode(gzip.compress(b'{"to":"ada"}')).decode()
    async with working(queue, echo, server_url):
        job = await queue.get(add(raw, queue, {}, theirs))
        assert await job.wait(SOON) == {"to": "ada"}
    async with AsyncQueue(queue.name, url=server_url, codec="gzip") as compressing:
        stored = raw.hget(queue.keys.job((await compressing.add("work", {"to": "bob" * 100})).id), "data")
    prefix, packed = stored[:3], base64.b64decode(stored[3:])
    assert (prefix, json.loads(gzip.decompress(packed))) == ("gz:", {"to": "bob" * 100})


@pytest.mark.parametrize("codec", ["json", "gzip"])
async def test_data_have_up_to_a_mebibyte_before_compression(
    queue: AsyncQueue, server_url: str, raw: Any, codec: Any
) -> None:
    async with AsyncQueue(queue.name, url=server_url, codec=codec) as client:
        await client.add("work", "x" * (1_048_576 - len('""')))
        with pytest.raises(PayloadError, match="exceeds maximum size"):
            await client.add("work", "x" * (1_048_576 - len('""') + 1))
    assert raw.xlen(queue.keys.stream) == 1


@pytest.mark.parametrize("character", [*map(chr, range(0x20)), "\x7f", "{", "}", ":"], ids=ascii)
async def test_a_custom_id_has_none_of_the_documents_characters(queue: AsyncQueue, raw: Any, character: str) -> None:
    with pytest.raises(InvalidOptionError, match="contains"):
        await queue.add("work", options=JobOptions(job_id=f"a{character}b"))
    assert not raw.exists(queue.keys.stream)


async def test_a_custom_id_has_up_to_256_characters(queue: AsyncQueue) -> None:
    assert (await queue.add("work", options=JobOptions(job_id="é" * 256))).id == "é" * 256
    with pytest.raises(InvalidOptionError, match="longer than 256"):
        await queue.add("work", options=JobOptions(job_id="x" * 257))


async def test_priorities_go_to_2048(queue: AsyncQueue, raw: Any) -> None:
    job = await queue.add("work", options=JobOptions(priority=2048))
    assert raw.zscore(queue.keys.scheduled, job.id) == 2048 * 2**42
    with pytest.raises(InvalidOptionError, match="less than or equal to 2048"):
        await queue.add("work", options=JobOptions(priority=2049))


# -- what clients read ------------------------------------------------------------------------------------------------


async def test_each_field_of_a_job_is_in_its_record(queue: AsyncQueue, raw: Any) -> None:
    """Of a job of another client, that went through everything."""
    fields = {
        "id": "7",
        "name": "work",
        "data": '{"n":1}',
        "opts": '{"attempts":3}',
        "timestamp": "1709750400000",
        "attemptsMade": "2",
        "maxAttempts": "3",
        "priority": "4",
        "state": "failed",
        "returnvalue": '{"rows":3}',
        "failedReason": "boom",
        "progress": '{"done":0.5}',
        "processedOn": "1709750401000",
        "finishedOn": "1709750402000",
        "parentId": "p",
        "parentQueue": "other",
        "groupKey": "k",
        "orderingSeq": "5",
        "cost": "1500",
        "expireAt": "1709750409000",
        "revoked": "1",
    }
    raw.hset(queue.keys.job("7"), mapping=fields)
    record = (await queue.get("7")).record
    assert record.fields == fields
    start = datetime.fromtimestamp(1_709_750_400, UTC)
    second = timedelta(seconds=1)
    assert (record.id, record.name, record.data, record.options) == ("7", "work", {"n": 1}, {"attempts": 3})
    assert (record.attempts_made, record.max_attempts, record.priority) == (2, 3, 4)
    assert (record.state, record.result, record.failed_reason) == (JobState.FAILED, {"rows": 3}, "boom")
    assert record.progress == {"done": 0.5}
    assert (record.added_at, record.started_at, record.finished_at) == (start, start + second, start + 2 * second)
    assert (record.parent_id, record.parent_queue, record.group) == ("p", "other", "k")


async def test_each_event_has_the_documents_fields(queue: AsyncQueue, server_url: str, raw: Any) -> None:
    async def work(job: AsyncActiveJob) -> int:
        await job.update_progress(40)
        if job.data:
            raise RuntimeError("boom")
        return 3

    async with queue.events(after="0") as events:
        await queue.pause()
        await queue.resume()
        silent = await queue.add("work")
        with HandWorker(server_url, queue.name) as hand:
            hand.take()
        raw.hset(queue.keys.job(silent.id), "lastActive", "1")
        async with working(queue, work, server_url):
            await silent.wait(SOON)
            failed = await queue.add("work", 1)
            await finish(queue, failed.id)
        told = {(event.type, event.job_id): event for event in await events.read(100)}
    assert told["completed", silent.id].fields == {"returnvalue": "3"}
    assert told["completed", silent.id].result == 3
    assert told["failed", failed.id].fields == {"failedReason": "RuntimeError: boom"}
    assert told["progress", silent.id].fields == {"data": "40"}
    assert told["added", silent.id].fields == {"name": "work"}
    assert {kind for kind, _ in told} >= {"stalled", "paused", "resumed"}
    assert ("stalled", silent.id) in told


async def test_all_keys_of_a_queue_begin_with_its_prefix_and_tag(queue: AsyncQueue, server_url: str, raw: Any) -> None:
    await queue.add("work", options=JobOptions(delay=9))
    assert all(key.startswith(f"glide:{{{queue.name}}}:") for key in raw.keys("*"))
    raw.flushdb()
    async with AsyncQueue(queue.name, url=server_url, prefix="mine") as client:
        await client.add("work", options=JobOptions(delay=9))
    assert all(key.startswith(f"mine:{{{queue.name}}}:") for key in raw.keys("*"))


def waits(raw: Any) -> int:
    """How many connections wait for jobs."""
    return sum(client["cmd"] == "xreadgroup" and "b" in client["flags"] for client in raw.client_list())


async def test_a_client_has_one_connection_and_a_worker_waits_on_one(
    queue: AsyncQueue, server_url: str, raw: Any
) -> None:
    before = len(raw.client_list())
    async with AsyncQueue(queue.name, url=server_url) as client:
        for _ in range(3):
            await client.counts()
        assert len(raw.client_list()) == before + 1
    await wait_until(lambda: len(raw.client_list()) == before, "the client to be gone")
    async with working(queue, nothing, server_url, concurrency=50):
        await (await queue.add("work")).wait(SOON)
        await wait_until(lambda: waits(raw), "the worker to wait for jobs")
        assert waits(raw) == 1


async def test_a_worker_runs_one_job_at_a_time_by_default(queue: AsyncQueue, server_url: str) -> None:
    running = most = 0

    async def work(job: AsyncActiveJob) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await job.log("an exchange, during which another job could start")
        running -= 1

    jobs = [await queue.add("work") for _ in range(5)]
    async with working(queue, work, server_url, concurrency=WorkerOptions().concurrency):
        for job in jobs:
            await job.wait(SOON)
    assert most == 1


async def test_a_worker_emits_an_error_when_the_server_refuses_a_call(
    queue: AsyncQueue, server_url: str, raw: Any
) -> None:
    reasons: list[str] = []

    def note(event: WorkerEvent) -> None:
        if event.type is WorkerEventType.ERROR:
            reasons.append(str(event.reason))

    async with working(queue, nothing, server_url) as worker:
        worker.subscribe(note)
        await wait_until(lambda: waits(raw), "the worker to wait for jobs")
        raw.set(queue.keys.stream, "no stream")
        for client in raw.client_list():
            if client["cmd"] == "xreadgroup":
                raw.client_kill_filter(_id=client["id"])
        await wait_until(lambda: reasons, "the error")
        raw.delete(queue.keys.stream)
        await (await queue.add("work")).wait(SOON)
    assert any("WRONGTYPE" in reason for reason in reasons)


# -- the library ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("persistence", ["--appendonly", "--save"])
def test_functions_survive_a_restart(tmp_path: Path, persistence: str) -> None:
    """Killed, and started again on its files alone, without a client that loads anything."""
    words = ("--appendonly", "yes", "--appendfsync", "always") if persistence == "--appendonly" else ()
    server = start_server(tmp_path / "s", *words, "--dir", str(tmp_path))
    client = redis.Redis(unix_socket_path=str(tmp_path / "s"), decode_responses=True, protocol=2)
    client.function_load(LIBRARY.read_text())
    if persistence == "--save":
        client.save()
    server.kill()
    server.wait(60)
    server = start_server(tmp_path / "s", *words, "--dir", str(tmp_path))
    assert client.fcall("glidemq_version", 0) == "93"
    client.close()
    server.kill()
    server.wait(60)


def test_connecting_asks_the_version_and_loads_what_is_missing(server_url: str, raw: Any) -> None:
    raw.function_flush("SYNC")
    with Connection.open(server_url):
        (library,) = raw.function_list(library="glidemq")
        names = {dict(zip(row[::2], row[1::2], strict=True))["name"] for row in library[5]}
        assert names == {f"glidemq_{name}" for name in SIGNATURES}
        assert raw.fcall("glidemq_version", 0) == "93"
    raw.config_resetstat()
    with Connection.open(server_url):
        asked = raw.info("commandstats")
    assert "cmdstat_fcall" in asked
    assert not {"cmdstat_function|list", "cmdstat_function|load"} & asked.keys()


# -- flows ------------------------------------------------------------------------------------------------------------


async def test_the_children_of_a_tree_run_before_it(queue: AsyncQueue, server_url: str) -> None:
    order: list[str] = []

    async def work(job: AsyncActiveJob) -> None:
        order.append(job.name)

    parts = [tree(Node("left"), [tree(Node("x")), tree(Node("y"))]), tree(Node("right"))]
    flows = [tree(Node("root"), parts).dag("tree", queue=queue.name) for _ in range(2)]
    async with AsyncFlowProducer(url=server_url) as producer, working(queue, work, server_url, concurrency=1):
        for flow in await producer.submit_bulk(flows):
            await flow.wait(SOON)
    assert sorted(order) == sorted(["left", "right", "root", "x", "y"] * 2)
    assert order[-1] == "root"
    assert {"x", "y"} <= set(order[: order.index("left")])
    assert {"left", "right"} <= set(order[: order.index("root")])


async def test_nodes_that_wait_for_others_are_waiting_children(queue: AsyncQueue, server_url: str) -> None:
    nodes = [Node("a"), Node("b", deps=("a",)), Node("c", deps=("a",)), Node("d", deps=("b", "c"))]
    async with AsyncFlowProducer(url=server_url) as producer:
        await producer.submit(Dag("diamond", nodes, queue.name), flow_id="f")
    states = {name: (await queue.get(f"f.{name}")).record.state for name in "abcd"}
    assert states == {"a": JobState.WAITING} | dict.fromkeys("bcd", JobState.WAITING_CHILDREN)


async def test_the_queues_rate_limit_is_in_its_metadata(queue: AsyncQueue, raw: Any) -> None:
    await queue.pause()
    await queue.set_global_concurrency(3)
    await queue.set_global_rate_limit(RateLimit(max=7, duration=1.5))
    assert raw.hgetall(queue.keys.meta) == {
        "paused": "1",
        "globalConcurrency": "3",
        "rateLimitMax": "7",
        "rateLimitDuration": "1500",
    }
