"""Submissions on a real server: all or nothing, over any number of queues, and whatever breaks off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar

import pytest
import redis

from orchestration_queue import flows
from orchestration_queue.client import AsyncFlowProducer, AsyncQueue
from orchestration_queue.errors import FlowError, ServerError, StateError, UsageError
from orchestration_queue.flows import (
    CARRIERS,
    Carrier,
    Dag,
    FlowOptions,
    FlowPlan,
    FlowRecord,
    Node,
    TriggerRule,
    control,
)
from orchestration_queue.flows.stored import StoredFlow
from orchestration_queue.options import Budget, JobOptions, Retention
from orchestration_queue.protocol.call import Call, Conversation, Reply
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.library import LIBRARIES
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms
from orchestration_queue.worker import AsyncActiveJob
from tests.by_hand import HandWorker
from tests.faces import Face
from tests.waiting import wait_until
from tests.workers import working

T = TypeVar("T")
SOON = timedelta(seconds=60)
TWICE = JobOptions(attempts=2)


class BrokenOffError(Exception):
    """The submitter died."""


class Submitter:
    """Makes the exchanges of a submission, call by call, and dies when told to."""

    def __init__(self, url: str) -> None:
        self._client: Any = redis.Redis(unix_socket_path=url.removeprefix("unix://"))
        for library in LIBRARIES:
            self._client.function_load(library.text, replace=True)
        self.trips: list[list[Call]] = []

    def follow(self, steps: Conversation[T], *, dies_after: int | None = None, repeats: bool = False) -> T:
        """Run the conversation; ``repeats`` sends each exchange twice, as after a lost reply."""
        self.trips = []
        left = dies_after
        try:
            calls = next(steps)
            while True:
                self.trips.append(list(calls))
                replies: list[Reply] = []
                for call in calls:
                    if left == 0:
                        raise BrokenOffError
                    replies.append(self.send(call))
                    left = None if left is None else left - 1
                if repeats:
                    replies = [self.send(call) for call in calls]
                calls = steps.send(replies)
        except StopIteration as end:
            result: T = end.value
            return result

    def send(self, call: Call) -> Reply:
        """Make one call; a refusal is an error among the replies."""
        try:
            return self._client.execute_command(*call.words)
        except redis.ResponseError as error:
            return ServerError(str(error))

    @property
    def calls(self) -> int:
        """How many calls were made."""
        return sum(map(len, self.trips))

    def close(self) -> None:
        self._client.close()


def resumed(steps: Conversation[T], replies: list[Reply]) -> Conversation[T]:
    """The rest of a conversation whose exchange got these replies."""
    try:
        while True:
            replies = yield steps.send(replies)
    except StopIteration as end:
        result: T = end.value
        return result


@pytest.fixture
def submitter(server_url: str, raw: redis.Redis) -> Any:
    submitter = Submitter(server_url)
    yield submitter
    submitter.close()


class Ran:
    """Workers of some queues, and what they ran, in order."""

    def __init__(self) -> None:
        self.nodes: list[tuple[str, str]] = []

    async def handle(self, job: AsyncActiveJob) -> str:
        flow_id, _, node = job.id.partition(".")
        self.nodes.append((flow_id, node))
        if job.name == "fail":
            raise ValueError("no such file")
        return node

    def of(self, flow_id: str) -> list[str]:
        """The nodes of a flow."""
        return [node for flow, node in self.nodes if flow == flow_id]

    @asynccontextmanager
    async def at_work(self, url: str, queues: Sequence[str], **options: Any) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for queue in queues:
                await stack.enter_async_context(working(AsyncQueue(queue, url=url), self.handle, url, **options))
            yield


def across(queue: str, options: FlowOptions | None = None) -> Dag:
    """A diamond over three queues, the flow's own not among them."""
    return Dag(
        "across",
        [
            Node("a", queue=f"{queue}-1"),
            Node("b", queue=f"{queue}-2", deps=["a"]),
            Node("c", queue=f"{queue}-1", deps=["a"]),
            Node("d", queue=f"{queue}-2", deps=["b"], optional_deps=["c"]),
            Node("alone", queue=f"{queue}-2"),
        ],
        queue,
        options or FlowOptions(),
    )


