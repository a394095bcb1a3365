"""The primary dies and its replica takes over: what was replicated is there, and clients and workers find it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import redis

from orchestration_queue.client import AsyncQueue, NewJob
from orchestration_queue.errors import TransportError
from orchestration_queue.options import WorkerOptions
from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.library import LIBRARIES
from orchestration_queue.server import AsyncConnection, Connection
from orchestration_queue.worker import AsyncActiveJob, Worker
from orchestration_queue.worker.queue_io import QueueIO
from tests.chaos.books import counted
from tests.faces import Face
from tests.nodes import Node, Nodes
from tests.waiting import wait_until

SOON = timedelta(seconds=60)
QUICK = WorkerOptions(
    concurrency=4,
    lease=timedelta(seconds=1),
    stalled_interval=timedelta(milliseconds=300),
    max_stalled=10,  # a job may be taken over as often as the machine is held up
    promotion_interval=timedelta(milliseconds=100),
    drain=timedelta(seconds=5),
)
OURS = {library.name for library in LIBRARIES}


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with Nodes(tmp_path) as nodes:
        yield nodes


async def go_through(url: str, name: str, primary: Node, replica: Node, *promote: str) -> None:
    """Kill the primary in the middle of a worker's jobs; all of them, and later ones, are finished."""
    started = asyncio.Event()

    async def work(job: AsyncActiveJob) -> int:
        started.set()
        await asyncio.sleep(0.05)
        return int(job.data["n"])

    async with AsyncQueue(name, url=url) as queue:
        jobs = await queue.add_bulk([NewJob("work", {"n": n}) for n in range(40)])
        primary.ask("SET", f"{{{name}}}:mark", "written after the jobs, by who waits for its replication")
        assert primary.ask("WAIT", 1, 60_000) == 1
        worker = Worker(name, work, url=url, options=QUICK)
        running = asyncio.ensure_future(worker.run())
        await asyncio.wait_for(started.wait(), 60)
        primary.kill()
        if promote:
            replica.ask(*promote)
        await wait_until(lambda: replica.raw.info("replication")["role"] == "master", "the replica to take over")
        assert [await job.wait(SOON) for job in jobs] == list(range(40))
        later = await queue.add("work", {"n": 40})
        assert await later.wait(SOON) == 40
        worker.stop()
        await asyncio.wait_for(running, 60)
    assert replica.libraries == OURS


async def test_sentinels_say_who_took_over(nodes: Nodes, queue_name: str) -> None:
    primary = nodes.start()
    replica = nodes.start_replica(primary)
    sentinel = nodes.start_sentinel("oq", primary)
    url = f"redis+sentinel://127.0.0.1:1,127.0.0.1:{sentinel.port}/oq"  # the first of them is unreachable
    await go_through(url, queue_name, primary, replica)


async def begin_failover(sentinel: Node) -> None:
    """Begin a planned failover; returns when every subscriber has been told so."""

    def is_accepted() -> bool:
        try:
            return bool(sentinel.ask("SENTINEL", "FAILOVER", "oq"))
        except redis.ResponseError:
            return False

    await wait_until(is_accepted, "the sentinel to know the replica")
    sentinel.ask("PING")  # what it had to write before, it has written


@pytest.mark.parametrize("name", ["sync", "async"])
async def test_calls_wait_from_the_start_of_a_planned_failover_until_the_replica_is_promoted(
    nodes: Nodes, name: str, queue_name: str
) -> None:
    primary = nodes.start()
    replica = nodes.start_replica(primary)
    sentinel = nodes.start_sentinel("oq", primary)
    keys = QueueKeys(queue_name)
    async with Face(name, f"redis+sentinel://127.0.0.1:{sentinel.port}/oq").queue(queue_name) as queue:
        assert primary.raw.exists(keys.job((await queue.add("work")).id))
        await begin_failover(sentinel)
        late = [await queue.add("work", options={"job_id": f"late-{n}"}) for n in range(20)]
        assert replica.raw.info("replication")["role"] == "master"
        assert [job.id for job in late if not replica.raw.exists(keys.job(job.id))] == []
        assert not primary.raw.exists(keys.job(late[0].id)), "the old primary was still written to"


async def test_batches_after_the_start_of_a_planned_failover_go_to_the_promoted_replica(nodes: Nodes) -> None:
    primary = nodes.start()
    replica = nodes.start_replica(primary)
    sentinel = nodes.start_sentinel("oq", primary)
    keys = [f"key:{n}" for n in range(20)]

    def batches() -> Iterator[list[Call]]:
        for n, key in enumerate(keys):
            if n == 2:
                asyncio.run(begin_failover(sentinel))
            yield [Call("SET", (key,), ("x",))]

    def write() -> None:
        with Connection.open(f"redis+sentinel://127.0.0.1:{sentinel.port}/oq") as connection:
            assert connection.pipelines(batches()) == [[b"OK"]] * len(keys)

    await asyncio.to_thread(write)
    assert [key for key in keys[2:] if not replica.raw.exists(key)] == []
    assert not primary.raw.exists(keys[2]), "the old primary was still written to"


