"""The older form: a function per call, with its own order of arguments and its own replies."""

from __future__ import annotations

import json

import pytest
import redis

from tests.qless.older import Older


def test_a_job_is_put_popped_and_completed(older: Older) -> None:
    assert older("put", "q", "j", "K", '{"a": [1]}', 10, 0, "tags", '["red"]', keys=1) == "j"
    (text,) = older("peek", "q", 5, 11, keys=1)
    assert json.loads(text)["state"] == "waiting"
    (text,) = older("pop", "q", "w", 5, 12, keys=1)
    job = json.loads(text)
    assert (job["data"], job["worker"], job["expires"]) == ({"a": [1]}, "w", 72)
    assert job["history"] == [{"q": "q", "put": 10, "popped": 12, "worker": "w"}]
    assert older("heartbeat", "j", "other", 13) is None
    assert older("heartbeat", "j", "w", 13) == "73"
    assert older("complete", "j", "other", "q", 14, "{}") is None
    assert older("complete", "j", "w", "whatever", 14, "{}", "next", "q2") == "waiting"
    older("pop", "q2", "w", 1, 15, keys=1)
    assert older("complete", "j", "w", "q2", 16, "{}") == "complete"
    assert older("jobs", "complete") == ["j"]
    assert [stage["q"] for stage in older.json("get", "j")["history"]] == ["q", "q2"]
    assert older("get", "gone") is None


def test_an_expired_lock_is_handed_over_at_once(older: Older) -> None:
    older("put", "q", "j", "K", "{}", 0, 0, keys=1)
    older("pop", "q", "w1", 1, 0, keys=1)
    (text,) = older("pop", "q", "w2", 1, 100, keys=1)
    assert json.loads(text)["remaining"] == 4


def test_what_is_refused_is_nil(older: Older) -> None:
    older("put", "q", "j", "K", "{}", 0, 0, keys=1)
    assert older("fail", "gone", "w", "g", "m", 1) is None
    assert older("retry", "j", "q", "w", 1) is None
    assert older("depends", "j", "on", "x") is None
    assert older("priority", "gone", 1) is None
    assert older("tag", "add", "gone", 1, "red") is None
    with pytest.raises(redis.ResponseError, match="takes 1 keys"):
        older("put", "q", "j", "K", "{}", 0, 0)
    with pytest.raises(redis.ResponseError, match="delay"):
        older("put", "q", "j", "K", "{}", 0, 5, "depends", '["x"]', keys=1)


def test_failures_tags_tracking_options_and_counts(older: Older) -> None:
    for jid in "ab":
        older("put", "q", jid, "K", "{}", 0, 0, keys=1)
    older("pop", "q", "w", 1, 1, keys=1)
    assert older("fail", "b", "someone", "g", "m", 2) == "b"
    assert older.json("failed") == {"g": 1}
    assert [job["jid"] for job in older.json("failed", "g", 0, 1)["jobs"]] == ["b"]
    assert older.json("tag", "add", "a", 3, "red") == ["red"]
    assert older.json("tag", "get", "red") == {"total": 1, "jobs": ["a"]}
    assert older("track", "track", "gone", 4) == 1
    assert older.json("track")["expired"] == ["gone"]
    assert older("track", "untrack", "gone") == 1
    older("setConfig", "heartbeat", 5)
    assert older("getConfig", "heartbeat") == "5"
    older("setConfig", "heartbeat")
    assert older("getConfig", "heartbeat") == 60
    assert older.json("queues", 5, "q")["waiting"] == 1
    assert "paused" not in older.json("queues", 5)[0]
    assert older.json("workers", 5)[0]["name"] == "w"
    assert older.json("stats", "q", 5)["failed"] == 1
    assert older("priority", "a", 3) == 3
    older("put", "q", "c", "K", "{}", 0, 50, keys=1)
    assert older("jobs", "scheduled", 100, "q") == ["c"]
    older("put", "q", "d", "K", "{}", 0, 0, "depends", '["a"]', keys=1)
    assert older("depends", "d", "off", "all") == 1
    assert older("cancel", "a", "c", "d") is None


def test_records_that_contradict_each_other_are_found_and_repaired(older: Older, server: redis.Redis) -> None:
    for jid in "abc":
        older("put", "q", jid, "K", "{}", 0, 0, "tags", '["red"]', keys=1)
    older("put", "q", "d", "K", "{}", 0, 0, "depends", '["a"]', keys=1)
    older("put", "q", "e", "K", "{}", 0, 0, "depends", '["b"]', keys=1)
    assert older.json("consistencyCheck") == {}
    server.zrem("ql:q:q-work", "c")
    server.delete("ql:j:a", "ql:j:e")
    server.zadd("ql:q:q-locks", {"ghost": 5})
    wrong = {
        "jobs in no queue": 1,
        "dependencies on gone jobs": 1,
        "dependents that are gone": 1,
        "tags of gone jobs": 1,
        "locks without jobs": 1,
        "places of gone jobs": 2,
    }
    assert older.json("consistencyCheck") == wrong
    assert older.json("consistencyCheck", "resolve") == wrong
    assert older.json("consistencyCheck") == {}
    assert {json.loads(text)["jid"] for text in older("pop", "q", "w", 9, 10**10, keys=1)} == {"b", "c", "d"}
