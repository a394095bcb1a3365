"""Giving a running job back, changing what a job waits for, and removing only what no job waits for; both faces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncQueue, NewJob
from orchestration_queue.errors import JobFailedError, JobNotFoundError, LeaseLostError, StateError
from orchestration_queue.flows import Dag, Node, TriggerRule
from orchestration_queue.options import JobOptions, Ordering
from orchestration_queue.states import JobState
from orchestration_queue.worker import AsyncActiveJob
from tests.faces import Face
from tests.integration.test_cli import Oq
from tests.waiting import wait_until
from tests.workers import working

SOON = timedelta(seconds=60)


@pytest.fixture
async def queue(face: Face, queue_name: str, raw: redis.Redis) -> AsyncIterator[AsyncQueue]:
    async with face.queue(queue_name) as queue:
        yield queue


async def chain(queue: AsyncQueue, face: Face, **nodes: tuple[str, ...]) -> dict[str, Any]:
    """The jobs of a flow by their names, each with what it waits for."""
    dag = Dag("f", [Node(name, deps=list(deps)) for name, deps in nodes.items()], queue.name)
    async with face.flows() as flows:
        await flows.submit(dag, flow_id="f")
    return {name: await queue.get(f"f.{name}") for name in nodes}


# -- Release


@pytest.mark.parametrize(
    "options",
    [JobOptions(), JobOptions(lifo=True), JobOptions(priority=3), JobOptions(ordering=Ordering(key="k"))],
    ids=["stream", "lifo", "priority", "group"],
)
async def test_a_released_job_is_taken_again_without_an_attempt(queue: AsyncQueue, options: JobOptions) -> None:
    job = await queue.add("n", options=options)
    (first,) = await queue.take(wait=SOON)
    await job.release()
    with pytest.raises(LeaseLostError):
        await first.complete("late")
    (second,) = await queue.take(wait=SOON)
    assert (second.id, second.job.record.attempts_made) == (job.id, 0)
    await second.complete("done")
    assert await job.wait(SOON) == "done"
    assert [entry.event for entry in (await job.refresh()).history] == ["released"]
    assert (await queue.counts()).active == 0


async def test_a_retried_job_in_a_long_stream_is_found_by_its_entry(queue: AsyncQueue) -> None:
    options = JobOptions(attempts=2)
    job = await queue.add("n", options=options)
    (first,) = await queue.take()
    await queue.add_bulk([NewJob("other") for _ in range(1100)])
    assert await first.fail("once")
    others = await queue.take(100)
    while job.id not in {taken.id for taken in others}:
        others = await queue.take(100)
    await job.release()
    assert (await job.refresh()).state is JobState.WAITING


async def test_the_handler_of_a_released_job_is_stopped_and_the_job_runs_again(queue: AsyncQueue, face: Face) -> None:
    runs: list[str] = []
    ended = asyncio.Event()

    async def work(job: AsyncActiveJob) -> str:
        runs.append(job.id)
        if len(runs) == 1:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
        return "second"

    async with working(queue, work, face.url, lease=timedelta(hours=1)):
        job = await queue.add("n")
        await wait_until(lambda: runs, "the job to run")
        await job.release()
        await asyncio.wait_for(ended.wait(), 60)
        assert await job.wait(SOON) == "second"
    assert (await job.refresh()).attempts_made == 0


async def test_only_a_running_job_can_be_released(queue: AsyncQueue) -> None:
    job = await queue.add("n")
    with pytest.raises(StateError, match="is not active"):
        await job.release()
    await job.remove()
    with pytest.raises(JobNotFoundError):
        await job.release()


# -- What a job waits for


async def finish(queue: AsyncQueue, job_id: str, error: str | None = None) -> None:
    for taken in await queue.take(10, wait=SOON):
        if taken.id != job_id:
            await taken.release()
        elif error is None:
            await taken.complete()
        else:
            await taken.fail(error)


async def test_a_job_waits_for_one_more(queue: AsyncQueue, face: Face) -> None:
    jobs = await chain(queue, face, a=(), b=("a",))
    late = await queue.add("late")
    await jobs["b"].depends(on=[late.id])
    await jobs["b"].depends(on=[late.id])
    await finish(queue, "f.a")
    assert await jobs["b"].read_state() is JobState.WAITING_CHILDREN
    await finish(queue, late.id)
    assert await jobs["b"].read_state() is JobState.WAITING


async def test_a_job_waits_for_one_less_and_starts(queue: AsyncQueue, face: Face, raw: Any) -> None:
    jobs = await chain(queue, face, a=(), b=(), c=("a", "b"))
    await finish(queue, "f.b")
    await jobs["c"].depends(off=["f.a"])
    assert await jobs["c"].read_state() is JobState.WAITING
    assert await jobs["a"].remove(), "nothing waits for it"
    assert not raw.exists(queue.keys.parents("f.a"))


@pytest.mark.parametrize("rule", ["all_success", "all_failed", "one_failed", "all_done"])
async def test_a_job_that_waits_for_nothing_more_starts_whatever_its_rule(
    queue: AsyncQueue, face: Face, rule: str
) -> None:
    dag = Dag("f", [Node("a"), Node("b", deps=["a"], trigger_rule=TriggerRule(rule))], queue.name)
    async with face.flows() as flows:
        await flows.submit(dag, flow_id="f")
    waiting = await queue.get("f.b")
    await waiting.depends(off=["f.a"])
    assert await waiting.read_state() is JobState.WAITING


async def test_one_that_has_failed_is_told_at_once(queue: AsyncQueue, face: Face) -> None:
    lost = await queue.add("lost")
    await finish(queue, lost.id, "no")
    jobs = await chain(queue, face, a=(), b=("a",), c=("b",))
    await jobs["b"].depends(on=[lost.id])
    with pytest.raises(JobFailedError, match="upstream failed"):
        await jobs["c"].wait(SOON)


async def test_circles_missing_jobs_and_jobs_that_run_are_refused_and_nothing_changes(
    queue: AsyncQueue, face: Face, raw: Any
) -> None:
    jobs = await chain(queue, face, a=(), b=("a",), c=("b",))
    before = raw.smembers(queue.keys.deps("f.b"))
    with pytest.raises(StateError, match=r"can't wait for 'f\.c', which waits for it"):
        await jobs["b"].depends(on=["f.a", "f.c"])
    with pytest.raises(JobNotFoundError, match="gone"):
        await jobs["b"].depends(on=["gone"], off=["f.a"])
    with pytest.raises(StateError, match="does not wait"):
        await jobs["a"].depends(off=["f.b"])
    assert raw.smembers(queue.keys.deps("f.b")) == before


# -- Removal


async def test_a_job_that_others_wait_for_is_left_unless_forced(queue: AsyncQueue, face: Face) -> None:
    jobs = await chain(queue, face, a=(), b=("a",))
    with pytest.raises(StateError, match="other jobs wait for it"):
        await jobs["a"].remove()
    with pytest.raises(StateError, match="other jobs wait for it"):
        await queue.remove("f.a")
    assert await jobs["a"].read_state() is JobState.WAITING
    assert await queue.remove("f.a", force=True)
    assert not await queue.remove("f.a")


async def test_a_job_that_was_waited_for_can_be_removed(queue: AsyncQueue, face: Face) -> None:
    jobs = await chain(queue, face, a=(), b=("a",))
    await finish(queue, "f.a")
    assert await jobs["a"].remove()
    assert await jobs["b"].remove()


async def test_oq_releases_and_rewires(server_url: str, queue: AsyncQueue, face: Face) -> None:
    oq = Oq(server_url)
    await chain(queue, face, a=(), b=("a",))
    refused = await asyncio.to_thread(oq, "job", "rm", queue.name, "f.a", "--yes")
    assert (refused.exit_code, "wait for it" in refused.stderr) == (3, True)
    told = await asyncio.to_thread(oq.json, "job", "depends", queue.name, "f.b", "--off", "f.a")
    assert (told["id"], told["state"]) == ("f.b", "waiting")
    await queue.take(2)
    told = await asyncio.to_thread(oq.json, "job", "release", queue.name, "f.a")
    assert told["released"] is True
    told = await asyncio.to_thread(oq.json, "job", "rm", queue.name, "f.a", "--force", "--yes")
    assert told["removed"] is True
