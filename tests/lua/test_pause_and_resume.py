"""`glidemq_pause` and `glidemq_resume`: a flag and an event."""

from __future__ import annotations

import pytest

from tests.lua.wire import Wire, event


@pytest.mark.parametrize(("function", "flag", "kind"), [("pause", "1", "paused"), ("resume", "0", "resumed")])
@pytest.mark.parametrize("before", [None, "0", "1"])
def test_sets_the_flag_and_says_so_whatever_it_was(
    wire: Wire, function: str, flag: str, kind: str, before: str | None
) -> None:
    wire.ask("HSET", wire.key("meta"), "globalConcurrency", 3)
    if before is not None:
        wire.ask("HSET", wire.key("meta"), "paused", before)
    assert wire.call(function) == 1
    assert wire.hash("meta") == {"globalConcurrency": "3", "paused": flag}
    assert wire.events() == [event(kind, 0)]
