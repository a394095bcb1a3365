"""DataFrames of durable steps: stored once, read by every attempt, and removed after their job."""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncQueue
from orchestration_queue.errors import JobFailedError
from orchestration_queue.options import Backoff, JobOptions
from orchestration_queue.protocol.operations.steps import StepKind
from tests.spark.connect_work import tasks
from tests.workers import working

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SOON = timedelta(seconds=100)
TWICE = JobOptions(attempts=2, backoff=Backoff(type="fixed", delay=0.02))


def files_of(results: Path, raw: Any, queue: AsyncQueue) -> Path:
    """Where the steps of a queue's jobs have their files."""
    return results / ".steps" / queue.name / str(raw.hget(queue.keys.meta, "origin"))


def stored(directory: Path) -> list[str]:
    """The jobs that have files of steps."""
    return sorted(entry.name for entry in directory.iterdir() if not entry.name.startswith("."))


async def run(queue: AsyncQueue, job_id: str) -> Any:
    options = TWICE.model_copy(update={"job_id": job_id})
    return await (await queue.add("in_steps", {"count": 5}, options)).wait(SOON)


async def test_a_later_attempt_reads_the_dataframes_of_an_earlier_one(
    queue: AsyncQueue, results: Path, raw: redis.Redis
) -> None:
    assert await run(queue, "a/1") == {"rows": 5, "even": 3, "odd": 2}
    job = await queue.get("a/1")
    assert [line for line in await job.logs() if line.startswith("runs")] == ["runs numbers", "runs halves"]
    assert [(step.name, step.attempt) for step in await job.steps()] == [("numbers", 1), ("pause", 1), ("halves", 1)]
    directory = files_of(results, raw, queue)
    assert stored(directory) == ["a%2F1"]
    assert sorted(entry.name.rpartition("-")[0] for entry in (directory / "a%2F1").iterdir()) == ["halves", "numbers"]


async def test_files_are_removed_a_week_after_their_jobs_record(
    queue: AsyncQueue, results: Path, raw: redis.Redis
) -> None:
    for job_id in ("old", "gone", "kept"):
        await run(queue, job_id)
    for job_id in ("gone", "old"):
        await (await queue.get(job_id)).remove()
    directory = files_of(results, raw, queue)
    killed = directory / ".drafts" / "old"
    (killed / "numbers-1").mkdir(parents=True)
    for old in (directory / "old", directory / "kept", killed):
        os.utime(old, (0, 0))
    await run(queue, "soon")
    assert stored(directory) == ["gone", "kept", "old", "soon"], "at most once an hour"
    os.utime(directory / ".swept", (0, 0))
    await run(queue, "later")
    assert stored(directory) == ["gone", "kept", "later", "soon"]
    assert not killed.exists()


async def test_queues_of_one_name_remove_only_their_own_files(
    queue: AsyncQueue, results: Path, raw: redis.Redis, server_url: str
) -> None:
    """Of another prefix here, as of another server."""
    await run(queue, "1")
    mine = files_of(results, raw, queue)
    async with AsyncQueue(queue.name, url=server_url, prefix=f"{queue.name}-other") as other:
        async with working(other, tasks, server_url):
            await run(other, "2")
            theirs = files_of(results, raw, other)
            for entry in (mine / "1", mine / ".swept", theirs / ".swept"):
                os.utime(entry, (0, 0))
            await run(other, "3")
        await other.obliterate()
    assert mine.parent == theirs.parent
    assert (stored(mine), stored(theirs)) == (["1"], ["2", "3"])


async def test_files_that_are_gone_are_named_and_can_be_written_again(
    queue: AsyncQueue, results: Path, raw: redis.Redis
) -> None:
    job = await queue.add("in_steps", {"count": 5}, JobOptions(job_id="j"))
    with pytest.raises(JobFailedError, match="once"):
        await job.wait(SOON)
    shutil.rmtree(results / ".steps")
    await job.retry()
    with pytest.raises(JobFailedError, match=r"Step 'numbers' of job 'j' stored a DataFrame at .*, which is gone; run"):
        await job.wait(SOON)
    await job.retry(from_step="numbers")
    with pytest.raises(JobFailedError, match="once"):
        await job.wait(SOON)
    assert stored(files_of(results, raw, queue)) == ["j"]


async def test_without_a_place_a_steps_dataframe_is_refused(queue: AsyncQueue) -> None:
    with pytest.raises(JobFailedError, match="Step 'numbers' returned a DataFrame, but no location for results is set"):
        await run(queue, "j")


async def test_a_process_of_its_own_has_no_job(queue: AsyncQueue) -> None:
    with pytest.raises(JobFailedError, match="is the job, which a process of its own can't use"):
        await (await queue.add("in_steps_apart")).wait(SOON)


async def test_called_spark_tasks_return_values_and_references(queue: AsyncQueue, results: Path) -> None:
    job = await queue.add("call_spark", {"count": 5})
    rows, made, best, counted = await job.wait(SOON)
    assert (rows, best["kind"]) == (5, "0")
    assert [(frame["kind"], frame["rows"]) for frame in (made, counted)] == [("dataframe", 5), ("dataframe", 3)]
    assert counted["inputs"] == [made["location"]]
    assert Path(made["location"]).is_relative_to(results)
    assert [step.kind for step in await job.steps()] == [StepKind.COMPLETED] * 4
