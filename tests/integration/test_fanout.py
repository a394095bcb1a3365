"""Fan-out: a node returns a list, a job for each element runs, and who waits for them reads the results in order."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from orchestration_queue.client import AsyncFlowProducer, AsyncQueue
from orchestration_queue.errors import FlowFailedError, UnrecoverableError, UsageError
from orchestration_queue.flows import Dag, DagBuilder, TriggerRule
from orchestration_queue.options import JobOptions, Retention
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.lease import Lease
from orchestration_queue.protocol.operations import exchanges
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms
from orchestration_queue.tasks import Tasks
from orchestration_queue.worker import ActiveJob, AsyncActiveJob
from orchestration_queue.worker.active_job import JobInterrupt
from orchestration_queue.worker.reserved import FanOut
from orchestration_queue.worker.sandbox import sandboxed
from tests.by_hand import HandWorker, Held
from tests.integration import sandbox_handlers
from tests.integration.test_cli import Oq
from tests.waiting import wait_until
from tests.workers import working

SOON = timedelta(seconds=60)


class Work:
    """What the nodes of these tests do: `list` returns the elements, `double` may fail, `sum` reads the results."""

    def __init__(self, values: Any) -> None:
        self.values = values
        self.fails: set[Any] = set()
        self.ran: list[Any] = []
        self.hold = asyncio.Event()
        self.hold.set()

    async def __call__(self, job: AsyncActiveJob) -> Any:
        if job.name == "list":
            return self.values
        if job.name == "read":
            return [value async for value in job.map_results("double", default="failed")]
        if job.name == "note":
            return await job.upstream_results()
        self.ran.append(job.data)
        await self.hold.wait()
        if job.data in self.fails:
            raise ValueError(f"no {job.data}")
        return job.data * 2


def graph(queue: str, **options: Any) -> Dag:
    builder = DagBuilder("fan", queue=queue)
    listed = builder.node("list")
    doubled = builder.map("double", "twice", over=listed, **options)
    builder.node("read", deps=[doubled])
    builder.node("note", deps=[doubled])
    return builder.build()


@pytest.fixture
async def queue(server_url: str, queue_name: str, raw: Any) -> AsyncIterator[AsyncQueue]:
    async with AsyncQueue(queue_name, url=server_url) as queue:
        yield queue


@pytest.fixture
async def flows(server_url: str) -> AsyncIterator[AsyncFlowProducer]:
    async with AsyncFlowProducer(url=server_url) as flows:
        yield flows


@pytest.mark.parametrize("count", [0, 1, 3, 1001])
async def test_an_element_is_a_job_and_results_come_in_order(
    queue: AsyncQueue, flows: AsyncFlowProducer, server_url: str, count: int
) -> None:
    work = Work(list(range(count)))
    async with working(queue, work, server_url, concurrency=16):
        flow = await flows.submit(graph(queue.name), flow_id="f")
        results = await flow.wait(SOON)
    assert results == {
        "list": work.values,
        "double": {"count": count},
        "read": [2 * value for value in range(count)],
        "note": {"double": {"count": count}},
    }
    assert sorted(work.ran) == work.values


async def test_failed_elements_fail_the_node_when_all_have_ended(
    queue: AsyncQueue, flows: AsyncFlowProducer, server_url: str
) -> None:
    work = Work(list(range(9)))
    work.fails = {1, 2, 3, 4, 5, 7}
    async with working(queue, work, server_url):
        flow = await flows.submit(graph(queue.name), flow_id="f")
        with pytest.raises(FlowFailedError) as caught:
            await flow.wait(SOON)
    assert caught.value.node == "double"
    assert caught.value.dependents == ("read", "note")
    assert caught.value.reason == (
        "6 of 9 elements failed (double[1]: ValueError: no 1; double[2]: ValueError: no 2; "
        "double[3]: ValueError: no 3; "
        "double[4]: ValueError: no 4; double[5]: ValueError: no 5; and 1 more); fix what they name and retry the flow."
    )
    assert sorted(work.ran) == work.values


async def test_a_retry_runs_failed_elements_only(queue: AsyncQueue, flows: AsyncFlowProducer, server_url: str) -> None:
    work = Work([0, 1, 2, 3])
    work.fails = {1, 3}
    async with working(queue, work, server_url):
        flow = await flows.submit(graph(queue.name), flow_id="f")
        with pytest.raises(FlowFailedError):
            await flow.wait(SOON)
        shown = {node.name: (node.outcome, node.elements) for node in await flow.tree()}
        assert shown["double"] == ("failed", {"completed": 2, "failed": 2})
        assert shown["list"] == ("completed", None)
        work.ran.clear()
        work.fails = {3}
        assert await flow.retry() == ["double[1]", "double[3]", "double", "read", "note"]
        with pytest.raises(FlowFailedError, match=r"1 of 4 elements failed \(double\[3\]: ValueError: no 3\)"):
            await flow.wait(SOON)
        work.fails = set()
        assert await flow.retry() == ["double[3]", "double", "read", "note"]
        results = await flow.wait(SOON)
    assert results["read"] == [0, 2, 4, 6]
    assert sorted(work.ran) == [1, 3, 3]


async def test_the_command_retries_and_draws_elements(
    queue: AsyncQueue, flows: AsyncFlowProducer, server_url: str
) -> None:
    oq, work = Oq(server_url), Work([0, 1, 2])
    work.fails = {1}
    async with working(queue, work, server_url):
        flow = await flows.submit(graph(queue.name), flow_id="f")
        with pytest.raises(FlowFailedError):
            await flow.wait(SOON)
        work.fails = set()
        retried = await asyncio.to_thread(oq.json, "flow", "retry", queue.name, "f")
        assert retried == ["double[1]", "double", "read", "note"]
        assert (await flow.wait(SOON))["read"] == [0, 2, 4]
        nodes = await asyncio.to_thread(oq.json, "flow", "tree", queue.name, "f")
    assert {node["name"]: node["elements"] for node in nodes}["double"] == {"completed": 3}


async def test_failures_may_be_allowed(queue: AsyncQueue, flows: AsyncFlowProducer, server_url: str) -> None:
    work = Work([0, 1, 2])
    work.fails = {1}
    async with working(queue, work, server_url):
        flow = await flows.submit(graph(queue.name, allow_failures=True), flow_id="f")
        results = await flow.wait(SOON)
        noted = {"count": 3, "failed": 1, "failures": {"double[1]": "ValueError: no 1"}}
        assert results["double"] == noted
        assert results["note"] == {"double": noted}
        assert results["read"] == [0, "failed", 4]
        assert (await flow.status()).state == "completed"
        assert await flow.retry() == []
        parts = await flow.elements("double")
    assert [(part.name, part.job_id, part.outcome, part.failed_reason) for part in parts] == [
        ("double[0]", "f.double[0]", "completed", None),
        ("double[1]", "f.double[1]", "failed", "ValueError: no 1"),
        ("double[2]", "f.double[2]", "completed", None),
    ]


async def test_elements_are_retried_as_their_options_say(
    queue: AsyncQueue, flows: AsyncFlowProducer, server_url: str
) -> None:
    work = Work([5])

    async def at_the_third_attempt(job: AsyncActiveJob) -> Any:
        work.fails = {5} if job.attempt < 3 else set()
        return await work(job)

    async with working(queue, at_the_third_attempt, server_url):
        flow = await flows.submit(graph(queue.name, options=JobOptions(attempts=3)), flow_id="f")
        assert (await flow.wait(SOON))["read"] == [10]
    assert work.ran == [5, 5, 5]


@pytest.mark.parametrize(
    ("returned", "why"),
    [
        ({"a": 1}, "Node 'list' returned a dict, but only lists can be mapped over; return one."),
        (None, "Node 'list' returned a NoneType, but only lists can be mapped over; return one."),
        ([0] * 20_001, "Node 'list' returned 20,001 elements, more than the maximum of 20,000"),
    ],
)
async def test_what_cannot_be_mapped_over_fails_the_node(
    queue: AsyncQueue, flows: AsyncFlowProducer, server_url: str, raw: Any, returned: Any, why: str
) -> None:
    async with working(queue, Work(returned), server_url):
        flow = await flows.submit(graph(queue.name), flow_id="f")
        with pytest.raises(FlowFailedError) as caught:
            await flow.wait(SOON)
    assert caught.value.reason.startswith(why)
    assert raw.exists(queue.keys.job("f.double[0]")) == 0


@pytest.mark.parametrize(
    ("values", "options", "why"),
    [
        ([{"a": 1}, 2], {"data": {"b": 1}}, "An element is a int, but only a dict can be merged with the data of all"),
        (["x" * 600_000], {"as_": "p", "data": {"b": "x" * 600_000}}, "The data of element 0 exceeds maximum size"),
    ],
)
async def test_no_element_is_added_unless_all_can_be(
    queue: AsyncQueue, flows: AsyncFlowProducer, server_url: str, raw: Any, values: Any, options: Any, why: str
) -> None:
    async with working(queue, Work(values), server_url):
        flow = await flows.submit(graph(queue.name, **options), flow_id="f")
        with pytest.raises(FlowFailedError) as caught:
            await flow.wait(SOON)
    assert caught.value.reason.startswith(why)
    assert raw.exists(queue.keys.job("f.double[0]")) == 0


async def test_a_list_whose_job_is_not_kept_is_missed_in_a_sentence(
    queue: AsyncQueue, flows: AsyncFlowProducer, server_url: str
) -> None:
    builder = DagBuilder("fan", queue=queue.name)
    listed = builder.node("list", options=JobOptions(remove_on_complete=Retention(count=0)))
    builder.map("double", "twice", over=listed)
    async with working(queue, Work([1]), server_url):
        flow = await flows.submit(builder.build(), flow_id="f")
        with pytest.raises(FlowFailedError, match="The result of node 'list' does not exist"):
            await flow.wait(SOON)


async def test_no_more_elements_run_at_a_time_than_said(
    queue: AsyncQueue, flows: AsyncFlowProducer, server_url: str, raw: Any
) -> None:
    running, most = 0, 0

    async def count(job: AsyncActiveJob) -> Any:
        nonlocal running, most
        if job.name != "twice":
            return list(range(20))
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return None

    builder = DagBuilder("fan", queue=queue.name)
    builder.map("double", "twice", over=builder.node("list"), max_concurrency=3)
    async with working(queue, count, server_url, concurrency=10):
        flow = await flows.submit(builder.build(), flow_id="f")
        assert (await flow.wait(SOON))["double"] == {"count": 20}
    assert most == 3
    await flow.remove()
    assert raw.keys(f"*{queue.name}*group*") == []
    assert raw.hlen(queue.keys.named("ordering")) == 0


async def test_a_cancelled_flow_stops_its_elements(
    queue: AsyncQueue, flows: AsyncFlowProducer, server_url: str, raw: Any
) -> None:
    work = Work(list(range(50)))
    work.hold.clear()
    async with working(queue, work, server_url):
        flow = await flows.submit(graph(queue.name), flow_id="f")
        await wait_until(lambda: len(work.ran) == 4, "the first elements")
        await wait_until(lambda: raw.hget(queue.keys.job("f.double"), "state") == "waiting-children", "the wait")
        assert await flow.cancel() == ["double", "read", "note"]
        await wait_until(lambda: raw.zcard(queue.keys.failed) == 53, "the end of all elements")
        assert (await flow.status()).state == "cancelled"
        parts = await flow.elements("double")
        assert {part.failed_reason for part in parts} == {"revoked"}
        assert len(work.ran) == 4
        await flow.remove()
    left = list(raw.scan_iter("*:job:*"))
    assert left == []


async def test_elements_that_another_client_fails_are_heeded(
    queue: AsyncQueue, flows: AsyncFlowProducer, server_url: str, raw: Any
) -> None:
    flow = await flows.submit(graph(queue.name, allow_failures=True), flow_id="f")
    async with await AsyncConnection.open(server_url) as server:
        with HandWorker(server_url, queue.name) as hand:
            hand.complete(hand.take(), [1, 2])
            await settle(server, queue.keys, hand.take())
            hand.fail(hand.take(), "not here")
            hand.complete(hand.take(), 4)
        assert raw.hget(queue.keys.job("f.double"), "state") == "waiting-children"
        async with working(queue, Work(None), server_url):
            results = await flow.wait(SOON)
    assert results["double"] == {"count": 2, "failed": 1, "failures": {"double[0]": "not here"}}
    assert results["read"] == ["failed", 4]


async def settle(server: AsyncConnection, keys: QueueKeys, held: Held) -> None:
    """Run a job of a node that maps, which is to wait for its elements, as a worker does."""
    with pytest.raises(JobInterrupt) as caught:
        await FanOut(keys, server)(AsyncActiveJob(held.record, keys, server))
    outcome = caught.value.settle(Lease(held.record, held.entry_id))
    await server.run(exchanges.exchange(keys, "hand", now_ms(), settle=[outcome]))


async def test_a_revoked_node_adds_no_more(
    queue: AsyncQueue, flows: AsyncFlowProducer, server_url: str, raw: Any
) -> None:
    flow = await flows.submit(graph(queue.name), flow_id="f")
    async with await AsyncConnection.open(server_url) as server:
        with HandWorker(server_url, queue.name) as hand:
            hand.complete(hand.take(), [1, 2])
            held = hand.take()
        await flow.cancel()
        job = AsyncActiveJob(held.record, queue.keys, server)
        with pytest.raises(UnrecoverableError, match=r"^revoked$"):
            await FanOut(queue.keys, server)(job)
    assert raw.exists(queue.keys.job("f.double[0]")) == 0


DYING = """
import asyncio, os, signal, sys
from datetime import timedelta
from orchestration_queue.options import WorkerOptions
from orchestration_queue.worker import Worker, reserved

