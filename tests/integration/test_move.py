"""Moving jobs to another queue: what is kept, what is refused, and moves whose process died; both faces."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncQueue, MovedJobs, NewJob
from orchestration_queue.errors import JobNotFoundError, OrchestrationQueueError, StateError, UsageError
from orchestration_queue.flows import Dag, Node
from orchestration_queue.flows.reconciler import FlowReconciler
from orchestration_queue.options import Backoff, JobOptions, Ordering
from orchestration_queue.protocol.operations.moves import move
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms
from orchestration_queue.states import JobState
from tests.faces import Face

SOON = timedelta(seconds=60)
LATER_MS = 60_000


@pytest.fixture
async def queue(face: Face, queue_name: str, raw: redis.Redis) -> AsyncIterator[AsyncQueue]:
    async with face.queue(queue_name) as queue:
        yield queue


@pytest.fixture
async def other(face: Face, queue_name: str) -> AsyncIterator[AsyncQueue]:
    async with face.queue(f"{queue_name}-other") as queue:
        yield queue


async def run_steps(server: AsyncConnection, queue: AsyncQueue, other: AsyncQueue, job_id: str, most: int) -> None:
    """Make the first exchanges of a move, then die."""
    steps = move(queue.keys, other.keys, job_id, now_ms())
    calls = next(steps)
    with suppress(StopIteration):
        for _ in range(most):
            calls = steps.send(await server.pipeline(calls))


@pytest.mark.parametrize(
    ("options", "state"),
    [
        (JobOptions(), "waiting"),
        (JobOptions(lifo=True), "waiting"),
        (JobOptions(priority=3), "prioritized"),
        (JobOptions(delay=timedelta(hours=1)), "delayed"),
        (JobOptions(share="tenant"), "waiting"),
    ],
    ids=["stream", "lifo", "priority", "delayed", "share"],
)
async def test_a_moved_job_is_as_it_was(
    queue: AsyncQueue, other: AsyncQueue, raw: redis.Redis, options: JobOptions, state: str
) -> None:
    options = options.model_copy(update={"job_id": "a", "tags": ("red",)})
    job = await queue.add("n", {"x": [1.0]}, options=options)
    await job.track()
    await job.log("a line")
    due = raw.zscore(queue.keys.scheduled, "a")
    moved = await job.move(other.name)
    assert (moved.queue, moved.id, moved.state, moved.data, moved.tags) == (
        other.name,
        "a",
        state,
        {"x": [1.0]},
        ("red",),
    )
    assert [(entry.event, entry.reason) for entry in moved.history] == [("moved", queue.name)]
    assert await moved.logs() == ["a line"]
    assert raw.zscore(other.keys.scheduled, "a") == due
    assert [each.id for each in await other.tracked()] == ["a"]
    assert [each.id for each in await other.tags.jobs("red")] == ["a"]
    assert await queue.tags.list() == []
    assert await queue.tracked() == []
    assert await queue.find("a") is None
    assert await queue.take() == []
    if state != "delayed":
        (taken,) = await other.take(wait=SOON)
        await taken.complete("done")
        assert await moved.wait(SOON) == "done"
    left = {key.rpartition("}:")[2] for key in raw.scan_iter(f"{queue.keys.base}:*")}
    (decision,) = [name for name in left if name.startswith("moved:")]
    assert raw.ttl(queue.keys.named(decision)) > 0
    assert left - {decision} <= {"id", "events", "stream", "meta", "wake", "shares:served", "shares:ahead"}


async def test_a_failed_job_stays_failed_and_is_retried_there(queue: AsyncQueue, other: AsyncQueue) -> None:
    job = await queue.add("n", options=JobOptions(job_id="a", attempts=1, backoff=Backoff(delay=0)))
    (taken,) = await queue.take(wait=SOON)
    await taken.fail("no disk")
    with pytest.raises(StateError, match="move it without a delay"):
        await job.move(other.name, delay=5)
    moved = await job.move(other.name)
    assert (moved.state, moved.record.failed_reason) == (JobState.FAILED, "no disk")
    assert [entry.event for entry in moved.history] == ["failed", "moved"]
    await moved.retry()
    (taken,) = await other.take(wait=SOON)
    await taken.complete("done")
    assert await moved.wait(SOON) == "done"


@pytest.mark.parametrize(("delay", "state"), [(3600, "delayed"), (0, "waiting")])
async def test_a_delay_counts_from_the_arrival(queue: AsyncQueue, other: AsyncQueue, delay: int, state: str) -> None:
    job = await queue.add("n", options=JobOptions(job_id="a", delay=60))
    assert (await job.move(other.name, delay=delay)).state == state
    assert len(await other.take()) == (delay == 0)


async def test_jobs_that_wait_for_it_wait_for_it_there(queue: AsyncQueue, other: AsyncQueue, raw: redis.Redis) -> None:
    for queue_of_parent in (queue, other):
        parent = f"p-{queue_of_parent.name}"
        raw.hset(queue_of_parent.keys.job(parent), mapping={"state": "waiting-children", "name": "p", "id": parent})
        raw.sadd(queue_of_parent.keys.deps(parent), queue.keys.member("a"))
        raw.sadd(queue.keys.parents("a"), queue_of_parent.keys.member(parent))
    job = await queue.add("n", options=JobOptions(job_id="a"))
    await job.move(other.name)
    for queue_of_parent in (queue, other):
        assert raw.smembers(queue_of_parent.keys.deps(f"p-{queue_of_parent.name}")) == {other.keys.member("a")}
    (taken,) = await other.take(wait=SOON)
    await taken.complete("done")
    for queue_of_parent in (queue, other):
        assert (await queue_of_parent.get(f"p-{queue_of_parent.name}")).state is JobState.WAITING


@pytest.mark.parametrize("steps", range(1, 6))
@pytest.mark.parametrize("repeats", [1, 2])
async def test_a_move_whose_process_died_is_finished_by_the_reconciler(
    face: Face, queue: AsyncQueue, other: AsyncQueue, raw: redis.Redis, steps: int, repeats: int
) -> None:
    raw.hset(queue.keys.job("p"), mapping={"state": "waiting-children", "name": "p", "id": "p"})
    raw.sadd(queue.keys.deps("p"), queue.keys.member("a"))
    raw.sadd(queue.keys.parents("a"), queue.keys.member("p"))
    await queue.add("n", options=JobOptions(job_id="a"))
    async with await AsyncConnection.open(face.url) as server:
        for _ in range(repeats):
            await run_steps(server, queue, other, "a", steps)
    assert await queue.take() == []  # on the move it runs in neither queue
    if steps < 4:
        assert (await (await queue.get("a")).explain()).sentence == f"It is on the move to queue {other.name!r}."
    is_placed = steps == 5 or (steps, repeats) == (4, 2)  # a call that is repeated after the end places it
    if steps >= 2 and not is_placed:
        assert (await (await other.get("a")).explain()).sentence == f"It is on the move from queue {queue.name!r}."
    started = await other.take()
    assert len(started) == is_placed
    for taken in started:
        await taken.complete("done")
        await other.remove("a")  # gone before the repeated steps: it must not come a second time
    async with await AsyncConnection.open(face.url) as server:
        for _ in range(2):
            for keys in (queue.keys, other.keys):
                later = FlowReconciler(keys, lambda: now_ms() + LATER_MS, interval=SOON, patience=SOON)
                await server.follow(later.round())
    started += await other.take()
    assert [each.id for each in started] == ["a"]
    assert await queue.find("a") is None
    assert not raw.exists(queue.keys.moving, other.keys.moving)


async def test_a_job_whose_id_is_taken_is_put_back(queue: AsyncQueue, other: AsyncQueue, raw: redis.Redis) -> None:
    await other.add("different", options=JobOptions(job_id="a"))
    job = await queue.add("n", options=JobOptions(job_id="a", delay=60))
    due = raw.zscore(queue.keys.scheduled, "a")
    with pytest.raises(StateError, match="has another job with this id"):
        await job.move(other.name)
    assert (await job.read_state(), raw.zscore(queue.keys.scheduled, "a")) == (JobState.DELAYED, due)
    assert (await other.get("a")).name == "different"
    assert "movingTo" not in (await job.refresh()).fields
    await other.remove("a")
    assert (await job.move(other.name)).name == "n"


async def test_a_repeated_move_changes_nothing(queue: AsyncQueue, other: AsyncQueue) -> None:
    job = await queue.add("n", options=JobOptions(job_id="a"))
    await job.move(other.name)
    assert (await job.move(other.name)).queue == other.name
    assert len(await other.take(5)) == 1
    with pytest.raises(JobNotFoundError):
        await job.move(f"{other.name}-third")


async def test_what_cannot_be_moved_is_left(queue: AsyncQueue, other: AsyncQueue, face: Face) -> None:
    active = await queue.add("n", options=JobOptions(job_id="active"))
    (taken,) = await queue.take(wait=SOON)
    ordered = await queue.add("n", options=JobOptions(job_id="ordered", ordering=Ordering(key="k")))
    async with face.flows() as flows:
        await flows.submit(Dag("f", [Node("a"), Node("b", deps=["a"])], queue.name), flow_id="f")
    node, waits = await queue.get("f.a"), await queue.get("f.b")
    cases = [
        (active, "release it first"),
        (ordered, "ordering group 'k'"),
        (node, "flow 'f'"),
        (waits, "is waiting-children"),
    ]
    for job, why in cases:
        before = (await job.refresh()).fields
        with pytest.raises(StateError, match=why):
            await job.move(other.name)
        assert (await job.refresh()).fields == before
    await taken.complete()
    with pytest.raises(StateError, match="is completed"):
        await active.move(other.name)
    with pytest.raises(UsageError, match="name another queue"):
        await ordered.move(queue.name)
    assert (await other.counts()).waiting == 0


@pytest.mark.parametrize(("name", "delay"), [("", None), ("a:b", None), (5, None), ("x", -1), ("x", "soon")])
async def test_malformed_moves_are_refused(queue: AsyncQueue, name: Any, delay: Any) -> None:
    job = await queue.add("n")
    with pytest.raises(OrchestrationQueueError):
        await job.move(name, delay=delay)
    assert await job.read_state() is JobState.WAITING


async def test_many_jobs_are_moved_at_once_and_those_that_cannot_be_keep_no_other(
    queue: AsyncQueue, other: AsyncQueue
) -> None:
    jobs = await queue.add_bulk([NewJob("n", number, JobOptions(job_id=f"j{number}")) for number in range(250)])
    (taken,) = await queue.take()
    await other.add("different", options=JobOptions(job_id="j7"))
    done = await queue.move_jobs([*(job.id for job in jobs), "j1", "nix"], other.name)
    left = {taken.id: "release it first", "j7": "has another job with this id", "nix": "has no job"}
    assert set(done.left) == set(left)
    assert all(part in done.left[job_id] for job_id, part in left.items()), done.left
    assert done.moved == tuple(job.id for job in jobs if job.id not in left)
    assert ((await other.counts()).waiting, (await queue.counts()).waiting) == (249, 1)
    assert [job.id for job in await other.take(3)] == ["j7", "j1", "j2"]
    assert await queue.move_jobs([], other.name) == MovedJobs()


async def test_the_jobs_of_a_tag_are_moved(queue: AsyncQueue, other: AsyncQueue) -> None:
    for number in range(3):
        await queue.add("n", options=JobOptions(job_id=f"t{number}", tags=("tenant:acme",)))
    await queue.add("n", options=JobOptions(job_id="u"))
    (taken,) = await queue.take()
    await taken.complete()
    done = await queue.tags.move("tenant:acme", other.name, delay=3600)
    assert (done.moved, list(done.left)) == (("t1", "t2"), ["t0"])
    assert "is completed" in done.left["t0"]
    assert (await other.counts()).delayed == 2
    assert [job.id for job in await other.tags.jobs("tenant:acme")] == ["t1", "t2"]
    assert [job.id for job in await queue.tags.jobs("tenant:acme")] == ["t0"]


@pytest.mark.parametrize(
    ("ids", "to", "delay"),
    [
        ("a", "x", None),
        ([5], "x", None),
        ([""], "x", None),
        (None, "x", None),
        (["a"], "", None),
        (["a"], "a:b", None),
        (["a"], None, None),
        (["a"], "x", -1),
        (["a"], "x", "soon"),
        (["a"], "own", None),
        ([], "own", None),
    ],
)
async def test_malformed_bulk_moves_are_refused(queue: AsyncQueue, ids: Any, to: Any, delay: Any) -> None:
    await queue.add("n", options=JobOptions(job_id="a", tags=("t",)))
    to = queue.name if to == "own" else to
    with pytest.raises(OrchestrationQueueError):
        await queue.move_jobs(ids, to, delay=delay)
    if ids == ["a"]:
        with pytest.raises(OrchestrationQueueError):
            await queue.tags.move("t", to, delay=delay)
    assert (await queue.get("a")).state is JobState.WAITING


async def test_a_job_on_the_move_does_not_come_to_wait_for_another(
    face: Face, queue: AsyncQueue, other: AsyncQueue
) -> None:
    await queue.add("n", options=JobOptions(job_id="a"))
    await queue.add("n", options=JobOptions(job_id="b"))
    async with await AsyncConnection.open(face.url) as server:
        await run_steps(server, queue, other, "a", 2)
    for held in (queue, other):
        await other.add("n", options=JobOptions(job_id="b"))
        with pytest.raises(StateError, match="does not wait"):
            await (await held.get("a")).depends(on=["b"])
