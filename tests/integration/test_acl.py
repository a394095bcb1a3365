"""The users of docs/how-to/secure-the-server.md: each can do its work, and nothing beyond it."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.exceptions import NoPermissionError

from orchestration_queue.alerts import AlertEvaluator, read_receivers
from orchestration_queue.client import AsyncAlerts, AsyncFlowProducer, AsyncQueue, Queue
from orchestration_queue.errors import JobFailedError, OrchestrationQueueError, ServerError, UnrecoverableError
from orchestration_queue.flows import Dag, Node
from orchestration_queue.options import AlertKind, Backoff, JobOptions
from orchestration_queue.protocol.library import LIBRARIES
from orchestration_queue.protocol.operations import job_records
from orchestration_queue.schedules import Every, JobTemplate
from orchestration_queue.server import Connection
from orchestration_queue.worker import AsyncActiveJob
from tests.alerts.receivers import hook
from tests.conftest import start_server
from tests.waiting import wait_until
from tests.workers import working

PAGE = (Path(__file__).parents[2] / "docs/how-to/secure-the-server.md").read_text("utf-8")
RULES = {rule.split()[0]: rule for rule in re.findall(r"^ACL SETUSER (.*)$", PAGE, re.MULTILINE)}
USERS = sorted(RULES)
SOON = timedelta(seconds=60)
CALM: dict[str, Any] = {"lease": SOON, "stalled_interval": SOON}
"""Nothing is lost, nor is a worker forgotten, while the machine is busy."""


def two(queue: str) -> Dag:
    first = Node("first", task="double", data={"n": 1})
    return Dag("two", [first, Node("second", task="double", data={"n": 2}, deps=("first",))], queue)


class Server:
    """A server of its own, at which these users exist, and its administrator."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self.admin = redis.Redis(unix_socket_path=str(socket), decode_responses=True, protocol=2)

    def url(self, user: str) -> str:
        return f"unix://{user}:{user.removeprefix('oq-')}-secret@{self._socket}"

    def ask(self, user: str, *words: str) -> object:
        """What the server answers when this user sends a command."""
        client = redis.Redis(unix_socket_path=str(self._socket), username=user, password=f"{user[3:]}-secret")
        with client:
            return client.execute_command(*words)  # type: ignore[no-untyped-call]

    def refused(self) -> list[str]:
        """What the server has refused to anybody since the last look."""
        refused = [f"{entry['username']}: {entry['object']}" for entry in self.admin.acl_log()]
        self.admin.acl_log_reset()
        return refused


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    socket = tmp_path_factory.mktemp("acl") / "valkey.sock"
    process = start_server(socket)
    server = Server(socket)
    for rule in RULES.values():
        server.admin.execute_command("ACL", "SETUSER", *rule.split())  # type: ignore[no-untyped-call]
    Connection.open(server.url("oq-loader")).close()
    yield server
    server.admin.close()
    process.send_signal(signal.SIGTERM)
    process.wait(10)


@pytest.fixture(autouse=True)
def nothing_was_refused_before(server: Server) -> None:
    server.admin.flushall()
    server.admin.acl_log_reset()


async def double(job: AsyncActiveJob) -> int:
    if job.attempt == 1 and job.data.get("fails"):
        raise ValueError("once")
    return 2 * int(job.data["n"])


def test_the_page_has_the_four_users() -> None:
    assert USERS == ["oq-client", "oq-loader", "oq-observer", "oq-worker"]


def test_the_loader_has_loaded_the_libraries(server: Server) -> None:
    loaded = server.admin.execute_command("FUNCTION", "LIST")  # type: ignore[no-untyped-call]
    assert {row[1] for row in loaded} == {library.name for library in LIBRARIES}