def narrow(queue: str) -> Dag:
    """A chain in one queue, with a budget, so that it takes several steps to submit."""
    nodes = [Node("a"), Node("b", deps=["a"]), Node("c", deps=["b"])]
    return Dag("narrow", nodes, queue, FlowOptions(budget=Budget(max_tokens=100)))


def check_order(plan: FlowPlan, ran: Sequence[str]) -> None:
    assert sorted(ran) == sorted(plan.nodes), "each node once"
    for place, name in enumerate(ran):
        assert set(plan.nodes[name].node.waits_for) <= set(ran[:place])


def started(raw: Any, plan: FlowPlan) -> list[str]:
    """The nodes that are anywhere but waiting for others."""
    states = {name: raw.hget(step.keys.job(step.job_id), "state") for name, step in plan.nodes.items()}
    return [name for name, state in states.items() if state not in (None, "waiting-children")]


@pytest.mark.parametrize("make", [across, narrow])
async def test_a_submitter_that_dies_at_any_call_starts_nothing_early_and_the_next_completes_it(
    server_url: str, queue_name: str, raw: Any, submitter: Submitter, make: Callable[[str], Dag]
) -> None:
    dag = make(queue_name)
    submitter.follow(flows.launch(flows.compile(dag, "whole").submission(), now_ms(), is_fresh=True))
    names = [call.name for trip in submitter.trips for call in trip]
    release = names.index("oq1_releaseGraph")
    plans = [flows.compile(dag, f"f{number}") for number in range(len(names))]
    for number, plan in enumerate(plans):
        with pytest.raises(BrokenOffError):
            submitter.follow(flows.launch(plan.submission(), now_ms(), is_fresh=True), dies_after=number)
        if number <= release:
            assert started(raw, plan) == [], f"after {number} calls"
    for plan in plans:
        submitter.follow(flows.launch(plan.submission(), now_ms(), is_fresh=False))
        record = raw.hgetall(plan.keys.flow(plan.flow_id))
        assert (record["state"], record.get("held")) == ("running", None)
    ran = Ran()
    async with ran.at_work(server_url, [keys.queue for keys in plans[0].queues]):
        await wait_until(lambda: len(ran.nodes) >= len(plans[0].nodes) * (len(plans) + 1), "the end of all", 60)
        for plan in plans:
            check_order(plan, ran.of(plan.flow_id))


@pytest.mark.parametrize("make", [across, narrow])
async def test_trips_whose_replies_were_lost_are_made_again(
    server_url: str, queue_name: str, raw: Any, submitter: Submitter, make: Callable[[str], Dag]
) -> None:
    plan, ran = flows.compile(make(queue_name), "f"), Ran()
    submitter.follow(flows.launch(plan.submission(), now_ms(), is_fresh=True), repeats=True)
    async with ran.at_work(server_url, [keys.queue for keys in plan.queues]):
        await wait_until(lambda: len(ran.nodes) >= len(plan.nodes), "the end")
    check_order(plan, ran.of("f"))


def test_a_graph_of_one_queue_is_one_call_in_one_trip(queue_name: str, raw: Any, submitter: Submitter) -> None:
    dag = Dag("d", [Node("a"), Node("b", deps=["a"])], queue_name)
    launched = submitter.follow(flows.launch(flows.compile(dag, "f").submission(), now_ms(), is_fresh=True))
    assert [[call.name for call in trip] for trip in submitter.trips] == [["XREVRANGE", "oq1_submitGraph"]]
    assert launched.is_new
    again = submitter.follow(flows.launch(flows.compile(dag, "f").submission(), now_ms(), is_fresh=False))
    assert [[call.name for call in trip] for trip in submitter.trips] == [["HMGET"], ["XREVRANGE"]]
    assert not again.is_new


