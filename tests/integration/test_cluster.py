"""A real cluster of three primaries: queues on each of them, slots that move, primaries that come later."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import signal
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestration_queue.alerts import AlertEvaluator, read_receivers
from orchestration_queue.cli.main import app
from orchestration_queue.client import (
    AsyncAlerts,
    AsyncBroadcast,
    AsyncQueue,
    AsyncShardedQueue,
    FlowProducer,
    NewJob,
    Queue,
    QueueEvents,
)
from orchestration_queue.errors import (
    FlowError,
    JobFailedError,
    ServerError,
    TransportError,
    UnrecoverableError,
    UsageError,
)
from orchestration_queue.flows import Dag, Node, compile  # noqa: A004
from orchestration_queue.options import Budget, JobOptions, Ordering, RateLimit, TokenLimit, Usage, WorkerOptions
from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.lease import Failure
from orchestration_queue.protocol.library import LIBRARIES
from orchestration_queue.protocol.operations import exchanges, job_records, worker_registry
from orchestration_queue.protocol.slots import key_slot
from orchestration_queue.server import AsyncConnection, Connection
from orchestration_queue.server.clock import now_ms
from orchestration_queue.wires.chasquimq import (
    AsyncChasquiEvents,
    AsyncChasquiQueue,
    ChasquiJob,
    ChasquiMove,
    ChasquiWorker,
    ChasquiWorkerOptions,
    NewChasquiJob,
)
from orchestration_queue.wires.chasquimq.keys import ChasquiKeys
from orchestration_queue.worker import AsyncActiveJob, BroadcastWorker, Handler, SharedSlots, Worker, shard_workers
from tests.alerts.receivers import hook
from tests.faces import Face
from tests.nodes import Cluster, Nodes
from tests.nodes import Node as Member
from tests.waiting import wait_until

SOON = timedelta(seconds=60)
QUICK = WorkerOptions(concurrency=4, promotion_interval=timedelta(milliseconds=100), drain=timedelta(seconds=5))
OURS = {library.name for library in LIBRARIES}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with Nodes(tmp_path_factory.mktemp("cluster")) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def cluster(nodes: Nodes) -> Cluster:
    cluster = nodes.start_cluster(3)
    for node in cluster.nodes:  # no primary fails here, and a busy machine must not make it look so
        node.ask("CONFIG", "SET", "cluster-node-timeout", 30_000)
    return cluster


@pytest.fixture
def queues(cluster: Cluster, queue_name: str) -> list[str]:
    """A queue on each of the first three primaries."""
    return [cluster.queue_on(node, queue_name) for node in cluster.nodes[:3]]


@asynccontextmanager
async def working(
    cluster: Cluster, handler: Handler, *queues: str, url: str = "", options: WorkerOptions = QUICK
) -> AsyncIterator[list[Worker]]:
    """A worker for each queue, stopped in the end."""
    workers = [Worker(queue, handler, url=url or cluster.url, options=options) for queue in queues]
    running = [asyncio.ensure_future(worker.run()) for worker in workers]
    try:
        await wait_until(lambda: all(worker.is_listening for worker in workers), "the workers to listen")
        yield workers
    finally:
        for worker in workers:
            worker.stop()
        await asyncio.wait_for(asyncio.gather(*running), 60)


async def double(job: AsyncActiveJob) -> Any:
    return job.data["n"] * 2 if job.data else await job.upstream_results()


def listens(node: Member) -> bool:
    """Whether a worker waits for jobs at the node."""
    return any(client["cmd"] == "xreadgroup" for client in node.raw.client_list())


def gets(queues: list[str], times: int = 1) -> list[Call]:
    return [Call("GET", (f"{{{queue}}}:{number}",)) for number in range(times) for queue in queues]


def test_connecting_loads_the_libraries_on_every_primary(nodes: Nodes, cluster: Cluster) -> None:
    for node in cluster.nodes:
        node.ask("FUNCTION", "FLUSH")
    with Connection.open(cluster.url) as connection:
        assert connection.is_cluster
        assert {(url.host, url.port) for url in connection.primaries()} == {
            ("127.0.0.1", node.port) for node in cluster.nodes
        }
    assert [node.libraries for node in cluster.nodes] == [OURS] * 3


async def test_queues_on_each_primary_work(cluster: Cluster, queues: list[str]) -> None:
    async with working(cluster, double, *queues):
        for name in queues:
            async with AsyncQueue(name, url=cluster.url) as queue:
                single = await queue.add("double", {"n": 21})
                jobs = await queue.add_bulk([NewJob("double", {"n": n}) for n in range(50)])
                assert await single.wait(SOON) == 42
                assert [await job.wait(SOON) for job in jobs] == [2 * n for n in range(50)]
                assert (await queue.counts()).completed == 51
    assert {cluster.owner(name).port for name in queues} == {node.port for node in cluster.nodes[:3]}
    for name in queues:
        assert cluster.owner(name).ask("EXISTS", f"glide:{{{name}}}:completed") == 1


async def test_waits_of_one_client_hear_of_each_primary(cluster: Cluster, queues: list[str]) -> None:
    connection = AsyncConnection(cluster.url)
    async with working(cluster, double, *queues):
        clients = [AsyncQueue(name, connection=connection) for name in queues]
        jobs = [await queue.add("double", {"n": n}) for n in range(3) for queue in clients]
        assert await asyncio.gather(*(job.wait(SOON) for job in jobs)) == [2 * n for n in range(3) for _ in queues]
    await connection.aclose()


async def test_events_arrive_from_each_primary_on_the_sync_face_too(cluster: Cluster, queues: list[str]) -> None:
    def follow(name: str) -> list[str]:
        with Queue(name, url=cluster.url) as queue, QueueEvents(name, url=cluster.url) as events:
            job = queue.add("double", {"n": 1})
            assert job.wait(SOON) == 2
            return [event.type for event in events.read(SOON)]

    async with working(cluster, double, *queues):
        for name in queues:
            assert "added" in await asyncio.to_thread(follow, name)


async def test_a_user_with_the_documented_rights_can_work(
    cluster: Cluster, queues: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/secure-the-server.md").read_text("utf-8")
    for node in cluster.nodes:
        for rule in re.findall(r"^ACL SETUSER (.*)$", page, re.MULTILINE):
            node.ask("ACL", "SETUSER", *rule.split())
    Connection.open(cluster.url.replace("://", "://oq-loader:loader-secret@")).close()
    url = cluster.url.replace("://", "://oq-worker:worker-secret@")
    async with AsyncQueue(queues[0], url=url) as queue, working(cluster, double, queues[0], url=url):
        job = await queue.add("double", {"n": 4})
        assert await job.wait(SOON) == 8
    assert not [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def test_an_idle_worker_is_woken_at_its_own_primary(cluster: Cluster, queues: list[str]) -> None:
    patient = QUICK.model_copy(update={"block": timedelta(seconds=60)})
    for name in queues:
        worker = Worker(name, double, url=cluster.url, options=patient)
        running = asyncio.ensure_future(worker.run())
        await wait_until(partial(listens, cluster.owner(name)), "the worker to wait")
        worker.stop()
        await asyncio.wait_for(running, 30)


def test_a_pipeline_over_all_primaries_answers_in_order(cluster: Cluster, queues: list[str]) -> None:
    with Connection.open(cluster.url, libraries=()) as connection:
        keys = [call.keys[0] for call in gets(queues, 40)]
        assert connection.pipeline([Call("SET", (key,), (key,)) for key in keys]) == [b"OK"] * 120
        replies = connection.pipeline([*gets(queues, 40), Call("PING"), Call("INCR", (keys[1],))])
        assert replies[:120] == [key.encode() for key in keys]
        assert replies[120] == b"PONG"
        assert isinstance(replies[121], ServerError)
        connection.pipeline([Call("DEL", (key,)) for key in keys])


def test_a_transaction_is_one_servers(cluster: Cluster, queues: list[str]) -> None:
    with Connection.open(cluster.url, libraries=()) as connection:
        for name in queues:
            key = f"{{{name}}}:counter"
            counting = [Call("PING"), Call("INCR", (key,)), Call("INCR", (key,)), Call("DEL", (key,))]
            assert connection.pipeline(counting, atomic=True) == [b"PONG", 1, 2, 1]
        with pytest.raises(UsageError, match="3 slots of the cluster"):
            connection.pipeline(gets(queues), atomic=True)
    with pytest.raises(TransportError, match="closed by this process"):
        connection.pipeline(gets(queues))


async def test_alert_rules_watch_queues_on_each_primary(cluster: Cluster, queues: list[str]) -> None:
    async with hook() as ops, AsyncAlerts(url=cluster.url) as alerts:
        await alerts.set("backlog", {"kind": "backlog", "queue": f"{queues[0][:6]}*", "threshold": 0, "to": ["ops"]})
        await alerts.set("memory", {"kind": "memory", "threshold": 0, "to": ["ops"]})
        for name in queues:
            async with AsyncQueue(name, url=cluster.url) as queue:
                await queue.add("work")
        evaluator = AlertEvaluator(read_receivers({"OQ_ALERT_RECEIVER_OPS": ops.url}), url=cluster.url, interval=1)
        running = asyncio.ensure_future(evaluator.run())
        await wait_until(lambda: sorted(ops.states) == ["firing backlog", "firing memory"], "both rules to fire")
        breaches = {message["rule"]: [each["subject"] for each in message["breaches"]] for message in ops.posted}
        assert (breaches["backlog"], len(breaches["memory"])) == (sorted(queues), len(cluster.nodes))
        evaluator.stop()
        await asyncio.wait_for(running, 60)
        for name in ("backlog", "memory"):
            await alerts.remove(name)


async def test_flows_of_one_queue_and_of_several_run(cluster: Cluster, queues: list[str]) -> None:
    across = Dag(
        "across",
        [
            Node("a", data={"n": 1}),
            Node("b", queue=queues[1], data={"n": 2}, deps=("a",)),
            Node("c", queue=queues[2], data={"n": 3}, deps=("a", "b")),
            Node("d", data={"n": 4}, deps=("b",), optional_deps=("c",)),
        ],
        queues[0],
    )
    one = Dag("one", [Node("a", data={"n": 1}), Node("b", deps=("a",))], queues[2])
    with FlowProducer(url=cluster.url) as flows, FlowProducer(url=cluster.url, carrier="transaction") as whole:
        async with working(cluster, double, *queues):
            flow = await asyncio.to_thread(flows.submit, across, flow_id="across")
            assert await asyncio.to_thread(flow.wait, SOON) == {"a": 2, "b": 4, "c": 6, "d": 8}
            assert not (await asyncio.to_thread(flows.submit, across, flow_id="across")).is_new
            flow = await asyncio.to_thread(flows.submit, one)
            assert (await asyncio.to_thread(flow.wait, SOON))["a"] == 2
        assert [node.name for node in flows.tree(queues[2], flow.id)] == ["a", "b"]
        with pytest.raises(FlowError, match="several queues"):
            whole.submit(Dag("two", [Node("a"), Node("b", queue=queues[1], deps=("a",))], queues[0]))


async def test_steps_call_tasks_on_each_primary(cluster: Cluster, queues: list[str]) -> None:
    async def work(job: AsyncActiveJob) -> Any:
        if job.name == "fails":
            raise UnrecoverableError("broken")
        if job.name == "double":
            return job.data["n"] * 2
        calls = (Node(f"on-{n}", "double", name, {"n": n}) for n, name in enumerate(queues))
        return [str(one) for one in await job.gather(*calls, Node("not", "fails", queues[1]), return_exceptions=True)]

    async with working(cluster, work, *queues), AsyncQueue(queues[0], url=cluster.url) as queue:
        *results, error = await (await queue.add("caller")).wait(SOON)
    assert results == ["0", "2", "4"]
    assert error.endswith("failed: broken")


async def test_a_parent_on_another_primary_is_told(cluster: Cluster, queues: list[str]) -> None:
    # As other clients of this wire add it: not in one transaction.
    dag = Dag("across", [Node("a", data={"n": 4}), Node("b", queue=queues[1], deps=("a",))], queues[0])
    async with (
        working(cluster, double, queues[0], queues[1]),
        await AsyncConnection.open(cluster.url) as connection,
        AsyncQueue(queues[1], connection=connection) as queue,
    ):
        await connection.pipeline(compile(dag, "f1").calls(1_700_000_000_000))
        job = await queue.get("f1.b")
        assert job is not None
        assert 8 in dict(await job.wait(SOON)).values()


async def test_a_job_moves_to_another_primary_and_is_still_waited_for(cluster: Cluster, queues: list[str]) -> None:
    source, target = QueueKeys(queues[0]), QueueKeys(queues[1])
    async with AsyncQueue(source.queue, url=cluster.url) as queue, AsyncQueue(target.queue, url=cluster.url) as other:
        job = await queue.add("work", 5, options=JobOptions(job_id="moved", tags=["red"]))
        server = cluster.owner(source.queue)
        server.ask("HSET", source.job("waits"), "state", "waiting-children", "name", "waits", "id", "waits")
        server.ask("SADD", source.deps("waits"), source.member("moved"))
        server.ask("SADD", source.parents("moved"), source.member("waits"))
        moved = await job.move(other.name)
        (taken,) = await other.take(wait=SOON)
        assert (taken.id, taken.data, moved.tags) == ("moved", 5, ("red",))
        await taken.complete("done")
        assert await queue.find("moved") is None
        assert (await queue.get("waits")).state == "waiting"
        await queue.remove("waits")


def test_looking_around_meets_every_primary(cluster: Cluster, queues: list[str]) -> None:
    with Connection.open(cluster.url) as connection:
        for name in queues:
            Queue(name, connection=connection).add("double", {"n": 1})
        assert set(queues) <= set(Queue.names(connection=connection))
    rows = json.loads(CliRunner().invoke(app, ["library", "status", "--url", cluster.url, "--json"]).stdout)
    assert [(row["node"], row["library"], row["on_connect"]) for row in rows] == [
        (f"redis://127.0.0.1:{node.port}/0", library.name, "keep") for node in cluster.nodes for library in LIBRARIES
    ]


def test_a_single_servers_url_is_told_to_be_a_clusters(cluster: Cluster, queues: list[str]) -> None:
    url = f"redis://127.0.0.1:{cluster.nodes[0].port}"
    with (
        Connection.open(url, libraries=()) as connection,
        pytest.raises(ServerError, match=r"write redis\+cluster:// instead"),
    ):
        connection.execute(*gets(queues[2:]))


def test_a_cluster_url_needs_a_cluster(nodes: Nodes) -> None:
    with pytest.raises(ServerError, match="cluster support disabled"):
        Connection.open(f"redis+cluster://127.0.0.1:{nodes.start().port}", connect_timeout=timedelta(seconds=1))
    with pytest.raises(TransportError, match=r"redis\+cluster://127.0.0.1:1,127.0.0.1:2"):
        Connection.open("redis+cluster://127.0.0.1:1,127.0.0.1:2", connect_timeout=timedelta(milliseconds=300))


async def test_a_broadcast_reaches_its_subscriptions_on_each_primary(cluster: Cluster, queues: list[str]) -> None:
    got: Counter[tuple[str, str, int]] = Counter()

    async def flaky(job: AsyncActiveJob) -> None:
        if job.attempt == 1 and job.data % 2:
            raise ValueError("not yet")
        got[job.queue, job.name, job.data] += 1

    workers = [
        BroadcastWorker(name, flaky, subscription=subscription, url=cluster.url, options=QUICK)
        for name in queues
        for subscription in ("mailer", "ledger")
    ]
    running = [asyncio.ensure_future(worker.run()) for worker in workers]
    await wait_until(lambda: all(worker.is_listening for worker in workers), "the workers to listen")
    for name in queues:
        async with AsyncBroadcast(name, max_messages=50, url=cluster.url) as broadcast:
            for number in range(10):
                await broadcast.publish("orders.created", number, JobOptions(attempts=2))
    await wait_until(lambda: got.total() == 60, "every subscription to get every message")
    for worker in workers:
        worker.stop()
    await asyncio.wait_for(asyncio.gather(*running), 60)
    assert got == {(name, "orders.created", number): 2 for name in queues for number in range(10)}


async def test_dead_letters_lie_and_are_replayed_across_primaries(cluster: Cluster, queues: list[str]) -> None:
    name, dead = queues[0], queues[1]
    is_broken = True

    async def work(job: AsyncActiveJob) -> Any:
        if is_broken:
            raise ValueError("no")
        return job.data

    worker = Worker(name, work, url=cluster.url, options=QUICK.model_copy(update={"dead_letter_queue": dead}))
    running = asyncio.ensure_future(worker.run())
    async with AsyncQueue(name, url=cluster.url) as queue:
        jobs = await queue.add_bulk([NewJob("work", n) for n in range(3)])
        await wait_until(lambda: cluster.owner(dead).ask("XLEN", f"glide:{{{dead}}}:stream") == 3, "three letters")
        letters = await queue.dead_letters.list()
        assert sorted(letter.original_job_id for letter in letters) == sorted(job.id for job in jobs)
        is_broken = False
        again = await queue.dead_letters.replay(letters[0].id)
        assert await again.wait(SOON) == letters[0].data
        assert await queue.dead_letters.replay_all(1) == 1
        assert await queue.dead_letters.purge() == 1
        assert await queue.dead_letters.list() == []
        assert cluster.owner(dead).ask("XLEN", f"glide:{{{dead}}}:stream") <= 1  # the place of the first
    worker.stop()
    await asyncio.wait_for(running, 60)


async def test_the_dead_letter_of_a_worker_that_died_before_it_wrote_it_is_written(
    cluster: Cluster, queues: list[str]
) -> None:
    keys, dead = QueueKeys(queues[0]), queues[1]
    async with (
        AsyncQueue(keys.queue, url=cluster.url, dead_letter_queue=dead) as queue,
        await AsyncConnection.open(cluster.url) as connection,
    ):
        job = await queue.add("work", 1)
        await connection.execute(worker_registry.create_group(keys), repeatable=True)
        trip = await connection.run(exchanges.exchange(keys, "w", now_ms(), want=1, cluster=True))
        failed = [Failure(lease, "no", 1, 0) for lease in trip.started]
        last_words = exchanges.exchange(keys, "w", now_ms(), settle=failed, cluster=True, dead_letter=dead)
        assert len((await connection.run(last_words)).letters) == 1
        options = QUICK.model_copy(update={"stalled_interval": timedelta(milliseconds=200)})
        async with working(cluster, double, keys.queue, options=options):
            await wait_until(lambda: cluster.owner(dead).ask("XLEN", f"glide:{{{dead}}}:stream") == 1, "the letter")
            await wait_until(lambda: not cluster.owner(keys.queue).ask("EXISTS", keys.outbox), "it to be struck off")
        (letter,) = await queue.dead_letters.list()
        assert (letter.original_job_id, letter.failed_reason) == (job.id, "no")


async def test_usage_and_budgets_reach_over_primaries(cluster: Cluster, queues: list[str]) -> None:
    async def ask(job: AsyncActiveJob) -> None:
        await job.report_usage(Usage(tokens={"input": 6}))

    async with AsyncQueue(queues[0], url=cluster.url) as here, AsyncQueue(queues[1], url=cluster.url) as there:
        root = await here.add("root", options=JobOptions(delay=timedelta(hours=1)))
        first, second = [await there.add("ask", parent=root.ref) for _ in range(2)]
        await here.usage.set_budget(root.id, Budget(max_tokens=5))
        limits = {"rate_limit": RateLimit(max=5, duration=SOON), "token_limit": TokenLimit(max_tokens=100)}
        options = QUICK.model_copy(update={"concurrency": 1, **limits})
        async with working(cluster, ask, queues[1], options=options):
            await first.wait(SOON)
            with pytest.raises(JobFailedError, match="Budget exceeded"):
                await second.wait(SOON)
        assert (await here.usage.of_flow(root.id)).tokens == 6
        assert (await here.usage.summary([queues[0], queues[1]])).queues.keys() == {queues[1]}
        assert queues[1] in (await here.usage.summary()).queues


async def test_a_pool_is_shared_by_queues_on_each_primary(cluster: Cluster, queues: list[str]) -> None:
    running, most = 0, 0

    async def handle(job: AsyncActiveJob) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        await job.update_progress(1)
        running -= 1

    async with AsyncQueue(queues[0], url=cluster.url) as first:
        await first.pools.set("shared", 1)
        async with working(cluster, handle, *queues):
            jobs = [
                await queue.add("n", None, JobOptions(pools={"shared": 1}))
                for name in queues
                for queue in [AsyncQueue(name, connection=first._connection)]
                for _ in range(3)
            ]
            for job in jobs:
                await job.wait(SOON)
        pool = await first.pools.find("shared")
        assert pool is not None
        assert (most, pool.used, pool.waiting) == (1, 0, 0)
        assert await first.pools.remove("shared")


async def test_shares_are_served_by_weight_on_each_primary(cluster: Cluster, queues: list[str]) -> None:
    order: list[tuple[str, str]] = []

    async def handle(job: AsyncActiveJob) -> None:
        order.append((job.queue, job.name))

    async with AsyncQueue(queues[0], url=cluster.url) as first:
        jobs = []
        for name in queues:
            queue = AsyncQueue(name, connection=first._connection)
            for share, count in (("a", 60), ("b", 20)):
                jobs += await queue.add_bulk([NewJob(share, None, JobOptions(share=share)) for _ in range(count)])
        async with working(cluster, handle, *queues):
            for job in jobs:
                await job.wait(SOON)
    for name in queues:
        names = [share for queue_name, share in order if queue_name == name]
        assert 10 <= names[8:48].count("b") <= 20


def test_many_jobs_are_read_at_their_queues_primary(cluster: Cluster, queues: list[str]) -> None:
    with Connection.open(cluster.url) as connection:
        for name in queues:
            queue = Queue(name, connection=connection)
            ids = [job.id for job in queue.add_bulk([NewJob("double", {"n": n}) for n in range(600)])]
            columns = connection.follow(job_records.columns(queue.keys, ids, ["id", "data"]))
            assert columns == [[job_id.encode() for job_id in ids], [f'{{"n":{n}}}'.encode() for n in range(600)]]


def test_a_queue_is_obliterated_at_its_own_primary(cluster: Cluster, queues: list[str]) -> None:
    with Connection.open(cluster.url) as connection:
        for name in queues:
            Queue(name, connection=connection).add_bulk([NewJob("double", {"n": n}) for n in range(1200)])
        for name in queues:
            queue = Queue(name, connection=connection)
            assert len(queue.search(data={"n": 1100})) == 1
            assert queue.workers() == []
            assert queue.obliterate() > 1200
            assert cluster.owner(name).ask("KEYS", f"glide:{{{name}}}:*") == []
            assert [Queue(other, connection=connection).count() for other in queues[queues.index(name) + 1 :]] == [
                1200
            ] * (2 - queues.index(name))


# Slots that move


def test_a_primary_that_comes_later_takes_over_a_queue_and_has_the_library(
    nodes: Nodes, cluster: Cluster, queues: list[str]
) -> None:
    name = queues[0]
    with Connection.open(cluster.url) as connection, Queue(name, connection=connection) as queue:
        before = queue.add("double", {"n": 1})
        target = nodes.join(cluster)
        assert not target.libraries
        cluster.move(name, target)
        after = queue.add("double", {"n": 2})  # MOVED
        assert [job.id for job in queue.jobs("waiting")] == [before.id, after.id]
        assert target.port in {url.port for url in connection.primaries()}
    assert target.libraries == OURS
    assert target.ask("EXISTS", after._keys.job(after.id)) == 1


def test_keys_on_their_way_are_asked_for_at_both_ends(nodes: Nodes, cluster: Cluster, queues: list[str]) -> None:
    name = queues[1]
    target = next(node for node in cluster.nodes if node is not cluster.owner(name))
    calls = gets([name], 20)
    with Connection.open(cluster.url, libraries=()) as connection:
        connection.pipeline([Call("SET", call.keys, (number,)) for number, call in enumerate(calls)])
        moved = cluster.begin_move(name, target, 10)
        numbers = [str(number).encode() for number in range(20)]
        assert connection.pipeline(calls) == numbers
        assert [connection.execute(call) for call in calls] == numbers
        key = min(moved)
        both = [Call("GET", (key,)), Call("GET", (key,))]
        assert connection.pipeline(both, atomic=True) == [connection.execute(both[0])] * 2
        other = next(call.keys[0] for call in calls if call.keys[0] not in moved)
        finish = threading.Timer(0.2, cluster.end_move, (name, target))
        finish.start()  # until then, keys of one call are at different ends
        together = connection.execute(Call("MGET", (key, other)))
        assert together == [connection.execute(Call("GET", (each,))) for each in (key, other)]
        finish.join()
        assert connection.execute(Call("DEL", tuple(call.keys[0] for call in calls))) == 20


def tries_again(cluster: Cluster) -> int:
    """How many calls the nodes have refused because a part of their keys was elsewhere."""
    counts = (node.raw.info("errorstats").get("errorstat_TRYAGAIN", {"count": 0})["count"] for node in cluster.nodes)
    return sum(map(int, counts))


@pytest.mark.parametrize("face", ["sync", "async"])
async def test_a_call_is_sent_again_until_all_of_its_keys_are_moved(
    cluster: Cluster, queue_name: str, face: str
) -> None:
    target = next(node for node in cluster.nodes if node is not cluster.owner(queue_name))
    async with Face(face, f"{cluster.url}?connect_timeout=60").queue(queue_name) as queue:
        for _ in range(3):
            await queue.add("work")
        assert cluster.begin_move(queue_name, target, 3)
        refused = tries_again(cluster)
        adding = asyncio.ensure_future(queue.add("work"))
        await wait_until(lambda: tries_again(cluster) > refused + 2, "the call to be refused several times")
        assert not adding.done()
        cluster.end_move(queue_name, target)
        assert (await adding).id == "4", "a refused add counted"
        assert (await queue.counts()).waiting == target.raw.xlen(queue.keys.stream) == 4


async def test_a_worker_and_its_client_go_on_while_their_queue_moves(cluster: Cluster, queues: list[str]) -> None:
    name = queues[2]
    target = cluster.nodes[0]

    async def steady(job: AsyncActiveJob) -> Any:
        await asyncio.sleep(0.01)
        return job.data["n"]

    async with AsyncQueue(name, url=cluster.url) as queue, working(cluster, steady, name):
        jobs = await queue.add_bulk([NewJob("steady", {"n": n}) for n in range(100)])
        moving = asyncio.ensure_future(asyncio.to_thread(cluster.move, name, target))
        jobs += [await queue.add("steady", {"n": n}) for n in range(100, 120)]
        await moving
        assert [await job.wait(SOON) for job in jobs] == list(range(120))
        await wait_until(lambda: listens(target), "the worker to listen at the other primary")
        job = await queue.add("steady", {"n": -1})
        assert await job.wait(SOON) == -1
    assert cluster.owner(name) is target


async def test_queues_on_several_servers_share_the_places_of_one_process(cluster: Cluster, queues: list[str]) -> None:
    order: list[str] = []

    async def note(job: AsyncActiveJob) -> None:
        order.append(job.queue)

    for name in queues:
        async with AsyncQueue(name, url=cluster.url) as queue:
            for _ in range(3):
                await queue.add("work")
    slots = SharedSlots(1)
    workers = [Worker(name, note, url=cluster.url, options=QUICK, slots=slots) for name in queues]
    running = [asyncio.ensure_future(worker.run()) for worker in workers]
    await wait_until(lambda: len(order) == 9, "all jobs to run")
    for worker in workers:
        worker.stop()
    await asyncio.wait_for(asyncio.gather(*running), 60)
    assert order == [name for name in queues for _ in range(3)]


async def test_a_sharded_queue_uses_all_primaries(cluster: Cluster, queue_name: str) -> None:
    async with AsyncShardedQueue(queue_name, 8, url=cluster.url) as queue, queue.events() as events:
        assert {cluster.owner(shard.name).port for shard in queue.shards} == {node.port for node in cluster.nodes[:3]}
        workers = shard_workers(queue_name, double, 8, url=cluster.url, options=QUICK)
        running = [asyncio.ensure_future(worker.run()) for worker in workers]
        jobs = await queue.add_bulk([NewJob("double", {"n": n}) for n in range(800)])
        jobs.append(await queue.add("double", {"n": 800}, JobOptions(ordering=Ordering(key="a"))))
        assert [await job.wait(SOON) for job in jobs] == [2 * n for n in range(801)]
        assert (await queue.counts()).completed == 801
        assert {job.queue for job in jobs} == {shard for shard, _ in await events.read(SOON)}
        for worker in workers:
            worker.stop()
        await asyncio.wait_for(asyncio.gather(*running), 60)


async def test_a_stalled_primary_stalls_only_its_own_shards(cluster: Cluster, queue_name: str) -> None:
    async with AsyncShardedQueue(queue_name, 8, url=cluster.url) as queue:
        by_node = [[shard for shard in queue.shards if cluster.owner(shard.name) is node] for node in cluster.nodes[:3]]
        workers = shard_workers(queue_name, double, 8, url=cluster.url, options=QUICK)
        running = [asyncio.ensure_future(worker.run()) for worker in workers]
        await wait_until(lambda: all(worker.is_listening for worker in workers), "the workers to be idle")
        await queue.counts()  # its client connects to each primary first
        with stopped(by_node[0][0], cluster):
            jobs = [await shard.add("double", {"n": 1}) for shard in (*by_node[1], *by_node[2]) for _ in range(20)]
            assert [await job.wait(SOON) for job in jobs] == [2] * len(jobs)
        late = [await shard.add("double", {"n": 2}) for shard in by_node[0]]
        assert [await job.wait(SOON) for job in late] == [4] * len(late)
        for worker in workers:
            worker.stop()
        await asyncio.wait_for(asyncio.gather(*running), 60)


@contextmanager
def stopped(queue: AsyncQueue, cluster: Cluster) -> Iterator[None]:
    """The queue's primary answers nothing."""
    process = cluster.owner(queue.name).process
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


