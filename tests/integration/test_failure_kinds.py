"""Failed jobs by kind of failure: what a handler raised, as it named it, and what the server failed."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import redis

from orchestration_queue import Failed
from orchestration_queue.client import AsyncQueue
from orchestration_queue.errors import UsageError
from orchestration_queue.options import Backoff, JobOptions
from orchestration_queue.protocol.operations.job_search import FailureGroup
from orchestration_queue.states import FailureKind
from orchestration_queue.worker import sandboxed
from tests.integration.test_cli import Oq
from tests.waiting import wait_until
from tests.workers import working

AT_ONCE = Backoff(type="fixed", delay=0)


class QuotaError(Exception):
    """Of the test."""


def fail(job: Any) -> None:
    """Fail in the way that the job asks for."""
    if job.name == "upload":
        raise Failed("bucket is read-only", kind="upload error")
    raise QuotaError("spent")


async def run_all(queue: AsyncQueue, server_url: str, handler: Any, failed: int) -> None:
    """Let a worker run until this number of jobs has failed."""
    async with working(queue, handler, server_url, dead_letter_queue=f"{queue.name}-dead"):
        with redis.Redis.from_url(server_url) as raw:
            await wait_until(lambda: raw.zcard(queue.keys.failed) == failed, "the jobs to fail")


@pytest.fixture
async def queue(server_url: str, queue_name: str) -> Any:
    """A queue of the test's own."""
    async with AsyncQueue(queue_name, url=server_url) as made:
        yield made


async def test_kinds_are_counted_and_each_is_searched_retried_and_cleaned(queue: AsyncQueue, server_url: str) -> None:
    uploads = [await queue.add("upload", n, JobOptions(attempts=2, backoff=AT_ONCE)) for n in range(3)]
    (other,) = [await queue.add("spend", 1)]
    await run_all(queue, server_url, fail, 4)
    first, second = await queue.failures()
    assert (first.kind, first.count, first.name, first.reason) == ("upload error", 3, "upload", "bucket is read-only")
    assert first.job_id in {job.id for job in uploads}
    assert first.last_at is not None
    spent = f"{__name__}.QuotaError"
    assert second == FailureGroup(spent, 1, second.last_at, other.id, "spend", "QuotaError: spent")
    await other.refresh()
    assert (other.failure_kind, other.history[0].kind, other.history[0].error) == (spent, spent, spent)

    assert [job.id for job in await queue.search(kind=spent)] == [other.id]
    assert len(await queue.search(kind="upload error", state="failed", limit=2)) == 2
    assert await queue.search(kind="upload error", name="spend") == []

    assert await queue.retry_jobs(limit=1, kind="upload error") == 1
    assert await queue.retry_jobs(limit=0, kind="upload error") == 0
    assert await queue.clean(3600, state="failed", kind="upload error") == []
    assert len(await queue.clean(0, limit=1, state="failed", kind="upload error")) == 1
    assert [(group.kind, group.count) for group in await queue.failures()] == [(spent, 1), ("upload error", 1)]
    assert await queue.retry_jobs(kind="nothing like it") == 0
    assert await queue.retry_jobs(kind="upload error") == 1
    assert [group.kind for group in await queue.failures()] == [spent]


async def test_failures_of_nodes_workers_and_of_the_server_are_grouped(queue: AsyncQueue, raw: redis.Redis) -> None:
    job = await queue.add("work", 1, JobOptions(delay=3600))
    await job.cancel()
    await queue.add("work", 2, JobOptions(job_id="node", delay=3600))
    raw.zadd(queue.keys.failed, {"node": 5, "gone": 6})
    raw.hset(queue.keys.job("node"), items=["state", "failed", "failedReason", "boom"])
    assert [(group.kind, group.job_id) for group in await queue.failures()] == [
        (FailureKind.CANCELLED, job.id),
        (FailureKind.ERROR, "node"),
    ]


async def test_many_failed_jobs_are_read_in_pages(queue: AsyncQueue, raw: redis.Redis) -> None:
    pipeline = raw.pipeline(transaction=False)
    for number in range(2500):
        pipeline.zadd(queue.keys.failed, {str(number): number})
        fields = ["state", "failed", "failedReason", "x", "failureKind", ("odd", "even")[number % 2], "finishedOn", "1"]
        pipeline.hset(queue.keys.job(str(number)), items=fields)
    pipeline.execute()
    assert [(group.kind, group.count, group.job_id) for group in await queue.failures()] == [
        ("even", 1250, "2499"),
        ("odd", 1250, "2498"),
    ]
    assert len(await queue.clean(0, limit=None, state="failed", kind="odd")) == 1250
    assert (await queue.counts()).failed == 1250


async def test_a_sandboxed_handler_names_its_kind(queue: AsyncQueue, server_url: str) -> None:
    job = await queue.add("upload", 1)
    await run_all(queue, server_url, sandboxed(fail), 1)
    await job.refresh()
    assert (job.failure_kind, job.failed_reason) == ("upload error", "bucket is read-only")
    assert "in fail" in str(job.traceback)


async def test_the_command_shows_kinds(queue: AsyncQueue, server_url: str) -> None:
    for _ in range(2):
        await queue.add("upload", 1)
    await queue.add("spend", 1)
    await run_all(queue, server_url, fail, 3)
    oq = Oq(server_url)
    groups = oq.json("queue", "failures", queue.name)
    assert [(group["kind"], group["count"]) for group in groups] == [
        ("upload error", 2),
        (f"{__name__}.QuotaError", 1),
    ]
    assert "upload error" in oq("queue", "failures", queue.name).stdout
    assert len(oq.json("job", "ls", queue.name, "--kind", "upload error")) == 2
    letters = oq.json("dead", "ls", queue.name, "--by", "kind")
    assert [(row["kind"], row["letters"]) for row in letters] == [
        ("upload error", 2),
        (f"{__name__}.QuotaError", 1),
    ]
    assert "upload error" in oq("dead", "ls", queue.name, "--by", "kind").stdout
    alike = await queue.dead_letters.groups()
    assert [(group.kind, group.name, len(group.ids)) for group in alike] == [
        ("upload error", "upload", 2),
        (f"{__name__}.QuotaError", "spend", 1),
    ]
    assert [group.ids for group in await queue.dead_letters.groups("kind", limit=1)] == [alike[0].ids[-1:]]
    assert {letter["failure_kind"] for letter in oq.json("dead", "ls", queue.name)} == {row["kind"] for row in letters}
    removed = oq.json("queue", "clean", queue.name, "--state", "failed", "--kind", "upload error", "--yes")
    assert len(removed["removed"]) == 2
    assert oq.json("queue", "retry", queue.name, "--kind", f"{__name__}.QuotaError")["retried"] == 1
    assert oq.json("queue", "failures", queue.name) == []


@pytest.mark.parametrize("kind", ["", 5, None, "two\nlines", "x" * 101])
def test_a_kind_is_short_text(kind: Any) -> None:
    with pytest.raises(UsageError, match="`kind` must be 1 to 100 printable characters"):
        raise Failed("no", kind=kind)


def test_the_error_says_what_it_was_given() -> None:
    assert str(Failed(kind="upload error")) == "upload error"
    copied = pickle.loads(pickle.dumps(Failed("no", kind="upload error")))  # noqa: S301  our own bytes
    assert (str(copied), copied.kind) == ("no", "upload error")
