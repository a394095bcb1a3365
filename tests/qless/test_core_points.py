"""What the core's own test-suite checks in passing or not at all, and clients rely on: a test for each point."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis

from tests.qless.oracle import Both

DAY = 86_400


class Core:
    """Calls the library's function."""

    def __init__(self, server: Any) -> None:
        self.server = server

    def __call__(self, command: str, now: float, *words: str | float) -> Any:
        return self.server.fcall("qless", 0, command, now, *words)

    def json(self, command: str, now: float, *words: str | float) -> Any:
        return json.loads(self(command, now, *words))

    def put(self, jid: str, now: float = 1, *words: str | float, queue: str = "q", delay: float = 0) -> None:
        self("put", now, "me", queue, jid, "K", "{}", delay, *words)

    def pop(self, now: float, count: int = 1, queue: str = "q", worker: str = "w") -> list[str]:
        return [job["jid"] for job in self.json("pop", now, queue, worker, count)]

    def field(self, jid: str, name: str) -> Any:
        return self.server.hget(f"ql:j:{jid}", name)


@pytest.fixture
def core(server: redis.Redis) -> Core:
    return Core(server)


def test_each_empty_list_is_an_empty_object(core: Core) -> None:
    core.put("j")
    job = core.json("get", 1, "j")
    names = ("tags", "dependents", "dependencies", "failure")
    assert [job[name] for name in names] == [{}] * 4
    assert job["spawned_from_jid"] is False
    assert len(job) == 17
    empty = ("workers", "pop nothing w 5", "peek nothing 5", "failed")
    assert [core(*_call(text)) for text in empty] == ["{}"] * 4
    assert len(core.json("queues", 1, "q")) == 8
    core("recur", 1, "q", "r", "K", "{}", "interval", 60, 0)
    assert len(core.json("recur.get", 1, "r")) == 11


def _call(text: str) -> tuple[Any, ...]:
    command, *words = text.split()
    return (command, 1, *words)


def test_multiget_leaves_out_what_is_gone_and_length_what_depends(core: Core) -> None:
    core.put("a")
    core.put("b", delay=100)
    core.put("c", 1, "depends", '["a"]')
    assert [job["jid"] for job in core.json("multiget", 1, "c", "gone", "a")] == ["c", "a"]
    core.pop(1)
    assert core("length", 1, "q") == 2


def test_a_forgotten_queue_is_not_listed_and_keeps_its_jobs(core: Core) -> None:
    core.put("a")
    core("queue.forget", 1, "q")
    assert core("queues", 1) == "{}"
    assert core.pop(1) == ["a"]


def test_depends_off_all_makes_ready(core: Core) -> None:
    core.put("a")
    core.put("b", 1, "depends", '["a"]', delay=50)
    assert core("depends", 2, "b", "off", "all") == 1
    assert (core.field("b", "state"), core.field("b", "scheduled") is not None) == ("waiting", True)
    assert core.json("get", 2, "a")["dependents"] == {}


def test_a_queues_own_heartbeat_goes_first(core: Core) -> None:
    core("config.set", 1, "heartbeat", 20)
    core("config.set", 1, "q-heartbeat", 30)
    core.put("a")
    core.put("b", queue="r")
    assert (core.json("pop", 10, "q", "w", 1)[0]["expires"], core.json("pop", 10, "r", "w", 1)[0]["expires"]) == (
        40,
        30,
    )
    assert core("heartbeat", 12.75, "a", "w") == 42
    assert core.field("a", "expires") == "42.75"


def test_a_hundred_entries_of_history_are_kept_and_the_first_always(core: Core) -> None:
    core.put("a")
    for number in range(150):
        core("log", 2, "a", f"m{number}")
    history = core.json("get", 3, "a")["history"]
    assert (len(history), history[0]["what"], history[1]["what"], history[-1]["what"]) == (100, "put", "m51", "m149")


@pytest.mark.parametrize(
    ("waited", "place"),
    [(0, 0), (59, 59), (60, 60), (3599, 118), (3600, 119), (DAY - 1, 141), (DAY, 142), (6 * DAY, 147)],
)
def test_a_wait_falls_into_its_bucket(core: Core, waited: int, place: int) -> None:
    core.put("a", 5)
    core.pop(5 + waited)
    wait = core.json("stats", 5 + waited, "q", 5 + waited)["wait"]
    assert (len(wait["histogram"]), wait["histogram"].index(1), wait["count"], wait["std"]) == (148, place, 1, 0)


