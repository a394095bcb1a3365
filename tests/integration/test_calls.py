"""Steps that call other tasks: jobs of their own, added once, whose results or errors come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncFlowProducer, AsyncJob, AsyncQueue
from orchestration_queue.errors import FlowFailedError, JobFailedError, PayloadError, UnrecoverableError, UsageError
from orchestration_queue.flows import Dag, Node, TriggerRule
from orchestration_queue.options import Backoff, JobOptions, Retention, StepOptions
from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations.steps import StepKind
from orchestration_queue.server.instrumentation import exchange_hooks
from orchestration_queue.states import JobState
from orchestration_queue.tasks import Tasks
from orchestration_queue.worker import AsyncActiveJob
from orchestration_queue.worker.sandbox import sandboxed
from tests.by_hand import HandWorker
from tests.integration.sandbox_handlers import calling, calling_on_loop, gathering_much
from tests.integration.test_cli import Oq
from tests.integration.test_steps import settled_state, until
from tests.waiting import wait_until
from tests.workers import working

SOON = timedelta(seconds=10)
TWICE = JobOptions(attempts=2, backoff=Backoff(type="fixed", delay=0.02))
NO_UPKEEP: dict[str, Any] = dict.fromkeys(("stalled_interval", "flow_interval"), timedelta(minutes=5))


@pytest.fixture
async def queue(server_url: str, queue_name: str, raw: redis.Redis) -> AsyncIterator[AsyncQueue]:
    async with (
        AsyncQueue(queue_name, url=server_url) as queue,
        AsyncQueue(f"{queue_name}-there", url=server_url) as other,
    ):
        yield queue
        await other.obliterate(force=True)


async def run(queue: AsyncQueue, server_url: str, handler: Any, **more: Any) -> AsyncJob:
    """Run one job of the handler, whose calls a worker of another queue serves, too; return it when it has ended."""
    tasks = Tasks()

    @tasks.task
    async def double(number: int) -> int:
        if number < 0:
            raise ValueError(f"{number} is negative")
        return 2 * number

    @tasks.task
    async def write(size: int) -> str:
        return "x" * size

    def route(name: str) -> Any:
        return handler if name == "work" else tasks.handler(name)

    async with AsyncExitStack() as stack:
        for name in (queue.name, f"{queue.name}-there"):
            other = await stack.enter_async_context(AsyncQueue(name, url=server_url))
            await stack.enter_async_context(working(other, _Routes(route), server_url, concurrency=1, **more))
        job = await queue.add("work", options=TWICE)
        await until(lambda: _is_over(job))
    return job


class _Routes:
    def __init__(self, route: Any) -> None:
        self.handler = route

    def default_options(self, name: str) -> dict[str, Any]:
        return {}


async def _is_over(job: AsyncJob) -> bool:
    return (await job.refresh()).is_finished


@pytest.mark.parametrize(
    "handler",
    [calling_on_loop, calling, sandboxed(calling_on_loop), sandboxed(calling)],
    ids=["loop", "thread", "sandboxed loop", "sandboxed thread"],
)
async def test_results_of_called_tasks_come_back(queue: AsyncQueue, server_url: str, handler: Any) -> None:
    """One slot serves both: the caller's is free meanwhile. The other queue's worker notifies it at once."""
    job = await run(queue, server_url, handler, **NO_UPKEEP)
    assert (job.result, job.record.attempts_made) == ([1, 2, 4, 6], 0)
    assert await job.logs() == ["runs"] * 3
    steps = await job.steps()
    assert [(step.name, step.kind, step.number, step.attempt) for step in steps] == [
        ("first", StepKind.COMPLETED, 1, 1), ("second", StepKind.COMPLETED, 2, 1), ("third", StepKind.COMPLETED, 3, 1),
    ]  # fmt: skip
    assert all(step.duration > timedelta(0) and step.size == 1 for step in steps)


async def test_a_sandbox_gets_more_results_than_fit_in_a_message(queue: AsyncQueue, server_url: str) -> None:
    job = await run(queue, server_url, sandboxed(gathering_much), **NO_UPKEEP)
    assert (job.result, job.record.attempts_made) == ([900_000] * 20, 0)


async def test_a_called_jobs_failure_is_raised_and_the_next_attempt_calls_again(
    queue: AsyncQueue, server_url: str
) -> None:
    errors: list[JobFailedError] = []

    async def work(job: AsyncActiveJob) -> Any:
        try:
            return await job.call("it", "double", number=-1)
        except JobFailedError as error:
            errors.append(error)
            raise

    job = await run(queue, server_url, work)
    assert job.state is JobState.FAILED
    first, second = errors
    assert first.reason == second.reason == "ValueError: -1 is negative"
    assert first.kind == "ValueError"
    assert first.queue == queue.name
    assert first.job_id != second.job_id
    assert (
        job.record.failed_reason == f"Job {second.job_id!r} of queue {queue.name!r} failed: ValueError: -1 is negative"
    )
    assert [(step.kind, step.number, step.attempt) for step in await job.steps()] == [(StepKind.CALLS, 2, 2)]
    await job.retry()
    async with working(queue, _Routes(lambda name: work if name == "work" else _four), server_url):
        assert await job.wait(SOON) == 4


async def test_a_failure_that_is_stored_stays(queue: AsyncQueue, server_url: str) -> None:
    errors: list[JobFailedError] = []

    async def work(job: AsyncActiveJob) -> Any:
        try:
            await job.call("it", "double", number=-1, options=StepOptions(store_errors=(JobFailedError,)))
        except JobFailedError as error:
            errors.append(error)
        if job.attempt == 1:
            raise ValueError("once more")

    job = await run(queue, server_url, work)
    assert job.state is JobState.COMPLETED
    first, second = errors
    assert (first.queue, first.job_id, first.reason, first.kind) == (
        second.queue, second.job_id, second.reason, second.kind,
    )  # fmt: skip
    assert [step.kind for step in await job.steps()] == [StepKind.FAILED]


async def test_gather_waits_for_all_and_raises_the_first_error(queue: AsyncQueue, server_url: str) -> None:
    seen: list[Any] = []

    async def work(job: AsyncActiveJob) -> Any:
        calls = [Node(f"n-{number}", "double", data={"number": number}) for number in (1, -1, -2, 3)]
        if job.attempt == 1:
            seen.append(await job.gather(*calls, return_exceptions=True))
            raise ValueError("once more")
        return await job.gather(*calls)

    job = await run(queue, server_url, work)
    assert str(job.record.failed_reason).endswith("failed: ValueError: -1 is negative")
    ((one, negative, other, three),) = seen
    assert (one, negative.reason, other.reason, three) == (
        2, "ValueError: -1 is negative", "ValueError: -2 is negative", 6,
    )  # fmt: skip


async def test_a_task_is_called_with_its_own_queue_and_options(queue: AsyncQueue, server_url: str) -> None:
    tasks = Tasks(queue=f"{queue.name}-there")

    @tasks.task(options=JobOptions(attempts=3, tags=["called"]))
    def double(number: int) -> int:
        raise NotImplementedError

    async def work(job: AsyncActiveJob) -> Any:
        return await job.call("it", double, number=4), await job.call("again", double, 5)

    job = await run(queue, server_url, work)
    assert job.result == [8, 10]
    children = [await child.refresh() for child in await job.children()]
    assert [(child.max_attempts, child.tags) for child in children] == [(3, ("called",))] * 2


async def test_steps_sleeps_and_calls_follow_each_other(queue: AsyncQueue, server_url: str) -> None:
    async def work(job: AsyncActiveJob) -> Any:
        first = await job.step("first", lambda: 1)
        second = await job.call("second", "double", number=first)
        await job.sleep("nap", 0.01)
        results = await asyncio.gather(*(job.step(f"n-{n}", lambda n=n: n) for n in range(3)))
        return [second, *results, await job.call("last", "double", number=second)]

    job = await run(queue, server_url, work)
    assert (job.result, job.record.attempts_made) == ([2, 0, 1, 2, 4], 0)


async def test_calls_in_a_task_group_end_the_run(queue: AsyncQueue, server_url: str) -> None:
    async def work(job: AsyncActiveJob) -> Any:
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(job.call(f"n-{n}", "double", number=n)) for n in range(3)]
        return [call.result() for call in calls]

    job = await run(queue, server_url, work)
    assert (job.result, job.record.attempts_made) == ([0, 2, 4], 0)


async def test_a_call_that_was_forgotten_calls_again(queue: AsyncQueue, server_url: str) -> None:
    async def work(job: AsyncActiveJob) -> Any:
        await job.call("it", "double", number=1)
        raise UnrecoverableError("always")

    job = await run(queue, server_url, work)
    first = await job.children()
    await job.forget_step("it")
    await job.retry()
    async with working(queue, _Routes(lambda name: work if name == "work" else _four), server_url):
        await until(lambda: _is_over(job))
    assert len(await job.children()) == len(first) + 1
    assert [step.number for step in await job.steps()] == [2]


async def _four(job: AsyncActiveJob) -> int:
    return 4


@pytest.mark.parametrize("there", ["", "-there"])
async def test_a_called_job_that_is_removed_counts_as_failed(
    queue: AsyncQueue, server_url: str, raw: redis.Redis, there: str
) -> None:
    """Nothing notifies of it: the reconciler finds out."""

    async def work(job: AsyncActiveJob) -> Any:
        await job.gather(Node("it", "waits", f"{queue.name}{there}", {}))

    async with working(queue, _Routes(lambda name: work if name == "work" else _never), server_url):
        job = await queue.add("work")
        await settled_state(queue, job.id, JobState.WAITING_CHILDREN)
        (child,) = await job.children()
        await child.remove(force=True)
        raw.zadd(queue.keys.flows_due, {f"call:{job.id}": 1})  # instead of five seconds
        with pytest.raises(JobFailedError, match="its job was removed before its result was read"):
            await job.wait(SOON)
    assert raw.zscore(queue.keys.flows_due, f"call:{job.id}") is None or await _is_over(job)


async def _never(job: AsyncActiveJob) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("outcome", ["completed", "failed"])
async def test_a_lost_notification_is_found(queue: AsyncQueue, server_url: str, raw: redis.Redis, outcome: str) -> None:
    """As a worker in another language leaves it: it ends a job and notifies no job of another queue."""

    async def work(job: AsyncActiveJob) -> Any:
        (found,) = await job.gather(Node("it", "waits", f"{queue.name}-there", {}), return_exceptions=True)
        return str(found)

    async with working(queue, work, server_url):
        job = await queue.add("work")
        await settled_state(queue, job.id, JobState.WAITING_CHILDREN)
        (child,) = await job.children()
        fields: Any = {"state": outcome, "returnvalue": '"fine"', "failedReason": "broken"}
        raw.hset(QueueKeys(child.queue).job(child.id), mapping=fields)
        raw.zadd(queue.keys.flows_due, {f"call:{job.id}": 1})
        result = await job.wait(SOON)
        assert result == "fine" if outcome == "completed" else str(result).endswith("failed: broken")
        raw.zadd(queue.keys.flows_due, {f"call:{job.id}": 1})
        await wait_until(lambda: raw.zcard(queue.keys.flows_due) == 0, "the reconciler to drop an ended job")


async def test_a_node_worker_runs_a_called_job(queue: AsyncQueue, server_url: str) -> None:
    """In the caller's queue, its own outcome notifies the caller: no reconciler does."""

    async def work(job: AsyncActiveJob) -> Any:
        worker.stop()  # it takes no other job, such as the one that it calls
        return await job.call(Node("it", "theirs", data={"number": 4}))

    with HandWorker(server_url, queue.name) as node:
        async with working(queue, work, server_url, concurrency=1, **NO_UPKEEP) as worker:
            job = await queue.add("work")
            await settled_state(queue, job.id, JobState.WAITING_CHILDREN)
        held = node.take()
        assert (held.record.name, held.record.data) == ("theirs", {"number": 4})
        node.complete(held, {"is": 8})
        async with working(queue, work, server_url, concurrency=1, **NO_UPKEEP) as worker:
            assert await job.wait(SOON) == {"is": 8}
    assert [step.kind for step in await job.steps()] == [StepKind.COMPLETED]


