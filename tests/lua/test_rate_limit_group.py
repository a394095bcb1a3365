"""`glidemq_rateLimitGroup`: an active job slows its group down."""

from __future__ import annotations

import pytest

from tests.lua.hand_worker import HandWorker
from tests.lua.wire import MINUTE, NOW, Wire, Word, event


def limit(wire: Wire, job_id: str, entry_id: str = "", **values: Word) -> object:
    wire.forget_events()
    return wire.call("rateLimitGroup", jobId=job_id, entryId=entry_id, **{"durationMs": 700, **values})


def limited(job_id: Word, resume: int = NOW + 700, duration: int = 700) -> tuple[str, ...]:
    return event("group-rate-limited", job_id, groupKey="k", duration=duration, resumeAt=resume)


def test_the_job_is_parked_and_the_group_registered(wire: Wire) -> None:
    job_id, entry_id = wire.active(orderingKey="k")
    assert limit(wire, job_id, entry_id) == str(NOW + 700)
    assert wire.state(job_id) == "group-waiting"
    assert wire.parked("k") == {job_id: 1}
    assert wire.zset("ratelimited") == {"k": NOW + 700}
    assert wire.group("k")["active"] == "0"
    assert wire.job(job_id)["attemptsMade"] == "0"
    assert wire.stream() == []
    assert wire.pending() == []
    assert wire.events() == [limited(job_id)]


@pytest.mark.parametrize(
    ("position", "parked", "score"),
    [("front", {"x": 5}, 1), ("back", {"x": 5, "y": 9}, 10), ("back", {}, 1), ("front", {}, 1)],
)
def test_it_waits_before_or_behind_the_others(wire: Wire, position: str, parked: dict[str, int], score: int) -> None:
    job_id, entry_id = wire.active(orderingKey="k")
    for member, at in parked.items():
        wire.make_job(member, state="group-waiting", groupKey="k", orderingSeq=at)
        wire.ask("ZADD", wire.key("groupq:k"), at, member)
    limit(wire, job_id, entry_id, requeuePosition=position)
    assert wire.parked("k") == parked | {job_id: score}


@pytest.mark.parametrize(("job_id", "position", "score"), [("12", "back", 12), ("x", "back", 0), ("12", "front", 0)])
def test_a_job_without_a_sequence_has_other_scores(wire: Wire, job_id: str, position: str, score: int) -> None:
    wire.make_job(job_id, state="active", groupKey="k")
    limit(wire, job_id, requeuePosition=position)
    assert wire.parked("k") == {job_id: score}


def test_nobody_else_of_the_group_is_let_in(wire: Wire) -> None:
    job_id, entry_id = wire.active(orderingKey="k")
    wire.add(orderingKey="k")
    wire.call("moveToActive", jobId="2", entryId=wire.fetched()[0])
    limit(wire, job_id, entry_id)
    assert wire.parked("k") == {"1": 1, "2": 2}
    assert wire.stream() == []


def test_the_job_may_fail_instead(wire: Wire) -> None:
    job_id, entry_id = wire.active(orderingKey="k")
    assert limit(wire, job_id, entry_id, currentJob="fail", timestamp=NOW + 30) == str(NOW + 730)
    job = wire.job(job_id)
    assert (job["state"], job["failedReason"]) == ("failed", "group rate limited")
    assert (job["finishedOn"], job["processedOn"], job["attemptsMade"]) == (str(NOW + 30), str(NOW), "0")
    assert wire.zset("failed") == {job_id: NOW + 30}
    assert wire.parked("k") == {}
    assert wire.zset("ratelimited") == {"k": NOW + 730}
    assert wire.events() == [
        event("failed", job_id, failedReason="group rate limited"),
        limited(job_id, NOW + 730),
    ]
    assert wire.hash("metrics:failed") == {f"m:{MINUTE}:c": "1", f"m:{MINUTE}:d": "30"}


@pytest.mark.parametrize(
    ("before", "extend", "resume"),
    [
        (NOW + 900, "max", NOW + 900),
        (NOW + 100, "max", NOW + 700),
        (NOW + 900, "replace", NOW + 700),
        (NOW + 100, "replace", NOW + 700),
    ],
)
@pytest.mark.parametrize("external", [False, True])
def test_a_later_limit_is_kept_unless_replaced(
    wire: Wire, external: bool, before: int, extend: str, resume: int
) -> None:
    """Both functions treat an earlier limit alike; the external one answers a number and names no job."""
    wire.ask("ZADD", wire.key("ratelimited"), before, "k")
    if external:
        reply = wire.call("rateLimitGroupExternal", groupKey="k", durationMs=700, extend=extend)
        assert reply == resume
        assert wire.names() == {"ratelimited", "events"}
    else:
        wire.make_job("7", state="active", groupKey="k")
        assert limit(wire, "7", extend=extend) == str(resume)
    assert wire.zset("ratelimited") == {"k": resume}
    assert wire.events() == [limited("" if external else 7, resume)]


@pytest.mark.parametrize(("before", "after"), [(2, 1), (0, 0), (None, 0)])
def test_a_list_job_is_counted_off_and_never_below_zero(wire: Wire, before: int | None, after: int) -> None:
    wire.make_job("7", state="active", lifo=1, groupKey="k")
    if before is not None:
        wire.ask("SET", wire.key("list-active"), before)
    limit(wire, "7")
    assert wire.list_active() == after
    assert int(wire.group("k").get("active", 0)) == 0


@pytest.mark.parametrize(
    ("fields", "reply"),
    [
        (None, "error:not_active"),
        ({"state": "waiting", "groupKey": "k"}, "error:not_active"),
        ({"state": "active"}, "error:no_group"),
        ({"state": "active", "groupKey": ""}, "error:no_group"),
    ],
)
def test_other_jobs_are_refused_untouched(wire: Wire, fields: dict[str, Word] | None, reply: str) -> None:
    if fields is not None:
        wire.make_job("7", **fields)
    with wire.unchanged():
        assert limit(wire, "7") == reply


def test_broadcast_keeps_the_entry(wire: Wire) -> None:
    job_id, entry_id = wire.active(orderingKey="k")
    limit(wire, job_id, entry_id, broadcastMode=1)
    assert wire.stream_ids() == [job_id]
    assert wire.pending() == []


def test_callers_with_fewer_arguments_get_the_defaults(wire: Wire) -> None:
    job_id, entry_id = wire.active(orderingKey="k")
    assert wire.short("rateLimitGroup", 5, jobId=job_id, entryId=entry_id, durationMs=700) == str(NOW + 700)
    assert wire.parked("k") == {job_id: 1}


def test_a_job_that_was_put_down_takes_a_slot_again(wire: Wire) -> None:
    worker = HandWorker(wire)
    for _ in range(2):
        wire.add(orderingKey="k", groupConcurrency=1)
    limit(wire, "1", worker.held.pop(str(worker.take())))
    worker.now += 700
    worker.tick()
    assert [worker.take(), worker.take()] == ["2", None]
    assert wire.group("k")["active"] == "1"
    assert worker.run() == ["1", "2", "1"]


def test_a_job_that_was_put_down_and_promoted_has_no_slot_to_give_back(wire: Wire) -> None:
    worker = HandWorker(wire)
    for _ in range(3):
        wire.add(orderingKey="k", groupConcurrency=2)
    worker.take()
    worker.take()
    limit(wire, "1", worker.held.pop("1"))
    worker.now += 700
    worker.tick()
    assert (wire.state("1"), wire.group("k")["active"]) == ("waiting", "1")
    wire.call("removeJob", jobId="1")
    assert wire.group("k")["active"] == "1"
