"""`glidemq_fail`: a try ends badly; the job gets another one, or not."""

from __future__ import annotations

import pytest

from tests.lua.wire import NOW, Wire, Word, due, event

LATER = NOW + 1500
BUCKET = f"m:{LATER - LATER % 60_000}"


@pytest.mark.parametrize(
    ("made", "allowed", "reply"),
    [(0, 0, "failed"), (0, 1, "failed"), (0, 2, "retrying"), (1, 2, "failed"), (1, 3, "retrying"), (5, 3, "failed")],
)
def test_tries_are_counted_against_the_callers_limit(wire: Wire, made: int, allowed: int, reply: str) -> None:
    wire.make_job("7", state="active", attemptsMade=made, priority=0)
    assert wire.call("fail", jobId="7", maxAttempts=allowed) == reply
    assert wire.job("7")["attemptsMade"] == str(made + 1)
    assert wire.state("7") == ("delayed" if reply == "retrying" else "failed")


def test_a_last_failure_is_final(wire: Wire) -> None:
    job_id, entry_id = wire.active()
    wire.forget_events()
    assert wire.call("fail", jobId=job_id, entryId=entry_id, failedReason="no disk", timestamp=LATER) == "failed"
    job = wire.job(job_id)
    assert (job["state"], job["failedReason"], job["finishedOn"]) == ("failed", "no disk", str(LATER))
    assert (job["processedOn"], job["attemptsMade"]) == (str(LATER), "1")
    assert wire.zset("failed") == {job_id: LATER}
    assert wire.stream() == []
    assert wire.pending() == []
    assert wire.events() == [event("failed", job_id, failedReason="no disk")]
    assert wire.hash("metrics:failed") == {f"{BUCKET}:c": "1", f"{BUCKET}:d": "1500"}
    assert not wire.exists("scheduled")


@pytest.mark.parametrize(("priority", "backoff"), [(0, 0), (0, 250), (3, 250)])
def test_a_retry_waits_in_the_scheduled_set(wire: Wire, priority: int, backoff: int) -> None:
    job_id, entry_id = wire.active(priority=priority)
    wire.forget_events()
    reply = wire.call("fail", jobId=job_id, entryId=entry_id, timestamp=LATER, maxAttempts=2, backoffDelay=backoff)
    assert reply == "retrying"
    assert wire.zset("scheduled") == {job_id: due(LATER + backoff, priority)}
    job = wire.job(job_id)
    assert (job["state"], job["failedReason"], job["processedOn"]) == ("delayed", "boom", str(LATER))
    assert "finishedOn" not in job
    assert wire.pending() == []
    assert wire.stream() == []
    assert wire.events() == [event("retrying", job_id, failedReason="boom", attemptsMade=1, delay=backoff)]
    assert not wire.exists("failed")
    assert not wire.exists("metrics:failed")
    assert wire.list_active() == 0


@pytest.mark.parametrize("allowed", [0, 5])
@pytest.mark.parametrize(("before", "after"), [(2, {"1"}), (1, {"0"}), (0, {"0", None}), (None, {None})])
def test_a_list_job_is_counted_off_and_never_below_zero(
    wire: Wire, allowed: int, before: int | None, after: set[str | None]
) -> None:
    wire.make_job("7", state="active", lifo=1)
    if before is not None:
        wire.ask("SET", wire.key("list-active"), before)
    wire.call("fail", jobId="7", maxAttempts=allowed)
    assert wire.get("list-active") in after


@pytest.mark.parametrize(
    ("opts", "indexes"),
    [
        ('{"fallbacks":[{"model":"a"},{"model":"b"}]}', ["1", "2"]),
        ("{}", [None, None]),
    ],
)
def test_each_retry_moves_to_the_next_fallback(wire: Wire, opts: str, indexes: list[str | None]) -> None:
    wire.make_job("7", state="active", opts=opts)
    for index in indexes:
        assert wire.call("fail", jobId="7", maxAttempts=9) == "retrying"
        assert wire.job("7").get("fallbackIndex") == index
    assert wire.call("fail", jobId="7", maxAttempts=2) == "failed"
    assert wire.job("7").get("fallbackIndex") == indexes[-1]