async def test_thousands_of_nodes_go_in_parts_and_start_together(
    face: Face, queue_name: str, raw: Any, submitter: Submitter
) -> None:
    names = [f"n{number}" for number in range(2400)]
    dag = Dag("many", [*(Node(name) for name in names), Node("all", deps=names)], queue_name)
    async with face.flows() as producer:
        flow = await producer.submit(dag, flow_id="f")
        keys = QueueKeys(queue_name)
        assert raw.xlen(keys.stream) == 2400
        assert raw.scard(keys.deps("f.all")) == 2400
        assert raw.hget(keys.flow("f"), "state") == "running"
        assert flow.is_new
        assert not (await producer.submit(dag, flow_id="f")).is_new


async def test_many_flows_at_a_time(face: Face, queue_name: str, raw: Any) -> None:
    dags = [Dag(f"d{number}", [Node("a"), Node("b", deps=["a"])], queue_name) for number in range(150)]
    dags.append(across(queue_name))
    ran = Ran()
    async with face.flows() as producer:
        submitted = await producer.submit_bulk(dags, flow_ids=[f"f{number}" for number in range(151)])
        assert [(flow.id, flow.is_new) for flow in submitted] == [(f"f{number}", True) for number in range(151)]
        again = await producer.submit_bulk(dags[:2], flow_ids=["f0", "f1"])
        assert [flow.is_new for flow in again] == [False, False]
        assert len({flow.id for flow in await producer.submit_bulk(dags[:2])}) == 2
        assert await producer.submit_bulk([]) == []
        async with ran.at_work(face.url, [queue_name, f"{queue_name}-1", f"{queue_name}-2"]):
            await wait_until(lambda: len(ran.nodes) >= 150 * 2 + 5 + 2 * 2, "the end of all")
    check_order(submitted[-1].plan, ran.of("f150"))


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        (["f"], "`flow_ids` must"),
        ("fg", "`flow_ids` must"),
        (["f", "f"], "Two graphs have the same id"),
    ],
)
async def test_bad_bulks_are_refused_and_nothing_is_written(
    face: Face, queue_name: str, raw: Any, ids: Any, says: str
) -> None:
    async with face.flows() as producer:
        with pytest.raises(UsageError, match=says):
            await producer.submit_bulk([Dag("d", [Node("a")], queue_name)] * 2, flow_ids=ids)
    assert raw.dbsize() == 0


async def test_the_record_says_what_was_submitted(face: Face, queue_name: str, raw: Any) -> None:
    dag = across(queue_name, FlowOptions(fail_fast=True, timeout=timedelta(hours=1)))
    async with face.flows() as producer:
        await producer.submit(dag, flow_id="f")
    keys = QueueKeys(queue_name)
    assert FlowRecord.read(raw.hget(keys.flow("f"), "plan")) == FlowRecord.of(dag)
    assert raw.zrange(keys.flows, 0, -1) == ["f"]
    assert raw.zscore(keys.flows, "f") == float(raw.hget(keys.flow("f"), "createdAt"))


async def test_an_id_stands_for_one_graph(face: Face, queue_name: str, raw: Any) -> None:
    async with face.flows() as producer:
        await producer.submit(Dag("d", [Node("a")], queue_name), flow_id="f")
        before = raw.dbsize()
        for other in (
            Dag("d", [Node("b")], queue_name),
            Dag("d", [Node("a"), Node("b")], queue_name),
            Dag("d", [Node("a")], queue_name, FlowOptions(fail_fast=True)),
        ):
            with pytest.raises(StateError, match=r"'f' of queue .* exists with other nodes or options"):
                await producer.submit(other, flow_id="f")
        assert raw.dbsize() == before


async def test_a_flow_that_is_over_is_not_run_again_though_its_jobs_are_gone(
    face: Face, queue_name: str, raw: Any, hand: HandWorker
) -> None:
    dag = Dag("d", [Node("a"), Node("b", deps=["a"])], queue_name)
    async with face.flows() as producer:
        await producer.submit(dag, flow_id="f")
        for _ in range(2):
            hand.complete(hand.take(), retention=Retention(count=0))
        again = await producer.submit(dag, flow_id="f")
        assert not again.is_new
    assert raw.xlen(hand.keys.stream) == 0
    assert not raw.exists(hand.keys.job("f.a"))


