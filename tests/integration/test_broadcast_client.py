"""A broadcast from the publishers' side, in both faces: what is published, kept, refused, and who is subscribed."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from orchestration_queue.client import AsyncBroadcast
from orchestration_queue.errors import InvalidNameError, InvalidOptionError, PayloadError, UsageError
from orchestration_queue.options import (
    Deduplication,
    JobOptions,
    Ordering,
    Retention,
)
from orchestration_queue.worker import BroadcastWorker
from tests.faces import Face


@pytest.fixture(params=["async", "sync"])
def face(request: pytest.FixtureRequest, server_url: str, raw: redis.Redis) -> Face:
    return Face(request.param, server_url)


async def test_the_newest_messages_are_kept_exactly(face: Face, queue_name: str, raw: Any) -> None:
    async with face.broadcast(queue_name, max_messages=3) as shop:
        for number in range(7):
            await shop.publish("orders.created", number)
            assert raw.xlen(shop.keys.stream) == min(number + 1, 3)
        assert [entry["jobId"] for _, entry in raw.xrange(shop.keys.stream)] == ["5", "6", "7"]


async def test_a_message_published_twice_is_one(face: Face, queue_name: str, raw: Any) -> None:
    async with face.broadcast(queue_name) as shop:
        for options in (JobOptions(job_id="a"), JobOptions(deduplication=Deduplication(id="b"))):
            first, second = [await shop.publish("orders.created", number, options) for number in range(2)]
            assert (first.is_new, second.is_new, first.id == second.id) == (True, False, True)
            assert second.record.data == 0
        assert raw.xlen(shop.keys.stream) == 2


async def test_subscriptions_are_made_listed_and_ended(face: Face, queue_name: str) -> None:
    async with face.broadcast(queue_name) as shop:
        assert await shop.subscriptions() == []
        assert not await shop.unsubscribe("mailer")
        assert await shop.subscribe("mailer")
        assert not await shop.subscribe("mailer", "0-0")
        await shop.publish("orders.created")
        assert await shop.subscribe("late")
        assert await shop.subscribe("all", "0-0")
        found = {one.name: (one.lag, one.pending, one.workers) for one in await shop.subscriptions()}
        assert found == {"mailer": (1, 0, 0), "late": (0, 0, 0), "all": (1, 0, 0)}
        assert await shop.unsubscribe("late")
        assert not await shop.unsubscribe("late")
        assert [one.name for one in await shop.subscriptions()] == ["all", "mailer"]


@pytest.mark.parametrize(
    ("subject", "data", "options", "error"),
    [
        ("orders.*", None, None, InvalidNameError),
        ("orders..eu", None, None, InvalidNameError),
        ("", None, None, InvalidNameError),
        ("orders", object(), None, PayloadError),
        ("orders", None, JobOptions(priority=1), InvalidOptionError),
        ("orders", None, JobOptions(lifo=True), InvalidOptionError),
        ("orders", None, JobOptions(ordering=Ordering(key="k")), InvalidOptionError),
        ("orders", None, JobOptions(cost=2), InvalidOptionError),
        ("orders", None, JobOptions(remove_on_complete=Retention(count=0)), InvalidOptionError),
        ("orders", None, JobOptions(remove_on_fail=Retention(count=1)), InvalidOptionError),
        ("orders", None, JobOptions(job_id="a||b"), InvalidOptionError),
    ],
)
async def test_what_cannot_reach_every_subscription_is_refused(
    face: Face, queue_name: str, raw: Any, subject: str, data: Any, options: JobOptions | None, error: type[Exception]
) -> None:
    async with face.broadcast(queue_name) as shop:
        with pytest.raises(error):
            await shop.publish(subject, data, options)
    assert raw.keys() == []


@pytest.mark.parametrize("max_messages", [0, -1, 1.5, True, "3"])
def test_there_must_be_room_for_a_message(max_messages: Any) -> None:
    with pytest.raises(InvalidOptionError, match="must be 1 or more"):
        AsyncBroadcast("shop", max_messages=max_messages)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"subscription": ""}, InvalidNameError),
        ({"subscription": "a:b"}, InvalidNameError),
        ({"subscription": None}, InvalidNameError),
        ({"subjects": ["orders.>.eu"]}, InvalidNameError),
        ({"subjects": "orders"}, InvalidNameError),
        ({"start_from": "now"}, InvalidOptionError),
        ({"start_from": ""}, InvalidOptionError),
        ({"start_from": ">"}, InvalidOptionError),
        ({"start_from": 0}, InvalidOptionError),
    ],
)
def test_a_worker_that_could_never_serve_is_refused_at_once(changes: dict[str, Any], error: type[UsageError]) -> None:
    with pytest.raises(error):
        BroadcastWorker("shop", print, **{"subscription": "mailer", **changes})
