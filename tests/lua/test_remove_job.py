"""`glidemq_removeJob`: a job and what belongs to it are gone."""

from __future__ import annotations

import pytest

from tests.lua.wire import NOW, Wire, Word, event

OWNED = {"log": "RPUSH", "parents": "SADD", "jstream": "XADD", "signals": "RPUSH", "steps": "HSET"}


def test_a_missing_job_is_none(wire: Wire) -> None:
    with wire.unchanged():
        assert wire.call("removeJob", jobId="7") == 0


def test_everything_that_belongs_to_the_job_goes(wire: Wire) -> None:
    wire.make_job("7", state="completed")
    for name, command in OWNED.items():
        words = {"XADD": ("*", "chunk", "x"), "HSET": ("h:a", "x")}.get(command, ("x",))
        wire.ask(command, wire.key(f"{name}:7"), *words)
    for name in ("scheduled", "completed", "failed", "suspended"):
        wire.ask("ZADD", wire.key(name), NOW, "7", NOW, "8")
    assert wire.call("removeJob", jobId="7") == 1
    assert wire.names() == {"scheduled", "completed", "failed", "suspended", "events"}
    for name in ("scheduled", "completed", "failed", "suspended"):
        assert wire.zset(name) == {"8": NOW}
    assert wire.events() == [event("removed", 7)]


@pytest.mark.parametrize(
    ("fields", "after"),
    [
        ({"state": "active", "lifo": 1}, 1),
        ({"state": "active", "priority": 3}, 1),
        ({"state": "active", "priority": 0}, 2),
        ({"state": "waiting", "lifo": 1}, 2),
        ({"state": "completed", "priority": 3}, 2),
    ],
)
def test_an_active_list_job_is_counted_off(wire: Wire, fields: dict[str, Word], after: int) -> None:
    wire.ask("SET", wire.key("list-active"), 2)
    wire.make_job("7", **fields)
    assert wire.call("removeJob", jobId="7") == 1
    assert wire.list_active() == after


@pytest.mark.parametrize("before", [0, None])
def test_the_counter_never_goes_below_zero(wire: Wire, before: int | None) -> None:
    if before is not None:
        wire.ask("SET", wire.key("list-active"), before)
    wire.make_job("7", state="active", lifo=1)
    assert wire.call("removeJob", jobId="7") == 1
    assert wire.list_active() == 0


def test_the_slot_of_an_active_job_goes_to_the_next_parked_one(wire: Wire) -> None:
    first, _ = wire.active(orderingKey="k")
    second = wire.add(orderingKey="k")
    wire.call("moveToActive", jobId=second, entryId=wire.fetched()[0])
    wire.call("removeJob", jobId=first)
    assert wire.group("k")["active"] == "0"
    assert wire.parked("k") == {}
    assert wire.state(second) == "waiting"
    assert wire.stream_ids()[-1] == second


def test_a_parked_job_leaves_its_group(wire: Wire) -> None:
    wire.active(orderingKey="k")
    second = wire.add(orderingKey="k")
    wire.call("moveToActive", jobId=second, entryId=wire.fetched()[0])
    wire.call("removeJob", jobId=second)
    assert wire.parked("k") == {}
    assert wire.group("k")["active"] == "1"
    assert not wire.exists(f"job:{second}")


@pytest.mark.parametrize("is_read", [False, True])
def test_a_job_that_is_added_again_under_its_id_runs_once(wire: Wire, is_read: bool) -> None:
    wire.add(customJobId="mine")
    if is_read:
        wire.fetched()
    wire.call("removeJob", jobId="mine")
    assert (wire.stream(), wire.pending()) == ([], [])
    wire.add(customJobId="mine")
    assert wire.take()[0] == "mine"
    assert wire.fetch() is None