url, queue, when = sys.argv[1:]
whole, interrupt = reserved._pieces, reserved.JobInterrupt

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def pieces(jobs):
    for number, piece in enumerate(whole(jobs)):
        if str(number) == when:
            die()
        yield piece
    if when == "added":
        die()

async def handle(job):
    if job.name == "list":
        return list(range(1200))
    if when == "waiting" and job.data == 5:
        die()
    return job.data * 2

def interrupted(kind):
    if when == "counted":
        die()
    return interrupt(kind)

reserved._pieces, reserved.JobInterrupt = pieces, interrupted
options = WorkerOptions(concurrency=1, lease=timedelta(seconds=1))
asyncio.run(Worker(queue, handle, url=url, options=options).run())
"""


@pytest.mark.parametrize(
    ("when", "there"), [("0", 0), ("1", 200), ("added", 1200), ("counted", 1200), ("waiting", 1200)]
)
async def test_whoever_is_killed_meanwhile_no_element_is_lost_or_doubled(
    queue: AsyncQueue, flows: AsyncFlowProducer, server_url: str, raw: Any, when: str, there: int
) -> None:
    flow = await flows.submit(graph(queue.name), flow_id="f")
    dying = await asyncio.create_subprocess_exec(sys.executable, "-c", DYING, server_url, queue.name, when)
    assert await dying.wait() == -signal.SIGKILL
    assert raw.scard(queue.keys.deps("f.double")) == 1 + there
    held = queue.keys.job("f.double[5]" if when == "waiting" else "f.double")
    assert raw.hset(held, "lastActive", 1) == 0, "so its lease is over, and no pause of this machine ends others"
    work = Work(None)
    async with working(queue, work, server_url, concurrency=16, lease=timedelta(minutes=1)):
        results = await flow.wait(SOON)
    assert results["double"] == {"count": 1200}
    assert results["read"] == [2 * value for value in range(1200)]
    assert len(work.ran) == len(set(work.ran)) == (1195 if when == "waiting" else 1200)
    assert raw.zcard(queue.keys.completed) == 1204


async def test_typed_tasks_are_mapped_by_their_parameters(
    queue: AsyncQueue, flows: AsyncFlowProducer, server_url: str
) -> None:
    tasks = Tasks(queue=queue.name, url=server_url)

    @tasks.task
    def paths() -> list[str]:
        return ["a", "b"]

    @tasks.task
    def boxes() -> list[dict[str, int]]:
        return [{"width": 2, "height": 3}, {"width": 4}]

    @tasks.task
    def resize(path: str, width: int) -> str:
        return f"{path}-{width}"

    @tasks.task
    def area(width: int, height: int = 1) -> int:
        return width * height

    @tasks.task
    async def report(job: AsyncActiveJob) -> list[str | int]:
        return [each for name in ("resized", "areas") async for each in job.map_results(name)]

    builder = DagBuilder("typed", queue=queue.name)
    listed, boxed = builder.add(paths.node("paths")()), builder.add(boxes.node("boxes")())
    resized = builder.add(resize.map("resized", over=listed, as_="path", data={"width": 100}))
    areas = builder.add(area.map("areas", over=boxed))
    builder.add(report.node("report", deps=[resized, areas])())
    with pytest.raises(UsageError, match=r"Task 'resize' has no parameter 'file' to fill; see resize\(path: "):
        resize.map("wrong", over=listed, as_="file")
    async with working(queue, tasks, server_url):
        flow = await flows.submit(builder.build())
        assert (await flow.wait(SOON))["report"] == ["a-100", "b-100", 6, 4]


async def test_one_map_follows_another(queue: AsyncQueue, flows: AsyncFlowProducer, server_url: str) -> None:
    builder = DagBuilder("fan", queue=queue.name)
    first = builder.map("double", "twice", over=builder.node("list"))
    read = builder.node("read", deps=[first])
    second = builder.map("again", "twice", over=read)
    builder.node("note", deps=[first, second])
    work = Work([1, 2, 3])
    async with working(queue, work, server_url):
        flow = await flows.submit(builder.build(), flow_id="f")
        results = await flow.wait(SOON)
        last = [(await queue.get(f"f.again[{index}]")).record.result for index in range(3)]
    assert results["note"] == {"double": {"count": 3}, "again": {"count": 3}}
    assert last == [4, 8, 12]


@pytest.mark.parametrize(
    ("rule", "outcome"),
    [
        (TriggerRule.ALL_SUCCESS, "upstream_failed"),
        (TriggerRule.ALL_DONE, "completed"),
        (TriggerRule.ONE_FAILED, "completed"),
        (TriggerRule.NONE_FAILED, "upstream_failed"),
    ],
)
async def test_who_waits_for_a_failed_map_decides_by_its_rule(
    queue: AsyncQueue, flows: AsyncFlowProducer, server_url: str, rule: TriggerRule, outcome: str
) -> None:
    builder = DagBuilder("fan", queue=queue.name)
    mapped = builder.map("double", "twice", over=builder.node("list"))
    builder.node("note", deps=[mapped], trigger_rule=rule)
    work = Work([1, 2])
    work.fails = {2}
    async with working(queue, work, server_url):
        flow = await flows.submit(builder.build())
        with pytest.raises(FlowFailedError):
            await flow.wait(SOON)
        assert {node.name: node.outcome for node in await flow.tree()}["note"] == outcome


async def test_an_element_that_was_retried_by_hand_is_waited_for(
    queue: AsyncQueue, flows: AsyncFlowProducer, server_url: str, raw: Any
) -> None:
    work = Work([1, 2])
    work.fails = {1}
    work.hold.clear()
    async with working(queue, work, server_url):
        flow = await flows.submit(graph(queue.name), flow_id="f")
        await wait_until(lambda: raw.hget(queue.keys.job("f.double"), "state") == "waiting-children", "the wait")
        await wait_until(lambda: len(work.ran) == 2, "both elements")
        await queue.pause()
        work.hold.set()
        await wait_until(lambda: raw.zscore(queue.keys.failed, "f.double[0]"), "the failure", 60)
        work.fails = set()
        await (await queue.get("f.double[0]")).retry()
        await queue.resume()
        assert (await flow.wait(SOON))["read"] == [2, 4]


async def test_maps_of_a_sub_flow_over_a_list_of_another_queue(
    queue: AsyncQueue, flows: AsyncFlowProducer, server_url: str
) -> None:
    inner = DagBuilder("inner", queue=queue.name)
    inner.map("double", "twice", over=inner.node("list", queue=queue.name + "-2"))
    builder = DagBuilder("outer", queue=queue.name)
    included = builder.include(inner.build(), as_="in")
    halves = builder.map("again", "twice", over="in.list", deps=[included])
    builder.node("note", deps=[halves])
    work = Work([1, 2])
    async with (
        AsyncQueue(queue.name + "-2", url=server_url) as second,
        working(queue, work, server_url),
        working(second, work, server_url),
    ):
        flow = await flows.submit(builder.build())
        results = await flow.wait(SOON)
    assert results["in.double"] == results["again"] == {"count": 2}
    assert sorted(work.ran) == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ("list", "Node 'list' is not mapped; read its result with `upstream_results`."),
        ("none", "Job 'f.read' doesn't wait for node 'none'"),
        ("double", "Node 'double' is failed, so its elements have no results"),
    ],
)
async def test_results_that_are_not_there_are_missed_in_a_sentence(
    queue: AsyncQueue, flows: AsyncFlowProducer, server_url: str, node: str, why: str
) -> None:
    async def read(job: AsyncActiveJob) -> Any:
        return await job.map_page(node) if job.name == "read" else "no list"

    builder = DagBuilder("fan", queue=queue.name)
    listed = builder.node("list")
    doubled = builder.map("double", "twice", over=listed)
    builder.node("read", deps=[doubled, listed], trigger_rule=TriggerRule.ALL_DONE)
    async with working(queue, read, server_url):
        flow = await flows.submit(builder.build(), flow_id="f")
        with pytest.raises(FlowFailedError):
            await flow.wait(SOON)
        record = (await flow.records())["read"]
    assert (record.failed_reason or "").startswith(why)


async def test_plain_functions_read_the_results_too(
    queue: AsyncQueue, flows: AsyncFlowProducer, server_url: str
) -> None:
    def plain(job: ActiveJob) -> Any:
        if job.name == "list":
            return list(range(600))
        return list(job.map_results("double")) if job.name == "read" else job.data

    builder = DagBuilder("fan", queue=queue.name)
    doubled = builder.map("double", "twice", over=builder.node("list"))
    builder.node("read", deps=[doubled])
    async with working(queue, plain, server_url):
        flow = await flows.submit(builder.build())
        assert (await flow.wait(SOON))["read"] == list(range(600))


async def test_sandboxed_handlers_read_the_results_too(
    queue: AsyncQueue, flows: AsyncFlowProducer, server_url: str
) -> None:
    flow = await flows.submit(graph(queue.name))
    async with working(queue, sandboxed(sandbox_handlers.fan), server_url):
        assert (await flow.wait(SOON))["read"] == [2 * value for value in range(3)]
