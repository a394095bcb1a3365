"""`glidemq_rateLimitGroupExternal`: slow a group down from outside. What an earlier limit does to it is tested with
`glidemq_rateLimitGroup`."""

from __future__ import annotations

from tests.lua.wire import NOW, Wire, event


def test_the_group_is_registered_and_nothing_else_happens(wire: Wire) -> None:
    assert wire.call("rateLimitGroupExternal", groupKey="k", durationMs=250) == NOW + 250
    assert wire.zset("ratelimited") == {"k": NOW + 250}
    assert wire.names() == {"ratelimited", "events"}
    assert wire.events() == [event("group-rate-limited", "", groupKey="k", duration=250, resumeAt=NOW + 250)]


def test_the_last_argument_may_be_missing(wire: Wire) -> None:
    wire.ask("ZADD", wire.key("ratelimited"), NOW + 900, "k")
    assert wire.short("rateLimitGroupExternal", 3, groupKey="k", durationMs=250) == NOW + 900
