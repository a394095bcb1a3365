"""Broadcasts on a real server: every subscription gets every message it wants, once it succeeds, whatever others do."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncBroadcast, AsyncQueue
from orchestration_queue.options import (
    JobOptions,
)
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.lease import (
    ChildrenWait,
    GroupHold,
    Lease,
    Postponement,
    Settlement,
    Suspension,
)
from orchestration_queue.schedules import Every, JobTemplate
from orchestration_queue.server.clock import now_ms
from orchestration_queue.worker import AsyncActiveJob
from orchestration_queue.worker.active_job import JobInterrupt
from tests.broadcasts import THRICE, Seen, fall_silent, settled, subscribed
from tests.waiting import wait_until


@pytest.fixture
async def shop(server_url: str, queue_name: str, raw: redis.Redis) -> AsyncIterator[AsyncBroadcast]:
    async with AsyncBroadcast(queue_name, url=server_url) as shop:
        yield shop


# -- Who gets what


async def test_every_subscription_gets_every_message(shop: AsyncBroadcast, server_url: str) -> None:
    mailer, ledger = Seen(), Seen()
    async with subscribed(shop, "mailer", mailer, server_url), subscribed(shop, "ledger", ledger, server_url):
        for number in range(20):
            await shop.publish("orders.created", number)
        await wait_until(lambda: len(mailer.data) == len(ledger.data) == 20, "both to get all")
        await settled(shop)
    assert sorted(mailer.data) == sorted(ledger.data) == list(range(20))


async def test_the_workers_of_one_subscription_share_its_messages(shop: AsyncBroadcast, server_url: str) -> None:
    one, other = Seen(), Seen()
    async with (
        subscribed(shop, "mailer", one, server_url, concurrency=1),
        subscribed(shop, "mailer", other, server_url, concurrency=1),
    ):
        for number in range(40):
            await shop.publish("orders.created", number)
        await wait_until(lambda: len(one.data) + len(other.data) == 40, "them to get all")
        await settled(shop)
    assert sorted(one.data + other.data) == list(range(40))
    assert one.data
    assert other.data


async def test_a_subscription_gets_the_subjects_it_wants(shop: AsyncBroadcast, server_url: str) -> None:
    handlers = {"all": Seen(), "created": Seen(), "orders": Seen()}
    async with (
        subscribed(shop, "all", handlers["all"], server_url),
        subscribed(shop, "created", handlers["created"], server_url, subjects=["*.created", "reset"]),
        subscribed(shop, "orders", handlers["orders"], server_url, subjects=["orders.>"]),
    ):
        subjects = ["orders.created", "orders.paid.eu", "users.created", "users", "reset", "orders"]
        for subject in subjects:
            await shop.publish(subject)
        await wait_until(lambda: len(handlers["all"].data) == len(subjects), "the messages")
        await settled(shop)
    got = {name: sorted(subject for subject, _ in seen.messages) for name, seen in handlers.items()}
    assert got == {
        "all": sorted(subjects),
        "created": ["orders.created", "reset", "users.created"],
        "orders": ["orders.created", "orders.paid.eu"],
    }


async def test_a_new_subscription_starts_where_it_wants(shop: AsyncBroadcast, server_url: str, raw: Any) -> None:
    for number in range(3):
        await shop.publish("orders.created", number)
    second = raw.xrange(shop.keys.stream)[1][0]
    handlers = {"$": Seen(), "0-0": Seen(), second: Seen()}
    async with (
        subscribed(shop, "new", handlers["$"], server_url),
        subscribed(shop, "all", handlers["0-0"], server_url, start_from="0-0"),
        subscribed(shop, "some", handlers[second], server_url, start_from=second),
    ):
        await shop.publish("orders.created", 3)
        await wait_until(lambda: sum(len(seen.data) for seen in handlers.values()) == 7, "the messages")
        await settled(shop)
    assert [sorted(seen.data) for seen in handlers.values()] == [[3], [0, 1, 2, 3], [2, 3]]


async def test_a_subscription_goes_on_where_it_was(shop: AsyncBroadcast, server_url: str) -> None:
    before, after = Seen(), Seen()
    async with subscribed(shop, "mailer", before, server_url):
        await shop.publish("orders.created", 1)
        await wait_until(lambda: before.data, "the first message")
        await settled(shop)
    await shop.publish("orders.created", 2)
    async with subscribed(shop, "mailer", after, server_url, start_from="0-0"):
        await wait_until(lambda: after.data, "the second message")
        await settled(shop)
    assert (before.data, after.data) == ([1], [2])


async def test_a_subscription_that_was_ended_under_its_worker_begins_anew(
    shop: AsyncBroadcast, server_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Seen()
    # With a long wait at the server, it is there, and at nothing else, that the worker learns of it.
    async with subscribed(shop, "mailer", seen, server_url, block=timedelta(minutes=5)) as worker:
        assert await shop.unsubscribe("mailer")
        await wait_until(lambda: "interrupted" in caplog.text, "the worker to notice")
        await wait_until(lambda: worker.is_listening, "the worker to continue")
        await shop.publish("orders.created", 1)
        await wait_until(lambda: seen.data, "the message")
        await settled(shop)
    assert seen.data == [1]


async def test_a_message_that_is_somebodys_child_tells_its_parent(shop: AsyncBroadcast, server_url: str) -> None:
    """As other clients may add it; ours offers no parents for messages."""
    async with AsyncQueue(f"{shop.name}-parents", url=server_url) as queue:
        parent = await queue.add("parent", options=JobOptions(delay=timedelta(hours=1)))
        async with AsyncQueue(shop.name, url=server_url) as other:
            await other.add("orders.created", 1, parent=parent.ref)
        async with subscribed(shop, "mailer", Seen(), server_url, start_from="0-0"):
            await settled(shop)
        assert (await parent.refresh()).fields["depsCompleted"] == "1"


async def test_a_delayed_message_reaches_every_subscription_in_time(shop: AsyncBroadcast, server_url: str) -> None:
    mailer, ledger = Seen(), Seen()
    async with subscribed(shop, "mailer", mailer, server_url), subscribed(shop, "ledger", ledger, server_url):
        await shop.publish("orders.created", 1, JobOptions(delay=timedelta(milliseconds=100)))
        await wait_until(lambda: mailer.data and ledger.data, "both to get it")
        await settled(shop)
    assert mailer.data == ledger.data == [1]


async def test_its_workers_fire_its_schedules(shop: AsyncBroadcast, server_url: str) -> None:
    seen = Seen()
    async with AsyncQueue(shop.name, url=server_url) as queue:
        every = Every(timedelta(milliseconds=50), limit=1)
        await queue.schedulers.upsert("tick", every, JobTemplate(name="clock.tick"))
    async with subscribed(shop, "clock", seen, server_url, start_from="0-0"):
        await wait_until(lambda: seen.messages, "the schedule to fire")
        await settled(shop)
    assert seen.messages[0][0] == "clock.tick"


# -- Failures


async def test_a_retry_of_one_subscription_does_not_disturb_another(
    shop: AsyncBroadcast, server_url: str, raw: Any
) -> None:
    attempts: list[int] = []

    async def flaky(job: AsyncActiveJob) -> None:
        attempts.append(job.attempt)
        if job.attempt < 3:
            raise ValueError("not yet")

    calm = Seen()
    async with subscribed(shop, "flaky", flaky, server_url), subscribed(shop, "calm", calm, server_url):
        message = await shop.publish("orders.created", 1, THRICE)
        await wait_until(lambda: len(attempts) == 3, "the third attempt")
        await settled(shop)
    assert attempts == [1, 2, 3]
    assert (calm.data, calm.attempts) == ([1], [1])
    assert raw.hget(f"{shop.keys.job(message.id)}:sub:flaky", "a") == "2"
    assert 0 < raw.ttl(f"{shop.keys.job(message.id)}:sub:flaky") <= 86400
    assert not raw.exists(f"{shop.keys.job(message.id)}:sub:calm")


async def test_a_message_out_of_attempts_fails_for_its_subscription_alone(
    shop: AsyncBroadcast, server_url: str
) -> None:
    tries: Counter[str] = Counter()

    async def broken(job: AsyncActiveJob) -> None:
        tries[job.id] += 1
        raise ValueError("never")

    calm = Seen()
    async with (
        shop.events() as events,
        subscribed(shop, "broken", broken, server_url),
        subscribed(shop, "calm", calm, server_url),
    ):
        message = await shop.publish("orders.created", 1, THRICE)
        told: list[str] = []
        async with asyncio.timeout(60):
            while not {"failed", "completed"} <= set(told):
                told += [event.type for event in await events.read(1) if event.job_id == message.id]
        await settled(shop)
    assert tries == {message.id: 3}
    assert calm.data == [1]
    assert told.count("retrying") == 2


async def test_a_subscription_leaves_a_dead_letter_of_what_failed_for_good(
    shop: AsyncBroadcast, server_url: str, raw: Any
) -> None:
    async def broken(job: AsyncActiveJob) -> None:
        raise ValueError("never")

    letters = QueueKeys(f"{shop.name}-dead")
    async with subscribed(shop, "mailer", broken, server_url, dead_letter_queue=letters.queue):
        message = await shop.publish("orders.created", {"n": 1}, THRICE)
        await wait_until(lambda: raw.zscore(shop.keys.failed, message.id), "it to fail")
        await settled(shop)
    async with AsyncQueue(letters.queue, url=server_url) as queue:
        (letter,) = await queue.jobs("waiting")
    assert letter.record.name == "orders.created"
    assert letter.record.data == {
        "originalQueue": shop.name,
        "originalJobId": message.id,
        "data": {"n": 1},
        "failedReason": "ValueError: never",
        "attemptsMade": 2,
    }


async def test_a_message_whose_worker_is_gone_goes_to_another_of_its_subscription(
    shop: AsyncBroadcast, server_url: str, raw: Any
) -> None:
    given_up = asyncio.Event()

    async def stuck(job: AsyncActiveJob) -> None:
        given_up.set()
        await asyncio.Event().wait()

    calm, heir = Seen(), Seen()
    async with subscribed(shop, "calm", calm, server_url):
        async with subscribed(shop, "mailer", stuck, server_url) as worker:
            message = await shop.publish("orders.created", 1)
            await asyncio.wait_for(given_up.wait(), 60)
            worker.kill()
        fall_silent(raw, shop, "mailer")
        async with subscribed(shop, "mailer", heir, server_url, start_from="0-0"):
            await wait_until(lambda: heir.data, "another worker to take it over")
            await settled(shop)
    assert (calm.data, heir.data, heir.attempts) == ([1], [1], [1])
    assert await stalls(shop) == [message.id]


async def stalls(shop: AsyncBroadcast) -> list[str]:
    """The messages that were reported to it as stalled."""
    async with shop.events("0") as events:
        return [event.job_id for event in await events.read() if event.type == "stalled"]


async def test_a_message_that_lost_too_many_workers_fails_for_its_subscription(
    shop: AsyncBroadcast, server_url: str, raw: Any
) -> None:
    starts = 0

    async def stuck(job: AsyncActiveJob) -> None:
        nonlocal starts
        starts += 1
        await asyncio.Event().wait()

    await shop.subscribe("mailer")
    message = await shop.publish("orders.created", 1)
    for wanted in (1, 2):
        async with subscribed(shop, "mailer", stuck, server_url) as worker:
            await wait_until(lambda wanted=wanted: starts == wanted, f"start {wanted}")  # type: ignore[misc]
            worker.kill()
        fall_silent(raw, shop, "mailer")
    async with subscribed(shop, "mailer", stuck, server_url):
        await wait_until(lambda: raw.zscore(shop.keys.failed, message.id), "it to fail")
        await settled(shop)
    assert starts == 2
    assert (await message.refresh()).failed_reason == "job stalled more than maxStalledCount"


async def test_a_long_run_is_left_to_its_worker(shop: AsyncBroadcast, server_url: str, raw: Any) -> None:
    end = asyncio.Event()
    starts = 0

    async def slow(_: AsyncActiveJob) -> None:
        nonlocal starts
        starts += 1
        await end.wait()

    def looks() -> int:
        return int(raw.info("commandstats")["cmdstat_xrange"]["calls"])

    lease = timedelta(seconds=6)  # long enough to be renewed in time by a process that is held up
    async with (
        subscribed(shop, "mailer", slow, server_url, lease=lease) as one,
        subscribed(shop, "mailer", slow, server_url, lease=lease) as other,
    ):
        record = shop.keys.job((await shop.publish("orders.created", 1)).id)
        await wait_until(lambda: starts == 1, "its start")
        began_ms = int(raw.hget(record, "lastActive"))
        await wait_until(lambda: int(raw.hget(record, "lastActive")) > began_ms, "its renewal")
        assert int(raw.hget(record, "lastActive")) - began_ms >= lease / timedelta(milliseconds=1) / 2 - 10
        # As if it had been handed out long ago: only the renewals speak for it now.
        ((entry_id, _),) = raw.xrange(shop.keys.stream)
        (held,) = raw.xpending_range(shop.keys.stream, "mailer", "-", "+", 1)
        raw.xclaim(shop.keys.stream, "mailer", held["consumer"], 0, [entry_id], idle=3_600_000, justid=True)
        before = looks()
        await wait_until(lambda: looks() >= before + 4, "both workers to check it")
        assert one.running + other.running == 1
        end.set()
        await settled(shop)
    assert starts == 1


async def test_a_message_that_was_trimmed_off_while_it_ran_still_ends(
    shop: AsyncBroadcast, server_url: str, raw: Any
) -> None:
    attempts: list[int] = []

    async def handle(job: AsyncActiveJob) -> None:
        attempts.append(job.attempt)
        raw.xtrim(shop.keys.stream, maxlen=0, approximate=False)
        if job.attempt == 1:
            raise ValueError("not yet")

    async with subscribed(shop, "mailer", handle, server_url):
        message = await shop.publish("orders.created", 1, THRICE)
        await wait_until(lambda: raw.zscore(shop.keys.completed, message.id), "it to complete")
    assert attempts == [1, 2]


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_message_is_lost_and_none_comes_back_after_it_succeeded(
    shop: AsyncBroadcast, server_url: str, raw: Any, seed: int
) -> None:
    chance = random.Random(seed)
    successes: Counter[tuple[str, int]] = Counter()

    def handler(subscription: str) -> Callable[[AsyncActiveJob], Awaitable[None]]:
        async def handle(job: AsyncActiveJob) -> None:
            await asyncio.sleep(chance.random() / 100)
            if chance.random() < 0.3:
                raise ValueError("bad luck")
            successes[subscription, job.data] += 1

        return handle

    async def stuck(_: AsyncActiveJob) -> None:
        await asyncio.Event().wait()

    async def publish() -> None:
        for number in range(100):
            await shop.publish("orders.created", number, JobOptions(attempts=50))

    for name in ("mailer", "ledger"):
        await shop.subscribe(name)
    async with (
        subscribed(shop, "mailer", handler("mailer"), server_url),
        subscribed(shop, "ledger", handler("ledger"), server_url),
        subscribed(shop, "ledger", handler("ledger"), server_url),
    ):
        publishing = asyncio.ensure_future(publish())
        async with subscribed(shop, "mailer", stuck, server_url) as victim:
            await wait_until(lambda: victim.running, "it to be busy")
            victim.kill()
        await publishing
        # A running message renews its record, where others check whether its worker has stalled.
        await wait_until(lambda: sum(name == "ledger" for name, _ in successes) == 100, "the others to succeed")
        fall_silent(raw, shop, "mailer", victim.id)
        await wait_until(lambda: len(successes) == 200, "both to succeed with all")
        await settled(shop)
    assert set(successes.values()) == {1}


# -- What a handler may do


@pytest.mark.parametrize(
    ("settle", "reason"),
    [
        (lambda lease: Postponement(lease, now_ms() + 20, '"x"'), "A message can't get other data"),
        (ChildrenWait, "A message can't wait for children"),
        (Suspension, "A message can't be suspended"),
        (lambda lease: GroupHold(lease, 100), "A message can't hold back a group"),
    ],
)
async def test_what_would_touch_other_subscriptions_fails_with_a_reason(
    shop: AsyncBroadcast, server_url: str, raw: Any, settle: Callable[[Lease], Settlement], reason: str
) -> None:
    async def handle(_: AsyncActiveJob) -> None:
        raise JobInterrupt(settle)

    async with subscribed(shop, "mailer", handle, server_url):
        message = await shop.publish("orders.created", 1, THRICE)
        await wait_until(lambda: raw.zscore(shop.keys.failed, message.id), "it to fail")
        await settled(shop)
    assert str((await message.refresh()).failed_reason).startswith(reason)


async def test_a_postponed_message_comes_back_to_its_subscription_alone(shop: AsyncBroadcast, server_url: str) -> None:
    seen: list[int] = []

    async def handle(job: AsyncActiveJob) -> None:
        seen.append(job.attempt)
        if len(seen) < 3:
            raise JobInterrupt(lambda lease: Postponement(lease, now_ms() + 20))

    calm = Seen()
    async with subscribed(shop, "mailer", handle, server_url), subscribed(shop, "calm", calm, server_url):
        await shop.publish("orders.created", 1)
        await wait_until(lambda: len(seen) == 3, "it to come back")
        await settled(shop)
    assert (seen, calm.data) == ([1, 1, 1], [1])


async def test_a_revoked_message_is_not_started(shop: AsyncBroadcast, server_url: str, raw: Any) -> None:
    seen = Seen()
    await shop.subscribe("mailer")
    message = await shop.publish("orders.created", 1)
    raw.hset(shop.keys.job(message.id), "revoked", "1")
    async with subscribed(shop, "mailer", seen, server_url):
        await wait_until(lambda: raw.zscore(shop.keys.failed, message.id), "it to fail")
        await settled(shop)
    assert (seen.data, (await message.refresh()).failed_reason) == ([], "revoked")


async def test_a_paused_broadcast_starts_nothing_and_a_limit_holds(
    shop: AsyncBroadcast, server_url: str, raw: Any
) -> None:
    at_once = most = 0

    async def handle(_: AsyncActiveJob) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.01)
        at_once -= 1

    async with AsyncQueue(shop.name, url=server_url) as queue:
        await queue.pause()
        raw.hset(shop.keys.meta, "globalConcurrency", 2)
        async with subscribed(shop, "mailer", handle, server_url, start_from="0-0") as worker:
            await wait_until(lambda: worker.is_paused, "it to notice")
            for number in range(10):
                await shop.publish("orders.created", number)
            assert (await shop.subscriptions())[0].lag == 10
            await queue.resume()
            await wait_until(lambda: not worker.is_paused, "it to continue")
            await settled(shop)
    assert most == 2
