"""What the adder of a job can see of it and do to it, in both faces."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from orchestration_queue.errors import JobNotFoundError, PayloadError, UsageError
from orchestration_queue.options import JobOptions
from orchestration_queue.states import JobState
from tests.by_hand import HandWorker
from tests.faces import Face


async def test_state_and_progress_are_read_afresh(
    face: Face, queue_name: str, raw: redis.Redis, hand: HandWorker
) -> None:
    async with face.queue(queue_name) as queue:
        job = await queue.add("work")
        assert (await job.read_state(), await job.progress()) == (JobState.WAITING, None)
        held = hand.take()
        raw.hset(queue.keys.job(job.id), "progress", "40")
        assert (await job.read_state(), await job.progress()) == (JobState.ACTIVE, 40)
        hand.complete(held)
        assert await job.read_state() is JobState.COMPLETED


async def test_others_may_log_and_report_progress(face: Face, queue_name: str, raw: redis.Redis) -> None:
    async with face.queue(queue_name) as queue, queue.events() as events:
        job = await queue.add("work")
        await job.log("seen by an operator")
        await job.log("one", "two")
        await job.update_progress({"done": 0.5})
        assert await job.logs() == ["seen by an operator", "one", "two"]
        assert await job.progress() == {"done": 0.5}
        told = [event for event in await events.read(2) if event.type == "progress"]
        assert [(event.job_id, event.fields) for event in told] == [(job.id, {"data": '{"done":0.5}'})]


async def test_relatives_are_found_from_either_side(
    face: Face, queue_name: str, raw: redis.Redis, hand: HandWorker
) -> None:
    async with face.queue(queue_name) as queue, face.queue(f"{queue_name}-b") as other:
        parent = await queue.add("parent")
        near = await queue.add("child", parent=parent.ref)
        far = await other.add("child", parent=parent.ref)
        gone = await queue.add("child", parent=parent.ref)
        assert [job.id for job in await near.parents()] == [parent.id]
        assert [(job.queue, job.id) for job in await far.parents()] == [(queue_name, parent.id)]
        assert await parent.parents() == []
        await gone.remove()
        found = await parent.children()
        assert sorted((job.queue, job.id) for job in found) == [(queue_name, near.id), (f"{queue_name}-b", far.id)]
        assert await near.children() == []
        hand.take()
        hand.complete(hand.take(), {"rows": 3})
        assert await parent.children_values() == {queue.keys.member(near.id): {"rows": 3}}


async def test_parents_of_a_graph_are_found_too(face: Face, queue_name: str, raw: redis.Redis) -> None:
    async with face.queue(queue_name) as queue:
        first, second = await queue.add("a"), await queue.add("b")
        child = await queue.add("child")
        # As a graph of any client registers them, and what none registers.
        raw.sadd(queue.keys.parents(child.id), first.ref.member, second.ref.member, "broken", "glide:{q}")
        assert sorted(job.id for job in await child.parents()) == [first.id, second.id]


async def test_a_signal_for_a_job_that_is_not_suspended_is_lost(face: Face, queue_name: str, raw: redis.Redis) -> None:
    async with face.queue(queue_name) as queue:
        job = await queue.add("work")
        assert await job.signal("go") is False
        assert await job.suspend_info() is None
        assert await job.read_state() is JobState.WAITING
        assert raw.exists(queue.keys.signals(job.id)) == 0


GONE: list[Any] = [
    lambda job: job.read_state(),
    lambda job: job.progress(),
    lambda job: job.log("line"),
    lambda job: job.update_progress(1),
    lambda job: job.update_data({}),
    lambda job: job.retry(),
    lambda job: job.promote(),
    lambda job: job.change_priority(1),
    lambda job: job.change_delay(1),
    lambda job: job.cancel(),
    lambda job: job.refresh(),
    lambda job: job.wait(1),
]


@pytest.mark.parametrize("act", GONE)
async def test_a_job_that_is_gone_is_named_and_nothing_is_written(
    face: Face, queue_name: str, raw: redis.Redis, act: Any
) -> None:
    async with face.queue(queue_name, emit_events=False) as queue:
        job = await queue.add("work", options=JobOptions(delay=60))
        assert await job.remove()
        before = sorted(raw.scan_iter())
        with pytest.raises(JobNotFoundError, match=f"has no job '{job.id}'"):
            await act(job)
        assert await job.suspend_info() is None
        assert (await job.children(), await job.parents(), await job.read_stream()) == ([], [], [])
        assert sorted(raw.scan_iter()) == before


BAD: list[tuple[Any, str]] = [
    (lambda job: job.signal(""), "Signal name must be a non-empty string"),
    (lambda job: job.signal(None), "Signal name must be a non-empty string"),
    (lambda job: job.signal("go", object()), "The data of signal 'go' cannot be written as JSON"),
    (lambda job: job.signal("go", "x" * 2**20), "exceeds maximum size"),
    (lambda job: job.log(5), "A log line must be text, got 5"),
    (lambda job: job.log("fine", b"bytes"), "A log line must be text"),
    (lambda job: job.log("x" * 2**20), "Log line exceeds maximum size"),
    (lambda job: job.update_progress(object()), "Progress cannot be written as JSON"),
    (lambda job: job.update_progress(float("nan")), "Progress cannot be written as JSON"),
    (lambda job: job.update_data(object()), "cannot be written as JSON"),
    (lambda job: job.change_priority(2049), "less than or equal to 2048"),
    (lambda job: job.change_delay(-1), "greater than or equal to 0"),
    (lambda job: job.wait(-1), "`timeout` must be"),
]


@pytest.mark.parametrize(("act", "says"), BAD)
async def test_what_a_job_cannot_do_is_refused_and_nothing_is_written(
    face: Face, queue_name: str, raw: redis.Redis, act: Any, says: str
) -> None:
    async with face.queue(queue_name) as queue:
        job = await queue.add("work", {"n": 1})
        before = (raw.hgetall(queue.keys.job(job.id)), raw.xlen(queue.keys.events), raw.dbsize())
        with pytest.raises((UsageError, PayloadError), match=says):
            await act(job)
        assert (raw.hgetall(queue.keys.job(job.id)), raw.xlen(queue.keys.events), raw.dbsize()) == before