@pytest.mark.parametrize("is_good", [True, False])
async def test_a_node_worker_of_another_queue_runs_a_called_job(
    queue: AsyncQueue, server_url: str, raw: redis.Redis, is_good: bool
) -> None:
    """It notifies no job there: the reconciler finds out."""

    async def work(job: AsyncActiveJob) -> Any:
        return await job.call(Node("it", "theirs", f"{queue.name}-there", {}))

    async with working(queue, work, server_url):
        job = await queue.add("work")
        await settled_state(queue, job.id, JobState.WAITING_CHILDREN)
        with HandWorker(server_url, f"{queue.name}-there") as node:
            held = node.take()
            if is_good:
                node.complete(held, {"is": 8})
            else:
                node.fail(held, "no disk")
        raw.zadd(queue.keys.flows_due, {f"call:{job.id}": 1})  # instead of five seconds
        if is_good:
            assert await job.wait(SOON) == {"is": 8}
        else:
            with pytest.raises(JobFailedError, match="failed: no disk"):
                await job.wait(SOON)


async def test_a_called_job_that_was_retried_by_hand_is_waited_for(queue: AsyncQueue, server_url: str) -> None:
    """Its failure is known, and its success comes later."""
    released = asyncio.Event()
    runs: list[str] = []

    async def work(job: AsyncActiveJob) -> Any:
        runs.append("work")
        if len(runs) == 2:  # resumed by the failure
            (child,) = await (await queue.get(job.id)).children()
            await child.retry()
        return await job.call("it", "part")

    async def part(job: AsyncActiveJob) -> Any:
        if job.record.history:
            await released.wait()
            return "in the end"
        raise UnrecoverableError("at first")

    async with working(queue, _Routes(lambda name: work if name == "work" else part), server_url):
        job = await queue.add("work")
        await settled_state(queue, job.id, JobState.DELAYED)
        released.set()
        assert await job.wait(SOON) == "in the end"


