"""`glidemq_clean`: forget finished jobs up to a time."""

from __future__ import annotations

import pytest

from tests.lua.wire import NOW, Wire, event

OWNED = ("job", "log", "deps", "parents", "jstream", "signals", "steps")


@pytest.mark.parametrize("name", ["completed", "failed"])
@pytest.mark.parametrize(
    ("cutoff", "limit", "removed"),
    [
        (NOW, 10, ["a", "b", "c"]),
        (NOW - 1, 10, ["a", "b"]),
        (NOW, 1, ["a"]),
        (NOW - 99, 10, []),
        (NOW, 0, []),
        (NOW, -1, []),
        (NOW, "", []),
        (NOW, "x", []),
    ],
)
def test_the_oldest_go_first_as_far_as_cutoff_and_limit_allow(
    wire: Wire, name: str, cutoff: int, limit: int | str, removed: list[str]
) -> None:
    for job_id, at in (("b", NOW - 10), ("c", NOW), ("a", NOW - 20)):
        wire.ask("ZADD", wire.key(name), at, job_id)
        for kind in OWNED:
            wire.ask("HSET", wire.key(f"{kind}:{job_id}"), "x", 1)
    assert wire.call("clean", set=name, cutoff=cutoff, limit=limit) == removed
    assert set(wire.zset(name)) == {"a", "b", "c"} - set(removed)
    for job_id in "abc":
        assert {wire.exists(f"{kind}:{job_id}") for kind in OWNED} == {job_id not in removed}
    assert wire.events() == ([event("cleaned", len(removed))] if removed else [])


def test_the_limit_may_be_missing(wire: Wire) -> None:
    wire.ask("ZADD", wire.key("failed"), NOW, "a")
    with wire.unchanged():
        assert wire.short("clean", 1, set="failed", cutoff=NOW, limit=0) == []


def test_many_at_once(wire: Wire) -> None:
    wire.ask("ZADD", wire.key("failed"), *(word for number in range(2500) for word in (number, f"j{number}")))
    assert len(wire.call("clean", set="failed", cutoff=NOW, limit=2400)) == 2400
    assert len(wire.zset("failed")) == 100
    assert wire.events() == [event("cleaned", 2400)]