@pytest.mark.parametrize(
    ("removal", "kept"),
    [
        ({}, {"old", "1"}),
        ({"removeMode": "true"}, {"old"}),
        ({"removeMode": "count", "removeCount": 1}, {"1"}),
        ({"removeMode": "age_count", "removeAge": 1}, {"1"}),
        ({"removeMode": "true", "broadcastMode": 1}, {"old", "1"}),
    ],
)
def test_retention_applies_to_failed_jobs(wire: Wire, removal: dict[str, Word], kept: set[str]) -> None:
    wire.make_job("old", state="failed")
    wire.ask("ZADD", wire.key("failed"), NOW - 5000, "old")
    job_id, entry_id = wire.active()
    assert wire.call("fail", jobId=job_id, entryId=entry_id, **removal) == "failed"
    assert set(wire.zset("failed")) == kept
    assert wire.names("job:") - {"job:1:sub:workers"} == {f"job:{i}" for i in kept}


def test_retention_waits_for_the_last_try(wire: Wire) -> None:
    job_id, entry_id = wire.active()
    wire.call("fail", jobId=job_id, entryId=entry_id, maxAttempts=2, removeMode="true")
    assert wire.state(job_id) == "delayed"


@pytest.mark.parametrize(("sequenced", "held"), [(True, "1"), (False, "0")])
def test_a_sequenced_job_keeps_its_slot_while_it_waits_for_its_retry(wire: Wire, sequenced: bool, held: str) -> None:
    job_id, entry_id = wire.active(orderingKey="k")
    if not sequenced:
        wire.ask("HDEL", wire.key(f"job:{job_id}"), "orderingSeq")
    wire.call("fail", jobId=job_id, entryId=entry_id, maxAttempts=2, backoffDelay=50)
    assert wire.group("k")["active"] == held


def test_a_final_failure_gives_the_slot_to_the_next_parked_job(wire: Wire) -> None:
    first, entry_id = wire.active(orderingKey="k")
    second = wire.add(orderingKey="k")
    wire.call("moveToActive", jobId=second, entryId=wire.fetched()[0])
    assert wire.parked("k") == {second: 2}
    wire.call("fail", jobId=first, entryId=entry_id)
    assert wire.group("k")["active"] == "0"
    assert wire.parked("k") == {}
    assert wire.stream_ids() == [second]


class TestBroadcast:
    def test_each_subscription_counts_its_own_tries(self, wire: Wire) -> None:
        wire.add("news")
        for group in ("audit", "mail"):
            entry_id, job_id = wire.fetched(group=group)
            wire.call(
                "fail", jobId=job_id, entryId=entry_id, group=group, maxAttempts=3, backoffDelay=9, broadcastMode=1
            )
            assert wire.hash(f"job:1:sub:{group}") == {"a": "1"}
            assert 86_000 < wire.ask("TTL", wire.key(f"job:1:sub:{group}")) <= 86_400
            assert wire.pending(group) == []
        assert wire.zset("scheduled") == {"1||audit": due(NOW + 9), "1||mail": due(NOW + 9)}
        assert wire.job("1")["attemptsMade"] == "0"
        assert wire.stream_ids() == ["1"]
        assert wire.events()[-1] == event("retrying", 1, failedReason="boom", attemptsMade=1, delay=9)

    def test_the_last_try_of_a_subscription_is_final(self, wire: Wire) -> None:
        wire.add("news")
        entry_id, job_id = wire.fetched(group="audit")
        replies = [
            wire.call("fail", jobId=job_id, entryId=entry_id, group="audit", maxAttempts=2, broadcastMode=1)
            for _ in range(2)
        ]
        assert replies == ["retrying", "failed"]
        assert wire.zset("failed") == {"1": NOW}
        assert wire.stream_ids() == ["1"]


@pytest.mark.parametrize("key", ["job:8", "job:77", "jobs:7", "7"])
def test_the_job_key_must_be_the_jobs(wire: Wire, key: str) -> None:
    wire.make_job("7", state="active")
    keys, args = wire.words("fail", jobId="7")
    keys[4] = wire.key(key)
    wire.refused("fail", keys, args)


@pytest.mark.parametrize("argc", [4, 7, 10])
def test_callers_with_fewer_arguments_get_the_defaults(wire: Wire, argc: int) -> None:
    wire.make_job("7", state="active")
    assert wire.short("fail", argc, jobId="7") == "failed"
    assert wire.zset("failed") == {"7": NOW}