def test_a_timed_out_job_goes_before_everything(core: Core) -> None:
    core.put("a")
    core.put("urgent", 1, "priority", 1000)
    assert core.pop(2, 2) == ["urgent", "a"]
    core("timeout", 3, "a")
    core.put("late", 4, "priority", 5000)
    assert (core.field("a", "state"), core.field("a", "expires")) == ("stalled", "0")
    assert core.pop(5, 2) == ["a", "late"]


def test_retry_leaves_the_worker_and_clears_the_warning(core: Core) -> None:
    core.put("a")
    core.pop(1)
    core.pop(100)  # warned
    assert core.field("a", "grace") == "1"
    assert core("retry", 101, "a", "q", "w") == 4
    assert (core.field("a", "grace"), core.field("a", "worker"), core.field("a", "state")) == (None, "w", "waiting")


def test_heartbeat_and_fail_rewrite_data(core: Core) -> None:
    for jid, command, more in (("a", "heartbeat", ()), ("b", "fail", ("g", "m"))):
        core.put(jid)
        core.pop(1)
        core(command, 2, jid, "w", *more, '[ 1.50, "/" ]')
        assert core.field(jid, "data") == '[1.5,"\\/"]'


def test_tag_counts_drift_with_words_given(core: Core) -> None:
    core.put("a", 1, "tags", '["red"]')
    core("tag", 2, "add", "a", "red", "red")
    assert core.json("tag", 3, "top") == ["red"]
    assert core.json("tag", 3, "get", "red") == {"total": 1, "jobs": ["a"]}
    assert core.server.zscore("ql:tags", "red") == 3


def test_a_backlog_of_one_makes_the_newest_two(core: Core) -> None:
    core("recur", 0, "q", "r", "K", "{}", "interval", 60, 0, "backlog", 1)
    assert core.pop(600, 20) == ["r-1", "r-2"]
    assert [core.json("get", 600, jid)["history"][0]["when"] for jid in ("r-1", "r-2")] == [540, 600]


def test_unrecur_leaves_nothing_but_the_jobs(core: Core) -> None:
    core("recur", 0, "q", "r", "K", "{}", "interval", 60, 0)
    assert core.pop(1) == ["r-1"]
    assert core("unrecur", 2, "r") == core("unrecur", 2, "never") == 1
    assert not core.server.exists("ql:r:r", "ql:q:q-recur")
    assert core.json("get", 2, "r-1")["spawned_from_jid"] == "r"


def test_dependents_wait_for_the_final_completion(core: Core) -> None:
    core.put("a")
    core.put("b", 1, "depends", '["a"]')
    core.pop(1)
    assert core("complete", 2, "a", "w", "q", "{}", "next", "r") == "waiting"
    assert core.field("b", "state") == "depends"
    core.pop(3, queue="r")
    assert core("complete", 4, "a", "w", "r", "{}") == "complete"
    assert core.field("b", "state") == "waiting"
    assert not core.server.exists("ql:j:a-dependents", "ql:j:b-dependencies")


def test_unfail_takes_the_oldest_and_forgets_an_empty_group(core: Core) -> None:
    for jid in "abc":
        core.put(jid)
        core.pop(1)
        core("fail", 2, jid, "w", "g", "m")
    assert core.json("failed", 3, "g", 0, 25)["jobs"] == ["c", "b", "a"]
    assert core("unfail", 3, "r", "g", 2) == 2
    assert sorted(core.pop(4, 5, queue="r")) == ["a", "b"]
    assert core("unfail", 5, "r", "g", 5) == 1
    assert core("failed", 6) == "{}"
    assert not core.server.exists("ql:failures")


def test_a_paused_queue_is_peeked_and_hands_out_nothing(core: Core) -> None:
    core.put("a")
    core("pause", 1, "q")
    assert core.pop(2) == []
    assert not core.server.exists("ql:workers")
    assert [job["jid"] for job in core.json("peek", 2, "q", 5)] == ["a"]


def test_the_time_of_grace_lasts_as_long_as_the_option_says(core: Core) -> None:
    core("config.set", 0, "grace-period", 7)
    core.put("a", 0)
    core.pop(0)
    for lost_at in (60, 127):  # for each loss, not the first alone
        assert core.pop(lost_at, worker="v") == []
        assert core.server.zscore("ql:q:q-locks", "a") == lost_at + 7
        assert core.pop(lost_at + 7, worker="v") == ["a"]


