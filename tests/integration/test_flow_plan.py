"""Plans on a real server, call by call: what the keys hold, and that each node starts once, and in its turn."""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import redis

from orchestration_queue import flows
from orchestration_queue.flows import Dag, DagBuilder, FlowPlan, Node
from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.functions import glidemq
from orchestration_queue.protocol.keys import GROUP, QueueKeys
from orchestration_queue.protocol.library import LIBRARIES

NOW = 1_700_000_000_000


class Server:
    """Sends calls as they are, and works through queues as a worker would."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        for library in LIBRARIES:
            client.function_load(library.text, replace=True)

    def send(self, call: Call) -> Any:
        return self.send_all([call], atomic=False)[0]

    def send_all(self, calls: Sequence[Call], *, atomic: bool) -> list[Any]:
        pipeline = self.client.pipeline(transaction=atomic)
        queue: Callable[..., Any] = pipeline.execute_command
        for call in calls:
            queue(*call.words)
        return list(pipeline.execute())

    def record(self, keys: QueueKeys, job_id: str) -> dict[str, str]:
        stored: Any = self.client.hgetall(keys.job(job_id))
        return dict(stored)

    def ready(self, keys: QueueKeys) -> list[tuple[str, str]]:
        """Entries of the stream that no worker has seen: entry id and job id."""
        if not self.client.exists(keys.stream) or not self.client.xinfo_groups(keys.stream):
            self.client.xgroup_create(keys.stream, GROUP, "0", mkstream=True)
        reply: Any = self.client.xreadgroup(GROUP, "w", {keys.stream: ">"})
        return [(entry, fields["jobId"]) for _, entries in reply for entry, fields in entries]

    def complete(self, keys: QueueKeys, entry_id: str, job_id: str) -> None:
        fields = self.record(keys, job_id)
        parent_id = fields.get("parentId", "")
        parent = QueueKeys(fields["parentQueue"]) if parent_id else keys
        self.send(
            glidemq.complete(
                keys,
                job_key=keys.job(job_id),
                metrics_key=keys.metrics_completed,
                parent_deps_key=parent.deps(parent_id) if parent_id else None,
                parent_job_key=parent.job(parent_id) if parent_id else None,
                parent_stream_key=parent.stream if parent_id else None,
                parent_events_key=parent.events if parent_id else None,
                job_id=job_id,
                entry_id=entry_id,
                returnvalue="null",
                now_ms=NOW + 5,
                group=GROUP,
                deps_member=keys.member(job_id) if parent_id else "",
                parent_id=parent_id,
            )
        )


@pytest.fixture
def server(raw: redis.Redis) -> Server:
    return Server(raw)


def run_everything(server: Server, plan: FlowPlan, seed: int = 1) -> list[str]:
    """Complete nodes in any order the server allows; returns it. Fails when a node starts early, twice, or never."""
    queues = {step.keys for step in plan.nodes.values()}
    chance = random.Random(seed)
    order: list[str] = []
    waiting: deque[tuple[QueueKeys, str, str]] = deque()
    while len(order) <= len(plan.nodes):
        waiting.extend((keys, entry, job_id) for keys in queues for entry, job_id in server.ready(keys))
        if not waiting:
            break
        waiting.rotate(chance.randrange(len(waiting)))
        keys, entry, job_id = waiting.popleft()
        parts = flows.split_job_id(job_id)
        assert parts is not None
        node = parts[1]
        assert node not in order, f"{node} started twice"
        missing = set(plan.nodes[node].node.deps) - set(order)
        assert not missing, f"{node} started before {missing}"
        server.complete(keys, entry, job_id)
        order.append(node)
    assert sorted(order) == sorted(plan.nodes), "every node ran"
    return order


def diamond(queue: str) -> Dag:
    dag = DagBuilder("diamond", queue=queue)
    a = dag.node("A", data={"day": 1})
    b, c = dag.node("B", deps=[a]), dag.node("C", deps=[a])
    dag.node("D", task="render", deps=[b, c])
    return dag.build()


def wide(queue: str) -> Dag:
    """Months that one node gathers, beside a chain and a node alone; some nodes have many dependents."""
    dag = DagBuilder("wide", queue=queue)
    source = dag.node("source")
    months = [dag.node(f"month-{month}", deps=[source]) for month in range(12)]
    leaves = [dag.node(f"leaf-{number}") for number in range(5)]
    joined = dag.node("joined", deps=[*months, *leaves])
    extra = dag.node("extra", deps=[leaves[0], source])
    dag.node("report", deps=[joined, extra])
    dag.node("alone")
    return dag.build()


@pytest.mark.parametrize("atomic", [True, False])
def test_diamond_stands_as_the_wire_says(server: Server, queue_name: str, atomic: bool) -> None:
    plan = flows.compile(diamond(queue_name), "f")
    server.send_all(plan.calls(NOW), atomic=atomic)
    keys, client = QueueKeys(queue_name), server.client

    records = {node: server.record(keys, f"f.{node}") for node in "ABCD"}
    assert {node: record["state"] for node, record in records.items()} == {
        "A": "waiting",
        "B": "waiting-children",
        "C": "waiting-children",
        "D": "waiting-children",
    }
    assert [client.scard(keys.deps(f"f.{node}")) for node in "ABCD"] == [0, 1, 1, 2]
    assert client.smembers(keys.deps("f.D")) == {keys.member("f.B"), keys.member("f.C")}
    assert client.smembers(keys.parents("f.A")) == {f"{keys.base}:f.B", f"{keys.base}:f.C"}
    assert client.smembers(keys.parents("f.B")) == {f"{keys.base}:f.D"}
    assert not records["A"].get("parentId")
    assert json.loads(records["A"]["parentIds"]) == ["f.B", "f.C"]
    assert json.loads(records["A"]["parentQueues"]) == [queue_name, queue_name]
    assert json.loads(records["B"]["parentIds"]) == ["f.D"]
    assert (records["A"]["data"], records["D"]["name"]) == ('{"day":1}', "render")

    order = run_everything(server, plan)
    assert (order[0], order[-1]) == ("A", "D")
    assert server.record(keys, "f.D")["depsCompleted"] == "2"


def test_leaves_of_a_fan_in_carry_their_parent(server: Server, queue_name: str) -> None:
    leaves = [Node(f"leaf-{number}") for number in range(3)]
    dag = Dag("fan-in", [*leaves, Node("all", deps=[leaf.name for leaf in leaves])], queue_name)
    plan, keys = flows.compile(dag, "f"), QueueKeys(queue_name)
    server.send_all(plan.calls(NOW), atomic=True)
    for leaf in leaves:
        record = server.record(keys, f"f.{leaf.name}")
        assert (record["parentId"], record["parentQueue"]) == ("f.all", queue_name)
        assert not server.client.exists(keys.parents(f"f.{leaf.name}"))
    assert server.client.scard(keys.deps("f.all")) == 3
    run_everything(server, plan)


@pytest.mark.parametrize("seed", range(5))
def test_a_wide_graph_releases_each_node_once_and_in_its_turn(server: Server, queue_name: str, seed: int) -> None:
    plan = flows.compile(wide(queue_name), "f")
    server.send_all(plan.calls(NOW), atomic=True)
    run_everything(server, plan, seed)
    assert server.record(QueueKeys(queue_name), "f.joined")["depsCompleted"] == "17"


@pytest.mark.parametrize("make", [diamond, wide])
def test_workers_that_are_faster_than_the_submission_start_nothing_early(
    server: Server, queue_name: str, make: Callable[[str], Dag]
) -> None:
    plan, keys = flows.compile(make(queue_name), "f"), QueueKeys(queue_name)
    done: list[str] = []
    for call in plan.calls(NOW):
        server.send(call)
        for entry, job_id in server.ready(keys):
            node = job_id.removeprefix("f.")
            assert set(plan.nodes[node].node.deps) <= set(done)
            assert node not in done
            server.complete(keys, entry, job_id)
            done.append(node)
    while ready := server.ready(keys):
        for entry, job_id in ready:
            server.complete(keys, entry, job_id)
            done.append(job_id.removeprefix("f."))
    assert sorted(done) == sorted(plan.nodes), "each once"


def snapshot(client: redis.Redis) -> dict[str, Any]:
    readers: dict[str, Callable[[str], Any]] = {
        "hash": client.hgetall,
        "set": client.smembers,
        "string": client.get,
        "zset": lambda key: client.zrange(key, 0, -1, withscores=True),
        "stream": client.xrange,
    }
    return {str(key): readers[str(client.type(key))](str(key)) for key in client.scan_iter()}


@pytest.mark.parametrize("make", [diamond, wide])
@pytest.mark.parametrize("finished", [False, True])
def test_submitting_twice_changes_nothing(
    server: Server, queue_name: str, make: Callable[[str], Dag], finished: bool
) -> None:
    plan = flows.compile(make(queue_name), "f")
    server.send_all(plan.calls(NOW), atomic=True)
    if finished:
        run_everything(server, plan)
    before = snapshot(server.client)
    server.send_all(plan.calls(NOW + 1000), atomic=True)
    assert snapshot(server.client) == before
    if not finished:
        run_everything(server, plan)


@pytest.mark.parametrize("make", [diamond, wide])
def test_a_submission_cut_short_anywhere_is_completed_by_the_next(
    server: Server, queue_name: str, make: Callable[[str], Dag]
) -> None:
    plan = flows.compile(make(queue_name), "f")
    calls = plan.calls(NOW)
    for sent in range(len(calls)):
        server.client.flushdb()
        server.send_all(calls[:sent], atomic=False)
        server.send_all(plan.calls(NOW + 1000), atomic=True)
        run_everything(server, plan, seed=sent)


def test_a_flow_over_several_queues(server: Server, queue_name: str) -> None:
    dag = DagBuilder("across", queue=queue_name)
    first, second = dag.node("first"), dag.node("second")
    joined = dag.node("joined", queue=f"{queue_name}-spark", deps=[first, second])
    dag.node("report", queue=f"{queue_name}-end", deps=[joined])
    plan = flows.compile(dag.build(), "f")
    server.send_all(plan.calls(NOW), atomic=False)
    assert run_everything(server, plan)[2:] == ["joined", "report"]


def test_a_fan_in_of_thousands(server: Server, queue_name: str) -> None:
    names = [f"part-{number}" for number in range(3000)]
    plan = flows.compile(Dag("many", [*(Node(name) for name in names), Node("all", deps=names)], queue_name), "f")
    replies = server.send_all(plan.calls(NOW), atomic=True)
    assert server.client.scard(QueueKeys(queue_name).deps("f.all")) == 3000
    assert replies[0] == '["f.all"]'
    assert replies[-1] == "f.part-2999"
    assert run_everything(server, plan)[-1] == "all"