async def test_what_the_server_refuses_starts_nothing(face: Face, queue_name: str, raw: Any) -> None:
    raw.set(QueueKeys(f"{queue_name}-2").deps("f.d"), "no set")
    async with face.flows() as producer:
        with pytest.raises(ServerError, match=r"oq1_submitGraph: .*WRONGTYPE"):
            await producer.submit(across(queue_name), flow_id="f")
    assert started(raw, flows.compile(across(queue_name), "f")) == []


async def test_a_submission_that_was_swept_meanwhile_is_told(queue_name: str, raw: Any, submitter: Submitter) -> None:
    plan = flows.compile(across(queue_name), "f")

    def swept_after_the_first_part() -> Conversation[flows.Launch]:
        steps = flows.launch(plan.submission(), now_ms(), is_fresh=True)
        replies = yield next(steps)
        raw.flushdb()
        return (yield from resumed(steps, replies))

    with pytest.raises(StateError, match="'f' took so long to submit that workers abandoned"):
        submitter.follow(swept_after_the_first_part())
    assert not raw.exists(plan.keys.flow("f"))


async def test_of_two_submitters_the_slower_leaves_the_flow_as_it_is(
    server_url: str, queue_name: str, raw: Any, submitter: Submitter
) -> None:
    plan, faster, ran = flows.compile(across(queue_name), "f"), Submitter(server_url), Ran()
    async with ran.at_work(server_url, [keys.queue for keys in plan.queues]):
        steps = flows.launch(plan.submission(), now_ms(), is_fresh=True)
        first = [submitter.send(call) for call in next(steps)]
        faster.follow(flows.launch(plan.submission(), now_ms(), is_fresh=True))
        faster.close()
        # Not only their handlers: workers set a flow right that is over while a node is not.
        jobs = [step.keys.job(step.job_id) for step in plan.nodes.values()]
        await wait_until(lambda: all(raw.hget(job, "state") == "completed" for job in jobs), "the end")
        raw.hset(plan.keys.flow("f"), "state", "completed")

        submitter.follow(resumed(steps, first))
        assert raw.hget(plan.keys.flow("f"), "state") == "completed"
    check_order(plan, ran.of("f"))


async def test_callbacks_hear_of_the_end(face: Face, queue_name: str, raw: Any) -> None:
    def dag(task: str) -> Dag:
        options = FlowOptions(on_success=Node("well"), on_failure=Node("ill"))
        return Dag("d", [Node("a"), Node("b", task=task, deps=["a"]), Node("c", deps=["b"])], queue_name, options)

    ran, keys = Ran(), QueueKeys(queue_name)
    async with face.flows() as producer, ran.at_work(face.url, [queue_name]):
        await producer.submit(dag("work"), flow_id="good")
        await producer.submit(dag("fail"), flow_id="bad")
        ends = [keys.job(f"{flow}.{node}") for flow in ("good", "bad") for node in ("a", "b", "c", "well", "ill")]
        await wait_until(
            lambda: all(raw.hget(end, "state") in ("completed", "failed") for end in ends), "the end of both flows"
        )
    assert ran.of("good") == ["a", "b", "c", "well"]
    assert ran.of("bad") == ["a", "b", "ill"]
    outcomes = {name: raw.hget(keys.job(name), "outcome") for name in ("good.ill", "bad.c", "bad.well", "bad.ill")}
    assert outcomes == {
        "good.ill": "skipped",
        "bad.c": "upstream_failed",
        "bad.well": "upstream_failed",
        "bad.ill": None,
    }