def test_no_state_outlives_a_call(core: Core) -> None:
    core("config.set", 1, "heartbeat", 5)
    core.json("config.get", 1)
    core("config.unset", 1, "heartbeat")
    core.server.flushdb()
    defaults = core.json("config.get", 1)
    assert (len(defaults), defaults["heartbeat"], core("config.get", 1, "nothing")) == (7, 60, None)


def test_a_failed_job_keeps_its_failure_until_it_is_complete(core: Core) -> None:
    core.put("a")
    core.pop(1)
    core("fail", 2, "a", "w", "g", "m")
    core.put("a", 3)
    core.pop(4)
    assert core.json("get", 4, "a")["failure"] == {"group": "g", "message": "m", "when": 2, "worker": "w"}
    core("complete", 5, "a", "w", "q", "{}")
    assert core.json("get", 5, "a")["failure"] == {}


def test_a_job_that_used_up_its_retries_names_no_worker(core: Core) -> None:
    core.put("a", 1, "retries", 0)
    core.pop(1)
    assert core("retry", 2, "a", "q", "w") == -1
    failure = core.json("get", 3, "a")["failure"]
    assert (failure["worker"], failure["group"]) == ("", "failed-retries-q")
    assert core.json("get", 3, "a")["history"][-1] == {"what": "failed", "when": 2, "group": "failed-retries-q"}


def test_a_new_put_days_later_lowers_the_original_days_failed(core: Core) -> None:
    core.put("a", 0)
    core.pop(0)
    core("fail", 0, "a", "w", "g", "m")
    core.put("a", 1.5 * DAY)
    first = core.json("stats", 2 * DAY, "q", 0)
    assert (first["failed"], first["failures"]) == (0, 1)


def test_cancel_is_all_or_nothing_in_any_order(core: Core) -> None:
    core.put("a")
    core.put("b", 1, "depends", '["a"]')
    with pytest.raises(redis.ResponseError, match="is a dependency"):
        core("cancel", 2, "gone", "a")
    assert core.field("a", "state") == "waiting"
    assert core("cancel", 2, "a", "gone", "b") == ["a", "gone", "b"]
    assert core.json("multiget", 3, "a", "b") == {}


def test_a_lower_interval_makes_up_for_what_is_due(core: Core) -> None:
    core("recur", 0, "q", "r", "K", "{}", "interval", 60, 60)
    core("recur.update", 0, "r", "interval", 10)
    assert len(core.pop(60, 20)) == 6


def test_priorities_order_before_times(core: Core) -> None:
    for number in range(20):
        core.put(f"j{number:02}", number, "priority", number % 5 - 2)
    order = core.pop(100, 20)
    assert order == sorted(order, key=lambda jid: (-(int(jid[1:]) % 5), jid))


def test_missing_dependencies_count_as_done(core: Core) -> None:
    core.put("a", 1, "depends", '["gone"]')
    core.put("b", 1, "depends", '["gone"]', delay=50)
    assert (core.field("a", "state"), core.field("b", "state")) == ("waiting", "scheduled")


def test_the_last_completed_are_kept_newest_first(core: Core) -> None:
    core("config.set", 0, "jobs-history-count", 5)
    for number in range(8):
        core.put(f"j{number}", number)
        core.pop(number)
        core("complete", number, f"j{number}", "w", "q", "{}")
    assert core("jobs", 9, "complete") == [f"j{number}" for number in (7, 6, 5, 4, 3)]
    core("config.set", 9, "jobs-history", -1)
    core.put("last", 9)
    core.pop(9)
    core("complete", 9, "last", "w", "q", "{}")
    assert core("jobs", 9, "complete") == []
    assert not core.server.exists("ql:j:last", "ql:j:j7")


