"""Searching a queue by name, state and data; both faces, against a real server."""

from __future__ import annotations

from typing import Any

import pytest

from orchestration_queue.client import AsyncQueue, NewJob
from orchestration_queue.errors import UsageError
from orchestration_queue.options import JobOptions, Ordering
from tests.by_hand import HandWorker
from tests.faces import Face

ORDERED = JobOptions(ordering=Ordering(key="k"))


async def ids(queue: AsyncQueue, **query: Any) -> list[str]:
    return [job.id for job in await queue.search(**query)]


@pytest.fixture
async def states(face: Face, queue_name: str, raw: Any, hand: HandWorker) -> dict[str, str]:
    """A queue with a job in each state, by state."""
    async with face.queue(queue_name) as queue:

        async def add(state: str, options: JobOptions | None = None) -> str:
            return (await queue.add("work", {"is": state, "n": 1}, options)).id

        found = {state: await add(state) for state in ("completed", "failed", "active")}
        for end in (hand.complete, lambda held: hand.fail(held, "no")):
            end(hand.take())
        hand.take()
        found["waiting"] = await add("waiting")
        found["lifo"] = await add("lifo", JobOptions(lifo=True))
        found["delayed"] = await add("delayed", JobOptions(delay=60))
        found["prioritized"] = await add("prioritized", JobOptions(priority=2))
        for state, key in (("group-waiting", "groupq:k"), ("suspended", "suspended"), ("waiting-children", "")):
            found[state] = await add(state, ORDERED if state == "group-waiting" else JobOptions(delay=60))
            raw.hset(queue.keys.job(found[state]), "state", state)
            if key:
                raw.zadd(queue.keys.named(key), {found[state]: 1})
            raw.zrem(queue.keys.scheduled, found[state])
        entry = next(at for at, fields in raw.xrange(queue.keys.stream) if fields["jobId"] == found["group-waiting"])
        raw.xdel(queue.keys.stream, entry)
        # Locks lie among the jobs' keys, and are none.
        raw.set(queue.keys.job("1:usage-lock"), "x", px=60_000)
    return found


async def test_each_state_is_found_by_its_name(face: Face, queue_name: str, raw: Any, states: dict[str, str]) -> None:
    async with face.queue(queue_name) as queue:
        for state in set(states) - {"waiting", "lifo", "delayed"}:
            assert await ids(queue, state=state) == [states[state]], state
        assert await ids(queue, state="waiting") == [states["lifo"], states["waiting"]]
        assert set(await ids(queue, state="delayed")) == {states["delayed"], states["prioritized"]}


async def test_without_a_state_all_lists_are_looked_through(
    face: Face, queue_name: str, raw: Any, states: dict[str, str]
) -> None:
    async with face.queue(queue_name) as queue:
        everywhere = await ids(queue, name="work", data={"n": 1})
        assert sorted(everywhere) == sorted(set(states.values()) - {states["waiting-children"]})
        for state, job_id in states.items():
            where = {"state": state} if state == "waiting-children" else {}
            assert await ids(queue, data={"is": state}, **where) == [job_id]
        assert await ids(queue, name="other") == []
        assert await ids(queue, data={"is": "waiting", "n": 2}) == []
        assert await ids(queue, data={"nothing": None}) == []


async def test_the_limit_counts_what_was_found_and_not_what_was_looked_at(
    face: Face, queue_name: str, raw: Any
) -> None:
    async with face.queue(queue_name) as queue:
        jobs = [NewJob("rare" if n % 700 == 699 else "common", {"n": n}) for n in range(2800)]
        jobs += [NewJob("rare", {"n": n}, JobOptions(lifo=True)) for n in range(2800, 2802)]
        jobs += [NewJob("rare", {"n": n}, JobOptions(delay=60)) for n in range(2802, 2804)]
        await queue.add_bulk(jobs)

        async def numbers(**query: Any) -> list[int]:
            return [job.record.data["n"] for job in await queue.search(**query)]

        assert await numbers(name="rare", limit=3) == [2801, 2800, 699]
        assert await numbers(name="rare") == [2801, 2800, 699, 1399, 2099, 2799, 2802, 2803]
        assert await numbers(name="rare", state="delayed", limit=1) == [2802]
        assert await numbers(data={"n": 2799}) == [2799]
        assert await numbers(limit=0) == []
        assert await numbers(state="waiting", limit=1500) == [2801, 2800, *range(1498)]
        assert len(await queue.search()) == 100