async def test_an_optional_dependency_may_fail(face: Face, queue_name: str, raw: Any) -> None:
    nodes = [Node("extra", task="fail"), Node("main"), Node("last", deps=["main"], optional_deps=["extra"])]
    ran = Ran()
    async with face.flows() as producer, ran.at_work(face.url, [queue_name]):
        await producer.submit(Dag("d", nodes, queue_name), flow_id="f")
        await wait_until(lambda: "last" in ran.of("f"), "the last node")
    assert ran.of("f")[-1] == "last"
    assert len(ran.of("f")) == 3


async def test_a_budget_binds_all_nodes_but_callbacks(face: Face, queue_name: str, raw: Any) -> None:
    options = FlowOptions(budget=Budget(max_tokens=7), on_failure=Node("ill"))
    async with face.flows() as producer:
        await producer.submit(Dag("d", [Node("a"), Node("b", deps=["a"])], queue_name, options), flow_id="f")
    keys = QueueKeys(queue_name)
    bound = {name: raw.hget(keys.job(f"f.{name}"), "budgetKey") for name in ("a", "b", "ill")}
    assert bound == {"a": keys.budget("f"), "b": keys.budget("f"), "ill": None}
    assert raw.hget(keys.budget("f"), "maxTotalTokens") == "7"


class Crowd:
    """How many jobs ran at a time, at most."""

    def __init__(self) -> None:
        self.now = self.most = self.done = 0

    async def handle(self, job: AsyncActiveJob) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.02)
        self.now -= 1
        self.done += 1
        if job.name == "again" and job.attempt == 1:
            raise ValueError("once more")


async def test_a_flows_concurrency_is_kept_and_no_node_holds_a_place_while_it_waits(
    face: Face, queue_name: str, raw: Any
) -> None:
    first = [Node(f"a{number}") for number in range(6)]
    nodes = [*first, *(Node(f"b{number}", task="again", deps=[f"a{number}"], options=TWICE) for number in range(6))]
    dag, crowd = Dag("d", nodes, queue_name, FlowOptions(concurrency=2)), Crowd()
    async with face.flows() as producer, face.queue(queue_name) as queue:
        flow = await producer.submit(dag, flow_id="f")
        async with working(queue, crowd.handle, face.url, concurrency=8):
            await flow.wait(SOON)
    assert (crowd.most, crowd.done) == (2, 18)
    assert raw.hget(QueueKeys(queue_name).named("group:flow.f"), "active") == "0"


async def test_a_worker_that_died_takes_no_place_of_its_flow_along(
    face: Face, queue_name: str, raw: Any, hand: HandWorker
) -> None:
    dag = Dag("d", [Node("a"), Node("b"), Node("c", deps=["a", "b"])], queue_name, FlowOptions(concurrency=1))
    crowd, keys = Crowd(), QueueKeys(queue_name)
    async with face.flows() as producer, face.queue(queue_name) as queue:
        flow = await producer.submit(dag, flow_id="f")
        held = hand.take()
        assert raw.hget(keys.named("group:flow.f"), "active") == "1"
        raw.hset(keys.job(held.id), "lastActive", 0)
        async with working(queue, crowd.handle, face.url):
            await flow.wait(SOON)
    assert (crowd.most, crowd.done) == (1, 3)
    assert raw.hget(keys.named("group:flow.f"), "active") == "0"


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_rules_and_options_hold_by_either_carrier(
    face: Face, queue_name: str, raw: Any, carrier: Carrier
) -> None:
    ran = Ran()
    nodes = [
        Node("a"),
        Node("b", deps=["a"]),
        Node("c", deps=["a", "b"], trigger_rule=TriggerRule.ALL_FAILED),
        Node("d", deps=["c"], trigger_rule=TriggerRule.ALL_DONE, optional_deps=["b"]),
    ]
    dag = Dag("d", nodes, queue_name, FlowOptions(timeout=timedelta(hours=1), concurrency=1))
    async with face.flows(carrier=carrier) as producer, ran.at_work(face.url, [queue_name]):
        flow = await producer.submit(dag, flow_id="f")
        assert flow.is_new
        assert await flow.wait(SOON) == {"a": "a", "b": "b", "d": "d"}
        assert raw.hget(QueueKeys(queue_name).flow("f"), "plan")
        again = await producer.submit(dag, flow_id="f")
        assert (again.is_new, await again.wait(SOON)) == (False, {"a": "a", "b": "b", "d": "d"})
        with pytest.raises(StateError, match="with other nodes or options"):
            await producer.submit(Dag("d", nodes[:1], queue_name), flow_id="f")


