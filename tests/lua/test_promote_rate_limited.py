"""`glidemq_promoteRateLimited`: groups whose limit is over are promoted."""

from __future__ import annotations

import pytest

from tests.lua.wire import NOW, Wire, Word, event

TOO_EXPENSIVE = "cost exceeds token bucket capacity"


def park(wire: Wire, count: int = 3, group: str = "k", /, **fields: Word) -> None:
    """Park jobs ``{group}{n}`` of a group that is due now."""
    wire.set_fields(f"group:{group}", **{"maxConcurrency": 9, "active": 0, "nextSeq": 1, **fields})
    for number in range(1, count + 1):
        job_id = f"{group}{number}"
        wire.make_job(job_id, state="group-waiting", name="n", groupKey=group, orderingSeq=number)
        wire.ask("ZADD", wire.key(f"groupq:{group}"), number, job_id)
    wire.ask("ZADD", wire.key("ratelimited"), NOW, group)


@pytest.mark.parametrize(("now", "count"), [(NOW - 1, 0), (NOW, 3), (NOW + 1, 3)])
def test_a_due_group_moves_to_the_stream_in_order(wire: Wire, now: int, count: int) -> None:
    park(wire)
    assert wire.call("promoteRateLimited", now=now) == count
    assert wire.stream() == [("jobId", f"k{n}", "name", "n") for n in range(1, count + 1)]
    assert wire.zset("ratelimited") == ({} if count else {"k": NOW})
    assert [wire.state(f"k{n}") for n in (1, 2, 3)] == ["waiting" if count else "group-waiting"] * 3
    assert len(wire.parked("k")) == 3 - count
    assert wire.group("k")["nextSeq"] == "1"
    assert wire.events() == []


@pytest.mark.parametrize(
    ("fields", "promoted"),
    [
        ({"maxConcurrency": 2}, 2),
        ({"maxConcurrency": 2, "active": 1}, 1),
        ({"rateMax": 1, "rateDuration": 800}, 1),
        ({"rateMax": 5, "rateDuration": 800, "maxConcurrency": 2}, 2),
        ({"maxConcurrency": 0}, 3),
    ],
)
def test_only_as_many_as_the_group_has_room_for(wire: Wire, fields: dict[str, Word], promoted: int) -> None:
    park(wire, **fields)
    assert wire.call("promoteRateLimited") == promoted
    assert wire.stream_ids() == ["k1", "k2", "k3"][:promoted]


def test_a_full_group_stays_parked(wire: Wire) -> None:
    park(wire, maxConcurrency=1, active=1)
    assert wire.call("promoteRateLimited") == 0
    assert wire.stream() == []
    assert len(wire.parked("k")) == 3


def test_nothing_passes_a_missing_sequence(wire: Wire) -> None:
    park(wire)
    wire.ask("ZREM", wire.key("groupq:k"), "k2")
    assert wire.call("promoteRateLimited") == 1
    assert wire.stream_ids() == ["k1"]
    assert wire.parked("k") == {"k3": 3}


def test_skip_markers_are_stepped_over_and_forgotten(wire: Wire) -> None:
    park(wire, 4, **{"skip:1": 1, "skip:2": 1})
    for number in (1, 2):
        wire.ask("ZREM", wire.key("groupq:k"), f"k{number}")
        wire.ask("DEL", wire.key(f"job:k{number}"))
    assert wire.call("promoteRateLimited") == 2
    assert wire.stream_ids() == ["k3", "k4"]
    assert wire.group("k")["nextSeq"] == "3"
    assert [field for field in wire.group("k") if field.startswith("skip:")] == []


@pytest.mark.parametrize(("tokens", "cost", "resume"), [(400, 1000, NOW + 600), (1000, 1000, None), (400, 400, None)])
def test_a_bucket_that_cannot_pay_waits_again(wire: Wire, tokens: int, cost: int, resume: int | None) -> None:
    park(wire, 1, tbCapacity=2000, tbRefillRate=1000, tbTokens=tokens, tbLastRefill=NOW)
    wire.make_job("k1", cost=cost)
    assert wire.call("promoteRateLimited") == (1 if resume is None else 0)
    assert wire.zset("ratelimited") == ({} if resume is None else {"k": resume})
    assert wire.group("k")["tbTokens"] == str(tokens)
    assert wire.stream_ids() == (["k1"] if resume is None else [])


def test_a_head_the_bucket_can_never_pay_fails(wire: Wire) -> None:
    park(wire, 1, tbCapacity=2000, tbRefillRate=1000, tbTokens=2000)
    wire.make_job("k1", cost=2001)
    assert wire.call("promoteRateLimited") == 0
    job = wire.job("k1")
    assert (job["state"], job["failedReason"], job["finishedOn"]) == ("failed", TOO_EXPENSIVE, str(NOW))
    assert wire.zset("failed") == {"k1": NOW}
    assert wire.parked("k") == {}
    assert wire.events() == [event("failed", "k1", failedReason=TOO_EXPENSIVE)]


def test_an_expired_job_fails_instead(wire: Wire) -> None:
    park(wire, 1)
    wire.make_job("k1", expireAt=NOW - 1)
    assert wire.call("promoteRateLimited") == 0
    assert (wire.state("k1"), wire.job("k1")["failedReason"]) == ("failed", "expired")
    assert wire.stream() == []
    assert wire.events() == [event("expired", "k1")]


@pytest.mark.parametrize("broken", ["missing", "moved on"])
def test_leftovers_of_other_jobs_are_dropped(wire: Wire, broken: str) -> None:
    park(wire, 1, nextSeq=2)
    wire.ask("ZADD", wire.key("groupq:k"), 0, "ghost")
    if broken == "moved on":
        wire.make_job("ghost", state="completed", groupKey="k")
    assert wire.call("promoteRateLimited") == 1
    assert wire.stream_ids() == ["k1"]
    assert wire.parked("k") == {}
    assert wire.state("ghost") == ("completed" if broken == "moved on" else None)


def test_one_call_serves_a_hundred_groups(wire: Wire) -> None:
    wire.ask("ZADD", wire.key("ratelimited"), *(word for number in range(130) for word in (number, f"g{number}")))
    assert wire.call("promoteRateLimited") == 0
    assert len(wire.zset("ratelimited")) == 30


def test_the_window_is_left_to_the_activation(wire: Wire) -> None:
    park(wire, 1, rateMax=1, rateDuration=800, rateWindowStart=NOW - 900, rateCount=1)
    assert wire.call("promoteRateLimited") == 1
    group = wire.group("k")
    assert (group["rateWindowStart"], group["rateCount"]) == (str(NOW - 900), "1")
