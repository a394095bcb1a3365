"""`glidemq_renewLock`: only the holder stays."""

from __future__ import annotations

import pytest

from tests.lua.wire import Wire


@pytest.mark.parametrize(("held", "reply"), [("mine", 1), ("theirs", 0), (None, 0)])
def test_only_the_own_token_is_prolonged(wire: Wire, held: str | None, reply: int) -> None:
    if held is not None:
        wire.ask("SET", wire.key("lock"), held, "PX", 60_000)
    assert wire.call("renewLock", lock="lock", owner="mine", ttlMs=10**9) == reply
    assert wire.get("lock") == held
    assert (wire.ask("PTTL", wire.key("lock")) > 60_000) == bool(reply)


@pytest.mark.parametrize("more", [[], [""], ["soon"]], ids=["omitted", "empty", "junk"])
def test_the_default_is_one_second(wire: Wire, more: list[str]) -> None:
    wire.ask("SET", wire.key("lock"), "mine", "PX", 60_000)
    assert wire.fcall("renewLock", [wire.key("lock")], ["mine", *more]) == 1
    assert 0 < wire.ask("PTTL", wire.key("lock")) <= 1000
