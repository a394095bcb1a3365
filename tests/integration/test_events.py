"""Listening: nothing is missed, nothing is told twice, and a break can be bridged."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orchestration_queue.client import AsyncShardedQueue, NewJob, QueueEvents, _async, _sync
from orchestration_queue.errors import UsageError
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import event_log
from orchestration_queue.protocol.operations.event_log import Event, gap_after
from tests.by_hand import HandWorker
from tests.faces import Face
from tests.waiting import wait_until


def kinds(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.type, event.job_id) for event in events]


async def test_events_come_in_order_with_their_fields(face: Face, queue_name: str, raw: Any, hand: HandWorker) -> None:
    async with face.queue(queue_name) as queue, queue.events() as events:
        await queue.add("work")
        hand.complete(hand.take(), {"rows": 3})
        added, completed = await events.read(2)
        assert kinds([added, completed]) == [("added", "1"), ("completed", "1")]
        assert (added.fields, completed.result) == ({"name": "work"}, {"rows": 3})
        assert await events.read(0) == []


async def test_nothing_is_missed_between_entering_and_the_first_read(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        await queue.add("before")
        async with queue.events() as events:
            await queue.add("after")
            assert kinds(await events.read(2)) == [("added", "2")]
            await queue.add("between reads")
            assert kinds(await events.read(2)) == [("added", "3")]


async def test_a_listener_resumes_after_the_last_event_it_saw(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        for _ in range(3):
            await queue.add("work")
        async with face.events(queue_name, after="0") as events:
            seen = await events.read(2)
        assert kinds(seen) == [("added", "1"), ("added", "2"), ("added", "3")]
        async with face.events(queue_name, after=seen[1].id) as events:
            assert kinds(await events.read(2)) == [("added", "3")]


async def test_iteration_goes_through_many_pages_once(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        jobs = [await queue.add("work") for _ in range(250)]
        seen = []
        async with queue.events("0") as events:
            async for event in events:
                seen.append(event.job_id)
                if len(seen) == 250:
                    break
    assert seen == [job.id for job in jobs]


async def test_read_hands_out_what_iteration_had_fetched_ahead(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue:
        for _ in range(3):
            await queue.add("work")
        async with queue.events("0") as events:
            async for event in events:
                assert event.job_id == "1"
                break
            assert kinds(await events.read(0)) == [("added", "2"), ("added", "3")]


async def test_a_read_waits_for_the_first_event_and_not_longer(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue, queue.events() as events:
        reading = asyncio.ensure_future(events.read(60))
        await asyncio.sleep(0)
        await queue.pause()
        assert kinds(await asyncio.wait_for(reading, 30)) == [("paused", "0")]


async def test_a_restarted_listener_has_a_connection_of_its_own(face: Face, queue_name: str, raw: Any) -> None:
    def connections() -> set[str]:
        return {client["id"] for client in raw.client_list()}

    before = connections()
    async with face.queue(queue_name) as queue:
        async with queue.events() as events:
            await events.read(0)
            await asyncio.gather(*(queue.counts() for _ in range(3)))
        assert (await queue.counts()).waiting == 0
    await wait_until(lambda: connections() <= before, "the server to see all of them closed")


@pytest.mark.parametrize("after", ["", "soon", "1-", "-1", "1-x", "1-1-1"])
async def test_what_is_no_event_id_is_refused_before_connecting(face: Face, queue_name: str, after: str) -> None:
    with pytest.raises(UsageError, match=r"`after` must be an event"):
        face.events(queue_name, after=after, url="redis://localhost:1")


async def test_listening_writes_only_a_registration_that_expires(face: Face, queue_name: str, raw: Any) -> None:
    async with face.events(queue_name) as events:
        assert await events.read(0.01) == []
    readers = QueueKeys(queue_name).events_readers
    assert raw.keys() == [readers]
    assert 0 < raw.ttl(readers) <= event_log.READER_LEASE_S


async def test_a_burst_is_read_whole_after_a_pause(face: Face, queue_name: str, raw: Any) -> None:
    async with face.queue(queue_name) as queue, queue.events() as events:
        await queue.add_bulk([NewJob("work") for _ in range(3000)])
        told: list[Event] = []
        while page := await events.read(0):
            told += page
    assert kinds(told) == [("added", str(number)) for number in range(1, 3001)]


async def test_a_burst_in_all_shards_is_read_whole(server_url: str, queue_name: str, raw: Any) -> None:
    async with AsyncShardedQueue(queue_name, 2, url=server_url) as queue, queue.events() as events:
        await queue.add_bulk([NewJob("work") for _ in range(6000)])
        told: list[tuple[str, Event]] = []
        while page := await events.read(0):
            told += page
    assert [event.type for _, event in told] == ["added"] * 6000


async def test_what_was_read_is_released_at_the_renewal_after_the_next(
    face: Face, queue_name: str, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a client that stored an earlier position finds what comes after it."""
    for module in (_async.events, _sync.events):
        monkeypatch.setattr(module, "_RENEW_S", 0)
    async with face.queue(queue_name) as queue, queue.events() as events:
        for _ in range(3):
            await queue.add("work")
            await events.read(2)
        ids = [entry_id for entry_id, _ in raw.xrange(queue.keys.events)]
        assert raw.hget(queue.keys.events_readers, "") == ids[0]
        await events.read(0)
        assert raw.hget(queue.keys.events_readers, "") == ids[1]