@pytest.mark.parametrize("ending", ["complete", "fail", "retry", "heartbeat"])
def test_a_job_retried_into_another_queue_has_its_lock_there(both: Both, ending: str) -> None:
    """The original leaves the lock in the queue where the job ran, and hands it out there again, although it ended."""
    both.run("put", 1, "me", "q", "a", "K", "{}", 0)
    both.run("pop", 2, "q", "w", 1)
    both.run("retry", 3, "a", "r", "w", 0)
    original, ours = both.run("pop", 4, "r", "w", 1)
    locks = []
    for run, client, outcome in ((both.run_original, both.oracle, original), (both.run_ours, both.ours, ours)):
        queue = json.loads(outcome.reply)[0]["queue"]
        words = {"complete": ("a", "w", queue, "{}"), "fail": ("a", "w", "g", "m"), "retry": ("a", queue, "w")}
        assert not run(ending, 5, *words.get(ending, ("a", "w"))).is_error
        locks.append({name: client.zrange(f"ql:q:{name}-locks", 0, -1) for name in "qr"})
    is_kept = ["a"] * (ending == "heartbeat")
    assert locks == [{"q": is_kept, "r": ["a"]}, {"q": [], "r": is_kept}]


@pytest.mark.parametrize("how", ["put", "recur"])
def test_retries_with_a_fraction_are_counted_down(both: Both, how: str) -> None:
    """As the original shows them. It then refuses `retry`, and hands out no job of the queue once the lock expires."""
    if how == "put":
        both.run("put", 1, "me", "q", "a-1", "K", "{}", 0, "retries", 1.5)
    else:
        both.run("recur", 1, "q", "a", "K", "{}", "interval", 3600, 0, "retries", 1.5)
    original, ours = (json.loads(outcome.reply)[0] for outcome in both.run("pop", 2, "q", "w", 1))
    assert (ours["retries"], ours["remaining"]) == (original["retries"], original["remaining"]) == (1.5, 1)
    both.run("pop", 100, "q", "w", 1)
    original, ours = both.run("pop", 200, "q", "w", 1)
    assert "not an integer" in str(original.reply)
    assert json.loads(ours.reply)[0]["remaining"] == 0
    assert both.run_ours("retry", 201, "a-1", "q", "w").reply == -1


LOG, WORKER = "ql:log", "ql:w:w"
MESSAGES: dict[str, tuple[tuple[Any, ...], list[tuple[str, str]]]] = {
    "put by another": (
        ("put", "v", "q", "a", "K", "{}", 0),
        [(LOG, "put"), (WORKER, "lock_lost"), (LOG, "lock_lost"), ("ql:put", "a")],
    ),
    "put by its worker": (("put", "w", "q", "a", "K", "{}", 0), [(LOG, "put"), ("ql:put", "a")]),
    "fail": (("fail", "a", "w", "g", "m"), [(LOG, "failed"), ("ql:failed", "a")]),
    "complete": (("complete", "a", "w", "q", "{}"), [("ql:completed", "a"), (LOG, "completed")]),
    "complete and advance": (
        ("complete", "a", "w", "q", "{}", "next", "r"),
        [("ql:completed", "a"), (LOG, "advanced")],
    ),
    "cancel": (("cancel", "a"), [(LOG, "canceled"), (WORKER, "canceled"), ("ql:canceled", "a")]),
    "timeout": (("timeout", "a"), [(WORKER, "lock_lost"), (LOG, "lock_lost")]),
    "retry": (("retry", "a", "q", "w"), []),
    "heartbeat": (("heartbeat", "a", "w"), []),
    "priority": (("priority", "a", 5), []),
    "tag": (("tag", "add", "a", "red"), []),
    "log": (("log", "a", "noted"), []),
    "pause": (("pause", "q"), []),
}


@pytest.mark.parametrize("what", MESSAGES)
def test_messages_are_exact_and_in_order(both: Both, what: str) -> None:
    both.run_ours("put", 1, "me", "q", "a", "K", "{}", 0)
    both.run_ours("track", 1, "track", "a")
    assert both.run_ours("pop", 2, "q", "w", 1).messages == [("ql:popped", "a")]
    words, expected = MESSAGES[what]
    outcome = both.run_ours(words[0], 3, *words[1:])
    found = [(name, said["event"] if isinstance(said, dict) else said) for name, said in outcome.messages]
    assert (outcome.is_error, found) == (False, expected)


def test_messages_of_a_lost_lock_are_in_order(both: Both) -> None:
    both.run_ours("config.set", 1, "grace-period", 0)
    both.run_ours("put", 1, "me", "q", "a", "K", "{}", 0, "retries", 0)
    both.run_ours("track", 1, "track", "a")
    both.run_ours("pop", 2, "q", "w", 1)
    channels = [name for name, _ in both.run_ours("pop", 100, "q", "v", 1).messages]
    assert channels == ["ql:stalled", WORKER, LOG, "ql:failed", LOG]
