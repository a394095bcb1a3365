"""Any graph, by either carrier, submitted again, broken off anywhere, replies lost: the server holds the same keys.

A graph of few nodes breaks off between any two calls of its submission, a larger one at a random place.

``--flow-runs=10000 --timeout=0`` runs as many graphs of up to 200 nodes, which takes half an hour or more.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestration_queue import flows
from orchestration_queue.errors import ServerError
from orchestration_queue.flows import Dag, FlowOptions, FlowPlan, Node, TriggerRule
from orchestration_queue.options import Budget, JobOptions
from orchestration_queue.protocol.call import Call, Conversation, Reply
from orchestration_queue.protocol.library import LIBRARIES
from tests.conftest import start_server

T = TypeVar("T")
NOW = 1_700_000_000_000
MOST_NODES = 200
FEW_NODES = 8
""" ... of which a submission breaks off between any two calls."""
QUEUES = ("q", "r", "s")
FLOW_OPTIONS = (
    FlowOptions(),
    FlowOptions(fail_fast=True, timeout=3600, priority=3),
    FlowOptions(on_success=Node("won"), on_failure=Node("lost")),
)
LIMITS = (*FLOW_OPTIONS, FlowOptions(budget=Budget(max_tokens=5)), FlowOptions(concurrency=2))
ROOT_OPTIONS = (JobOptions(), JobOptions(priority=2), JobOptions(delay=9), JobOptions(lifo=True))
READERS: dict[str, tuple[Any, ...]] = {
    "string": ("GET",),
    "hash": ("HGETALL",),
    "set": ("SMEMBERS",),
    "list": ("LRANGE", 0, -1),
    "zset": ("ZRANGE", 0, -1, "WITHSCORES"),
    "stream": ("XRANGE", "-", "+"),
}


class BrokenOffError(Exception):
    """The submitter died."""


def random_dag(nodes: int, queues: int, seed: int) -> Dag:
    """Return a graph with any rules and optional edges, its nodes in any order and queue."""
    source = random.Random(seed)
    names, found = [f"n{number}" for number in range(nodes)], []
    reach = source.choice((3, 20, nodes))
    for place, name in enumerate(names):
        earlier = names[max(0, place - reach) : place]
        chosen = source.sample(earlier, min(len(earlier), source.choice((0, 1, 1, 2, 3, 8))))
        deps = chosen[: source.randrange(len(chosen) + 1)]
        rule = source.choice(list(TriggerRule)) if deps and source.random() < 0.5 else TriggerRule.ALL_SUCCESS
        options = JobOptions(attempts=3) if chosen else source.choice(ROOT_OPTIONS)
        queue = source.choice(QUEUES[:queues])
        found.append(Node(name, "task", queue, {"n": place}, options, deps, rule, chosen[len(deps) :]))
    source.shuffle(found)
    return Dag("graph", found, "q", source.choice(LIMITS if queues == 1 else FLOW_OPTIONS))


class Server:
    """A server of these tests, and those who submit to it."""

    def __init__(self, client: redis.Redis) -> None:
        self.client: Any = client
        self.calls = 0
        """Calls sent so far."""
        for library in LIBRARIES:
            self.client.function_load(library.text, replace=True)

    def send(self, call: Call) -> Reply:
        self.calls += 1
        try:
            return self.client.execute_command(*call.words)
        except redis.ResponseError as error:
            return ServerError(str(error))

    def follow(self, steps: Conversation[T], *, dies_after: int = -1, repeats: bool = False) -> T:
        """Carry a submission out, call by call; ``repeats`` sends each exchange twice, as after a lost reply."""
        left, replies = dies_after, None
        try:
            while True:
                calls: Sequence[Call] = next(steps) if replies is None else steps.send(replies)
                for turn in range(1 + repeats):
                    replies = []
                    for call in calls:
                        if left == 0 and not turn:
                            raise BrokenOffError
                        replies.append(self.send(call))
                        left -= 1
        except StopIteration as end:
            result: T = end.value
            return result

    def transact(self, plan: FlowPlan) -> None:
        """Send the plan's calls as one transaction, wired as a cluster wants it."""
        pipeline = self.client.pipeline(transaction=True)
        for each in plan.transaction(NOW, "packed"):
            pipeline.execute_command(*each.call.words)
        pipeline.execute()

    def die_in_transaction(self, plan: FlowPlan, after: int) -> None:
        """Send the beginning of a plan's transaction, and be gone before its EXEC."""
        connection = self.client.connection_pool.get_connection()
        try:
            for words in [("MULTI",), *[each.call.words for each in plan.transaction(NOW, "packed")[:after]]]:
                connection.send_command(*words)
                connection.read_response()
            connection.disconnect()
        finally:
            self.client.connection_pool.release(connection)

    def left(self) -> dict[str, Any]:
        """Return all keys, free of the ids of stream entries and of the order in which nodes were released."""
        keys = sorted(self.client.keys("*"))
        kinds = self._each([("TYPE", key) for key in keys])
        values = self._each(
            [(READERS[kind][0], key, *READERS[kind][1:]) for key, kind in zip(keys, kinds, strict=True)]
        )
        return {key: _normal(kind, value) for key, kind, value in zip(keys, kinds, values, strict=True)}

    def _each(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        pipeline = self.client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        replies: list[Any] = pipeline.execute()
        return replies

    def started(self, plan: FlowPlan) -> bool:
        """Return whether any node does not wait."""
        states = self._states(plan)
        return any(state not in (None, "waiting-children") for state in states)

    def is_whole(self, plan: FlowPlan) -> bool:
        return None not in self._states(plan)

    def _states(self, plan: FlowPlan) -> list[str | None]:
        return self._each([("HGET", each.keys.job(each.job_id), "state") for each in plan.nodes.values()])


def _normal(kind: str, value: Any) -> Any:
    if kind == "stream":
        return sorted((fields for _, fields in value), key=str)
    if kind == "hash":
        value.pop("entry", None)
    if kind == "hash" and "parentIds" in value:
        ids, queues = json.loads(value.pop("parentIds")), json.loads(value.pop("parentQueues"))
        value["parents"] = sorted(zip(queues, ids, strict=True))
    return value


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    socket = tmp_path_factory.mktemp("submission") / "server.sock"
    process = start_server(socket)
    with redis.Redis(unix_socket_path=str(socket), decode_responses=True, protocol=2) as client:
        yield Server(client)
    process.terminate()
    process.wait(60)


def run_many(request: pytest.FixtureRequest, check: Callable[[Dag, int], None]) -> None:
    runs: int = request.config.getoption("--flow-runs")
    nodes = st.one_of(st.integers(1, FEW_NODES), st.integers(1, MOST_NODES))

    @settings(max_examples=runs, suppress_health_check=list(HealthCheck), database=None)
    @given(nodes, st.integers(1, len(QUEUES)), st.integers(0, 2**32), st.integers(0, 2**16))
    def run(nodes: int, queues: int, seed: int, place: int) -> None:
        check(random_dag(nodes, queues, seed), place)

    run()


def places_to_die(dag: Dag, calls: int, place: int) -> list[int]:
    """Return after how many of a submission's calls it breaks off: after each of a small graph's, else one of them."""
    return list(range(calls)) if len(dag.nodes) <= FEW_NODES else [place % calls]


def test_carriers_and_whatever_breaks_off_leave_the_same_keys(server: Server, request: pytest.FixtureRequest) -> None:
    def check(dag: Dag, place: int) -> None:
        plan = flows.compile(dag, "f")
        server.client.flushall()
        server.die_in_transaction(plan, place % (len(plan.transaction(NOW, "packed")) + 1))
        assert not server.client.dbsize(), "broken off before the transaction's EXEC"
        server.transact(plan)
        expected = server.left()
        server.follow(flows.launch(plan.submission(), NOW, is_fresh=False))
        assert server.left() == expected, "submitted again after a transaction"

        server.client.flushall()
        before = server.calls
        server.follow(flows.launch(plan.submission(), NOW, is_fresh=True))
        calls = server.calls - before
        assert server.left() == expected, "packed"

        server.client.flushall()
        server.follow(flows.launch(plan.submission(), NOW, is_fresh=True), repeats=True)
        assert server.left() == expected, "packed, and each reply lost once"

        for after in places_to_die(dag, calls, place):
            server.client.flushall()
            with pytest.raises(BrokenOffError):
                server.follow(flows.launch(plan.submission(), NOW, is_fresh=True), dies_after=after)
            assert not server.started(plan) or server.is_whole(plan)
            server.follow(flows.launch(plan.submission(), NOW, is_fresh=False))
            assert server.left() == expected, f"broken off after {after} of {calls} calls and submitted again"

    run_many(request, check)