async def test_a_slow_loop_keeps_the_events_that_it_has_not_got(
    face: Face, queue_name: str, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were read in one page, but a program that is killed asks for them again."""
    for module in (_async.events, _sync.events):
        monkeypatch.setattr(module, "_RENEW_S", 0)
    async with face.queue(queue_name) as queue, queue.events() as events:
        await queue.add_bulk([NewJob("work") for _ in range(50)])
        first = await anext(events)
        await anext(events)
        raw.pexpire(queue.keys.events_readers, 1000)
        await anext(events)
        assert raw.hget(queue.keys.events_readers, "") == first.id
        assert raw.ttl(queue.keys.events_readers) > 1, "the loop renewed its lease"


def test_events_iterate_in_a_plain_for_loop(server_url: str, queue_name: str, raw: Any, hand: HandWorker) -> None:
    raw.xadd(hand.keys.events, {"event": "added", "jobId": "7"})
    with QueueEvents(queue_name, url=server_url, after="0") as events:
        for event in events:
            assert (event.type, event.job_id) == ("added", "7")
            break


def happen(raw: Any, hand: HandWorker, count: int, at_ms: int) -> list[str]:
    """This number of events, of which the queue keeps the last thousand, as the server does: in blocks of a hundred."""
    line = raw.pipeline()
    for number in range(count):
        line.xadd(hand.keys.events, {"event": "added", "jobId": number}, f"{at_ms}-{number + 1}")
    line.xtrim(hand.keys.events, 1000, approximate=True)
    return list(line.execute()[:-1])


async def test_who_comes_too_late_for_some_events_is_told_so_once(
    face: Face, queue_name: str, raw: Any, hand: HandWorker
) -> None:
    seen = happen(raw, hand, 10, 1)
    lost = happen(raw, hand, 1500, 2)
    async with face.events(queue_name, after=seen[-1]) as events:
        gap, first, *rest = await events.read(2)
        assert (gap.is_gap, gap.type, gap.id, gap.job_id) == (True, "gap", seen[-1], "")
        assert gap.fields == {"oldest": first.id}
        assert first.id == raw.xrange(hand.keys.events, count=1)[0][0]
        assert first.id in lost
        while page := await events.read(0):
            rest += page
    assert [first.id, *(event.id for event in rest)] == lost[lost.index(first.id) :]
    assert not any(event.is_gap for event in rest)


async def test_who_asks_for_all_that_is_kept_misses_nothing(
    face: Face, queue_name: str, raw: Any, hand: HandWorker
) -> None:
    happen(raw, hand, 1500, 2)
    async with face.events(queue_name, after="0") as events:
        assert not any(event.is_gap for event in await events.read(2))


async def test_a_listener_of_an_empty_queue_is_told_of_a_gap_too(
    face: Face, queue_name: str, raw: Any, hand: HandWorker
) -> None:
    async with face.events(queue_name) as events:
        happen(raw, hand, 1500, 2)
        assert (await events.read(2))[0].is_gap


@pytest.mark.parametrize("count", [99, 100, 900])
async def test_who_keeps_up_is_told_of_no_gap(
    face: Face, queue_name: str, raw: Any, hand: HandWorker, count: int
) -> None:
    happen(raw, hand, 1500, 1)
    async with face.events(queue_name) as events:
        expected = happen(raw, hand, count, 2)
        told = []
        while page := await events.read(0.05):
            told += page
    assert [event.id for event in told] == expected
    assert not any(event.is_gap for event in told)


@pytest.mark.parametrize(
    ("cursor", "oldest", "is_gap"),
    [
        ("5-0", None, False),
        ("5-0", "5-0", False),
        ("5", "5-0", False),
        ("5-1", "5-0", False),
        ("5-0", "5-1", True),
        ("9-0", "10-0", True),
        ("10-0", "9-5", False),
        ("0-0", "1-1", True),
    ],
)
def test_a_gap_is_where_the_oldest_kept_comes_after_the_last_read(
    cursor: str, oldest: str | None, is_gap: bool
) -> None:
    assert (gap_after(cursor, oldest) is not None) is is_gap
