"""`glidemq_unlock`: only the holder releases the lock."""

from __future__ import annotations

import pytest

from tests.lua.wire import Wire


@pytest.mark.parametrize(("held", "reply"), [("mine", 1), ("theirs", 0), (None, 0)])
def test_only_the_own_token_is_deleted(wire: Wire, held: str | None, reply: int) -> None:
    if held is not None:
        wire.ask("SET", wire.key("lock"), held)
    assert wire.call("unlock", lock="lock", owner="mine") == reply
    assert wire.get("lock") == (None if reply else held)
