"""What qless's documentation says of the older form: the register in `tests/seeds/qless.py` names these tests."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

import pytest
import redis

from orchestration_queue.wires.qless import QlessWorker
from tests.qless.older import Older

DAY = 86_400


def held(older: Older) -> dict[str, Any]:
    """Return every key as it is."""
    return {key: older.server.dump(key) for key in older.server.keys("*")}


def test_a_lower_priority_is_popped_first(older: Older) -> None:
    for jid, priority in (("later", 5), ("first", 0), ("soon", -3), ("second", 0)):
        older.put(jid, {"first": 1, "second": 2}.get(jid, 3), 0, "priority", priority)
    expected = ["soon", "first", "second", "later"]
    assert (older.peek(9), older.pop(9, 9)) == (expected, expected)


def test_each_reply_has_the_priority_of_the_older_form(older: Older) -> None:
    older.put("j", 1, 0, "priority", -3)
    older("track", "track", "j", 1)
    (peeked,) = older("peek", "q", 1, 1, keys=1)
    (popped,) = older("pop", "q", "w", 1, 1, keys=1)
    older("fail", "j", "w", "g", "m", 2)
    replies = [json.loads(text) for text in (peeked, popped, older("get", "j"))]
    replies += [older.json("failed", "g")["jobs"][0], older.json("track")["jobs"][0]]
    assert [job["priority"] for job in replies] == [-3] * 5


def test_the_newer_form_keeps_its_own_order_of_the_same_jobs(older: Older) -> None:
    older.put("soon", 1, 0, "priority", -3)
    older.core("put", 1, "w", "q", "later", "K", "{}", 0, "priority", -5)
    found = [(job["jid"], job["priority"]) for job in json.loads(older.core("peek", 1, "q", 9))]
    assert found == [("soon", 3), ("later", -5)]
    assert [older.json("get", jid)["priority"] for jid in ("soon", "later")] == [-3, 5]
    assert older.pop(2, 9) == ["soon", "later"]


def test_a_job_without_a_priority_has_0(older: Older) -> None:
    older.put("j")
    assert '"priority":0' in older("get", "j")
    older("priority", "j", 0)
    assert (older.server.hget("ql:j:j", "priority"), older.json("get", "j")["priority"]) == ("0", 0)


def test_priority_changes_the_order_of_waiting_jobs_and_keeps_that_of_equals(older: Older) -> None:
    for now, jid in enumerate("abcd"):
        older.put(jid, now)
    assert older("priority", "d", -1) == -1
    older("priority", "c", 7)
    assert older("priority", "c", 0) == 0
    assert older("priority", "a", 2.5) == "2.5"
    assert older.json("get", "a")["priority"] == 2.5
    assert older.pop(9, 9) == ["d", "b", "c", "a"]


@pytest.mark.parametrize("priority", [0, 17, -500])
def test_jobs_of_one_priority_are_popped_as_they_were_put_to_the_millisecond(older: Older, priority: int) -> None:
    times = [1_352_075_209 + number / 1000 for number in range(20)]
    for now in reversed(times):
        older.put(f"j{now:.3f}", now, 0, "priority", priority)
    assert older.pop(times[-1] + 1, 20) == [f"j{now:.3f}" for now in times]


@pytest.mark.parametrize("state", ["waiting", "scheduled", "depends", "running", "complete", "failed", "stalled"])
def test_a_job_in_any_state_can_be_failed(older: Older, state: str) -> None:
    older.put("other", 1, 900)
    older.put("j", 1, 60 if state == "scheduled" else 0, *(("depends", '["other"]') if state == "depends" else ()))
    if state in ("running", "complete", "failed", "stalled"):
        older.pop(2)
    if state == "complete":
        older("complete", "j", "w", "q", 3, "{}")
    elif state == "failed":
        older("fail", "j", "w", "first", "m", 3)
    elif state == "stalled":
        older.core("timeout", 3, "j")
    assert older.json("get", "j")["state"] == state
    assert older("fail", "j", "w", "g", "message", 4, "[]") == "j"
    job = older.json("get", "j")
    assert (job["state"], job["queue"], job["data"], job["worker"]) == ("failed", "q", [], "")
    assert (job["failure"]["group"], job["failure"]["message"], job["failure"]["worker"]) == ("g", "message", "w")
    assert older.json("failed") == {"g": 1}
    stats = older.json("stats", "q", 4)
    assert (stats["failed"], stats["failures"]) == (1, 2 if state == "failed" else 1)
    assert older.json("workers", 4, "w") == {"jobs": [], "stalled": []}
    assert (older.server.zcard("ql:completed"), older.peek(5)) == (0, [])
    assert (older("heartbeat", "j", "w", 5), older("complete", "j", "w", "q", 5, "{}")) == (None, None)
    older.put("j", 6)
    older("depends", "j", "off", "all")  # a put without dependencies keeps those that it had
    assert (older.pop(7), older("complete", "j", "w", "q", 8, "{}")) == (["j"], "complete")
    assert (older.json("failed"), older.json("stats", "q", 4)["failed"]) == ({}, 0)


def test_the_worker_of_a_job_that_another_fails_is_told(older: Older) -> None:
    older.put("j")
    older.pop(1, worker="owner")
    listener = older.server.pubsub(ignore_subscribe_messages=True)
    listener.subscribe("ql:w:owner")
    listener.get_message(timeout=5)
    older("fail", "j", "another", "g", "m", 2)
    message = listener.get_message(timeout=5)
    assert json.loads(message["data"]) == {"jid": "j", "event": "lock_lost", "worker": "owner"}
    assert older("heartbeat", "j", "owner", 3) is None
    listener.close()


def test_failed_returns_so_many_jobs_from_a_start_with_message_and_type(older: Older) -> None:
    for now, jid in enumerate("abc"):
        older.put(jid, now)
        older("fail", jid, "w", "upload error", f"why {jid}", now, '{"k": [1]}')
    found = older.json("failed", "upload error", 1, 1)
    (job,) = found["jobs"]
    assert (found["total"], job["jid"], job["message"], job["type"]) == (3, "b", "why b", "upload error")
    assert (job["data"], job["klass"], job["state"]) == ({"k": [1]}, "K", "failed")
    assert [job["jid"] for job in older.json("failed", "upload error", 0, 2)["jobs"]] == ["c", "b"]
    assert older.json("failed", "unknown") == {"total": 0, "jobs": []}
    assert older.server.smembers("ql:failures") == {"upload error"}
    assert older.server.lrange("ql:f:upload error", 0, -1) == ["c", "b", "a"]


def test_a_failed_job_stays_until_it_is_canceled_or_completed(older: Older) -> None:
    older.core("config.set", 0, "jobs-history", 1)
    for jid in "ab":
        older.put(jid)
        older("fail", jid, "w", "g", "m", 1)
    older.put("other", 5 * DAY)
    older.pop(5 * DAY)
    older("complete", "other", "w", "q", 6 * DAY, "{}")
    assert older.json("failed") == {"g": 2}
    older("cancel", "a")
    older.put("b", 6 * DAY)
    assert (older("get", "a"), older.json("failed")) == (None, {})


def test_stats_count_retries_failures_and_failed_jobs(older: Older) -> None:
    older.put("j", 0, 0, "retries", 1)
    for now, remaining in ((1, 0), (2, -1)):
        older.pop(now)
        assert older("retry", "j", "q", "w", now) == remaining
    stats = older.json("stats", "q", 2)
    assert (stats["retries"], stats["failures"], stats["failed"]) == (1, 1, 1)
    assert older.server.hgetall("ql:s:stats:0:q") == {"retries": "1", "failures": "1", "failed": "1"}
    job = older.json("get", "j")
    assert (job["state"], job["failure"]["group"]) == ("failed", "failed-retries-q")


def test_a_lost_lock_counts_as_a_retry(older: Older) -> None:
    older.put("j")
    older.pop(0, worker="w1")
    assert (older.pop(100, worker="w2"), older.json("stats", "q", 100)["retries"]) == (["j"], 1)


def test_stats_have_the_names_of_the_document(older: Older) -> None:
    for now in (0, 1):
        older.put(f"j{now}", now)
    older.pop(3, 2)
    older("complete", "j0", "w", "q", 10, "{}")
    wait, run = (older.json("stats", "q", 10)[kind] for kind in ("wait", "run"))
    assert (wait["total"], wait["mean"], wait["variance"], wait["count"]) == (2, 2.5, pytest.approx(0.5), 2)
    assert (run["total"], run["mean"], run["variance"], sum(run["histogram"])) == (1, 7, 0, 1)
    stored = older.server.hgetall("ql:s:wait:0:q")
    assert {name: float(value) for name, value in stored.items()} == {
        "total": 2,
        "mean": 2.5,
        "vk": 0.5,
        "s2": 1,
        "s3": 1,
    }


@pytest.mark.parametrize(
    ("waited", "place"),
    [
        *((0.9, 0), (59, 59), (60, 60), (3_599, 118), (3_600, 119), (900 * 95, 141)),
        *((DAY, 142), (40 * DAY, 181), (400 * DAY, 506)),
    ],
)
def test_the_histogram_has_seconds_minutes_hours_and_as_many_days_as_it_takes(
    older: Older, waited: float, place: int
) -> None:
    older.put("j", 5)
    older.pop(5 + waited)
    histogram = older.json("stats", "q", 5 + waited)["wait"]["histogram"]
    assert (len(histogram), histogram.index(1)) == (max(148, place + 1), place)


def test_waits_by_wrong_clocks_are_counted_at_the_ends_of_the_histogram(older: Older) -> None:
    older.put("early", 1_700_000_000_000)
    older.put("late", 1_000)
    older.pop(1_700_000_000, 2)
    histogram = older.json("stats", "q", 1_700_000_000)["wait"]["histogram"]
    assert (len(histogram), histogram[0], histogram[-1]) == (142 + 365, 1, 1)


def test_stats_are_of_the_day_of_the_pop_and_of_the_completion(older: Older) -> None:
    older.put("j", DAY - 20)
    older.pop(DAY - 10)
    older("complete", "j", "w", "q", DAY + 5, "{}")
    days = [older.json("stats", "q", date) for date in (DAY - 1, DAY + 80_000)]
    assert [(day["wait"]["total"], day["run"]["total"]) for day in days] == [(1, 0), (0, 1)]
    assert (days[0]["wait"]["mean"], days[1]["run"]["mean"]) == (10, 15)
    assert {"ql:s:wait:0:q", f"ql:s:run:{DAY}:q"} <= set(older.server.keys("ql:s:*"))


def test_the_wait_after_a_retry_counts_from_the_retry(older: Older) -> None:
    older.put("j", 0)
    older.pop(10)
    older("retry", "j", "q", "w", 50)
    older.pop(53)
    assert older.json("stats", "q", 53)["wait"]["mean"] == 6.5


def test_empty_lists_are_arrays(older: Older) -> None:
    older.put("j")
    text = older("get", "j")
    assert all(f'"{name}":[]' in text for name in ("tags", "dependents", "dependencies"))
    assert older("tag", "remove", "j", 1, "red") == "[]"
    assert older.json("tag", "get", "red") == {"total": 0, "jobs": []}
    assert older("tag", "top") == "[]"
    assert older.json("track") == {"jobs": [], "expired": []}
    assert older.json("workers", 1, "w") == {"jobs": [], "stalled": []}
    assert older("workers", 1) == "[]"
    assert older.json("failed", "g") == {"total": 0, "jobs": []}
    assert (older("pop", "none", "w", 1, 1, keys=1), older("peek", "none", 1, 1, keys=1)) == ([], [])
    assert older("jobs", "running", 1, "q") == []
    assert older.json("consistencyCheck", "", "0")["large"] == []
    older.server.flushall()
    assert older("queues", 1) == "[]"


def test_data_come_back_as_they_were_given(older: Older) -> None:
    for data in ("[]", '{"a":[],"b":1.50,"c":"/"}', "12345678901234567", '"text"', "null"):
        older("put", "q", "j", "K", data, 1, 0, keys=1)
        (text,) = older("pop", "q", "w", 1, 2, keys=1)
        assert f'"data":{data}' in text
        older("heartbeat", "j", "w", 3, data)
        assert f'"data":{data}' in older("get", "j")
        older("fail", "j", "w", "g", "m", 3, data)
        assert f'"data":{data}' in older("get", "j")


def test_an_expiry_with_a_fraction_is_whole(older: Older) -> None:
    older.put("j")
    older.pop(1)
    assert older.json("heartbeat", "j", "w", 12.75) == older.json("get", "j")["expires"] == 72.75


def test_history_has_a_stage_for_each_queue_without_what_others_log(older: Older) -> None:
    older.put("j", 1)
    older.core("log", 1, "j", "worker")
    older.pop(2)
    older("complete", "j", "w", "q", 3, "{}", "next", "r")
    older.pop(4, queue="r", worker="v")
    older("fail", "j", "someone", "g", "m", 5)
    assert older.json("get", "j")["history"] == [
        {"q": "q", "put": 1, "popped": 2, "worker": "w", "done": 3},
        {"q": "r", "put": 3, "popped": 4, "worker": "v", "failed": 5},
    ]


def test_a_cancelled_job_is_gone_for_its_worker(older: Older) -> None:
    older.put("j", 0, 0, "tags", '["red"]')
    older.pop(1)
    assert older("cancel", "j") is None
    assert (older("heartbeat", "j", "w", 2), older("complete", "j", "w", "q", 2, "{}")) == (None, None)
    assert (older("get", "j"), older.json("tag", "get", "red")["total"], older.peek(3)) == (None, 0, [])


def test_a_job_moves_on_scheduled_dependent_or_at_once(older: Older) -> None:
    older.put("other")
    for number, (words, state, key) in enumerate(
        (
            ((), "waiting", "work"),
            (("delay", 60), "scheduled", "scheduled"),
            (("depends", '["other"]'), "depends", "depends"),
        )
    ):
        older.put(f"j{number}", -1, 0, "priority", -1)
        assert older.pop(1) == [f"j{number}"]
        reply = older("complete", f"j{number}", "w", "q", 2, '{"n": 1}', "next", "r", *words)
        job = older.json("get", f"j{number}")
        assert (reply, job["state"], job["queue"], job["data"]) == (state, state, "r", {"n": 1})
        assert older.server.zrange(f"ql:q:r-{key}", 0, -1) == [f"j{number}"]
    older.put("last")
    older.pop(3, 9)
    assert older("complete", "last", "w", "q", 3, "{}") == "complete"
    assert older.json("get", "last")["queue"] is None


def test_retries_count_for_each_stage(older: Older) -> None:
    older.put("j", 0, 0, "retries", 2)
    older.pop(1)
    assert older("retry", "j", "q", "w", 1) == 1
    older.pop(2)
    older("complete", "j", "w", "q", 3, "{}", "next", "r")
    job = older.json("get", "j")
    assert (job["retries"], job["remaining"]) == (2, 2)


def test_retry_moves_the_job_and_frees_it(older: Older) -> None:
    older.put("j")
    older.pop(1)
    assert older("retry", "j", "r", "other", 2) is None
    assert older("retry", "j", "r", "w", 2, 30) == 4
    job = older.json("get", "j")
    assert (job["queue"], job["state"], job["worker"], job["expires"]) == ("r", "scheduled", "", 0)
    assert older("retry", "j", "r", "w", 3) is None
    assert [queue["name"] for queue in older.json("queues", 2)] == ["q", "r"]
    assert (older.pop(31, queue="r"), older.pop(33, queue="r")) == ([], ["j"])
    assert older("complete", "j", "w", "r", 34, "{}") == "complete"
    assert not older.server.exists("ql:q:r-locks", "ql:q:r-work", "ql:q:r-scheduled")


def test_a_moved_job_is_lost_to_its_worker(older: Older) -> None:
    older.put("j")
    older.pop(1)
    older.put("j", 2, queue="r")
    assert (older("heartbeat", "j", "w", 3), older("complete", "j", "w", "q", 3, "{}")) == (None, None)
    assert older.json("get", "j")["queue"] == "r"


def test_put_takes_a_delay_tags_retries_and_dependencies(older: Older) -> None:
    older.put("first")
    older.put("late", 10, 5)
    older.put("j", 0, 0, "tags", '["a", "b", "a"]', "retries", 7, "depends", '["first", "gone"]', "priority", 1)
    job = older.json("get", "j")
    assert (job["tags"], job["retries"], job["remaining"]) == (["a", "b"], 7, 7)
    assert (job["state"], job["dependencies"], older.json("get", "first")["dependents"]) == (
        "depends",
        ["first"],
        ["j"],
    )
    assert (older.pop(14, 9), older("jobs", "scheduled", 14, "q")) == (["first"], ["late"])
    older("complete", "first", "w", "q", 14, "{}")
    assert older.pop(15, 9) == ["late", "j"]


def test_dependencies_are_added_and_removed(older: Older) -> None:
    for jid in "abc":
        older.put(jid)
    older.put("j", 0, 0, "depends", '["a"]')
    assert older("depends", "j", "on", "b", "c") == 1
    assert sorted(older.json("get", "j")["dependencies"]) == ["a", "b", "c"]
    assert older("depends", "j", "off", "a", "b") == 1
    assert older.json("get", "j")["dependencies"] == ["c"]
    assert older.server.smembers("ql:j:j-dependencies") == {"c"}
    assert older.server.smembers("ql:j:c-dependents") == {"j"}
    assert older("depends", "j", "off", "all") == 1
    assert (older.json("get", "j")["state"], older("depends", "j", "on", "a")) == ("waiting", None)


def test_jobs_are_all_those_of_a_state(older: Older) -> None:
    for number in range(40):
        older.put(f"w{number:02}", 0, 0)
        older.put(f"s{number:02}", 0, 50 + number)
    older.put("d", 0, 0, "depends", '["w00"]')
    older.pop(0, 20)
    older.pop(30, 20)
    assert (len(older("jobs", "stalled", 70, "q")), len(older("jobs", "running", 70, "q"))) == (20, 20)
    assert older("jobs", "scheduled", 70, "q") == [f"s{number:02}" for number in range(40)]
    assert older("jobs", "scheduled", 70, "q", 5, 2) == ["s05", "s06"]
    assert older("jobs", "depends", 70, "q") == ["d"]


def test_tags_are_added_removed_and_found_by_page(older: Older) -> None:
    for now, jid in enumerate("abc"):
        older.put(jid, now)
        assert older.json("tag", "add", jid, now, "red", "blue", "red") == ["red", "blue"]
    assert older.json("tag", "get", "red", 1, 1) == {"total": 3, "jobs": ["b"]}
    assert older.json("tag", "get", "red") == {"total": 3, "jobs": ["a", "b", "c"]}
    assert older.json("tag", "remove", "b", 5, "blue", "green") == ["red"]
    assert older.json("tag", "get", "blue")["jobs"] == ["a", "c"]
    assert older("tag", "add", "gone", 5, "red") is None


def test_a_tag_that_a_job_has_is_not_added_again(older: Older) -> None:
    older.put("j")
    older("tag", "add", "j", 5, "red")
    assert older.json("tag", "add", "j", 9, "red", "blue") == ["red", "blue"]
    older("tag", "remove", "j", 9, "green")
    assert older.server.zscore("ql:t:red", "j") == 5
    assert older.server.zrange("ql:tags", 0, -1, withscores=True) == [("blue", 1), ("red", 1)]


def test_tracked_jobs_are_shown_and_those_that_are_gone(older: Older) -> None:
    older.put("j")
    older.put("gone")
    assert older("track", "track", "j", 1, "any", "tags") == 1
    older("track", "track", "gone", 2)
    older("cancel", "gone")
    found = older.json("track")
    assert (found["jobs"], found["expired"]) == ([older.json("get", "j")], ["gone"])
    assert older.server.zrange("ql:tracked", 0, -1) == ["j", "gone"]
    assert (older("track", "untrack", "j", 3), older.json("track")["jobs"]) == (1, [])


def test_queues_count_what_is_scheduled_waiting_running_and_stalled(older: Older) -> None:
    older.put("s", 0, 900)
    for jid in "abcde":
        older.put(jid)
    older.pop(0, 2)
    older.pop(30, 1)
    older.put("z", 1, queue="r")
    counts = older.json("queues", 70, "q")
    assert {name: counts[name] for name in ("name", "stalled", "waiting", "running", "scheduled")} == {
        "name": "q",
        "stalled": 2,
        "waiting": 2,
        "running": 1,
        "scheduled": 1,
    }
    assert older.json("queues", 70) == [counts, older.json("queues", 70, "r")]
    assert older.server.zrange("ql:queues", 0, -1, withscores=True) == [("q", 0), ("r", 1)]


@pytest.mark.parametrize("last", ["pop", "heartbeat", "complete", "retry", "fail"])
def test_workers_are_sorted_by_their_last_activity(older: Older, last: str) -> None:
    older.put("a")
    older.put("b", 1)
    older.pop(10, worker="one")
    older.pop(11, worker="two")
    if last == "pop":
        older.pop(20, worker="one")
    else:
        words = {"heartbeat": (20,), "complete": ("q", 20, "{}"), "fail": ("g", "m", 20)}
        retry = ("a", "q", "one", 20)
        older(last, *(retry if last == "retry" else ("a", "one", *words[last])))
    found = older.json("workers", 21)
    assert [worker["name"] for worker in found] == ["one", "two"]
    assert (found[1]["jobs"], found[1]["stalled"]) == (1, 0)
    assert older.json("workers", 80, "two") == {"jobs": [], "stalled": ["b"]}
    assert older.server.zrange("ql:w:two:jobs", 0, -1) == ["b"]


def test_workers_that_were_not_seen_for_long_disappear(older: Older) -> None:
    older("setConfig", "max-worker-age", 100)
    older.pop(0, worker="old")
    older.pop(50, worker="new")
    assert [worker["name"] for worker in older.json("workers", 120)] == ["new"]
    older("setConfig", "max-worker-age")
    assert [[worker["name"] for worker in older.json("workers", DAY + at)] for at in (49, 50)] == [["new"], []]


def test_options_have_the_names_and_defaults_of_the_document(older: Older) -> None:
    defaults = {
        "heartbeat": 60,
        "stats-history": 30,
        "histogram-history": 7,
        "jobs-history-count": 50_000,
        "jobs-history": 7 * DAY,
    }
    assert defaults.items() <= older.json("getConfig").items()
    assert [older("getConfig", name) for name in (*defaults, "unknown")] == [*defaults.values(), None]
    assert older("setConfig", "heartbeat", 30) is None
    assert (older("getConfig", "heartbeat"), older.server.hgetall("ql:config")) == ("30", {"heartbeat": "30"})
    assert older("setConfig", "heartbeat") is None
    assert older("getConfig", "heartbeat") == 60


def test_a_queue_has_its_own_heartbeat(older: Older) -> None:
    older("setConfig", "heartbeat-q", 7)
    older.put("j")
    older.pop(1)
    assert (older.json("get", "j")["expires"], older("getConfig", "heartbeat-q")) == (8, "7")
    assert older.json("getConfig")["heartbeat-q"] == "7"
    assert older.core("config.get", 1, "q-heartbeat") == "7"
    older("setConfig", "heartbeat-q")
    assert (older("getConfig", "heartbeat-q"), older.json("heartbeat", "j", "w", 2)) == (None, 62)


def test_a_completion_removes_at_most_two_hundred_of_the_old(older: Older) -> None:
    for number in range(251):
        older.put(f"j{number}")
    for _ in range(3):
        older.pop(1, 100)
    for number in range(250):
        older("complete", f"j{number}", "w", "q", 1, "{}")
    older("setConfig", "jobs-history-count", 0)
    older("complete", "j250", "w", "q", 1, "{}")
    left = older.server.zcard("ql:completed")
    assert 251 - 200 <= left < 251
    older.put("last", 2)
    older.pop(2)
    older("complete", "last", "w", "q", 2, "{}")
    assert older.server.zcard("ql:completed") < left


def test_completed_jobs_are_kept_by_age_and_number(older: Older) -> None:
    older("setConfig", "jobs-history-count", 2)
    older("setConfig", "jobs-history", 100)
    for number in range(4):
        older.put(f"j{number}", number)
        older.pop(number)
        older("complete", f"j{number}", "w", "q", number, "{}")
    assert older.server.zrange("ql:completed", 0, -1) == ["j2", "j3"]
    assert [older("get", jid) is None for jid in ("j1", "j2")] == [True, False]
    older.put("last", 200)
    older.pop(200)
    older("complete", "last", "w", "q", 200, "{}")
    assert older("jobs", "complete") == ["last"]


def test_a_lock_is_renewed_by_its_worker_alone(older: Older) -> None:
    older.put("j")
    older.pop(1)
    assert older("heartbeat", "j", "other", 2) is None
    assert older.json("heartbeat", "j", "w", 90) == 150
    assert older.pop(200, worker="other") == ["j"]
    assert (older("heartbeat", "j", "w", 201), older("complete", "j", "w", "q", 201, "{}")) == (None, None)


def test_an_expired_lock_comes_before_due_and_waiting_jobs(older: Older) -> None:
    older.put("lost")
    older.pop(0)
    older.put("due", 1, 10, "priority", -9)
    older.put("ready", 1, 0, "priority", -99)
    assert (older.peek(100), older.pop(100, 9)) == (["lost", "ready", "due"], ["lost", "ready", "due"])


def test_a_job_is_kept_under_the_keys_of_the_document(older: Older) -> None:
    older.put("a", 1, 0, "priority", -2, "tags", '["testing"]')
    older.put("s", 1, 60)
    older.put("d", 1, 0, "depends", '["a"]')
    stored = older.server.hgetall("ql:j:a")
    names = ("jid", "klass", "data", "tags", "worker", "state", "queue", "retries", "remaining", "expires", "priority")
    assert [stored[name] for name in names] == ["a", "K", "{}", '["testing"]', "", "waiting", "q", "5", "5", "0", "2"]
    assert [older.server.zrange(f"ql:q:q-{key}", 0, -1) for key in ("work", "scheduled", "depends")] == [
        ["a"],
        ["s"],
        ["d"],
    ]
    older.pop(2)
    assert older.server.zrange("ql:q:q-locks", 0, -1, withscores=True) == [("a", 62)]
    assert older.server.zscore("ql:t:testing", "a") == 1
    shown = older.json("get", "a")
    assert (shown["worker"], shown["expires"], shown["dependents"], shown["priority"]) == ("w", 62, ["d"], -2)


def test_the_last_completed_dependency_makes_a_job_ready(older: Older) -> None:
    for jid in "ab":
        older.put(jid)
    older.put("j", 0, 0, "depends", '["a", "b"]')
    older.pop(1, 2)
    older("complete", "a", "w", "q", 2, "{}")
    assert (older.json("get", "j")["dependencies"], older.peek(2)) == (["b"], [])
    older("complete", "b", "w", "q", 3, "{}")
    assert (older.json("get", "j")["dependencies"], older.peek(3)) == ([], ["j"])


NUMBERS_OF_KEYS = {"put": 1, "pop": 1, "peek": 1}
REFUSED: dict[str, tuple[str, tuple[str | float, ...]]] = {
    "an unknown option of put": ('Unknown option "prio"', ("put", "q", "j", "K", "{}", 1, 0, "prio", 1)),
    "an option without a value": ('Arg "priority" missing', ("put", "q", "j", "K", "{}", 1, 0, "priority")),
    "an unknown option of complete": ('Unknown option "then"', ("complete", "runs", "w", "q", 1, "{}", "then", "r")),
    "a delay with dependencies": ("together", ("put", "q", "new", "K", "{}", 1, 5, "depends", '["j"]')),
    "both ways to move on": (
        "together",
        ("complete", "runs", "w", "q", 1, "{}", "next", "r", "delay", 5, "depends", '["j"]'),
    ),
    "a delay without next": ("without", ("complete", "runs", "w", "q", 1, "{}", "delay", 5)),
    "an empty next": ('Arg "next" must not be empty', ("complete", "runs", "w", "q", 1, "{}", "next", "")),
    "an empty jid": ('Arg "jid" must not be empty', ("put", "q", "", "K", "{}", 1, 0)),
    "an empty queue": ('Arg "queue" must not be empty', ("put", "", "new", "K", "{}", 1, 0)),
    "an empty queue to pop": ('Arg "queue" must not be empty', ("pop", "", "w", 1, 1)),
    "an empty worker": ('Arg "worker" must not be empty', ("pop", "q", "", 1, 1)),
    "an empty worker of a job": ('Arg "worker" must not be empty', ("heartbeat", "runs", "", 1)),
    "an empty jid to get": ('Arg "jid" must not be empty', ("get", "")),
    "an empty jid among others": ('Arg "more" must not be empty', ("cancel", "j", "")),
    "an empty dependency": ('Arg "depends" must not be empty', ("put", "q", "new", "K", "{}", 1, 0, "depends", '[""]')),
    "an empty tag": ('Arg "tag" must not be empty', ("tag", "add", "j", 1, "")),
    "no tag": ('Arg "tag" missing', ("tag", "add", "j", 1)),
    "an empty type": ('Arg "group" must not be empty', ("fail", "runs", "w", "", "m", 1)),
    "an empty queue to retry in": ('Arg "queue" must not be empty', ("retry", "runs", "", "w", 1)),
    "an empty option": ('Arg "option" must not be empty', ("setConfig", "", "1")),
    "a count of 0": ('Arg "count" must be at least 1, got 0', ("pop", "q", "w", 0, 1)),
    "a count of less": ('Arg "count" must be at least 1, got -5', ("peek", "q", -5, 1)),
    "a limit of 0": ('Arg "limit" must be at least 1, got 0', ("failed", "g", 0, 0)),
    "a start of less": ('Arg "start" must be at least 0, got -1', ("failed", "g", -1)),
    "a count of tags": ('Arg "count" must be at least 1, got 0', ("tag", "get", "red", 0, 0)),
    "a count of jobs": ('Arg "count" must be at least 1, got 0', ("jobs", "running", 1, "q", 0, 0)),
    "no number": ('Arg "count" not a number: many', ("pop", "q", "w", "many", 1)),
    "half a retry": (
        'Arg "retries" must be a whole number, got 1.5',
        ("put", "q", "j", "K", "{}", 1, 0, "retries", 1.5),
    ),
    "no JSON": ('Arg "data" not JSON: {', ("heartbeat", "runs", "w", 1, "{")),
    "no JSON of a failure": ('Arg "data" not JSON: {', ("fail", "runs", "w", "g", "m", 1, "{")),
    "an unknown state": ("Unknown type paused", ("jobs", "paused", 1, "q")),
    "an unknown verb of tag": ('must be "add", "remove", "get" or "top"', ("tag", "put", "j", 1, "t")),
    "an unknown verb of track": ('must be "track" or "untrack"', ("track", "follow", "j", 1)),
    "an unknown change": ('must be "on" or "off"', ("depends", "j", "in", "x")),
    "an unknown repair": ('Unknown option "all"', ("consistencyCheck", "all")),
    "one argument more": ("takes at most 1 arguments, got 2", ("get", "j", "x")),
    "one number more": ('Unknown argument "9"', ("tag", "get", "red", 0, 1, 9)),
    "a dependency": ("is a dependency of waits", ("cancel", "j")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_call_is_refused_in_one_sentence_and_changes_nothing(older: Older, case: str) -> None:
    message, (name, *words) = REFUSED[case]
    older.put("runs", 0, 0, "priority", -1)
    older.pop(1)
    older.put("j", 1, 0, "tags", '["red"]')
    older.put("waits", 1, 0, "depends", '["j"]')
    before = held(older)
    with pytest.raises(redis.ResponseError) as refused:
        older(str(name), *words, keys=NUMBERS_OF_KEYS.get(str(name), 0))
    text = str(refused.value)
    assert message in text
    assert text.startswith(f"{str(name)[0].upper()}{str(name)[1:]}(): ")
    assert all(part not in text for part in ("user_function", "script", "\n"))
    assert held(older) == before


@pytest.mark.parametrize("name", ["put", "pop", "peek", "get", "cancel", "complete", "fail", "queues"])
def test_each_call_takes_its_number_of_keys(older: Older, name: str) -> None:
    keys = NUMBERS_OF_KEYS.get(name, 0)
    with pytest.raises(redis.ResponseError, match=f"qless_{name} takes {keys} keys, got 2"):
        older(name, "a", "b", keys=2)


def test_times_are_those_of_the_clients(older: Older) -> None:
    older.put("j", 1_352_075_209, 5)
    assert (older.pop(1_352_075_213), older.pop(1_352_075_214)) == ([], ["j"])
    assert older.json("get", "j")["expires"] == 1_352_075_274


def test_a_worker_is_named_after_its_host_and_process() -> None:
    names = {QlessWorker("q", print).name for _ in range(2)}
    assert len(names) == 2
    assert all(name.startswith(f"{socket.gethostname()}-{os.getpid()}-") for name in names)


def test_the_urgent_ones_among_due_jobs_come_first(older: Older) -> None:
    older.put("early", 0, 10, "priority", 5)
    older.put("urgent", 0, 20, "priority", -5)
    assert (older.peek(30, 1), older.pop(30)) == (["urgent"], ["urgent"])


def test_no_ready_job_comes_before_one_whose_lock_expired(older: Older) -> None:
    older.put("spent", 0, 0, "retries", 0)
    older.put("lost", 1)
    older.pop(2)
    older.pop(3)
    older.put("ready", 4)
    assert older.pop(100, worker="other") == ["lost"]
    assert older.json("get", "spent")["state"] == "failed"


def test_a_job_that_is_put_without_a_delay_is_ready_after_its_dependencies(older: Older) -> None:
    older.put("other")
    older.put("j", 1, 0, "depends", '["other"]')
    older.put("j", 2, 900)
    older.put("j", 3)
    assert older.json("get", "j")["state"] == "depends"
    older.pop(4)
    older("complete", "other", "w", "q", 5, "{}")
    assert older.pop(6) == ["j"]


def test_a_failed_job_leaves_the_statistics_of_the_queue_where_it_failed(older: Older) -> None:
    older.put("j", 0, 0, "retries", 0)
    older.pop(1)
    assert older("retry", "j", "elsewhere", "w", 2) == -1
    assert older.json("failed") == {"failed-retries-q": 1}
    assert [older.json("stats", queue, 2)["failed"] for queue in ("q", "elsewhere")] == [1, 0]
    older.put("j", 3, queue="r")
    assert [older.json("stats", queue, 3)["failed"] for queue in ("q", "r", "elsewhere")] == [0, 0, 0]


def test_a_retry_into_another_queue_is_a_stage(older: Older) -> None:
    older.put("j", 1)
    older.pop(2)
    older("retry", "j", "r", "w", 3)
    older.pop(4, queue="r")
    assert [(stage["q"], stage["put"]) for stage in older.json("get", "j")["history"]] == [("q", 1), ("r", 3)]
    older("complete", "j", "w", "r", 5, "{}")
    older("fail", "j", "w", "g", "m", 6)
    assert older.json("get", "j")["queue"] == "r"


def test_a_lock_that_expires_now_is_stalled_and_no_longer_running(older: Older) -> None:
    older.put("j")
    older.pop(0)
    assert [older("jobs", state, 60, "q") for state in ("running", "stalled")] == [[], ["j"]]
    assert older.json("workers", 60, "w") == {"jobs": [], "stalled": ["j"]}