async def test_clients_and_workers_can_do_all_their_work(
    server: Server, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = server.url("oq-client")
    async with (
        AsyncQueue(queue_name, url=url) as queue,
        AsyncFlowProducer(url=url) as producer,
        working(queue, double, server.url("oq-worker"), **CALM),
    ):
        assert await (await queue.add("double", {"n": 4})).wait(SOON) == 8
        again = JobOptions(attempts=2, backoff=Backoff(delay=timedelta(milliseconds=20)))
        retried = await queue.add("double", {"n": 5, "fails": True}, again)
        assert await retried.wait(SOON) == 10
        assert (await retried.refresh()).attempts_made == 1
        late = await queue.add("double", {"n": 6}, JobOptions(delay=timedelta(milliseconds=50)))
        assert await late.wait(SOON) == 12
        flow = await producer.submit(two(queue_name))
        assert await flow.wait(SOON) == {"first": 2, "second": 4}
        await queue.schedulers.upsert("often", Every(0.1, limit=2), JobTemplate(name="double", data={"n": 7}))
        await wait_until(lambda: server.admin.zcard(queue.keys.completed) >= 7, "two fires of the schedule", 60)
        await queue.schedulers.remove("often")
        await queue.pause()
        await queue.resume()
        await queue.search(name="double")
        assert [worker.pid for worker in await queue.workers()]
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    said = [line for line in said if not line.startswith("Attempt 1 of job")]  # which fails on purpose
    # The lock on schedules lasts a second, which a busy machine may be away for.
    assert not [line for line in said if "were taken over by another worker" not in line]
    assert server.refused() == []


async def test_clients_and_workers_can_do_all_that_tells_of_jobs_and_limits_them(
    server: Server, queue_name: str
) -> None:
    url = server.url("oq-client")
    async with (
        AsyncQueue(queue_name, url=url) as queue,
        AsyncQueue(f"{queue_name}-other", url=url) as other,
        working(queue, double, server.url("oq-worker"), **CALM) as worker,
    ):
        await queue.configure(attempts=1, lease=SOON)
        await queue.pools.set("warehouse", 2)
        await queue.shares.set("acme", 2)
        limited = JobOptions(tags=["nightly"], pools={"warehouse": 2})
        done = await queue.add("double", {"n": 1}, limited)
        shared = await queue.add("double", {"n": 2}, JobOptions(share="acme"))
        failing = await queue.add("double", {"n": 3, "fails": True})
        assert [await job.wait(SOON) for job in (done, shared)] == [2, 4]
        with pytest.raises(JobFailedError):
            await failing.wait(SOON)
        await failing.track()
        assert [job.id for job in await queue.tracked()] == [failing.id]
        assert [group.kind for group in await queue.failures()] == ["ValueError"]
        assert (await failing.explain()).state == "failed"
        assert [job.id for job in await queue.tags.jobs("nightly")] == [done.id]
        await wait_until(lambda: server.admin.keys(f"{queue.keys.base}:statistics:*"), "the statistics")
        assert (await queue.statistics()).day
        assert len(await queue.control_workers("pause", timeout=SOON)) == 1
        await wait_until(lambda: worker.is_paused, "the pause")
        moved = await queue.add("later", None, JobOptions(job_id="moved"))
        assert (await (await moved.move(other.name)).explain()).state == "waiting"
        async with AsyncQueue(other.name, url=server.url("oq-worker")) as taker:
            (taken,) = await taker.take(1, lease=SOON)
            await taken.complete(5)
        assert [(pool.name, pool.used) for pool in await queue.pools.list()] == [("warehouse", 0)]
        await queue.pools.remove("warehouse")
        await queue.shares.remove("acme")
        await failing.untrack()
    assert server.refused() == []


async def test_durable_steps_need_no_more(server: Server, queue_name: str) -> None:
    async def stepped(job: AsyncActiveJob) -> object:
        if job.name == "double":
            return await double(job)
        paid = await job.step("charge", lambda: 1)
        await job.sleep("nap", 0.05)
        if await job.wait_for("approval") == "no":
            raise UnrecoverableError("no")
        with suppress(TimeoutError):
            await job.wait_for("nothing", timeout=0.05)
        called = await job.gather(*(Node(name, "double", name, {"n": 2}) for name in (queue_name, other.name)))
        return [paid, *called]

    url = server.url("oq-client")
    async with (
        AsyncQueue(queue_name, url=url) as queue,
        AsyncQueue(f"{queue_name}-other", url=url) as other,
        working(queue, stepped, server.url("oq-worker"), **CALM),
        working(other, double, server.url("oq-worker"), **CALM),
    ):
        job = await queue.add("work")
        await wait_until(lambda: server.admin.zcard(queue.keys.suspended), "the job to be suspended", 60)
        assert await job.signal("approval", "no")
        with pytest.raises(JobFailedError, match="no"):
            await job.wait(SOON)
        await job.retry(from_step="approval")
        await wait_until(lambda: server.admin.zcard(queue.keys.suspended), "the job to be suspended again", 60)
        assert await job.signal("approval", "yes")
        assert await job.wait(SOON) == [1, 4, 4]
        async with AsyncQueue(queue_name, url=server.url("oq-observer")) as observer:
            steps = await (await observer.get(job.id)).steps()
        assert len(steps) == 6
    assert server.refused() == []


async def test_a_client_evaluates_alert_rules(server: Server, queue_name: str) -> None:
    url = server.url("oq-client")
    kinds = [kind for kind in AlertKind if kind is not AlertKind.MEMORY]
    async with hook() as ops, AsyncAlerts(url=url) as alerts, AsyncQueue(queue_name, url=url) as queue:
        await queue.add("double", {"n": 1})
        for kind in kinds:
            await alerts.set(
                kind, {"kind": kind, "to": ["ops"]} | ({"threshold": 0} if kind is AlertKind.BACKLOG else {})
            )
        evaluator = AlertEvaluator(read_receivers({"OQ_ALERT_RECEIVER_OPS": ops.url}), url=url, interval=1)
        running = asyncio.ensure_future(evaluator.run())
        await wait_until(lambda: sorted(ops.states) == ["firing backlog", "firing no_worker"], "rules to fire")
        evaluator.stop()
        await asyncio.wait_for(running, 60)
    assert server.refused() == []


async def test_a_client_alone_can_empty_and_obliterate_a_queue(server: Server, queue_name: str) -> None:
    async with AsyncQueue(queue_name, url=server.url("oq-client")) as queue:
        await queue.add("double", {"n": 1})
        await queue.drain()
        await queue.obliterate(force=True)
    assert server.refused() == []


async def test_an_observer_reads_and_cannot_write(server: Server, queue_name: str) -> None:
    client, url = server.url("oq-client"), server.url("oq-observer")
    async with AsyncQueue(queue_name, url=client) as queue, working(queue, double, server.url("oq-worker")):
        job = await queue.add("double", {"n": 4})
        await job.wait(SOON)
    async with AsyncQueue(queue_name, url=url) as queue, queue.events("0") as events:
        assert (await queue.counts()).completed == 1
        assert (await queue.get(job.id)).record.result == 8
        assert [found.id for found in await queue.jobs("completed")] == [job.id]
        assert "completed" in [event.type for event in await events.read(SOON)]
        assert (await queue.metrics("completed")).count == 1
        assert await queue.workers() == []
        assert await AsyncQueue.names(url=url) == [queue_name]
        with Connection.open(url) as connection:  # as Spark's executors do
            columns = connection.follow(job_records.columns(queue.keys, [job.id, "gone"], ["id", "name"]))
        assert columns == [[job.id.encode(), None], [b"double", None]]
        assert server.refused() == [f"oq-observer: {queue.keys.events}"]  # it can't register as a reader
        for write in (queue.add("double", {"n": 1}), queue.pause(), (await queue.get(job.id)).remove()):
            with pytest.raises(ServerError):
                await write
    with pytest.raises(NoPermissionError):
        server.ask("oq-observer", "SET", "glide:x", "1")
    async with AsyncQueue(queue_name, url=client) as queue:
        assert (await queue.counts()).waiting == 0
        assert (await queue.counts()).completed == 1


async def test_a_client_cannot_take_jobs_from_the_stream(server: Server, queue_name: str) -> None:
    async with AsyncQueue(queue_name, url=server.url("oq-client")) as queue:
        await queue.add("double", {"n": 1})
        words = ("XREADGROUP", "GROUP", "workers", "me", "STREAMS", queue.keys.stream, ">")
    with pytest.raises(NoPermissionError):
        server.ask("oq-client", *words)


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize(
    "command",
    [
        "FLUSHALL",
        "FLUSHDB",
        "KEYS glide:*",
        "CONFIG SET maxmemory 1",
        "CONFIG GET *",
        "FUNCTION DELETE glidemq",
        "FUNCTION FLUSH",
        "FUNCTION DUMP",
        "SCRIPT FLUSH",
        "ACL LIST",
        "CLIENT KILL TYPE normal",
        "MONITOR",
        "SHUTDOWN NOSAVE",
        "REPLICAOF NO ONE",
        "SWAPDB 0 1",
        "PUBLISH channel x",
        "RANDOMKEY",
        "GET other:x",
        "SET other:x 1",
        "DEL other:x",
        "EVAL return(1) 0",
    ],
)
def test_nobody_of_them_may_do_what_harms_others(server: Server, user: str, command: str) -> None:
    with pytest.raises(NoPermissionError):
        server.ask(user, *command.split())


@pytest.mark.parametrize("user", ["oq-client", "oq-worker", "oq-observer"])
def test_only_the_loader_loads(server: Server, user: str) -> None:
    with pytest.raises(NoPermissionError):
        server.ask(user, "FUNCTION", "LOAD", "REPLACE", LIBRARIES[0].text)


@pytest.mark.parametrize("user", ["oq-client", "oq-worker"])
def test_the_keys_of_another_prefix_stay_untouched(server: Server, queue_name: str, user: str) -> None:
    with (
        Queue(queue_name, url=server.url(user), prefix="other") as queue,
        pytest.raises(OrchestrationQueueError),
    ):
        queue.add("double", {"n": 1})
    assert server.admin.dbsize() == 0


def test_who_may_not_load_is_told_so_when_the_libraries_are_missing(server: Server, queue_name: str) -> None:
    server.admin.execute_command("FUNCTION", "FLUSH")  # type: ignore[no-untyped-call]
    try:
        with (
            pytest.raises(ServerError, match="FUNCTION"),
            Queue(queue_name, url=server.url("oq-client")) as queue,
        ):
            queue.counts()
    finally:
        Connection.open(server.url("oq-loader")).close()
