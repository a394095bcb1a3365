"""`oq1_tick`: in one call what promote, promoteRateLimited, healListActive and nextDue do, and the queue's settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import redis

from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.operations import worker_signals
from orchestration_queue.protocol.operations.worker_signals import Tick
from tests.lua.wire import NOW, Wire, Word

NOTHING = Tick(moved=0, due_ms=-1, repeatable=0, is_paused=False, rate_max=0, rate_window_ms=0, server_ms=0)


@pytest.fixture
def own(wire: Wire) -> Wire:
    return wire


def tick(wire: Wire, now: int = NOW, *, heal: bool = False) -> Tick:
    operation = worker_signals.tick(QueueKeys(wire.queue), now, heal=heal)
    call = operation.call
    done = operation.read(wire.client.fcall(call.name, len(call.keys), *call.keys, *call.args))
    return replace(done, server_ms=0)


def test_it_tells_the_servers_own_time(own: Wire) -> None:
    seconds, microseconds = own.ask("TIME")
    before = int(seconds) * 1000 + int(microseconds) // 1000
    told = worker_signals.tick(QueueKeys(own.queue), NOW)
    reply = own.client.fcall(told.call.name, len(told.call.keys), *told.call.keys, *told.call.args)
    assert before <= told.read(reply).server_ms < before + 60_000


def test_an_idle_queue_is_left_as_it_is(own: Wire) -> None:
    with own.unchanged():
        assert tick(own) == NOTHING


@pytest.mark.parametrize(
    ("jobs", "moved", "due_ms"),
    [
        ([{"delay": 700}], 0, NOW + 700),
        ([{"delay": 100}, {"delay": 700}], 1, NOW + 700),
        ([{"priority": 4}, {"delay": 200}], 2, -1),
    ],
)
def test_due_jobs_become_ready_and_the_next_is_told(
    own: Wire, jobs: list[dict[str, Word]], moved: int, due_ms: int
) -> None:
    ids = [own.add(**values) for values in jobs]
    done = tick(own, NOW + 200)
    assert (done.moved, done.due_ms) == (moved, due_ms)
    assert [own.job(job_id)["state"] for job_id in ids].count("waiting") == moved


def test_a_group_whose_limit_has_passed_goes_on(own: Wire) -> None:
    own.ask("ZADD", own.key("ratelimited"), NOW + 40, "k")
    assert tick(own).due_ms == NOW + 40
    assert tick(own, NOW + 40) == NOTHING


def test_the_count_of_list_jobs_is_corrected_only_when_asked(own: Wire) -> None:
    own.ask("SET", own.key("list-active"), 3)
    tick(own)
    assert own.ask("GET", own.key("list-active")) == "3"
    tick(own, heal=True)
    assert own.ask("GET", own.key("list-active")) in ("0", None)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"paused": "1"}, {"is_paused": True}),
        ({"paused": "0"}, {}),
        ({"rateLimitMax": "5", "rateLimitDuration": "1000"}, {"rate_max": 5, "rate_window_ms": 1000}),
        ({"rateLimitMax": "five"}, {}),
    ],
)
def test_it_tells_the_settings(own: Wire, settings: dict[str, str], told: dict[str, Any]) -> None:
    own.ask("HSET", own.key("meta"), *[word for pair in settings.items() for word in pair])
    own.ask("HSET", own.key("schedulers"), "nightly", "{}")
    expected = {"repeatable": 1, **told}
    done = tick(own)
    assert {name: getattr(done, name) for name in expected} == expected
    if not told:
        assert (done.is_paused, done.rate_max, done.rate_window_ms) == (False, 0, 0)


def test_a_key_of_another_name_is_refused(own: Wire) -> None:
    keys = [own.key(name) for name in ("stream", "stream", "events", "ratelimited", "meta", "schedulers")]
    with pytest.raises(redis.ResponseError), own.unchanged():
        own.client.fcall("oq1_tick", len(keys), *keys, NOW, 0)


def test_a_call_makes_100_jobs_ready_and_says_that_more_are_due(own: Wire) -> None:
    for _ in range(250):
        own.add(delay=100)
    ticks = [tick(own, NOW + 200) for _ in range(4)]
    assert [(done.moved, done.due_ms) for done in ticks] == [
        (100, NOW + 100),
        (100, NOW + 100),
        (50, -1),
        (0, -1),
    ]
