"""`glidemq_promote`: due jobs become ready."""

from __future__ import annotations

import pytest

from tests.lua.wire import NOW, Wire, Word, due, event

FOREVER = 2**53 - 1


def test_an_empty_set_promotes_nothing(wire: Wire) -> None:
    with wire.unchanged():
        assert wire.call("promote") == 0


@pytest.mark.parametrize(("now", "count"), [(NOW + 499, 0), (NOW + 500, 1), (NOW + 501, 1)])
def test_a_delayed_job_is_due_at_its_very_millisecond(wire: Wire, now: int, count: int) -> None:
    wire.add("mail", delay=500)
    wire.forget_events()
    assert wire.call("promote", now=now) == count
    assert wire.state("1") == ("waiting" if count else "delayed")
    assert wire.stream() == [("jobId", "1", "name", "mail")] * count
    assert wire.zset("scheduled") == ({} if count else {"1": due(NOW + 500)})
    assert wire.events() == [event("promoted", 1)] * count


@pytest.mark.parametrize(
    ("values", "list_name"),
    [
        ({"priority": 2}, "priority"),
        ({"priority": 2, "delay": 5}, "priority"),
        ({"lifo": 1, "delay": 5}, "lifo"),
        ({"lifo": 1, "priority": 2}, "lifo"),
    ],
)
def test_priority_and_lifo_jobs_go_to_their_lists(wire: Wire, values: dict[str, Word], list_name: str) -> None:
    wire.add(**values)
    assert wire.call("promote", now=NOW + 5) == 1
    assert wire.elements(list_name) == ["1"]
    assert not wire.exists("scheduled")
    assert wire.stream() == []
    assert wire.state("1") == "waiting"


def test_within_one_call_the_best_priority_is_popped_first(wire: Wire) -> None:
    for priority in (3, 1, 2):
        wire.add(priority=priority)
    wire.forget_events()
    assert wire.call("promote") == 3
    assert [wire.call("popLists") for _ in range(3)] == [["2"], ["3"], ["1"]]
    assert wire.events() == [event("promoted", i) for i in (2, 3, 1)]


def test_delayed_jobs_of_one_band_leave_in_due_order_and_others_stay(wire: Wire) -> None:
    for delay in (30, 10, 20, 999):
        wire.add(delay=delay)
    assert wire.call("promote", now=NOW + 100) == 3
    assert wire.stream_ids() == ["2", "3", "1"]
    assert wire.zset("scheduled") == {"4": due(NOW + 999)}


def test_a_far_delayed_job_of_a_low_band_hides_no_higher_band(wire: Wire) -> None:
    wire.add(delay=10**9)
    wire.add(priority=5)
    assert wire.call("promote") == 1
    assert wire.elements("priority") == ["2"]


def test_a_broadcast_retry_names_its_subscription(wire: Wire) -> None:
    wire.make_job("7", name="news", state="delayed", priority=0)
    wire.ask("ZADD", wire.key("scheduled"), NOW, "7||audit")
    assert wire.call("promote") == 1
    assert wire.stream() == [("jobId", "7", "name", "news", "retryGroup", "audit")]
    assert wire.state("7") == "waiting"
    assert not wire.exists("scheduled")


@pytest.mark.parametrize(("now", "expired"), [(NOW + 100, False), (NOW + 101, True)])
def test_a_job_past_its_ttl_fails_instead_and_still_counts(wire: Wire, now: int, expired: bool) -> None:
    wire.add(delay=100, ttl=100)
    wire.forget_events()
    assert wire.call("promote", now=now) == 1
    assert not wire.exists("scheduled")
    if not expired:
        assert wire.stream_ids() == ["1"]
        return
    job = wire.job("1")
    assert (job["state"], job["failedReason"], job["finishedOn"]) == ("failed", "expired", str(now))
    assert wire.zset("failed") == {"1": now}
    assert wire.stream() == []
    assert wire.events() == [event("expired", 1)]
    assert wire.hash("metrics:failed") == {f"m:{now - now % 60_000}:c": "1"}


def test_one_call_takes_at_most_a_thousand(wire: Wire) -> None:
    pipeline = wire.client.pipeline(transaction=False)
    for number in range(1, 1006):
        pipeline.hset(wire.key(f"job:{number}"), mapping={"state": "delayed", "name": "n", "priority": 0})
        pipeline.zadd(wire.key("scheduled"), {str(number): NOW})
    pipeline.execute()
    assert wire.call("promote") == 1000
    assert wire.call("promote") == 5
    assert len(wire.stream_ids()) == 1005


@pytest.mark.parametrize("priority", [0, 2])
def test_a_time_beyond_every_score_promotes_everything(wire: Wire, priority: int) -> None:
    for delay in (2000, 1000):
        wire.add(delay=delay, priority=priority)
    assert wire.call("promote", now=FOREVER) == 2
    assert (wire.stream_ids() if priority == 0 else wire.elements("priority")[::-1]) == ["2", "1"]


def test_a_grouped_job_is_promoted_like_any_other(wire: Wire) -> None:
    wire.add(orderingKey="k", delay=1)
    assert wire.call("promote", now=NOW + 1) == 1
    assert wire.stream_ids() == ["1"]
    assert wire.group("k")["nextSeq"] == "1"