async def test_a_transaction_survives_the_loss_of_all_functions(face: Face, queue_name: str, raw: Any) -> None:
    async with face.flows() as producer:
        await producer.submit(Dag("d", [Node("a")], queue_name))
        raw.function_flush("SYNC")
        flow = await producer.submit(Dag("d", [Node("a"), Node("b", deps=["a"])], queue_name))
        assert [node.state for node in await flow.tree()] == ["waiting", "waiting-children"]


@pytest.mark.parametrize("is_lost", [False, True], ids=["refused", "functions lost"])
async def test_what_a_refused_transaction_leaves_is_removed_but_no_older_job(
    face: Face, queue_name: str, raw: Any, is_lost: bool
) -> None:
    keys = QueueKeys(queue_name)
    dag = Dag("d", [Node("a"), Node("b"), Node("c", deps=["a", "b"])], queue_name)
    async with face.flows(carrier="transaction") as producer, face.queue(queue_name) as queue:
        await queue.add("old", {"keep": "me"}, options=JobOptions(job_id="f.a"))
        raw.set(keys.deps("f.c"), "no set")
        if is_lost:
            raw.function_flush("SYNC")
        with pytest.raises(ServerError, match="WRONGTYPE"):
            await producer.submit(dag, flow_id="f")
        old = await queue.get("f.a")
        assert old is not None
        assert (old.name, old.data) == ("old", {"keep": "me"})
        assert not raw.exists(keys.job("f.b"), keys.job("f.c"), keys.flow("f"))
        assert not raw.zrange(keys.flows, 0, -1)


@pytest.mark.parametrize("answer", [0, b"QUEUED"], ids=["record there", "transaction refused"])
def test_a_refused_transaction_that_created_no_flow_removes_nothing(answer: Reply) -> None:
    plan = flows.compile(Dag("d", [Node("a"), Node("b", deps=["a"])], "q"), "f")
    planned = list(plan.transaction(now_ms()))
    replies = [answer, *[ServerError("refused")] * (len(planned) - 1)]
    assert list(control.undo(StoredFlow.planned(plan), planned, replies, now_ms())) == []


async def test_a_server_without_our_library_runs_plain_graphs(server_url: str, queue_name: str, raw: Any) -> None:
    theirs = [library for library in LIBRARIES if library.name == "glidemq"]
    raw.function_flush("SYNC")
    async with (
        await AsyncConnection.open(server_url, libraries=theirs) as connection,
        AsyncFlowProducer(connection=connection) as producer,
        AsyncFlowProducer(connection=connection, carrier="packed") as packing,
    ):
        dag = Dag("d", [Node("a"), Node("b", deps=["a"])], queue_name)
        flow = await producer.submit(dag, flow_id="f")
        assert [node.state for node in await flow.tree()] == ["waiting", "waiting-children"]
        with pytest.raises(ServerError):
            await packing.submit(dag, flow_id="g")
        ruled = Dag("d", [Node("a"), Node("b", deps=["a"], trigger_rule=TriggerRule.ALL_DONE)], queue_name)
        with pytest.raises(FlowError, match="trigger rule all_done, which glide-mq's library does not know"):
            await producer.submit(ruled, flow_id="h")
        assert not raw.exists(QueueKeys(queue_name).flow("h"))


def test_an_unknown_carrier_is_refused(server_url: str) -> None:
    with pytest.raises(UsageError, match="`carrier` must be 'transaction' or 'packed', got 'lua'"):
        AsyncFlowProducer(url=server_url, carrier="lua")  # type: ignore[arg-type]  # bad on purpose
