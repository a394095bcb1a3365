"""`glidemq_rateLimit`: a fixed window for the whole queue."""

from __future__ import annotations

import pytest

from tests.lua.wire import NOW, Wire


def ask(wire: Wire, at: int, limit: int = 2, window: int = 5000) -> int:
    return int(wire.call("rateLimit", max=limit, windowMs=window, now=NOW + at))


def test_a_window_allows_max_calls_then_says_how_long_to_wait(wire: Wire) -> None:
    assert [ask(wire, at) for at in (0, 10, 1000, 1000, 4999)] == [0, 0, 4000, 4000, 1]
    assert wire.hash("rate") == {"windowStart": str(NOW), "count": "2"}


@pytest.mark.parametrize(("at", "reply"), [(4999, 1), (5000, 0), (9000, 0)])
def test_the_next_window_starts_with_the_first_call_after_the_last(wire: Wire, at: int, reply: int) -> None:
    ask(wire, 0)
    ask(wire, 0)
    assert ask(wire, at) == reply
    if reply == 0:
        assert wire.hash("rate") == {"windowStart": str(NOW + at), "count": "1"}


@pytest.mark.parametrize("limit", [0, -1])
def test_the_settings_of_the_queue_count_when_the_caller_has_none(wire: Wire, limit: int) -> None:
    wire.ask("HSET", wire.key("meta"), "rateLimitMax", 1, "rateLimitDuration", 300)
    assert [ask(wire, at, limit, 9) for at in (0, 100, 300)] == [0, 200, 0]


def test_without_any_limit_everything_is_allowed_and_nothing_counted(wire: Wire) -> None:
    with wire.unchanged():
        assert [ask(wire, 0, 0, 0) for _ in range(3)] == [0, 0, 0]
