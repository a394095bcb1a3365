"""`glidemq_checkBudget`: may a job of this flow still run."""

from __future__ import annotations

import pytest

from tests.lua.wire import Wire


@pytest.mark.parametrize(
    ("fields", "reply"),
    [
        (None, "no_budget"),
        ({"exceeded": "0"}, "ok"),
        ({"exceeded": "1"}, "exceeded"),
        ({"usedTokens": "999", "maxTotalTokens": "1"}, "ok"),
    ],
)
def test_only_the_flag_counts(wire: Wire, fields: dict[str, str] | None, reply: str) -> None:
    if fields is not None:
        wire.set_fields("budget:f", **fields)
    with wire.unchanged():
        assert wire.call("checkBudget", flowId="f") == reply
