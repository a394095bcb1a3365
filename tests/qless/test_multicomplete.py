"""Jobs completed by one command: the same as by a command each."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis

from orchestration_queue.errors import JobNotFoundError
from orchestration_queue.wires.qless import QlessClient
from tests.qless.oracle import Both

JIDS = tuple("abcdefg")


def _take(both: Both) -> None:
    """Have jobs run: one tracked, some tagged, two waited for, in a queue that keeps three completed ones."""
    for now, jid in enumerate(JIDS):
        tags = ("tags", '["red"]') if jid in "bc" else ()
        both.run_ours("put", now, "me", "q", jid, "K", "{}", 0, "retries", now, *tags)
    both.run_ours("put", 8, "me", "q", "later", "K", "{}", 0, "depends", '["a", "g"]')
    both.run_ours("track", 8, "track", "d")
    both.run_ours("config.set", 8, "jobs-history-count", 3)
    both.run_ours("pop", 9.25, "q", "w", len(JIDS))


def test_it_does_what_single_commands_do(both: Both) -> None:
    _take(both)
    single = [both.run_ours("complete", 70.5, jid, "w", "q", f'["{jid}"]') for jid in JIDS]
    keys = both.keys(both.ours)
    both.clear()
    _take(both)
    many = both.run_ours("multicomplete", 70.5, "w", "q", *(word for jid in JIDS for word in (jid, f'["{jid}"]')))
    assert many.reply == [outcome.reply for outcome in single] == ["complete"] * len(JIDS)
    assert many.messages == [message for outcome in single for message in outcome.messages]
    assert both.keys(both.ours) == keys
    assert keys["ql:completed"] == [("e", 70.5), ("f", 70.5), ("g", 70.5)]
    assert [jid for jid, _ in keys["ql:q:q-work"]] == ["later"]


def test_each_refusal_is_of_its_own_job(both: Both) -> None:
    _take(both)
    both.run_ours("put", 20, "me", "other", "elsewhere", "K", "{}", 0)
    both.run_ours("pop", 20, "other", "w", 1)
    both.run_ours("put", 20, "me", "q", "theirs", "K", "{}", 0)
    both.run_ours("pop", 20, "q", "v", 1)
    words = ("a", "{}", "gone", "{}", "a", "{}", "elsewhere", "{}", "theirs", "{}", "b", "{", "c", "[]")
    replies = both.run_ours("multicomplete", 21, "w", "q", *words).reply
    reasons = (
        "",
        "gone does not exist",
        "running: complete",
        "another queue: other",
        "another worker: v",
        "not JSON",
        "",
    )
    for reply, reason in zip(replies, reasons, strict=True):
        assert (reply == "complete") is (not reason)
        assert reason in reply
    states = {jid: both.ours.hget(f"ql:j:{jid}", "state") for jid in ("a", "b", "c", "elsewhere", "theirs")}
    assert states == {"a": "complete", "b": "running", "c": "complete", "elsewhere": "running", "theirs": "running"}


def test_a_job_whose_keys_are_broken_does_not_stop_the_others(both: Both) -> None:
    _take(both)
    both.ours.delete("ql:j:b-history")
    both.ours.set("ql:j:b-history", "text")
    replies = both.run_ours("multicomplete", 21, "w", "q", "a", "{}", "b", "{}", "c", "{}").reply
    assert [reply == "complete" for reply in replies] == [True, False, True]
    assert "WRONGTYPE" in replies[1]
    assert {"a", "b", "c"} & set(both.ours.zrange("ql:q:q-locks", 0, -1)) == {"b"}
    assert both.run_ours("complete", 22, "b", "w", "q", "{}").is_error


@pytest.mark.parametrize("words", [(), ("j",), ("j", "{}", "k"), ("j", "{}") * 101], ids=len)
def test_malformed_calls_are_refused(server: redis.Redis, words: tuple[str, ...]) -> None:
    with pytest.raises(redis.ResponseError, match="1 to 100 jobs"):
        server.fcall("qless", 0, "multicomplete", 1, "w", "q", *words)
    assert not server.keys()


def test_a_client_completes_jobs_of_several_queues(server: redis.Redis, server_url: str) -> None:
    with QlessClient(url=server_url, worker="w") as client:
        for number in range(50):
            client.put("even" if number % 2 == 0 else "odd", "K", number, jid=f"j{number}")
        jobs: list[Any] = sorted(client.pop("even", 25) + client.pop("odd", 25), key=lambda job: job.data)
        client.cancel("j7")
        outcomes = client.complete_many(jobs)
        assert isinstance(outcomes.pop(7), JobNotFoundError)
        assert outcomes == ["complete"] * 49
        assert server.zcard("ql:completed") == 49
        assert json.loads(str(server.hget("ql:j:j8", "data"))) == 8
        assert client.complete_many([]) == []
