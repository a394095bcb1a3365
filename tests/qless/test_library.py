"""The library as a script, its entry checks, and where it is kinder than the core."""

from __future__ import annotations

import json

import pytest
import redis

from orchestration_queue.wires.qless.commands import LIBRARY, script_text


@pytest.mark.parametrize("words", [(), ("nix", 1), ("get",), ("get", "soon", "j"), ("get", "nan", "j"), ("get", 1)])
def test_a_malformed_call_is_refused(server: redis.Redis, words: tuple[str, ...]) -> None:
    with pytest.raises(redis.ResponseError):
        server.fcall("qless", 0, *words)
    assert not server.keys()


def test_keys_are_refused(server: redis.Redis) -> None:
    with pytest.raises(redis.ResponseError, match="No Keys"):
        server.fcall("qless", 1, "key", "queues", 1)


MALFORMED = [
    ("put", "w", "q", "j", "K", "{", 0),
    ("put", "w", "q", "j", "K", "{}", "soon"),
    ("put", "w", "q", "j", "K", "{}", 0, "retries", "x"),
    ("put", "w", "q", "j", "K", "{}", 0, "priority"),
    ("put", "w", "q", "j", "K", "{}", 0, "tags", '{"a": 1}'),
    ("put", "w", "q", "j", "K", "{}", 0, "depends", "17"),
    ("complete", "j", "w", "q", "{}", "delay", 5),
    ("complete", "j", "w", "q", "{}", "depends", '["x"]'),
    ("complete", "j", "w", "other", "{}"),
    ("complete", "j", "other", "q", "{}"),
    ("fail", "j", "other", "g", "m"),
    ("fail", "gone", "w", "g", "m"),
    ("retry", "j", "q", "other"),
    ("heartbeat", "j", "other"),
    ("pop", "q", "w", "many"),
    ("pop", "q"),
    ("peek", "q"),
    ("timeout", "gone"),
    ("requeue", "w", "q", "gone", "K", "{}", 0),
    ("recur", "q", "r", "K", "{}", "cron", 5, 0),
    ("recur", "q", "r", "K", "{}", "interval", 0, 0),
    ("recur.update", "gone", "priority", 1),
    ("recur.tag", "gone", "t"),
    ("track", "follow", "j"),
    ("track", "track", "gone"),
    ("tag", "add", "gone", "t"),
    ("tag", "nix"),
    ("jobs", "nix", "q"),
    ("jobs", "running"),
    ("log", "gone", "m"),
    ("priority", "gone", 1),
    ("depends", "j", "on", "x"),
    ("config.set", "heartbeat"),
    ("stats", "q"),
    ("pause",),
]


@pytest.mark.parametrize("words", MALFORMED, ids=lambda words: " ".join(map(str, words)))
def test_what_is_refused_has_changed_nothing(server: redis.Redis, words: tuple[str | float, ...]) -> None:
    server.fcall("qless", 0, "put", 1, "w", "q", "j", "K", "{}", 0, "tags", '["red"]')
    server.fcall("qless", 0, "pop", 1, "q", "w", 1)
    before = {key: server.dump(key) for key in server.keys("*")}
    with pytest.raises(redis.ResponseError):
        server.fcall("qless", 0, words[0], 2, *words[1:])
    assert {key: server.dump(key) for key in server.keys("*")} == before


def test_an_entry_without_a_job_does_not_block_its_queue(server: redis.Redis) -> None:
    server.zadd("ql:q:q-work", {"ghost": 100})
    server.fcall("qless", 0, "put", 1, "w", "q", "j", "K", "{}", 0)
    (job,) = json.loads(server.fcall("qless", 0, "pop", 1, "q", "w", 1))
    assert job["jid"] == "j"
    assert not server.zrange("ql:q:q-work", 0, -1)


def test_a_job_that_is_popped_twice_is_shown_as_it_is_in_the_end(server: redis.Redis) -> None:
    server.fcall("qless", 0, "config.set", 1, "grace-period", 0)
    for now in (1, 100):
        server.fcall("qless", 0, "recur", now, "q", "r", "K", f"[{now}]", "interval", 1000, 0, "retries", 2)
        popped = json.loads(server.fcall("qless", 0, "pop", now, "q", "w", 5))
        server.fcall("qless", 0, "unrecur", now, "r")
    expired, made_again = popped
    assert expired == made_again
    assert (made_again["jid"], made_again["data"], made_again["remaining"]) == ("r-1", "[100]", 2)
    assert [entry["what"] for entry in made_again["history"]][-2:] == ["put", "popped"]


def test_an_option_that_is_unset_has_its_default_again(server: redis.Redis) -> None:
    server.fcall("qless", 0, "config.set", 1, "heartbeat", 5)
    assert json.loads(server.fcall("qless", 0, "config.get", 1))["heartbeat"] == "5"
    server.fcall("qless", 0, "config.unset", 1, "heartbeat")
    assert json.loads(server.fcall("qless", 0, "config.get", 1))["heartbeat"] == 60


def test_priority_puts_a_job_to_the_front_of_its_class(server: redis.Redis) -> None:
    for jid in "abc":
        server.fcall("qless", 0, "put", 1, "w", "q", jid, "K", "{}", 0)
    server.fcall("qless", 0, "priority", 1, "a", 0)
    assert [job["jid"] for job in json.loads(server.fcall("qless", 0, "peek", 1, "q", 3))] == ["a", "c", "b"]


def test_old_history_is_converted(server: redis.Redis) -> None:
    server.fcall("qless", 0, "put", 1, "w", "q", "j", "K", "{}", 0)
    server.delete("ql:j:j-history")
    server.hset("ql:j:j", "history", json.dumps([{"q": "q", "put": 5, "popped": 6, "worker": "w", "done": 7}]))
    server.fcall("qless", 0, "log", 9, "j", "noted")
    assert [entry["what"] for entry in json.loads(server.fcall("qless", 0, "get", 9, "j"))["history"]] == [
        "put",
        "popped",
        "done",
        "noted",
    ]
    assert not server.hexists("ql:j:j", "history")


def test_no_more_jobs_start_than_the_queue_allows(server: redis.Redis) -> None:
    server.fcall("qless", 0, "config.set", 1, "q-max-concurrency", 2)
    for number in range(4):
        server.fcall("qless", 0, "put", 1, "w", "q", f"j{number}", "K", "{}", 0)
    assert len(json.loads(server.fcall("qless", 0, "pop", 1, "q", "w", 10))) == 2
    assert server.fcall("qless", 0, "pop", 1, "q", "w", 10) == "{}"
    server.fcall("qless", 0, "complete", 2, "j3", "w", "q", "{}")
    assert len(json.loads(server.fcall("qless", 0, "pop", 2, "q", "w", 10))) == 1


def test_the_script_does_what_the_library_does(server: redis.Redis) -> None:
    script = server.register_script(script_text())
    script(args=["put", 1, "w", "q", "j", "K", "[]", 0])
    assert server.fcall("qless", 0, "get", 1, "j") == script(args=["get", 1, "j"])
    assert server.fcall("qless_version", 0) == LIBRARY.version