async def test_waits_at_the_old_primary_end_when_the_failover_is_announced(nodes: Nodes, queue_name: str) -> None:
    primary = nodes.start()
    nodes.start_replica(primary)
    sentinel = nodes.start_sentinel("oq", primary)
    keys, url = QueueKeys(queue_name), f"redis+sentinel://127.0.0.1:{sentinel.port}/oq"
    options = QUICK.model_copy(update={"block": timedelta(minutes=10)})
    async with await AsyncConnection.open(url) as calls, await AsyncConnection.open(url) as waits:
        io = QueueIO(keys, "w", calls, waits, options)
        await io.join()
        following = asyncio.ensure_future(io.follow_primary())
        wait = asyncio.ensure_future(io.listen(1, 600_000))
        await wait_until(lambda: any("b" in each["flags"] for each in primary.raw.client_list()), "the wait to begin")
        await begin_failover(sentinel)
        with pytest.raises(TransportError):  # the old primary itself would say UNBLOCKED, when it is demoted
            await asyncio.wait_for(wait, 60)
        following.cancel()


async def test_a_client_that_comes_in_the_middle_of_a_planned_failover_waits_too(nodes: Nodes, queue_name: str) -> None:
    primary = nodes.start()
    replica = nodes.start_replica(primary)
    sentinel = nodes.start_sentinel("oq", primary)
    await begin_failover(sentinel)
    async with AsyncQueue(queue_name, url=f"redis+sentinel://127.0.0.1:{sentinel.port}/oq") as queue:
        job = await queue.add("work")
        assert replica.raw.exists(QueueKeys(queue_name).job(job.id))


async def test_jobs_that_end_during_a_planned_failover_have_one_run_and_one_outcome(
    nodes: Nodes, queue_name: str
) -> None:
    primary = nodes.start()
    replica = nodes.start_replica(primary)
    sentinel = nodes.start_sentinel("oq", primary)
    url = f"redis+sentinel://127.0.0.1:{sentinel.port}/oq"
    runs: Counter[str] = Counter()
    may_end = asyncio.Event()

    async def work(job: AsyncActiveJob) -> int:
        runs[job.id] += 1
        await may_end.wait()
        return int(job.data["n"])

    async with AsyncQueue(queue_name, url=url) as queue:
        jobs = await queue.add_bulk([NewJob("work", {"n": n}) for n in range(40)])
        worker = Worker(queue_name, work, url=url, options=WorkerOptions(concurrency=20, drain=5))
        running = asyncio.ensure_future(worker.run())
        await wait_until(lambda: len(runs) == 20, "the first half to run")
        primary.ask("SET", f"{{{queue_name}}}:mark", "written after the starts, by who waits for its replication")
        assert primary.ask("WAIT", 1, 60_000) == 1
        await begin_failover(sentinel)
        may_end.set()
        assert [await job.wait(SOON) for job in jobs] == list(range(40))
        worker.stop()
        await asyncio.wait_for(running, 60)
    assert set(runs.values()) == {1}
    assert counted(replica.raw, QueueKeys(queue_name).metrics_completed) == 40


async def test_what_a_demoted_primary_refuses_is_sent_to_the_new_one(nodes: Nodes, queue_name: str) -> None:
    primary = nodes.start()
    replica = nodes.start_replica(primary)
    sentinel = nodes.start_sentinel("oq", primary)
    async with AsyncQueue(queue_name, url=f"redis+sentinel://127.0.0.1:{sentinel.port}/oq") as queue:
        await queue.add("work")
        # As after FAILOVER, which closes no connections; the sentinel finds out from the servers themselves.
        replica.ask("REPLICAOF", "NO", "ONE")
        primary.ask("REPLICAOF", "127.0.0.1", replica.port)
        sentinel.ask("SENTINEL", "REMOVE", "oq")
        sentinel.ask("SENTINEL", "MONITOR", "oq", "127.0.0.1", replica.port, 1)
        job = await queue.add("work")
        assert replica.raw.exists(QueueKeys(queue_name).job(job.id))


async def test_a_clusters_replica_takes_over_and_without_one_the_other_primaries_serve_on(
    nodes: Nodes, queue_name: str
) -> None:
    cluster = nodes.start_cluster(3)
    primary = cluster.owner(queue_name)
    unharmed = cluster.queue_on(next(node for node in cluster.nodes if node is not primary), queue_name)
    replica = nodes.join_replica(cluster, primary)
    await go_through(cluster.url, queue_name, primary, replica, "CLUSTER", "FAILOVER", "TAKEOVER")
    for node in cluster.nodes:  # else all stop serving when they notice that one is gone for good
        if node not in (primary, replica):
            node.ask("CONFIG", "SET", "cluster-node-timeout", 60_000)
    replica.kill()
    with Connection.open(cluster.url, connect_timeout=timedelta(seconds=2)) as connection:
        assert connection.execute(Call("EXISTS", (QueueKeys(unharmed).stream,))) == 0
        with pytest.raises(TransportError, match=f"redis://127.0.0.1:{replica.port}") as caught:
            connection.execute(Call("EXISTS", (QueueKeys(queue_name).stream,)))
    assert not caught.value.maybe_applied


def test_what_sentinels_say_is_checked(nodes: Nodes) -> None:
    primary = nodes.start()
    replica = nodes.start_replica(primary)
    url = f"redis+sentinel://127.0.0.1:{nodes.start_sentinel('oq', primary).port}"
    with pytest.raises(TransportError, match="knows no master 'other'"):
        Connection.open(f"{url}/other", connect_timeout=timedelta(seconds=2))
    primary.ask("REPLICAOF", "127.0.0.1", replica.port)
    with pytest.raises(TransportError, match="it is a replica"):
        Connection.open(f"{url}/oq", connect_timeout=timedelta(seconds=2))