async def test_a_chasquimq_queue_on_each_primary_works(cluster: Cluster, queue_name: str) -> None:
    """All keys of a queue share a slot, so each feature works wherever it is: one queue for each primary."""
    placed = {}
    for node in cluster.nodes[:3]:
        names = (f"{queue_name}-{number}" for number in count())
        placed[next(name for name in names if cluster.owner_of(key_slot(ChasquiKeys(name).stream)) is node)] = node
    await asyncio.gather(*(use_chasquimq(name, cluster.url) for name in placed))
    for name, node in placed.items():
        keys = {key for other in cluster.nodes for key in other.raw.keys(f"{{chasqui:{name}}}:*")}
        assert ChasquiKeys(name).stream in keys
        assert keys <= set(node.raw.keys())


async def use_chasquimq(name: str, url: str) -> None:
    """Run jobs, delayed, repeated, retried and failing ones, of one queue."""
    ran: Counter[str] = Counter()

    async def handle(job: ChasquiJob) -> Any:
        ran[job.name] += 1
        if job.name == "hopeless":
            raise UnrecoverableError("never")
        if job.name == "flaky" and not job.attempt:
            raise RuntimeError("boom")
        return job.data

    worker = ChasquiWorker(name, handle, url=url, options=ChasquiWorkerOptions(store_results=True))
    async with AsyncChasquiQueue(name, url=url) as queue, AsyncChasquiEvents(name, url=url, after="0") as events:
        running = asyncio.ensure_future(worker.run())
        key = await queue.put_schedule("tick", every=0.1)
        bulk = await queue.add_bulk([NewChasquiJob("bulk", number) for number in range(20)])
        flaky = await queue.add("flaky", "done", attempts=2, backoff=0.01)
        hopeless = await queue.add("hopeless")
        soon = await queue.add("soon", 1, delay=0.05)
        assert (await queue.add("late", delay=60, job_id="mine")).is_new
        assert not (await queue.add("late", delay=60, job_id="mine")).is_new
        assert await queue.cancel("mine")
        await wait_until(lambda: ran["bulk"] == 20 and ran["flaky"] == 2 and ran["tick"] and ran["soon"], "jobs to run")
        assert await queue.remove_schedule(key)
        assert await queue.wait(flaky.id, after="0", timeout=60) == "done"
        assert await queue.wait(soon.id, after="0", timeout=60) == 1
        assert [await queue.wait(job.id, after="0", timeout=60) for job in bulk] == list(range(20))
        with pytest.raises(JobFailedError):
            await queue.wait(hopeless.id, after="0", timeout=60)
        assert [letter.job_id for letter in await queue.dead_letters()] == [hopeless.id]
        assert await queue.replay_dead_letters() == 1
        await wait_until(lambda: ran["hopeless"] == 2, "the dead letter to run again")
        assert {"active", "completed", "failed", "dlq"} <= {event.type for event in await events.read(0, 1000)}
        worker.stop()
        await asyncio.wait_for(running, 60)
        await queue.pause()
        assert (await queue.counts()).is_paused


def test_a_chasquimq_queue_moves_to_a_queue_on_another_primary(cluster: Cluster, queue_name: str) -> None:
    owner = cluster.owner_of(key_slot(ChasquiKeys(queue_name).stream))
    other = next(node for node in cluster.nodes[:3] if node is not owner)
    target = cluster.queue_on(other, queue_name)
    with ChasquiMove(queue_name, target, url=cluster.url) as mover, Queue(target, url=cluster.url) as queue:
        queue.add("one", {"n": 1})
        assert mover.to_theirs().jobs == 1
        assert mover.to_ours().jobs == 1
        assert [job.name for job in queue.jobs("waiting")] == ["one"]
