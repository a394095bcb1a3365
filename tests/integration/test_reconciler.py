"""What workers reconcile in the flows of their queue: that none waits forever, and that each end is noted."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from orchestration_queue.client import AsyncFlowProducer, AsyncQueue, FlowStatus, values
from orchestration_queue.errors import FlowFailedError
from orchestration_queue.flows import Dag, FlowOptions, Node, TriggerRule, compile  # noqa: A004 - what it is called
from orchestration_queue.flows.reconciler import FlowReconciler
from orchestration_queue.options import Retention
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms
from orchestration_queue.worker import AsyncActiveJob
from tests.by_hand import HandWorker
from tests.faces import Face
from tests.waiting import wait_until
from tests.workers import working

SOON = timedelta(seconds=60)
QUICK = timedelta(milliseconds=100)


async def echo(job: AsyncActiveJob) -> str:
    if job.name == "bad":
        raise ValueError("no such file")
    return job.name


async def hang(job: AsyncActiveJob) -> None:
    await asyncio.Event().wait()


def keeper(keys: QueueKeys, later_ms: int = 0, **options: Any) -> FlowReconciler:
    """A keeper whose every round comes later than all it has postponed."""
    rounds = count(1)
    return FlowReconciler(
        keys,
        lambda: now_ms() + later_ms * next(rounds),
        interval=options.get("interval", QUICK),
        patience=options.get("patience", timedelta(minutes=5)),
    )


async def ended(queue: AsyncQueue, raw: Any, flow_id: str) -> FlowStatus:
    """Wait until the flow's end is noted; returns its state."""
    key = queue.keys.flow(flow_id)
    await wait_until(lambda: raw.hget(key, "finishedAt") is not None, f"the end of {flow_id}")
    return await (await queue.flows.get(flow_id)).status()


def chain_of(queue: str, **options: Any) -> Dag:
    nodes = [
        Node("a"),
        Node("b", deps=("a",)),
        Node("after", deps=("b",), trigger_rule=TriggerRule.ALL_DONE),
    ]
    return Dag("chain", nodes, queue, options=FlowOptions(**options))


async def test_one_round_checks_many_jobs_that_called_others(face: Face, queue_name: str, raw: Any) -> None:
    """So they don't delay flows: of these, each round checks 20."""
    keys = QueueKeys(queue_name)
    # No such jobs, and no such flows: a check removes each.
    raw.zadd(keys.flows_due, {f"call:{number}": number for number in range(90)})
    raw.zadd(keys.flows_due, {f"f{number}": 90 + number for number in range(45)})
    async with await AsyncConnection.open(face.url) as server:
        await server.follow(FlowReconciler(keys).round())
    assert 0 < raw.zcard(keys.flows_due) <= 25


@pytest.mark.parametrize("fails", [False, True])
async def test_what_another_client_ended_is_told_on(
    face: Face, queue_name: str, raw: Any, hand: HandWorker, fails: bool
) -> None:
    async with face.queue(queue_name) as queue, face.flows() as flows, await AsyncConnection.open(face.url) as server:
        flow = await flows.submit(chain_of(queue_name), flow_id="f")
        held = hand.take()
        if fails:
            hand.fail(held, "no such file")
        else:
            hand.complete(held)
        await server.follow(keeper(queue.keys).round())
        states = {node.name: node.outcome for node in await flow.tree()}
        assert states == (
            {"a": "failed", "b": "upstream_failed", "after": "waiting"}
            if fails
            else {"a": "completed", "b": "waiting", "after": "waiting-children"}
        )


async def test_what_ended_in_another_queue_is_told_on(face: Face, queue_name: str, raw: Any) -> None:
    second = queue_name + "-2"
    dag = Dag("d", [Node("a", queue=second), Node("b", deps=("a",))], queue_name)
    async with face.flows() as flows, await AsyncConnection.open(face.url) as server:
        flow = await flows.submit(dag, flow_id="f")
        with HandWorker(face.url, second) as hand:
            hand.fail(hand.take(), "no such file")
        await server.follow(keeper(flow.graph.keys).round())
        assert [node.outcome for node in await flow.tree()] == ["failed", "upstream_failed"]


