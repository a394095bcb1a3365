"""Jobs whose time to live is over, but that no worker has read since: they keep no other job from being added."""

from __future__ import annotations

from typing import Any

import pytest

from orchestration_queue.protocol.placement import add_jobs
from tests.lua.oq1 import Own, new_job
from tests.lua.test_oq1_due_schedulers import due, looked, put
from tests.lua.test_oq1_fire import LOCK, fire, run
from tests.lua.wire import NOW, Wire, Word, event

TTL = 1000
LATER = NOW + TTL + 1

PLACES: dict[str, dict[str, Word]] = {
    "stream": {},
    "delayed": {"delay": 60_000},
    "prioritized": {"priority": 3},
    "lifo": {"lifo": 1},
}


@pytest.mark.parametrize("mode", ["simple", "throttle", "debounce"])
@pytest.mark.parametrize("place", PLACES)
def test_deduplication_does_not_hold_for_a_job_that_has_expired(wire: Wire, mode: str, place: str) -> None:
    values = {"mode": mode, "ttlMs": 1_000_000, "ttl": TTL, **PLACES[place]}
    assert wire.call("dedup", **values) == "1"
    if not (mode == "debounce" and place in ("delayed", "prioritized")):
        assert wire.call("dedup", **values, timestamp=NOW + TTL) == "skipped"
    else:
        assert wire.call("dedup", **values, timestamp=NOW + 1, customJobId="") == "2"
    held = wire.hash("dedup")["once"].partition(":")[0]
    assert wire.call("dedup", **values, timestamp=LATER + 1) == str(int(held) + 1)


@pytest.mark.parametrize("state", ["waiting-children", "suspended", "group-waiting"])
def test_deduplication_does_not_hold_wherever_the_expired_job_waits(wire: Wire, state: str) -> None:
    wire.call("dedup", ttl=TTL)
    wire.make_job("1", state=state)
    assert wire.call("dedup", timestamp=NOW + TTL) == "skipped"
    assert wire.call("dedup", timestamp=LATER) == "2"


def test_deduplication_holds_while_a_job_runs_longer_than_its_time_to_live(wire: Wire) -> None:
    wire.call("dedup", ttl=TTL)
    wire.make_job("1", state="active", processedOn=NOW)
    for mode in ("simple", "debounce", "throttle"):
        assert wire.call("dedup", mode=mode, ttlMs=1_000_000, timestamp=LATER) == "skipped"


@pytest.mark.parametrize("was_read", [False, True])
def test_a_window_of_throttle_counts_no_job_that_expired_before_it_ran(wire: Wire, was_read: bool) -> None:
    wire.call("dedup", mode="throttle", ttlMs=1_000_000, ttl=TTL)
    if was_read:
        wire.make_job("1", state="failed", failedReason="expired")
    assert wire.call("dedup", mode="throttle", ttlMs=1_000_000, timestamp=LATER) == "2"


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("next_place", PLACES)
def test_an_id_of_a_job_that_has_expired_is_free(wire: Wire, place: str, next_place: str) -> None:
    assert wire.add("old", customJobId="x", ttl=TTL, **PLACES[place]) == "x"
    assert wire.add("new", customJobId="x", timestamp=NOW + TTL) == "duplicate"
    wire.forget_events()
    assert wire.add("new", customJobId="x", timestamp=LATER, **PLACES[next_place]) == "x"
    assert wire.job("x")["name"] == "new"
    assert "failedReason" not in wire.job("x")
    assert wire.events() == [event("expired", "x"), event("added", "x", name="new")]
    assert wire.zset("failed") == {}
    waits = [*wire.stream_ids(), *wire.elements("lifo"), *wire.elements("priority"), *wire.zset("scheduled")]
    assert waits == ["x"], "it would start twice"


def test_an_id_of_a_parked_job_that_has_expired_is_free_and_its_turn_passes(wire: Wire) -> None:
    for job_id, ttl in (("first", 0), ("x", TTL), ("last", 0)):
        wire.add(customJobId=job_id, ttl=ttl, orderingKey="k")
    wire.open_group()
    for _ in range(3):
        wire.call("moveToActive", jobId=wire.fetched()[1])
    assert wire.parked("k") == {"x": 2, "last": 3}
    assert wire.add("new", customJobId="x", timestamp=LATER, orderingKey="k") == "x"
    assert wire.parked("k") == {"last": 3}
    assert wire.group("k")["nextSeq"] == "3"
    assert (wire.job("x")["orderingSeq"], wire.job("x")["name"]) == ("4", "new")


@pytest.mark.parametrize(
    "fields",
    [
        {"state": "active"},
        {"state": "completed"},
        {"state": "failed"},
        {"state": "suspended"},
        {"state": "waiting-children"},
        {"state": "delayed", "processedOn": NOW},
        {"parentId": "p"},
        {"expireAt": "soon"},
    ],
    ids=str,
)
def test_an_id_stays_taken_otherwise(wire: Wire, fields: dict[str, Any]) -> None:
    wire.add(customJobId="x", ttl=TTL, delay=9)
    wire.make_job("x", **fields)
    with wire.unchanged():
        assert wire.add(customJobId="x", timestamp=LATER) == "duplicate"


def test_an_id_stays_taken_while_others_wait_for_the_job(wire: Wire) -> None:
    wire.add(customJobId="x", ttl=TTL)
    wire.ask("SADD", wire.key("parents:x"), wire.key("p"))
    with wire.unchanged():
        assert wire.add(customJobId="x", timestamp=LATER) == "duplicate"


def test_an_id_stays_taken_if_the_new_job_is_refused(wire: Wire) -> None:
    wire.add(customJobId="x", ttl=TTL)
    with wire.unchanged():
        refused: dict[str, Word] = {"orderingKey": "k", "tbCapacity": 1000, "tbRefillRate": 1, "cost": 2000}
        assert wire.add(customJobId="x", timestamp=LATER, **refused) == "ERR:COST_EXCEEDS_CAPACITY"


def test_many_jobs_are_added_by_the_same_rule(wire: Wire) -> None:
    own = Own(wire)
    for job_id in ("old", "live"):
        wire.add(customJobId=job_id, ttl=TTL if job_id == "old" else 0)
    jobs = [new_job("new", custom_id=job_id, timestamp_ms=LATER) for job_id in ("old", "live", "old")]
    assert own.send(add_jobs(own.keys, jobs)) == ["old", "duplicate", "duplicate"]


@pytest.mark.parametrize("overlap", ["skip", "queue_one"])
@pytest.mark.parametrize(("left_ms", "reply"), [(0, "held"), (-1, "repeat.nightly.5")])
def test_a_run_does_not_wait_for_one_that_has_expired(wire: Wire, overlap: str, left_ms: int, reply: str) -> None:
    wire.call("tryLock", lock=LOCK, owner="mine")
    wire.make_job("before", state="waiting", expireAt=NOW + left_ms)
    assert fire(Own(wire), "mine", [run("nightly", 5, "before", overlap)]) == [reply]


def test_a_chain_goes_on_from_the_time_at_which_its_job_expired(wire: Wire) -> None:
    own = Own(wire)
    for name, expires_ms in (("over", NOW - 5000), ("open", NOW + 1)):
        wire.make_job(name, state="waiting", expireAt=expires_ms)
        put(own, name, repeatAfterComplete=1000, nextRun=0, oq={"job": name})
    looked(own)
    assert {entry.name: (entry.fate, entry.ended_ms) for entry in due(own).entries} == {
        "over": ("ended", NOW - 5000),
        "open": ("open", 0),
    }
