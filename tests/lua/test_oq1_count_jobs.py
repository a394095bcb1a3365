"""`oq1_countJobs`: what workers counted, added up by day."""

from __future__ import annotations

import pytest

from orchestration_queue.protocol.functions import oq1
from orchestration_queue.protocol.functions.oq1 import DayCount
from tests.lua.oq1 import Own
from tests.lua.wire import Wire

DAY = "2026-01-31"


@pytest.fixture
def own(wire: Wire) -> Own:
    return Own(wire)


def test_counts_add_up_and_expire(own: Own) -> None:
    call = oq1.count_jobs(own.keys, day=DAY, counts=[DayCount("run:n:a", "2"), DayCount("run:q:a", "0.25")])
    assert own.send(call) == own.send(call) == 2
    key = own.wire.key(f"statistics:{DAY}")
    assert own.wire.ask("HGET", key, "run:n:a") == "4"
    assert own.wire.ask("HGET", key, "run:q:a") == "0.5"
    assert 0 < int(own.wire.ask("TTL", key)) <= 30 * 86400


def test_fields_are_bounded(own: Own) -> None:
    for first in range(0, 12_000, 1000):
        counts = [DayCount(f"failed:{number}", "1") for number in range(first, first + 1000)]
        own.send(oq1.count_jobs(own.keys, day=DAY, counts=counts))
    assert own.wire.ask("HLEN", own.wire.key(f"statistics:{DAY}")) == 10_000
    assert own.send(oq1.count_jobs(own.keys, day=DAY, counts=[DayCount("failed:0", "1"), DayCount("new", "1")])) == 1


@pytest.mark.parametrize(
    ("day", "by", "answer"),
    [
        ("today", "1", "'today' is not a day"),
        ("2026-01-31:x", "1", "is not a day"),
        (DAY, "soon", "'soon' is not a number to add"),
        (DAY, "-1", "'-1' is not a number to add"),
        (DAY, "nan", "'nan' is not a number to add"),
        (DAY, "inf", "'inf' is not a number to add"),
    ],
)
def test_malformed_arguments_are_refused(own: Own, day: str, by: str, answer: str) -> None:
    own.refused("countJobs", [own.wire.key("stream")], [day, 2, "a", 1, "b", by], answer)
    assert own.wire.ask("EXISTS", own.wire.key(f"statistics:{day}")) == 0
