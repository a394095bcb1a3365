"""`glidemq_tryLock`: one holder at a time, for a limited time."""

from __future__ import annotations

import pytest

from tests.lua.wire import Wire

LOCK = "schedulers:lock:__tick__"


def test_the_first_token_gets_the_lock_until_it_expires(wire: Wire) -> None:
    assert wire.call("tryLock", lock=LOCK, owner="a", ttlMs=60_000) == 1
    assert wire.get(LOCK) == "a"
    assert 50_000 < wire.ask("PTTL", wire.key(LOCK)) <= 60_000


@pytest.mark.parametrize("owner", ["a", "b"])
def test_a_held_lock_is_refused_even_to_its_holder(wire: Wire, owner: str) -> None:
    wire.call("tryLock", lock=LOCK, owner="a", ttlMs=60_000)
    assert wire.call("tryLock", lock=LOCK, owner=owner, ttlMs=10**9) == 0
    assert wire.get(LOCK) == "a"
    assert wire.ask("PTTL", wire.key(LOCK)) <= 60_000


@pytest.mark.parametrize("more", [[], [""], ["soon"]], ids=["omitted", "empty", "junk"])
def test_the_default_is_one_second(wire: Wire, more: list[str]) -> None:
    assert wire.fcall("tryLock", [wire.key(LOCK)], ["a", *more]) == 1
    assert 0 < wire.ask("PTTL", wire.key(LOCK)) <= 1000