async def test_a_command_lists_jobs_that_called_others(queue: AsyncQueue, server_url: str) -> None:
    async def work(job: AsyncActiveJob) -> Any:
        await job.call("thumbnail", "resize")

    async with working(queue, _Routes(lambda name: work if name == "work" else _never), server_url, concurrency=1):
        job = await queue.add("work")
        await settled_state(queue, job.id, JobState.WAITING_CHILDREN)
        for words in ((), ("--state", "waiting-children")):
            listed = await asyncio.to_thread(Oq(server_url).json, "job", "ls", queue.name, *words)
            assert job.id in [each["id"] for each in listed]
        await queue.obliterate(force=True)


async def test_why_names_the_step_and_the_job_it_waits_for(queue: AsyncQueue, server_url: str) -> None:
    async def work(job: AsyncActiveJob) -> Any:
        await job.call("thumbnail", "resize", width=100)

    async with working(queue, _Routes(lambda name: work if name == "work" else _never), server_url, concurrency=1):
        job = await queue.add("work")
        await settled_state(queue, job.id, JobState.WAITING_CHILDREN)
        (child,) = await job.children()
        await settled_state(queue, child.id, JobState.ACTIVE)
        explained = await job.explain()
        expected = f"Its step 'thumbnail' waits for the job that it called. It waits for 1 of 1 jobs: {child.id}"
        assert str(explained).startswith(f"{expected} (active)")
        assert explained.facts["step"] == "thumbnail"
        assert [step.outcome for step in await job.steps()] == ["waits for its job"]
        assert [found.id for found in await queue.search()] == [child.id, job.id]
        assert [found.id for found in await queue.search(state="waiting-children")] == [job.id]
        await queue.obliterate(force=True)


