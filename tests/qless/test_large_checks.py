"""The consistency check of collections that are larger than a page."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis

from orchestration_queue.wires.qless import QlessClient

JOBS = 1_000
KINDS = {
    "ql:q:q-locks": "locks without jobs",
    "ql:t:red": "tags of gone jobs",
    "ql:f:broken": "failures of jobs that did not fail",
    "ql:j:sound0-dependents": "dependents that are gone",
    "ql:j:waits-dependencies": "dependencies on gone jobs",
}


def _fill(server: Any, key: str, jids: list[str]) -> None:
    if key.startswith("ql:f:"):
        server.rpush(key, *jids)
    elif key.startswith("ql:j:"):
        server.sadd(key, *jids)
    else:
        server.zadd(key, dict.fromkeys(jids, 10**12))


def _held(server: Any, key: str) -> list[str]:
    match server.type(key):
        case "list":
            return list(server.lrange(key, 0, -1))
        case "set":
            return sorted(server.smembers(key))
        case "zset":
            return sorted(server.zrange(key, 0, -1))
        case _:
            return []


@pytest.mark.parametrize("key", KINDS)
def test_each_page_is_checked_and_repaired(server: redis.Redis, server_url: str, key: str) -> None:
    sound = [f"sound{number}" for number in range(JOBS // 2)]
    state = "failed" if key.startswith("ql:f:") else "running"
    for jid in [*sound, "waits"]:
        server.hset(f"ql:j:{jid}", mapping={"jid": jid, "state": state, "queue": "q", "priority": 0})
        server.zadd("ql:q:q-depends", {jid: 1})
    mixed = [jid for pair in zip(sound, (f"gone{number}" for number in range(JOBS // 2)), strict=True) for jid in pair]
    _fill(server, key, mixed)
    seen: list[int] = []
    with QlessClient(url=server_url) as client:
        assert client.check(on_progress=seen.append) == {KINDS[key]: JOBS // 2}
        assert (seen == sorted(seen), seen[-1] >= JOBS + JOBS // 2) == (True, True)
        assert sorted(_held(server, key)) == sorted(mixed)
        assert client.check(repair=True) == {KINDS[key]: JOBS // 2}
        assert _held(server, key) == (sound if key.startswith("ql:f:") else sorted(sound))
        assert client.check() == {}


def test_one_call_of_the_older_form_checks_all_pages(server: redis.Redis) -> None:
    server.zadd("ql:t:red", {f"gone{number}": number for number in range(JOBS)})
    assert json.loads(server.fcall("qless_consistencyCheck", 0)) == {"tags of gone jobs": JOBS}
    assert json.loads(server.fcall("qless_consistencyCheck", 0, "resolve")) == {"tags of gone jobs": JOBS}
    assert not server.exists("ql:t:red")


def test_a_job_is_freed_when_the_last_page_of_its_dependencies_is_gone(server: redis.Redis, server_url: str) -> None:
    server.fcall("qless", 0, "put", 1, "w", "q", "first", "K", "{}", 0)
    server.fcall("qless", 0, "put", 1, "w", "q", "waits", "K", "{}", 0, "depends", '["first"]')
    server.sadd("ql:j:waits-dependencies", *(f"gone{number}" for number in range(JOBS)))
    server.delete("ql:j:first")
    with QlessClient(url=server_url) as client:
        assert client.check(repair=True)["dependencies on gone jobs"] == JOBS + 1
        assert [job.jid for job in client.peek("q")] == ["waits"]
