"""`oq1_renew`: leases are renewed for their holders alone."""

from __future__ import annotations

import pytest

from tests.lua.oq1 import Own
from tests.lua.wire import NOW, Wire

LATER = NOW + 5000


@pytest.fixture
def own(wire: Wire) -> Own:
    return Own(wire)


def test_a_held_lease_is_renewed(own: Own) -> None:
    job_id, _ = own.wire.active()
    before = own.wire.job(job_id)
    assert own.renew((job_id, NOW), now=LATER) == [1]
    assert own.wire.job(job_id) == before | {"lastActive": str(LATER)}


def test_a_revoked_job_is_renewed_and_said_to_be_revoked(own: Own) -> None:
    job_id, _ = own.wire.active()
    assert own.wire.call("revoke", jobId=job_id) == "flagged"
    assert own.renew((job_id, NOW), now=LATER) == [2]
    assert own.wire.job(job_id)["lastActive"] == str(LATER)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"state": "waiting", "processedOn": NOW},
        {"state": "active", "processedOn": NOW + 1},
        {"state": "active", "processedOn": NOW, "stalledCount": 1},
        {"state": "active"},
        {"state": "completed", "processedOn": NOW},
        {"state": "failed", "processedOn": NOW},
        {"state": "delayed", "processedOn": NOW},
        {"state": "suspended", "processedOn": NOW},
    ],
    ids=str,
)
def test_a_lost_lease_is_said_to_be_lost_and_nothing_is_written(own: Own, fields: dict[str, str | int]) -> None:
    if fields:
        own.wire.make_job("j", **fields)
    with own.wire.unchanged():
        assert own.renew(("j", NOW), now=LATER) == [0]


def test_many_leases_are_answered_in_order(own: Own) -> None:
    first, _ = own.wire.active()
    second, _ = own.wire.active()
    assert own.renew((first, NOW), ("gone", NOW), (second, NOW), (first, NOW + 1), now=LATER) == [1, 0, 1, 0]


def test_no_lease_is_no_work(own: Own) -> None:
    with own.wire.unchanged():
        assert own.renew() == []


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ([], "'now_ms' is not a whole number"),
        (["soon", 0], "'now_ms' is not a whole number"),
        (["1e3", 0], "'now_ms' is not a whole number"),
        (["-1", 0], "'now_ms' is not a whole number"),
        ([2**53 + 2, 0], "'now_ms' is not a whole number"),
        ([NOW, "many"], "'lease_count' is not a whole number"),
        ([NOW, 1, "j", NOW], "takes 1 keys and 5 arguments, not 1 and 4"),
        ([NOW, 0, "j", NOW, 0], "takes 1 keys and 2 arguments, not 1 and 5"),
        ([NOW, 1, "j", "then", 0], "'taken_ms' is not a whole number"),
        ([NOW, 1, "j", NOW, "none"], "'stalled_count' is not a whole number"),
    ],
)
def test_malformed_arguments_are_refused_by_a_code_word(own: Own, args: list[str | int], why: str) -> None:
    own.wire.active()
    own.refused("renew", [own.wire.key("stream")], args, why)


def test_another_key_than_the_stream_is_refused(own: Own) -> None:
    own.refused("renew", [own.wire.key("events")], [NOW, 0], "does not end in ':stream'")
    own.refused("renew", [], [NOW, 0], "takes 1 keys and 2 arguments, not 0 and 2")
