"""`glidemq_nextDue`: when there is something to promote."""

from __future__ import annotations

import pytest

from tests.lua.wire import NOW, Wire, Word


@pytest.mark.parametrize(
    ("jobs", "limited", "reply"),
    [
        ([], {}, -1),
        ([{"delay": 700}], {}, NOW + 700),
        ([{"delay": 700}, {"delay": 300}], {}, NOW + 300),
        ([{"delay": 700, "priority": 4}], {}, NOW + 700),
        ([{"priority": 4}], {}, 0),
        ([], {"k": NOW + 40, "l": NOW + 90}, NOW + 40),
        ([{"delay": 700}], {"k": NOW + 40}, NOW + 40),
        ([{"delay": 30}], {"k": NOW + 40}, NOW + 30),
    ],
)
def test_the_earliest_of_scheduled_jobs_and_limited_groups(
    wire: Wire, jobs: list[dict[str, Word]], limited: dict[str, int], reply: int
) -> None:
    for values in jobs:
        wire.add(**values)
    for group, at in limited.items():
        wire.ask("ZADD", wire.key("ratelimited"), at, group)
    with wire.unchanged():
        assert wire.call("nextDue") == reply
