"""`glidemq_healListActive`: the counter of active list jobs, set right."""

from __future__ import annotations

import pytest

from tests.lua.wire import Wire


@pytest.mark.parametrize(
    ("counter", "drift", "healed"),
    [(None, 0, None), (0, 0, "0"), (-3, 0, "-3"), (2, 0, "2"), (5, 3, "2")],
)
@pytest.mark.parametrize("hand_made", [False, True])
def test_lowers_a_counter_that_is_too_high(
    wire: Wire, hand_made: bool, counter: int | None, drift: int, healed: str | None
) -> None:
    for values in ({"lifo": 1}, {"priority": 3}):
        if hand_made:
            wire.make_job(f"j-{next(iter(values))}", state="active", **values)
        else:
            wire.active(**values)
    wire.make_job("stream-job", state="active", priority=0)
    wire.make_job("waiting", state="waiting", lifo=1)
    if counter is None:
        wire.ask("DEL", wire.key("list-active"))
    else:
        wire.ask("SET", wire.key("list-active"), counter)
    assert wire.call("healListActive") == drift
    if counter is None or counter > 0:
        assert wire.get("list-active") == healed
    else:
        assert int(wire.get("list-active") or 0) in (counter, 0)


def test_says_how_much_a_counter_is_too_low(wire: Wire) -> None:
    for _ in range(3):
        wire.active(lifo=1)
    wire.ask("SET", wire.key("list-active"), 1)
    assert wire.call("healListActive") == -2
    assert wire.get("list-active") in ("1", "3")
