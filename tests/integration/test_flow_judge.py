"""One judge of a flow: whatever happens to a node's record, all readers agree, and what is gone is no success.

The rows of the table in docs/explanation/flows.md, each before and after the node ran, as the first or the last of a
flow, in one queue and in two.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from orchestration_queue.client import AsyncFlow, AsyncFlowProducer, AsyncQueue
from orchestration_queue.errors import FlowFailedError
from orchestration_queue.flows import Dag, Node
from orchestration_queue.flows.reconciler import FlowReconciler
from orchestration_queue.http import create_app
from orchestration_queue.options import Retention
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms
from tests.by_hand import HandWorker
from tests.http.conftest import called
from tests.integration.test_cli import Oq
from tests.waiting import wait_until

KEPT = Retention(count=1000)
NOT_KEPT = Retention(count=0)


@dataclass
class Scene:
    """A flow of two nodes, of which each can be in a queue of its own, and only the test works."""

    queues: dict[str, AsyncQueue]
    hands: dict[str, HandWorker]
    flow: AsyncFlow
    connection: AsyncConnection
    raw: Any
    victim: str
    fails: bool = False
    retention: Retention = KEPT
    rounds: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def keys(self) -> QueueKeys:
        return self.flow.graph.jobs[self.victim].keys

    @property
    def job_id(self) -> str:
        return self.flow.graph.jobs[self.victim].job_id

    @property
    def queue(self) -> AsyncQueue:
        return self.queues[self.keys.queue]

    async def run(self, name: str) -> None:
        """Run a node that is ready, after what its dependencies' queue has to say."""
        await self.reconcile()
        hand = self.hands[self.flow.graph.jobs[name].keys.queue]
        held = hand.take()
        assert held.id == f"f.{name}"
        retention = self.retention if name == self.victim else KEPT
        if self.fails and name == self.victim:
            hand.fail(held, "no such table", retention=retention)
        else:
            hand.complete(held, name, retention=retention)

    async def reconcile(self) -> None:
        """Reconcile the flow often enough for all that it puts off, each time a minute later."""
        keeper = FlowReconciler(
            self.flow.graph.keys, lambda: now_ms() + 60_000 * next(self.rounds), interval=timedelta(milliseconds=100)
        )
        for _ in range(4):
            await self.connection.follow(keeper.round())

    async def finish(self) -> None:
        """Run what can run, and reconcile."""
        await self.reconcile()
        for node in await self.flow.tree():
            if node.state == "waiting":
                await self.run(node.name)
        await self.reconcile()


async def by_retention_later(scene: Scene) -> None:
    hand = scene.hands[scene.keys.queue]
    await scene.queue.add("another")
    if scene.fails:
        hand.fail(hand.take(), "another", retention=Retention(count=1))
    else:
        hand.complete(hand.take(), retention=Retention(count=1))


async def by_clean(scene: Scene) -> None:
    assert scene.job_id in await scene.queue.clean(0, state="failed" if scene.fails else "completed")


async def by_drain(scene: Scene) -> None:
    assert await scene.queue.drain() == 1


async def by_remove(scene: Scene) -> None:
    assert await scene.queue.remove(scene.job_id, force=True)


async def by_obliterate(scene: Scene) -> None:
    await scene.queue.obliterate(force=True)


async def by_eviction(scene: Scene) -> None:
    assert scene.raw.delete(scene.keys.job(scene.job_id)) == 1


async def by_expiry(scene: Scene) -> None:
    scene.raw.pexpire(scene.keys.job(scene.job_id), 1)
    await wait_until(lambda: not scene.raw.exists(scene.keys.job(scene.job_id)), "the expiry of the record")


async def at_once(scene: Scene) -> None:
    """By the node's own retention, when it ends."""


Way = Callable[[Scene], Awaitable[None]]
AFTER: list[tuple[Way, bool]] = [
    (at_once, True),
    (by_retention_later, True),
    (by_clean, True),
    (by_remove, True),
    (by_obliterate, False),
    (by_eviction, False),
    (by_expiry, False),
]
"""Ways to remove a record after the node ran, and whether the functions that do it note how it ended."""
BEFORE: list[Way] = [by_drain, by_remove, by_obliterate, by_eviction, by_expiry]


def cells() -> list[Any]:
    """Each cell: when and how the record goes, whether the node had failed, where it is, and the state of the flow."""
    found: list[tuple[Way, str, str, str, str]] = []
    for victim, spread in itertools.product(("first", "last"), ("one queue", "two queues")):
        found += [(way, "before", victim, spread, "failed") for way in BEFORE]
        for (way, is_noted), end in itertools.product(AFTER, ("completed", "failed")):
            is_known = is_noted or victim == "first"  # which the other has counted
            found.append((way, end, victim, spread, end if is_known else "failed"))
    return [
        pytest.param(*cell, id="-".join((cell[0].__name__, *cell[1:4])).replace(" ", "_"))
        for cell in found
        if cell[0] is not by_obliterate or cell[3] == "two queues"  # else the flow's own record goes, too
    ]