async def test_an_end_is_noted_and_looked_at_once_more(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue, face.flows() as flows:
        async with working(queue, echo, face.url):
            await (await flows.submit(chain_of(queue_name), flow_id="f")).wait(SOON)
            status = await ended(queue, raw, "f")
        assert (status.state, status.percent, status.counts) == ("completed", 100, {"completed": 3})
        assert status.seconds is not None
        assert raw.zscore(queue.keys.flows_due, "f") > now_ms()
        async with await AsyncConnection.open(face.url) as server:
            await server.follow(keeper(queue.keys, 120_000).round())
        assert raw.zcard(queue.keys.flows_due) == 0
        assert raw.zrange(queue.keys.flows_ended, 0, -1) == ["f"]


async def test_a_queue_without_open_flows_costs_two_commands_a_round(face: Face, queue_name: str, raw: Any) -> None:
    async with await AsyncConnection.open(face.url) as server:
        rounds = keeper(QueueKeys(queue_name))
        before = raw.info("commandstats")
        await server.follow(rounds.round())
        after = raw.info("commandstats")
    ran = {name: after[name]["calls"] - before.get(name, {"calls": 0})["calls"] for name in after}
    assert {name: calls for name, calls in ran.items() if calls and name != "cmdstat_info"} == {
        "cmdstat_zrangebyscore": 2
    }


async def test_a_submission_that_was_given_up_is_removed(face: Face, queue_name: str, raw: Any) -> None:
    dag = Dag("d", [Node("a"), Node("b", queue=queue_name + "-2", deps=("a",))], queue_name)
    whole = compile(dag, "f").submission()
    keys = whole.keys
    async with await AsyncConnection.open(face.url) as server:
        for write in whole.writes(now_ms()):
            await server.run(write)
        await server.follow(keeper(keys).round())
        assert raw.hget(keys.flow("f"), "state") == "submitting"
        assert raw.xlen(keys.stream) == 0
        await server.follow(keeper(keys, 600_000).round())
    left = [key for key in raw.scan_iter("*") if not key.endswith((":events", ":id"))]
    assert left == []


async def test_a_submission_that_broke_off_before_its_release_is_released(
    face: Face, queue_name: str, raw: Any
) -> None:
    dag = Dag("d", [Node("a"), Node("b", queue=queue_name + "-2", deps=("a",))], queue_name)
    whole = compile(dag, "f").submission()
    keys = whole.keys
    async with await AsyncConnection.open(face.url) as server:
        for write in whole.writes(now_ms()):
            await server.run(write)
        await server.execute(whole.commit())
        await server.follow(keeper(keys, 1000).round())
    assert raw.xlen(keys.stream) == 1
    assert raw.hget(keys.flow("f"), "held") is None


async def test_a_flow_whose_time_is_up_is_stopped(face: Face, queue_name: str, raw: Any) -> None:
    dag = chain_of(queue_name, timeout=timedelta(milliseconds=300), on_failure=Node("tell"))

    async def handle(job: AsyncActiveJob) -> None:
        if job.name != "tell":
            await hang(job)

    async with face.queue(queue_name) as queue, face.flows() as flows, working(queue, handle, face.url):
        flow = await flows.submit(dag, flow_id="f")
        status = await ended(queue, raw, "f")
        states = {node.name: node.outcome for node in await flow.tree()}
    assert (status.state, status.stopped) == ("failed", "timeout")
    assert states == {"a": "failed", "b": "upstream_failed", "after": "failed", "tell": "completed"}


async def test_a_failure_stops_what_does_not_wait_for_it_when_asked_to(face: Face, queue_name: str, raw: Any) -> None:
    dag = Dag("d", [Node("bad"), Node("hang")], queue_name, options=FlowOptions(fail_fast=True))

    async def handle(job: AsyncActiveJob) -> None:
        await (echo(job) if job.name == "bad" else hang(job))

    async with face.queue(queue_name) as queue, face.flows() as flows, working(queue, handle, face.url):
        await flows.submit(dag, flow_id="f")
        status = await ended(queue, raw, "f")
    assert (status.state, status.stopped, status.counts) == ("failed", "fail_fast", {"failed": 2})


async def test_only_so_many_flows_are_kept(face: Face, queue_name: str, raw: Any) -> None:
    dag = Dag("d", [Node("a")], queue_name, options=FlowOptions(retention=Retention(count=1)))
    async with face.queue(queue_name) as queue, face.flows() as flows, working(queue, echo, face.url):
        for flow_id in ("f1", "f2"):
            await (await flows.submit(dag, flow_id=flow_id)).wait(SOON)
            await ended(queue, raw, flow_id)
        await wait_until(lambda: raw.zrange(queue.keys.flows, 0, -1) == ["f2"], "the removal")
    assert not raw.exists(queue.keys.job("f1.a"), queue.keys.flow("f1"))
    assert raw.exists(queue.keys.job("f2.a")) == 1


async def test_flows_are_kept_for_so_long(face: Face, queue_name: str, raw: Any) -> None:
    dag = Dag("d", [Node("a")], queue_name, options=FlowOptions(retention=Retention(age=timedelta(hours=1))))
    async with face.queue(queue_name) as queue, face.flows() as flows:
        async with working(queue, echo, face.url):
            await (await flows.submit(dag, flow_id="f")).wait(SOON)
            await ended(queue, raw, "f")
        async with await AsyncConnection.open(face.url) as server:
            await server.follow(keeper(queue.keys, 600_000).round())
            assert raw.exists(queue.keys.flow("f"))
            await server.follow(keeper(queue.keys, 7_200_000).round())
    assert not raw.exists(queue.keys.flow("f"), queue.keys.job("f.a"), queue.keys.flows_ended)


async def test_what_was_removed_as_it_ended_without_a_word_counts_as_failed(
    face: Face, queue_name: str, raw: Any
) -> None:
    async with face.queue(queue_name) as queue, face.flows() as flows, await AsyncConnection.open(face.url) as server:
        flow = await flows.submit(chain_of(queue_name), flow_id="f")
        await queue.remove("f.a", force=True)
        rounds = keeper(queue.keys, 10_000)
        await server.follow(rounds.round())
        assert (await flow.tree())[1].outcome == "waiting-children"
        await server.follow(rounds.round())
        assert (await flow.tree())[1].outcome == "upstream_failed"


async def test_who_waits_for_a_flow_reconciles_it_where_no_worker_of_ours_is(
    face: Face, queue_name: str, raw: Any, hand: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(values, "LOOK_AGAIN_S", 0.1)
    async with face.flows() as flows:
        flow = await flows.submit(chain_of(queue_name), flow_id="f")
        hand.fail(hand.take(), "no such file")
        waiting = asyncio.ensure_future(flow.wait(SOON))
        await wait_until(lambda: raw.hget(hand.keys.job("f.after"), "state") == "waiting", "the rule to be applied")
        hand.complete(hand.take())
        with pytest.raises(FlowFailedError, match="no such file"):
            await waiting


async def test_a_wait_that_is_over_says_what_waits_for_a_worker(face: Face, queue_name: str, raw: Any) -> None:
    async with face.flows() as flows:
        flow = await flows.submit(chain_of(queue_name), flow_id="f")
        with pytest.raises(
            TimeoutError, match=f"'a' could start and waits for a worker of queue '{queue_name}'; start"
        ):
            await flow.wait(0.05)


async def test_a_round_by_hand_reconciles_what_is_due(face: Face, queue_name: str, raw: Any, hand: HandWorker) -> None:
    async with face.queue(queue_name) as queue, face.flows() as flows:
        await flows.submit(chain_of(queue_name), flow_id="f")
        hand.fail(hand.take(), "no such file")
        await queue.flows.reconcile()
        assert raw.hget(hand.keys.job("f.after"), "state") == "waiting"
        assert raw.zscore(queue.keys.flows_due, "f") > now_ms()


class _DeadError(Exception):
    """The keeper's process is gone."""


def mortal(connection: AsyncConnection, monkeypatch: pytest.MonkeyPatch, exchanges: int) -> None:
    """Let the connection's user die before it sends more requests than these."""
    pipeline, execute, left = connection.pipeline, connection.execute, count()

    async def pipeline_until(*args: Any, **options: Any) -> Any:
        return await pipeline(*args, **options) if next(left) < exchanges else die()

    async def execute_until(*args: Any, **options: Any) -> Any:
        return await execute(*args, **options) if next(left) < exchanges else die()

    def die() -> Any:
        raise _DeadError

    monkeypatch.setattr(connection, "pipeline", pipeline_until)
    monkeypatch.setattr(connection, "execute", execute_until)


@pytest.mark.parametrize("exchanges", range(9))
async def test_two_keepers_do_no_harm_after_one_that_died_anywhere(
    server_url: str, queue_name: str, raw: Any, hand: HandWorker, monkeypatch: pytest.MonkeyPatch, exchanges: int
) -> None:
    async with (
        AsyncQueue(queue_name, url=server_url) as queue,
        AsyncFlowProducer(url=server_url) as flows,
        await AsyncConnection.open(server_url) as server,
        await AsyncConnection.open(server_url) as dying,
    ):
        flow = await flows.submit(chain_of(queue_name), flow_id="f")
        hand.fail(hand.take(), "no such file")
        mortal(dying, monkeypatch, exchanges)
        with suppress(_DeadError):
            await dying.follow(keeper(queue.keys).round())
        raw.delete(queue.keys.flows_lock)  # it has expired
        await asyncio.gather(*(server.follow(keeper(queue.keys, 10_000).round()) for _ in range(2)))
        assert [node.outcome for node in await flow.tree()] == ["failed", "upstream_failed", "waiting"]
        hand.complete(hand.take())
        await server.follow(keeper(queue.keys, 1_000_000).round())
        assert raw.hget(queue.keys.flow("f"), "state") == "failed"
    assert raw.xlen(queue.keys.stream) == 0
