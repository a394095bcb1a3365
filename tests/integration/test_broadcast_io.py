"""A subscription's worker where it speaks to the server: late, twice, at once, and with replies that were lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncBroadcast
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.lease import (
    Completion,
    Failure,
    Lease,
)
from orchestration_queue.protocol.operations.broadcasts import SubjectFilter
from orchestration_queue.protocol.operations.exchanges import Renewal, Why
from orchestration_queue.protocol.operations.membership import Member
from orchestration_queue.protocol.outcome import Verdict
from orchestration_queue.server import AsyncConnection
from orchestration_queue.server.clock import now_ms
from orchestration_queue.states import JobState
from orchestration_queue.worker.broadcast import BroadcastIO
from orchestration_queue.worker.machine import Exchange
from tests.broadcasts import QUICK, THRICE, Seen, fall_silent, settled, subscribed
from tests.waiting import wait_until


@pytest.fixture
async def shop(server_url: str, queue_name: str, raw: redis.Redis) -> AsyncIterator[AsyncBroadcast]:
    async with AsyncBroadcast(queue_name, url=server_url) as shop:
        yield shop


async def test_a_worker_that_wakes_too_late_changes_nothing(shop: AsyncBroadcast, server_url: str, raw: Any) -> None:
    """Its message continues under another entry, so what it reports about the old one is ignored."""
    late = Member(QueueKeys(shop.name), "mailer", "late")
    await shop.subscribe("mailer")
    message = await shop.publish("orders.created", 1, THRICE)
    async with await AsyncConnection.open(server_url) as connection:
        (taken,) = await connection.run(late.read(1))
        lease = late.read_start(taken, *await connection.pipeline(late.start(taken, now_ms())))
        assert isinstance(lease, Lease)
        fall_silent(raw, shop, "mailer")
        heir = Seen()
        async with subscribed(shop, "mailer", heir, server_url):
            await wait_until(lambda: heir.data, "another worker to take it over")
            await settled(shop)
        assert not await connection.run(late.holds(lease.entry_id))
        assert late.read_look(*await connection.pipeline(late.look(lease))) is Renewal.LOST
        io = BroadcastIO(late, SubjectFilter(), "$", connection, connection, QUICK)
        trip = await io.exchange(Exchange(settle=(Failure(lease, "too late", max_attempts=3),)))
    assert trip.verdicts == (Verdict.LOST,)
    assert (await message.refresh()).state is JobState.COMPLETED


async def test_what_a_trip_could_not_tell_is_told_once_by_the_next(shop: AsyncBroadcast, server_url: str) -> None:
    """The same outcome again, because the reply was lost: the second time nothing happens."""
    member = Member(QueueKeys(shop.name), "mailer", "w")
    await shop.subscribe("mailer")
    await shop.publish("orders.created", 1)
    async with shop.events() as events, await AsyncConnection.open(server_url) as connection:
        io = BroadcastIO(member, SubjectFilter(), "$", connection, connection, QUICK)
        (lease,) = (await io.exchange(Exchange(want=1))).started
        step = Exchange(settle=(Completion(lease, "1"),))
        assert [(await io.exchange(step)).verdicts for _ in range(2)] == [(Verdict.COMPLETED,), (Verdict.LOST,)]
        assert [event.type for event in await events.read() if event.type == "completed"] == ["completed"]


async def test_a_delivery_whose_reply_was_lost_is_found_again(shop: AsyncBroadcast, server_url: str) -> None:
    member = Member(QueueKeys(shop.name), "mailer", "w")
    await shop.subscribe("mailer")
    for subject in ("orders.created", "users.created"):
        await shop.publish(subject)
    async with await AsyncConnection.open(server_url) as connection:
        lost = await connection.run(member.read(5))
        io = BroadcastIO(member, SubjectFilter(["orders.*"]), "$", connection, connection, QUICK)
        found = (await io.recover(set())).deliveries
        assert [delivery.entry_id for delivery in found] == [lost[0].entry_id]
        assert (await io.recover({found[0].job_id})).deliveries == []
        await io.exchange(Exchange(start=tuple(found)))
        assert [one.pending for one in await shop.subscriptions()] == [1]


async def test_what_was_trimmed_off_while_the_connection_was_lost_is_left_to_who_has_it(
    shop: AsyncBroadcast, server_url: str, raw: Any
) -> None:
    """Its entry no longer says what it was; a handler here may still be working on it."""
    member = Member(QueueKeys(shop.name), "mailer", "w")
    await shop.subscribe("mailer")
    await shop.publish("orders.created")
    async with await AsyncConnection.open(server_url) as connection:
        assert len(await connection.run(member.read(1))) == 1
        raw.xtrim(shop.keys.stream, maxlen=0, approximate=False)
        io = BroadcastIO(member, SubjectFilter(), "$", connection, connection, QUICK)
        assert (await io.recover(set())).deliveries == []
        await io.exchange(Exchange())
    assert [one.pending for one in await shop.subscriptions()] == [1]


async def test_two_sweeps_at_once_hand_each_message_on_once(shop: AsyncBroadcast, server_url: str, raw: Any) -> None:
    """More messages than one sweep reads."""
    member = Member(QueueKeys(shop.name), "mailer", "dead")
    await shop.subscribe("mailer")
    for number in range(120):
        await shop.publish("orders.created", number)
    async with await AsyncConnection.open(server_url) as connection:
        assert len(await connection.run(member.read(200))) == 120
        lines = [
            BroadcastIO(replace(member, consumer=name), SubjectFilter(), "$", connection, connection, QUICK)
            for name in ("w-1", "w-2")
        ]
        assert not await lines[0].reclaim()
        fall_silent(raw, shop, "mailer")
        assert any(await asyncio.gather(*(io.reclaim() for io in lines)))
    handed_on = Counter(entry["jobId"] for _, entry in raw.xrange(shop.keys.stream) if "retryGroup" in entry)
    assert handed_on == Counter(str(number) for number in range(1, 121))


async def test_nothing_is_taken_from_a_paused_broadcast(shop: AsyncBroadcast, server_url: str, raw: Any) -> None:
    member = Member(QueueKeys(shop.name), "mailer", "w")
    await shop.subscribe("mailer")
    await shop.publish("orders.created")
    async with await AsyncConnection.open(server_url) as connection:
        io = BroadcastIO(member, SubjectFilter(), "$", connection, connection, QUICK)
        raw.hset(shop.keys.meta, "paused", "1")
        trips = [await io.exchange(Exchange(want=5))]
        raw.hset(shop.keys.meta, "paused", "0")
        trips += [await io.exchange(Exchange(want=want)) for want in (1, 5)]
    assert [(len(trip.started), trip.why) for trip in trips] == [(0, Why.PAUSED), (1, Why.ENOUGH), (0, Why.EMPTY)]


async def test_a_draining_worker_returns_what_it_has_not_started_to_its_subscription(
    shop: AsyncBroadcast, server_url: str, raw: Any
) -> None:
    member = Member(QueueKeys(shop.name), "mailer", "w")
    for name in ("mailer", "other"):
        await shop.subscribe(name)
    await shop.publish("orders.created", 1)
    async with await AsyncConnection.open(server_url) as connection:
        io = BroadcastIO(member, SubjectFilter(), "$", connection, connection, QUICK)
        back = Exchange(hand_back=tuple((await io.recover(set())).deliveries or await connection.run(member.read(1))))
        await io.exchange(back)
        await io.exchange(back)
    assert [entry.get("retryGroup") for _, entry in raw.xrange(shop.keys.stream)] == [None, "mailer"]
    heir, other = Seen(), Seen()
    async with subscribed(shop, "mailer", heir, server_url), subscribed(shop, "other", other, server_url):
        await wait_until(lambda: heir.data and other.data, "both to get it")
        await settled(shop)
    assert (heir.data, other.data) == ([1], [1])