async def readers(scene: Scene, server_url: str) -> dict[str, str]:
    """What each reader says of the flow's state."""
    flow = await scene.queues[scene.flow.graph.keys.queue].flows.get("f")  # by the record, as another process
    said = {"status": str((await flow.status()).state), "explain": str((await flow.explain()).state)}
    try:
        await flow.wait(timeout=60)
        said["wait"] = "completed"
    except FlowFailedError:
        said["wait"] = "failed"
    (listed,) = await scene.queues[scene.flow.graph.keys.queue].flows.list()
    said["list"] = str(listed.state)
    ends = {node.outcome for node in await flow.tree()}
    said["tree"] = "completed" if ends == {"completed"} else "failed"
    shown = Oq(server_url).json("flow", "show", scene.flow.graph.keys.queue, "f")
    said["oq"] = shown["state"]
    async with called(create_app(server_url, console=True)) as api:
        queue = scene.flow.graph.keys.queue
        said["http"] = (await api.get(f"/v1/queues/{queue}/flows/f")).json()["state"]
        page = (await api.get(f"/ui/queues/{queue}/flows/f")).text
        said["console"] = re.findall(r'</h1><span class="state s-(\w+)', page)[0]
    return said


@pytest.mark.parametrize(("way", "when", "victim", "spread", "state"), cells())
async def test_all_readers_agree(
    server_url: str, raw: Any, queue_name: str, way: Way, when: str, victim: str, spread: str, state: str
) -> None:
    away = f"{queue_name}-away" if spread == "two queues" else queue_name
    nodes = [Node("first"), Node("last", deps=("first",))]
    dag = Dag("d", [Node(n.name, deps=n.deps, queue=away if n.name == victim else None) for n in nodes], queue_name)
    names = {queue_name, away}
    async with AsyncExitStack() as stack:
        flows = await stack.enter_async_context(AsyncFlowProducer(url=server_url))
        connection = await stack.enter_async_context(await AsyncConnection.open(server_url))
        queues = {name: await stack.enter_async_context(AsyncQueue(name, url=server_url)) for name in names}
        hands = {name: stack.enter_context(HandWorker(server_url, name)) for name in names}
        flow = await flows.submit(dag, flow_id="f")
        scene = Scene(queues, hands, flow, connection, raw, victim, when == "failed")
        scene.retention = NOT_KEPT if way is at_once else KEPT
        for name in ("first", "last"):
            if name != victim:
                if name == "first":
                    await scene.run(name)
                continue
            if when == "before":
                await scene.reconcile()
            else:
                await scene.run(name)
                if name == "first":
                    await scene.reconcile()  # so that its dependent has counted it
            await way(scene)
            break
        await scene.finish()
        said = await readers(scene, server_url)
    assert set(said.values()) == {state}, said


@pytest.mark.parametrize("way", [by_eviction, by_obliterate])
async def test_a_recorded_end_outlives_the_records(server_url: str, raw: Any, queue_name: str, way: Way) -> None:
    away = f"{queue_name}-away"
    dag = Dag("d", [Node("first"), Node("last", deps=("first",), queue=away)], queue_name)
    async with AsyncExitStack() as stack:
        flows = await stack.enter_async_context(AsyncFlowProducer(url=server_url))
        connection = await stack.enter_async_context(await AsyncConnection.open(server_url))
        names = (queue_name, away)
        queues = {name: await stack.enter_async_context(AsyncQueue(name, url=server_url)) for name in names}
        hands = {name: stack.enter_context(HandWorker(server_url, name)) for name in names}
        flow = await flows.submit(dag, flow_id="f")
        scene = Scene(queues, hands, flow, connection, raw, "last")
        await scene.run("first")
        await scene.run("last")
        await scene.reconcile()
        await way(scene)
        assert set((await readers(scene, server_url)).values()) == {"completed"}


async def test_notes_of_ends_expire_and_go_with_the_flow(server_url: str, raw: Any, queue_name: str) -> None:
    async with AsyncExitStack() as stack:
        flows = await stack.enter_async_context(AsyncFlowProducer(url=server_url))
        queue = await stack.enter_async_context(AsyncQueue(queue_name, url=server_url))
        hand = stack.enter_context(HandWorker(server_url, queue_name))
        flow = await flows.submit(Dag("d", [Node("a"), Node("b")], queue_name), flow_id="f")
        hand.complete(hand.take(), retention=NOT_KEPT)
        hand.fail(hand.take(), "no such table", retention=NOT_KEPT)
        key = queue.keys.flow_ends("f")
        assert {job_id: note.split(" ")[0] for job_id, note in raw.hgetall(key).items()} == {
            "f.a": "completed",
            "f.b": "failed",
        }
        assert 29 * 86400 < raw.ttl(key) <= 30 * 86400
        assert [(node.outcome, node.failed_reason) for node in await flow.tree()] == [
            ("completed", None),
            ("failed", "no such table"),
        ]
        assert await flow.results() == {}, "of which nothing is kept"
        await flow.remove()
        assert not raw.exists(key)
