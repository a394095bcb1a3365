"""Tags: on jobs, nodes and schedules, changed later, read in pages, acted on together, and gone with their jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import redis

from orchestration_queue.client import AsyncFlowProducer, AsyncQueue, TagCount
from orchestration_queue.errors import InvalidOptionError, JobNotFoundError, StateError
from orchestration_queue.flows import Carrier, Dag, Node
from orchestration_queue.options import Deduplication, JobOptions, Retention
from orchestration_queue.protocol.operations import additions, exchanges
from orchestration_queue.protocol.operations.additions import EncodedData, NewJob
from orchestration_queue.schedules import Every, JobTemplate
from orchestration_queue.server.clock import now_ms
from orchestration_queue.states import JobState
from tests.integration.test_cli import Oq
from tests.waiting import wait_until
from tests.workers import working

ACME = "tenant:acme"


@pytest.fixture
async def queue(server_url: str, queue_name: str) -> AsyncIterator[AsyncQueue]:
    """A queue of the test's own."""
    async with AsyncQueue(queue_name, url=server_url) as made:
        yield made


async def tagged(queue: AsyncQueue, tag: str = ACME) -> list[str]:
    """Ids of the jobs of a tag."""
    return [job.id for job in await queue.tags.jobs(tag, limit=None)]


async def test_jobs_are_found_by_their_tags(queue: AsyncQueue) -> None:
    one = await queue.add("load", 1, JobOptions(tags=[ACME, "backfill"]))
    two = await queue.add("load", 2, {"tags": (ACME, ACME), "delay": 3600})
    more = await queue.add_bulk([NewJob("load", n, JobOptions(tags=["bulk"])) for n in range(3)])
    dedup = await queue.add("load", 3, JobOptions(tags=["once"], deduplication=Deduplication(id="d")))
    await queue.add("load", 4)
    assert (one.tags, two.tags) == ((ACME, "backfill"), (ACME,))
    assert (await queue.get(one.id)).tags == (ACME, "backfill")
    assert await tagged(queue) == [one.id, two.id]
    assert await tagged(queue, "once") == [dedup.id]
    assert await tagged(queue, "nothing") == []
    assert [job.id for job in await queue.tags.jobs("bulk", limit=1, offset=1)] == [more[1].id]
    assert await queue.tags.jobs("bulk", limit=0) == []
    counts = await queue.tags.list()
    assert counts[0] == TagCount("bulk", 3)
    assert {count.tag: count.jobs for count in counts} == {"bulk": 3, ACME: 2, "backfill": 1, "once": 1}
    assert await queue.tags.list(limit=1, offset=1) == [TagCount(ACME, 2)]


async def test_nodes_and_schedules_have_tags(queue: AsyncQueue, server_url: str) -> None:
    dag = Dag("g", [Node("a", options=JobOptions(tags=["day:1"])), Node("b", deps=["a"])], queue=queue.name)
    carriers: tuple[Carrier, ...] = ("transaction", "packed")
    for carrier in carriers:
        async with AsyncFlowProducer(url=server_url, carrier=carrier) as producer:
            flow = await producer.submit(dag, flow_id=carrier)
            assert f"{flow.id}.a" in await tagged(queue, "day:1")
    assert len(await tagged(queue, "day:1")) == 2
    template = JobTemplate(name="tick", options=JobOptions(tags=["schedule:s"]))
    await queue.schedulers.upsert("s", Every(3600), template)
    job = await queue.schedulers.run_now("s")
    assert job is not None
    assert len(await tagged(queue, "schedule:s")) >= 1


async def test_tags_are_added_and_taken_off_later(queue: AsyncQueue) -> None:
    job = await queue.add("load", 1)
    await job.tag(ACME, "backfill")
    await job.tag(ACME)
    assert [job.tags, (await queue.get(job.id)).tags] == [(ACME, "backfill")] * 2
    assert await tagged(queue) == [job.id]
    await job.untag(ACME, "never there")
    assert [job.tags, (await queue.get(job.id)).tags] == [("backfill",)] * 2
    assert await tagged(queue) == []
    assert await queue.tags.list() == [TagCount("backfill", 1)]
    await job.tag(*(f"t{n}" for n in range(19)))
    with pytest.raises(StateError, match="more than 20 tags"):
        await job.tag("one more")
    assert len((await queue.get(job.id)).tags) == 20
    await job.remove()
    with pytest.raises(JobNotFoundError):
        await job.tag(ACME)
    with pytest.raises(InvalidOptionError, match="at most 20 tags"):
        JobOptions(tags=[str(n) for n in range(21)])


