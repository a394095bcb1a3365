"""A call without trailing defaults leaves exactly what the call with every word leaves."""

from __future__ import annotations

from typing import Any

import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestration_queue.options import JobOptions, Ordering, RateLimit, TokenBucket
from orchestration_queue.protocol.call import Call
from orchestration_queue.protocol.keys import QueueKeys
from orchestration_queue.protocol.placement import add_job
from orchestration_queue.server import Connection

NOW = 1_700_000_000_000
SHORT, FULL = QueueKeys("short"), QueueKeys("full")
EVERY_WORD = 21
ORDERINGS = (
    None,
    Ordering(key="a"),
    Ordering(key="b", concurrency=2, rate_limit=RateLimit(max=5, duration=10)),
    Ordering(key="c", token_bucket=TokenBucket(capacity=2, refill_rate=1)),
)


@st.composite
def given_options(draw: st.DrawFn) -> JobOptions:
    ordering = draw(st.sampled_from(ORDERINGS))
    return JobOptions(
        job_id=draw(st.sampled_from([None, "mine", "7", "0"])),
        delay=draw(st.sampled_from([0, 0.001, 90])),
        priority=draw(st.integers(0, 2)),
        attempts=draw(st.integers(0, 3)),
        ttl=draw(st.sampled_from([0, 60])),
        cost=draw(st.sampled_from([0, 0.5, 2])) if ordering else 0,
        lifo=draw(st.booleans()) and not ordering,
        tags=draw(st.sampled_from([(), ("red",)])),
        ordering=ordering,
    )


def every_word(options: JobOptions) -> Call:
    silent = add_job(FULL, "load", "{}", options, NOW, skip_events=True)
    assert len(silent.args) == EVERY_WORD
    return silent._replace(args=(*silent.args[:-1], 0))


def contents(raw: redis.Redis, keys: QueueKeys) -> dict[str, Any]:
    """Everything of a queue but the ids of stream entries, which are times."""
    client: Any = raw  # its stubs allow for bytes
    found: dict[str, Any] = {}
    for key in client.scan_iter(f"{keys.base}*"):
        kind, name = client.type(key), key.removeprefix(keys.base)
        if kind == "hash":
            fields = client.hgetall(key)
            found[name] = fields | ({"entry": "some"} if "entry" in fields else {})
        elif kind == "stream":
            found[name] = [fields for _, fields in client.xrange(key)]
        elif kind == "zset":
            found[name] = client.zrange(key, 0, -1, withscores=True)
        elif kind == "set":
            found[name] = client.smembers(key)
        else:
            found[name] = client.lrange(key, 0, -1) if kind == "list" else client.get(key)
    return found


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(given_options(), min_size=1, max_size=3))
def test_trailing_defaults_change_nothing(server_url: str, raw: redis.Redis, added: list[JobOptions]) -> None:
    with Connection.open(server_url) as connection:
        raw.flushdb()
        for options in added:
            short, full = add_job(SHORT, "load", "{}", options, NOW), every_word(options)
            assert len(short.args) < EVERY_WORD
            assert connection.execute(short) == connection.execute(full)
    found = contents(raw, SHORT)
    assert found
    assert found == contents(raw, FULL)
    raw.flushdb()