NOTHING = Node("x", "double", data={"number": 1})


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda job: job.call("x", 5), UsageError, "Step 'x' can't call 5; pass a task"),
        (lambda job: job.call("x"), UsageError, "Step 'x' can't call None; pass a task"),
        (lambda job: job.call(NOTHING, "double"), UsageError, "calls a node, which has its arguments"),
        (lambda job: job.call("x", "double", 5), UsageError, "pass them as keyword arguments"),
        (lambda job: job.gather("x"), UsageError, "A step can't call 'x'; pass `Node"),
        (lambda job: job.gather(NOTHING, NOTHING), UsageError, "Step 'x' of job .* was already used in this attempt"),
        (lambda job: job.gather(Node("x", "y", deps=["z"])), UsageError, "calls a node that waits for others"),
        (lambda job: job.call("x:y", "double"), UsageError, "Node name 'x:y' contains ':'"),
        (lambda job: job.call("x", "double", options={"attempts": 3}), UsageError, "A call has no attempts of its own"),
        (
            lambda job: job.call("x", "double", options={"codec": "gzip"}),
            UsageError,
            "A call has no codec of its own; res",
        ),
        (lambda job: job.call("x", "double", number=object()), PayloadError, "The data of step 'x'"),
        (
            lambda job: job.gather(Node("x", "y", options=JobOptions(remove_on_complete=Retention(count=0)))),
            UsageError,
            "calls a job that is removed when it ends",
        ),
    ],
)
async def test_what_cannot_be_called_is_refused_before_anything_is_stored(
    queue: AsyncQueue, server_url: str, call: Any, kind: type[Exception], message: str
) -> None:
    async def work(job: AsyncActiveJob) -> None:
        with pytest.raises(kind, match=message):
            await call(job)

    async with working(queue, work, server_url):
        job = await queue.add("work")
        await job.wait(SOON)
    assert await job.steps() == []
    assert await job.children() == []