async def test_a_search_of_many_finished_jobs_goes_on_page_by_page(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        pipeline = raw.pipeline(transaction=False)
        for n in range(2500):
            pipeline.hset(queue.keys.job(f"j{n}"), mapping={"name": f"n{n}", "data": str(n), "state": "failed"})
            pipeline.zadd(queue.keys.failed, {f"j{n}": n})
        pipeline.execute()
        raw.delete(queue.keys.job("j5"))
        assert await ids(queue, name="n2400", state="failed") == ["j2400"]
        assert await ids(queue, state="failed", limit=7) == ["j0", "j1", "j2", "j3", "j4", "j6", "j7"]
        assert await ids(queue, name="n5") == []


async def test_parked_jobs_of_many_groups_are_found(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        groups = {f"key:{n}{{}}*": n for n in range(1500)}
        raw.hset(queue.keys.named("ordering"), mapping=groups)
        for group, n in list(groups.items())[::500]:
            raw.hset(queue.keys.job(f"g{n}"), mapping={"name": "work", "data": "{}", "state": "group-waiting"})
            raw.zadd(queue.keys.named(f"groupq:{group}"), {f"g{n}": n})
        assert sorted(await ids(queue, state="group-waiting")) == ["g0", "g1000", "g500"]
        assert sorted(await ids(queue)) == ["g0", "g1000", "g500"]


async def test_data_of_other_serializers_match_nothing(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue, face.queue(queue_name, codec="gzip") as packing:
        foreign, plain = await queue.add("work"), await queue.add("work", [1])
        packed = await packing.add("work", {"user": 7})
        raw.hset(queue.keys.job(foreign.id), "data", "<user>7</user>")
        assert await ids(queue, data={"user": 7}) == [packed.id]
        assert await ids(queue, data={}) == [packed.id]
        assert await ids(queue, name="work") == [foreign.id, plain.id, packed.id]


async def test_more_active_jobs_than_one_page_are_all_found(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        await queue.add_bulk([NewJob("work") for _ in range(2500)])
        raw.xgroup_create(queue.keys.stream, "workers", "0")
        raw.xreadgroup("workers", "one", {queue.keys.stream: ">"}, count=2200)
        await queue.add("work", options=JobOptions(lifo=True))
        assert [job.id for job in await queue.jobs("active")] == [str(n) for n in range(1, 2201)]
        assert [job.id for job in await queue.jobs("active", offset=1500, limit=3)] == ["1501", "1502", "1503"]
        assert [job.id for job in await queue.jobs("waiting", limit=2)] == ["2501", "2201"]
        assert (await ids(queue, state="active", limit=2150))[-1] == "2150"


async def test_no_part_of_a_search_is_long(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        await queue.add_bulk([NewJob("common") for _ in range(2500)])
        raw.config_resetstat()
        assert await queue.search(name="rare") == []
        asked = {name.removeprefix("cmdstat_"): stats["calls"] for name, stats in raw.info("commandstats").items()}
    assert asked["xrange"] == 3  # each of at most 1,000 entries
    assert "scan" not in asked
    assert asked.get("fcall") == 1  # which names active jobs of lists; the wire's own search would read all at once


async def test_bad_searches_are_refused_and_an_unused_queue_is_empty(face: Face, queue_name: str, raw: Any) -> None:
    wrong: Any = 7
    async with face.queue(queue_name) as queue:
        assert await queue.search() == []
        assert await queue.search(state="waiting-children") == []
        for query, says in (
            ({"name": wrong}, "`name` must be text"),
            ({"state": "lost"}, "got 'lost'"),
            ({"data": wrong}, "must be a dict of fields"),
            ({"data": ["n"]}, "must be a dict of fields"),
            ({"limit": -1}, "`limit` must be a whole number"),
            ({"limit": True}, "`limit` must be a whole number"),
        ):
            with pytest.raises(UsageError, match=says):
                await queue.search(**query)
    assert raw.dbsize() == 0