async def test_jobs_of_a_tag_are_cancelled_retried_and_removed(queue: AsyncQueue) -> None:
    jobs = await queue.add_bulk([NewJob("load", n, JobOptions(tags=[ACME], delay=3600)) for n in range(450)])
    other = await queue.add("load", 1, JobOptions(delay=3600))
    assert await queue.tags.cancel(ACME) == 450
    assert await queue.tags.cancel(ACME) == 0
    assert (await queue.counts()).failed == 450
    assert await queue.tags.retry(ACME) == 450
    assert await queue.tags.retry(ACME) == 0
    assert await queue.tags.remove(ACME) == 450
    assert await queue.tags.remove(ACME) == 0
    assert await queue.find(jobs[0].id) is None
    assert await other.read_state() is JobState.DELAYED
    assert await queue.tags.list() == []


async def test_jobs_that_are_gone_leave_no_trace(queue: AsyncQueue, raw: redis.Redis, server_url: str) -> None:
    kept = await queue.add("load", 1, JobOptions(tags=[ACME], delay=3600))
    for number in range(3):
        options = JobOptions(tags=[ACME, f"only:{number}"], remove_on_complete=Retention(count=0))
        await queue.add("load", number, options)
    async with working(queue, lambda job: job.data, server_url):
        await wait_until(lambda: raw.xlen(queue.keys.stream) == 0, "the jobs to end")
    assert await tagged(queue) == [kept.id], "reading drops what is gone"
    again = await queue.add("load", 1, JobOptions(job_id="same", tags=["old"]))
    await again.remove()
    await queue.add("load", 1, JobOptions(job_id="same", tags=["new"]))
    assert await tagged(queue, "old") == []
    sweep = exchanges.reclaim(queue.keys, "sweeper", 1000, 1, 1000, now_ms())
    for _ in range(300):
        await queue._connection.run(sweep)
    assert {count.tag for count in await queue.tags.list()} == {ACME, "new"}, "so does each reclaim"
    assert not raw.exists(queue.keys.named("tag:only:1"))


async def test_ids_of_removed_jobs_are_bounded(queue: AsyncQueue, raw: redis.Redis) -> None:
    for number in range(600):
        job = await queue.add("load", number, JobOptions(tags=[ACME]))
        raw.unlink(queue.keys.job(job.id))
    assert raw.zcard(queue.keys.named(f"tag:{ACME}")) < 50


@pytest.mark.parametrize("stored", ["{", "5", '{"a":1}', "[5, null]", '[""]', "NaN"])
async def test_damaged_tags_are_none(queue: AsyncQueue, raw: redis.Redis, stored: str) -> None:
    job = await queue.add("load", 1)
    raw.hset(queue.keys.job(job.id), "tags", stored)
    assert (await queue.get(job.id)).tags == ()
    await job.tag(ACME)
    assert await tagged(queue) == [job.id]


async def test_a_job_of_node_with_odd_options_is_added(queue: AsyncQueue, raw: redis.Redis) -> None:
    for number, tags in enumerate(['"x"', "[5]", '{"a":1}', '["ok",7]']):
        job = NewJob("load", EncodedData("1"), {"job_id": f"n{number}"}, options_text=f'{{"tags":{tags}}}')
        await queue._connection.run(additions.add(queue.keys, job, now_ms()))
    assert await tagged(queue, "ok") == ["n3"]


async def test_the_command(queue: AsyncQueue, server_url: str) -> None:
    oq = Oq(server_url)
    name = queue.name
    added = oq.json("job", "add", name, "load", "--tag", ACME, "--tag", "backfill", "--delay", "3600")
    assert oq.json("tag", "ls", name) == [{"tag": ACME, "jobs": 1}, {"tag": "backfill", "jobs": 1}]
    assert "backfill" in oq("tag", "ls", name).stdout
    assert [row["id"] for row in oq.json("tag", "show", name, ACME)] == [added["id"]]
    assert ACME in oq("tag", "show", name, "backfill").stdout
    assert ACME in oq("job", "show", name, added["id"]).stdout
    assert oq.json("tag", "add", name, added["id"], "urgent")["tags"] == [ACME, "backfill", "urgent"]
    assert oq.json("tag", "drop", name, added["id"], "backfill", "urgent")["tags"] == [ACME]
    assert oq.json("job", "show", name, added["id"])["tags"] == [ACME]
    assert oq.json("tag", "cancel", name, ACME, "--yes")["cancelled"] == 1
    assert oq.json("tag", "retry", name, ACME)["retried"] == 1
    assert oq("tag", "rm", name, ACME, answer="n\n").exit_code == 1
    assert oq.json("tag", "rm", name, ACME, "--yes")["removed"] == 1