async def test_many_calls_are_gathered(queue: AsyncQueue, server_url: str, raw: redis.Redis) -> None:
    async def work(job: AsyncActiveJob) -> Any:
        return sum(await job.gather(*(Node(f"n-{n}", "part", data=n) for n in range(250))))

    async def part(job: AsyncActiveJob) -> int:
        return int(job.data)

    async with working(
        queue, _Routes(lambda name: work if name == "work" else part), server_url, concurrency=20, **NO_UPKEEP
    ):
        job = await queue.add("work")
        assert await job.wait(SOON) == sum(range(250))
    assert len(await job.steps()) == 250


async def test_gathering_nothing_is_nothing(queue: AsyncQueue, server_url: str, raw: redis.Redis) -> None:
    async with working(queue, lambda job: job.gather(), server_url):
        job = await queue.add("work")
        assert await job.wait(SOON) == []
    assert "steps" not in raw.hkeys(queue.keys.job(job.id))


@pytest.fixture
def sent(queue: AsyncQueue) -> Iterator[list[str]]:
    """The names of this process's commands that store calls and steps, or use a job's record or steps, in order.

    Those of a worker's upkeep, whose time may come at any moment, do neither.
    """
    names: list[str] = []
    functions = {"oq1_storeCalls", "oq1_submitGraph", "oq1_storeStep"}
    jobs = (queue.keys.job(""), queue.keys.steps(""))

    def note(calls: Sequence[Call], _seconds: float, _failed: object) -> None:
        names.extend(
            call.name for call in calls if call.name in functions or any(key.startswith(jobs) for key in call.keys)
        )

    exchange_hooks.append(note)
    yield names
    exchange_hooks.remove(note)


async def test_what_a_call_costs(queue: AsyncQueue, server_url: str, raw: redis.Redis, sent: list[str]) -> None:
    """One command to call, and one for each queue; when they have ended, two to read each and one to store it.

    The end is awaited by a client of its own: `job.wait` reads the record, too, perhaps while the handler runs.
    """
    counted: list[list[str]] = []

    async def work(job: AsyncActiveJob) -> None:
        sent.clear()
        try:
            await job.gather(*(Node(f"n-{n}", "part") for n in range(3)))
        finally:
            counted.append(list(sent))

    intervals: dict[str, Any] = dict.fromkeys(
        ("stalled_interval", "promotion_interval", "flow_interval", "lease"), timedelta(minutes=5)
    )
    routes = _Routes(lambda name: work if name == "work" else _four)
    async with working(queue, routes, server_url, concurrency=1, **intervals):
        job = await queue.add("work")
        await wait_until(lambda: raw.zscore(queue.keys.completed, job.id) is not None, "the caller to complete", 60)
    first, second = counted
    assert first == ["oq1_storeCalls", "oq1_submitGraph"]
    assert second == ["HSCAN", "HMGET", *["HSTRLEN"] * 3, *["HMGET"] * 3, *["oq1_storeStep"] * 3]


async def test_a_node_of_a_flow_calls_and_its_retry_calls_again(queue: AsyncQueue, server_url: str) -> None:
    """Whatever rule it started by, it waits for the end of what it called."""
    is_broken = True

    async def work(job: AsyncActiveJob) -> Any:
        match job.name:
            case "called":
                if is_broken:
                    raise UnrecoverableError("broken")
                return "called"
            case "work":
                return await job.call("it", "called")
        return await job.upstream_results()

    dag = Dag(
        "calls",
        [
            Node("first"),
            Node("middle", "work", deps=["first"], trigger_rule=TriggerRule.ONE_SUCCESS),
            Node("last", deps=["middle"]),
        ],
        queue.name,
    )
    async with working(queue, work, server_url), AsyncFlowProducer(url=server_url) as flows:
        flow = await flows.submit(dag)
        with pytest.raises(FlowFailedError):
            await flow.wait(SOON)
        is_broken = False
        await flow.retry()
        assert (await flow.wait(SOON))["last"] == {"middle": "called"}
